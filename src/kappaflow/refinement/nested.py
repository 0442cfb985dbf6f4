"""The posterior of the outer coordinates, coefficients integrated out about where they are likeliest, on an emulator.

For every set of parameters the coefficients are brought to their maximum by a few Gauss-Newton steps, and the integral
over them is that of the normal density there: held at one place the expansion would miss by many times the noise,
because the coefficients move as far as their priors over one posterior.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kappaflow.refinement.emulator import Emulator
from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.outer import Completed, Outer

__all__ = ["Nested"]

STEPS = 3  # of Gauss and Newton
LARGEST = 2.0  # of such a step in any coefficient


class _Inner(NamedTuple):
    """Coefficients given the outer coordinates: normal; and the spectra about which they were integrated out."""

    mean: np.ndarray  # (b, k)
    precision: np.ndarray  # (b, k, k)
    value: np.ndarray  # (b,), ln of the integral
    made: np.ndarray  # (b, r), spectra
    slopes: np.ndarray  # (b, smooth, r), their derivatives, of brightness 1
    left: np.ndarray  # (b, r), residuals at the mean


class Nested:
    """Ln density of the outer coordinates, the structure held.

    Priors are normalized but for that of the smooth parameters, exp(-u^2/2); the data's constant is `Joint`'s.

    Parameters
    ----------
    joint : the density of all
    emulator : of its spectra
    z : (size,), the mode
    covariance : (size, size) about it: where the coefficients are first looked for
    """

    def __init__(self, joint: Joint, emulator: Emulator, z: np.ndarray, covariance: np.ndarray) -> None:
        self.outer = Outer(joint)
        self.emulator, self.mode = emulator, z
        both, k = self.outer.covariance(z, covariance), self.outer.size
        self.follow = np.linalg.solve(both[:k, :k], both[:k, k:])
        self.centre = self.outer.of(z[None])[0]

    def __call__(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ln density (b,) and its gradient (b, outer), but for that of the determinant."""
        value, gradient, _ = self._expanded(w)
        return value, gradient

    def _expanded(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, _Inner]:
        n = self.outer.smooth.size
        bright, sign = self.outer.brightness(w, self.emulator.detector)
        c = self.mode[self.outer.field] + (w - self.centre) @ self.follow
        for _ in range(STEPS - 1):
            mean = self._inner(w, c, bright).mean
            most = np.abs(mean - c).max(axis=1, keepdims=True, initial=1e-9)
            c = c + (mean - c) * np.minimum(1.0, LARGEST / most)
        inner = self._inner(w, c, bright)
        prior, gradient = self.outer.prior(w)
        value = prior + inner.value - 0.5 * self.emulator.outside
        gradient[:, :n] += np.einsum("bdr,br->bd", inner.slopes, bright * inner.left)
        if self.outer.bright:
            gradient[:, -2] += (inner.made * inner.left).sum(axis=1)
            gradient[:, -1] += (inner.made * inner.left) @ sign
        return value, gradient, inner

    def _inner(self, w: np.ndarray, c: np.ndarray, bright: np.ndarray) -> _Inner:
        """Integrate the coefficients out, the spectra linear in them about `c` (b, k)."""
        n = self.outer.smooth.size
        made, slopes = self.emulator(np.concatenate([w[:, :n], c], axis=1))
        made, basis = bright * made, bright[:, None] * slopes[:, n:]
        # Data minus the model at zero coefficients, to first order.
        total = self.emulator.data - made + np.einsum("bk,bkr->br", c, basis)
        precision = np.matmul(basis, np.swapaxes(basis, 1, 2)) + np.eye(basis.shape[1])
        right = np.einsum("bkr,br->bk", basis, total)
        mean = np.linalg.solve(precision, right[..., None])[..., 0]
        chi2 = (total**2).sum(axis=1) - (right * mean).sum(axis=1)
        value = -0.5 * (chi2 + np.linalg.slogdet(precision)[1])
        return _Inner(mean, precision, value, made, slopes[:, :n], total - np.einsum("bk,bkr->br", mean, basis))

    def draw(self, w: np.ndarray, rng: np.random.Generator) -> tuple[Completed, np.ndarray]:
        """Draw all the rest for each of `w` (b, outer), and ln density of what was drawn, but for what is completed.

        Constants (2 pi)^(k/2) of the coefficients are left out, as in their prior.
        """
        value, _, inner = self._expanded(w)
        normal = rng.standard_normal(inner.mean.shape)
        root = np.linalg.cholesky(np.linalg.inv(inner.precision))
        z = np.tile(self.mode, (len(w), 1))
        z[:, self.outer.field] = inner.mean + np.einsum("bij,bj->bi", root, normal)
        ln_density = value - 0.5 * (normal**2).sum(axis=1) + 0.5 * np.linalg.slogdet(inner.precision)[1]
        return self.outer.complete(w, z, rng), ln_density
