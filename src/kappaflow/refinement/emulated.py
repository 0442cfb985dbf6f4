"""The posterior of parameters and coefficients together, on an emulator: what chains walk on.

Coefficients are walked, not integrated out: over one posterior they move as far as their priors, which no expansion
about one place survives, and a step of all of them costs less than one integral over them. They are the warped ones of
`warp.py`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from kappaflow.refinement.emulator import Emulator
from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.outer import Completed, Outer

__all__ = ["EmulatedDensity"]

TINY = 1e-9  # share of the structure's prior beyond which it is outside
SOFT = 0.5  # of the standard deviation of D: how its prior is blurred in the gradient


class EmulatedDensity:
    """Ln density of v = (w, structure, warped coefficients), w the outer coordinates.

    Priors are normalized but for those of smooth parameters, structure and coefficients, exp(-u^2/2); the data's
    constant is `Joint`'s. The structure is a share of the flux with the mean of its gains: of the radius alone nothing
    is known.

    Parameters
    ----------
    joint : the density of all
    emulator : of its spectra
    z : (size,), the mode
    covariance : (size, size) about it
    """

    def __init__(self, joint: Joint, emulator: Emulator, z: np.ndarray, covariance: np.ndarray) -> None:
        self.outer, self.joint = Outer(joint), joint
        self.emulator, self.mode, self.covariance = emulator, z, covariance
        place = self.outer.size - 1
        spread = self.outer.covariance(z, covariance)[place, place]
        self.soft = SOFT * float(np.sqrt(spread)) if self.outer.bright else 0.0
        white = emulator.warp.white
        self.precision = emulator.first.dtype
        self.data = (joint.data.flux * white).astype(self.precision)
        self.variance = ((joint.data.error * white) ** 2).astype(self.precision)
        self.constant = float(np.log(white).sum())

    def of(self, z: np.ndarray) -> np.ndarray:
        """Return v of z (b, size)."""
        warp = self.emulator.warp
        warped = warp.warped(z[:, self.outer.inputs])[:, warp.count :]
        return np.concatenate([self.outer.of(z), z[:, self.outer.structure], warped], axis=1)

    def __call__(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ln density (b,) and its gradient, of v (b, k)."""
        outer, n, k = self.outer, self.outer.smooth.size, self.outer.size
        w, u = v[:, :k], v[:, k : k + outer.structure.size]
        inputs, made, pulled = self.emulator(self._warped(v))
        c = inputs[:, n:]
        bright, sign = (a.astype(self.precision) for a in outer.brightness(w, self.joint.data.detector))
        f, ln_f_slope = self.joint.coordinates.structures(u)
        level = np.exp(w[:, -2:-1]) if outer.bright else np.ones((len(v), 1))
        share = (f[:, None] * level).astype(self.precision)
        mean, noise = bright * made, share * made
        left, variance = self.data - mean, self.variance + noise**2
        pull = left / variance
        prior, of_outer = outer.prior(w, self.soft)
        value = prior - 0.5 * ((c**2).sum(axis=1) + (u**2).sum(axis=1)) + self.constant
        value = value - 0.5 * (left * pull + np.log(variance)).sum(axis=1, dtype=float)
        wider = (left * pull - 1) / variance * noise  # by the structure's standard deviation
        of_inputs = pulled(np.pad(-c, ((0, 0), (n, 0))), bright * pull + wider * share)
        of_outer[:, :n] += of_inputs[:, :n]
        if outer.bright:
            of_outer[:, -2] += (mean * pull + wider * noise).sum(axis=1)
            of_outer[:, -1] += (mean * pull) @ sign
        of_structure = ((wider * noise).sum(axis=1) * ln_f_slope)[:, None] - u if u.size else u
        return value, np.concatenate([of_outer, of_structure, of_inputs[:, n:]], axis=1)

    def information(self, v: np.ndarray) -> np.ndarray:
        """Fisher's information (b, k, k) of the data at `v` (b, k), and the priors'."""
        outer, n, k = self.outer, self.outer.smooth.size, self.outer.size
        w, u = v[:, :k], v[:, k : k + outer.structure.size]
        made, by_inputs, turn = self.emulator.slopes(self._warped(v))
        bright, sign = outer.brightness(w, self.joint.data.detector)
        f, ln_f_slope = self.joint.coordinates.structures(u)
        level = np.exp(w[:, -2:-1]) if outer.bright else 1.0
        share = f[:, None] * level
        variance = self.variance + (share * made) ** 2
        inputs = np.concatenate([np.arange(n), np.arange(k + u.shape[1], v.shape[1])])
        slope = np.zeros((*v.shape, made.shape[1]))  # of what is made, brightness apart
        slope[:, inputs] = by_inputs
        if outer.bright:
            slope[:, k - 2], slope[:, k - 1] = made, made * sign
        white = slope * (bright / np.sqrt(variance))[:, None]
        if outer.bright:
            slope[:, k - 1] = 0.0  # the structure's level is the mean of both
        slope[:, k : k + u.shape[1]] = (made * ln_f_slope[:, None])[:, None]
        wider = slope * (np.sqrt(2.0) * share**2 * made / variance)[:, None]
        prior = np.zeros((*v.shape, v.shape[1]))
        spot = np.arange(k + u.shape[1])
        prior[:, spot, spot] = np.concatenate([outer.prior_information(w, self.soft), np.ones_like(u)], axis=1)
        prior[:, inputs[:, None], inputs] += turn[:, :, n:] @ np.swapaxes(turn[:, :, n:], 1, 2)
        return white @ np.swapaxes(white, 1, 2) + wider @ np.swapaxes(wider, 1, 2) + prior

    def complete(self, v: np.ndarray, rng: np.random.Generator) -> Completed:
        """Draw radius, gains and sigma_cal for each of `v` (b, k); the structure follows the radius.

        What the data know is the structure's share of the flux with its gains, to a per cent or two.
        """
        outer, c = self.outer, self.joint.coordinates
        z = np.tile(self.mode, (len(v), 1))
        z[:, outer.field] = self.emulator.warp.plain(self._warped(v))[:, outer.smooth.size :]
        drawn = outer.complete(v[:, : outer.size], z, rng)
        if not c.structure:
            return drawn
        u = v[:, outer.size : outer.size + 1]
        f, slope = c.structures(u)
        level = v[:, outer.size - 2] - np.log(outer.factor(drawn.z)) if outer.bright else 0.0
        bottom, top = c.structure_bounds
        unit = (np.log10(f) + level / np.log(10.0) - bottom) / (top - bottom)
        moved = ndtri(np.clip(unit, TINY, 1 - TINY))
        drawn.z[:, outer.structure[0]] = moved
        odds = np.log(slope / c.structures(moved[:, None])[1])
        return drawn._replace(ln_odds=np.where((unit > TINY) & (unit < 1 - TINY), drawn.ln_odds + odds, -np.inf))

    def _warped(self, v: np.ndarray) -> np.ndarray:
        """Warped inputs (b, inputs) of v."""
        after = self.outer.size + self.outer.structure.size
        return np.concatenate([v[:, : self.outer.smooth.size], v[:, after:]], axis=1)
