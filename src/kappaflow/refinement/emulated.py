"""The posterior of parameters and coefficients together, on an emulator: what chains walk on.

Coefficients are walked, not integrated out: over one posterior they move as far as their priors, which no expansion
about one place survives, and a step of all of them costs less than one integral over them. They are the warped ones of
`warp.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kappaflow.refinement.emulator import Emulator
from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.outer import Completed, Outer

__all__ = ["EmulatedDensity", "Fence"]

SOFT = 0.5  # of the standard deviation of D: how its prior is blurred in the gradient


class Fence(NamedTuple):
    """A soft wall about where the posterior has been seen: far out an emulator can invent modes.

    What lies outside is not lost: it is drawn more seldom, and weighs more.
    """

    centre: np.ndarray  # (k,)
    back: np.ndarray  # (k, k): back @ (w - centre) has unit covariance
    radius: float

    def __call__(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ln factor (b,) and its gradient (b, k)."""
        x = (w - self.centre) @ self.back.T
        far = np.sqrt((x**2).sum(axis=1))
        over = np.maximum(far - self.radius, 0.0)
        return -0.5 * over**2, -((over / np.maximum(far, 1e-9))[:, None] * x) @ self.back


class EmulatedDensity:
    """Ln density of v = (w, warped coefficients), w the outer coordinates, the structure held.

    Priors are normalized but for those of the smooth parameters and the coefficients, exp(-u^2/2); the data's constant
    is `Joint`'s.

    Parameters
    ----------
    joint : the density of all
    emulator : of its spectra
    z : (size,), the mode
    covariance : (size, size) about it
    fence : beyond which the emulator is not believed, of w
    """

    def __init__(
        self, joint: Joint, emulator: Emulator, z: np.ndarray, covariance: np.ndarray, fence: Fence | None = None
    ) -> None:
        self.outer = Outer(joint)
        self.emulator, self.mode, self.covariance, self.fence = emulator, z, covariance, fence
        place = self.outer.size - 1
        spread = self.outer.covariance(z, covariance)[place, place]
        self.soft = SOFT * float(np.sqrt(spread)) if self.outer.bright else 0.0

    def of(self, z: np.ndarray) -> np.ndarray:
        """Return v (b, outer + coefficients) of z (b, size)."""
        warp = self.emulator.warp
        return np.concatenate([self.outer.of(z), warp.warped(z[:, self.outer.inputs])[:, warp.count :]], axis=1)

    def __call__(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ln density (b,) and its gradient (b, outer + coefficients)."""
        n, k, warp = self.outer.smooth.size, self.outer.size, self.emulator.warp
        w, inputs = v[:, :k], self._inputs(v)
        bent = warp.bent(inputs)
        c = inputs[:, n:] - bent @ warp.mimic.T
        bright, sign = self.outer.brightness(w, self.emulator.detector)
        made, pulled = self.emulator(inputs, bent)
        left = self.emulator.data - bright * made
        prior, of_outer = self.outer.prior(w, self.soft)
        if self.fence is not None:
            factor, push = self.fence(w)
            prior, of_outer = prior + factor, of_outer + push
        value = prior - 0.5 * ((c**2).sum(axis=1) + (left**2).sum(axis=1) + self.emulator.outside)
        of_inputs, of_bent = pulled(bright * left)
        of_inputs = of_inputs + warp.pulled(inputs, of_bent + c @ warp.mimic)
        of_outer[:, :n] += of_inputs[:, :n]
        if self.outer.bright:
            moved = bright * made * left
            of_outer[:, -2] += moved.sum(axis=1)
            of_outer[:, -1] += moved @ sign
        return value, np.concatenate([of_outer, of_inputs[:, n:] - c], axis=1)

    def complete(self, v: np.ndarray, rng: np.random.Generator) -> Completed:
        """Draw radius, gains and sigma_cal for each of `v` (b, outer + coefficients); the structure is the mode's."""
        z = np.tile(self.mode, (len(v), 1))
        z[:, self.outer.field] = self.emulator.warp.plain(self._inputs(v))[:, self.outer.smooth.size :]
        return self.outer.complete(v[:, : self.outer.size], z, rng)

    def _inputs(self, v: np.ndarray) -> np.ndarray:
        """Warped inputs (b, inputs) of v."""
        return np.concatenate([v[:, : self.outer.smooth.size], v[:, self.outer.size :]], axis=1)
