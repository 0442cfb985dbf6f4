"""What long chains walk on: the exact density of everything, or that with the coefficients integrated out.

Both give ln density and a force at one place. The forward model is asked for all its derivatives at once, which costs
about two spectra (`physics/sensitivity.py`), and less than XLA's reverse mode takes for one product with them
(docs/reference.md).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from kappaflow.refinement.best_fit import Mode
from kappaflow.refinement.brightness import Brightness, Straightened
from kappaflow.refinement.likelihood import ListedModel, marginal_log_likelihood, score

__all__ = ["Density", "Everything", "Integrated"]

STEPS = 3  # expansions about the likeliest coefficients, each a Gauss-Newton step after the one before
LARGEST = 2.0  # of such a step in any coefficient
NOWHERE = -np.inf


class Density(Protocol):
    """A density in the coordinates w of one mode."""

    centre: np.ndarray  # (k,), the mode
    covariance: np.ndarray  # (k, k), Laplace's
    compiled: bool  # has it a program of XLA inside?

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Ln density and force (k,) at w (k,)."""
        ...

    def whole(self, w: np.ndarray) -> np.ndarray:
        """Return z (size,) of w (k,); what is integrated out is at its prior's middle."""
        ...


class Everything:
    """Parameters, structure, coefficients (where they are free), gains and scale: nothing integrated, all exact."""

    def __init__(self, mode: Mode) -> None:
        here = mode.climb.here
        assert here is not None
        self.joint, self.map = mode.joint, Brightness(mode.joint.coordinates)
        self.compiled = isinstance(mode.joint.predictor, ListedModel)
        self.centre = self.map.of(here.z)
        self.covariance = np.linalg.inv(self.map.precision(here.z, here.information))

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Ln density and its gradient (k,) at w (k,)."""
        at = self.map.back(w)
        if at is None:
            return NOWHERE, np.zeros(w.size)
        (here,) = self.joint.expand(at.z[None], settle=False)
        return here.value + at.ln_volume, at.turn.T @ here.gradient + at.d_ln_volume

    def whole(self, w: np.ndarray) -> np.ndarray:
        """Return z of w."""
        at = self.map.back(w)
        assert at is not None
        return at.z


class _Expanded(NamedTuple):
    """The model to first order in its coefficients."""

    residual: np.ndarray  # (n,), of no coefficients
    basis: np.ndarray  # (k, n), of the coefficients
    variance: np.ndarray  # (n,)
    d_mean: np.ndarray  # (size, n)
    d_ln_variance: np.ndarray  # (size, n)
    precision: np.ndarray  # (k, k), of the coefficients
    best: np.ndarray  # (k,), coefficients


class Integrated:
    """The same with the coefficients integrated out to first order about where they are likeliest at each place.

    There the integral is that of a normal density (`marginal_log_likelihood`). The force leaves out how the
    derivatives by the coefficients change with the parameters, for which second derivatives would be needed: any
    function of the place is a valid force, since what is accepted is decided by the density.
    """

    def __init__(self, mode: Mode, steps: int = STEPS) -> None:
        here = mode.climb.here
        assert here is not None
        self.joint, self.map, self.steps = mode.joint, Brightness(mode.joint.coordinates), steps
        self.compiled = isinstance(mode.joint.predictor, ListedModel)
        c = self.joint.coordinates
        self.field = np.arange(c.size)[c.places["field"]]
        self.kept = np.setdiff1d(np.arange(c.size), self.field)
        self.mode = self.map.of(here.z)
        whole = np.linalg.inv(self.map.precision(here.z, here.information))
        self.centre = self.mode[self.kept]
        self.covariance = whole[np.ix_(self.kept, self.kept)]
        self.follow = np.linalg.solve(self.covariance, whole[np.ix_(self.kept, self.field)])

    def _filled(self, w: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        whole = np.empty(self.mode.size)
        whole[self.kept], whole[self.field] = w, coefficients
        return whole

    def whole(self, w: np.ndarray) -> np.ndarray:
        """Return z of w (k,), coefficients at 0."""
        at = self.map.back(self._filled(w, np.zeros(self.field.size)))
        assert at is not None
        return at.z

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Ln density and force (k,) at w (k,)."""
        c = self.mode[self.field] + (w - self.centre) @ self.follow
        at = self.map.back(self._filled(w, c))
        if at is None:
            return NOWHERE, np.zeros(w.size)
        made = self._about(at.z, c)
        for _ in range(self.steps - 1):
            shift = made.best - c
            c = c + shift * min(1.0, LARGEST / max(np.abs(shift).max(initial=0.0), 1e-9))
            made = self._about(at.z, c)
        prior = self.joint.coordinates.precision
        value = float(marginal_log_likelihood(made.residual, made.basis, made.variance)) + at.ln_volume
        value -= 0.5 * float((prior[self.kept] * at.z[self.kept] ** 2).sum())
        # What the coefficients' spread adds to the square of every pixel's residual.
        spread = (made.basis * np.linalg.solve(made.precision, made.basis)).sum(axis=0)
        rest = made.residual - made.best @ made.basis
        force = score(made.d_mean, made.d_ln_variance, rest, rest**2 + spread, made.variance) - prior * at.z
        return value, self._force(at, force, spread / made.variance)

    def _about(self, z: np.ndarray, c: np.ndarray) -> _Expanded:
        """Expand about the coefficients `c` (k,), which are put into `z`, and find the best to first order."""
        joint = self.joint
        z[self.field] = c
        point = joint.coordinates.point(z)
        made = joint.predictor.derivatives(point.theta[None], point.field[None])
        seen = [a[0][..., joint.data.good] * np.exp(point.ln_scale) for a in made]
        mean, variance, d_mean, d_ln_variance = joint.slopes(point, *seen)
        basis = d_mean[self.field]
        white = basis / np.sqrt(variance)
        precision = white @ white.T + np.eye(c.size)
        residual = joint.data.flux - mean + c @ basis
        best = np.linalg.solve(precision, white @ (residual / np.sqrt(variance)))
        return _Expanded(residual, basis, variance, d_mean, d_ln_variance, precision, best)

    def _force(self, at: Straightened, force: np.ndarray, share: np.ndarray) -> np.ndarray:
        """Force by the kept coordinates; brighter spectra move more with their coefficients: `share` (n,) of it."""
        by_w = at.turn.T @ force + at.d_ln_volume
        if self.map.straight:
            by_w[self.map.level] -= share.sum()
            by_w[self.map.difference] -= (share * (0.5 - self.joint.data.detector)).sum()
        return by_w[self.kept]
