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

__all__ = ["Fence", "Nested"]

STEPS = 3  # of Gauss and Newton
LARGEST = 2.0  # of such a step in any coefficient
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


class _Inner(NamedTuple):
    """Coefficients given the outer coordinates: normal; and the spectra about which they were integrated out."""

    mean: np.ndarray  # (b, k)
    precision: np.ndarray  # (b, k, k)
    value: np.ndarray  # (b,), ln of the integral
    made: np.ndarray  # (b, r), spectra
    slopes: np.ndarray  # (b, smooth, r), their derivatives, of brightness 1
    left: np.ndarray  # (b, r), residuals at the mean
    basis: np.ndarray  # (b, k, r), derivatives with respect to the coefficients


class Nested:
    """Ln density of the outer coordinates, the structure held.

    Priors are normalized but for that of the smooth parameters, exp(-u^2/2); the data's constant is `Joint`'s.

    Parameters
    ----------
    joint : the density of all
    emulator : of its spectra
    z : (size,), the mode
    covariance : (size, size) about it: where the coefficients are first looked for
    fence : beyond which the emulator is not believed
    """

    def __init__(
        self, joint: Joint, emulator: Emulator, z: np.ndarray, covariance: np.ndarray, fence: Fence | None = None
    ) -> None:
        self.outer = Outer(joint)
        self.emulator, self.mode, self.covariance, self.fence = emulator, z, covariance, fence
        both, k = self.outer.covariance(z, covariance), self.outer.size
        self.follow = np.linalg.solve(both[:k, :k], both[:k, k:])
        self.centre = self.outer.of(z[None])[0]
        self.soft = SOFT * float(np.sqrt(both[k - 1, k - 1])) if self.outer.bright else 0.0

    def __call__(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ln density (b,) and its gradient (b, outer)."""
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
        prior, gradient = self.outer.prior(w, self.soft)
        if self.fence is not None:
            factor, push = self.fence(w)
            prior, gradient = prior + factor, gradient + push
        value = prior + inner.value - 0.5 * self.emulator.outside
        gradient[:, :n] += np.einsum("bdr,br->bd", inner.slopes, bright * inner.left)
        if self.outer.bright:
            gradient[:, -2] += (inner.made * inner.left).sum(axis=1)
            gradient[:, -1] += (inner.made * inner.left) @ sign
        return value, gradient + self._of_determinant(w, c, bright, sign, inner), inner

    def _of_determinant(
        self, w: np.ndarray, c: np.ndarray, bright: np.ndarray, sign: np.ndarray, inner: _Inner
    ) -> np.ndarray:
        """Gradient (b, outer) of -1/2 ln det of the coefficients' precision P: - sum P^-1 B dB."""
        n = self.outer.smooth.size
        weight = -np.linalg.solve(inner.precision, inner.basis)  # (b, k, r)
        whole = np.zeros((len(w), n + c.shape[1], bright.shape[1]))
        whole[:, n:] = weight * bright[:, None]
        bent = self.emulator.bending(np.concatenate([w[:, :n], c], axis=1), whole)
        # Coefficients follow the outer coordinates, and move the determinant on their way.
        out = bent[:, n:] @ self.follow.T
        out[:, :n] += bent[:, :n]
        if self.outer.bright:
            each = (weight * inner.basis).sum(axis=1)  # (b, r)
            out[:, -2] += each.sum(axis=1)
            out[:, -1] += each @ sign
        return out

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
        left = total - np.einsum("bk,bkr->br", mean, basis)
        return _Inner(mean, precision, value, made, slopes[:, :n], left, basis)

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
