"""Exact weights of draws: what the forward model says of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from kappaflow.refinement.likelihood import Joint, log_likelihood
from kappaflow.refinement.outer import Completed, Outer

__all__ = ["Judged", "Weights", "judge", "smoothed"]

ALIKE = 0.02  # nats that the largest weight may be above their mean: a tail of equal weights has no shape


@dataclass(frozen=True, eq=False)
class Weights:
    """Pareto-smoothed importance weights."""

    ln: np.ndarray  # (n,), normalized
    ln_mean: float  # of the raw weights
    pareto_k: float

    @property
    def ess(self) -> float:
        """Effective sample size."""
        return float(np.exp(-np.logaddexp.reduce(2 * self.ln)))


def smoothed(ln: np.ndarray) -> Weights:
    """Smooth raw ln weights (n,) (Vehtari et al. 2024)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # arviz announces its next version once a day
        import arviz

    ln = np.where(np.isfinite(ln), ln, np.nanmin(ln[np.isfinite(ln)], initial=0.0) - 1e3)
    ln_mean = float(np.logaddexp.reduce(ln) - np.log(ln.size))
    if ln.max() < ln_mean + ALIKE:
        return Weights(ln - ln_mean - np.log(ln.size), ln_mean, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # too few draws in the tail: k is then infinite
        found, k = arviz.psislw(ln.copy())
    found = np.asarray(found) - np.logaddexp.reduce(found)
    return Weights(found, ln_mean, float(k))


@dataclass(frozen=True, eq=False)
class Judged:
    """Draws with their exact density: what the forward model says of them."""

    z: np.ndarray  # (b, size)
    flux: np.ndarray  # (b, n), noise-free, on the good pixels
    ln_weight: np.ndarray  # (b,)

    @staticmethod
    def joined(parts: list[Judged]) -> Judged:
        """Concatenate."""
        columns = zip(*((p.z, p.flux, p.ln_weight) for p in parts), strict=True)
        return Judged(*(np.concatenate(column) for column in columns))


def judge(joint: Joint, drawn: Completed, ln_drawn: np.ndarray) -> Judged:
    """Weigh draws whose ln density was `ln_drawn` (b,), but for what was completed."""
    outer, c, z = Outer(joint), joint.coordinates, drawn.z
    points = [c.point(row) for row in z]
    flux = joint.fluxes(points)
    variance = np.stack([joint.variance(point, row) for point, row in zip(points, flux, strict=True)])
    residual = joint.data.flux - flux * (1 + drawn.gains[:, joint.data.detector])
    kept = np.concatenate([outer.inputs, outer.structure])
    prior = -0.5 * (z[:, kept] ** 2).sum(axis=1) + drawn.ln_odds
    return Judged(z, flux, log_likelihood(residual, variance) + prior - ln_drawn)
