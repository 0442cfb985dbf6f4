"""Exact weights of draws: the forward model with coefficients and gains as drawn, the structure integrated out."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.outer import Completed, Outer

__all__ = ["Exact", "Judged", "Weights", "smoothed"]

WIDE, NEAR = 24, 25  # nodes of the structure over its prior, and about the mode
REACH = 5.0  # standard deviations about it


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # too few draws in the tail: k is then infinite
        found, k = arviz.psislw(ln.copy())
    found = np.asarray(found) - np.logaddexp.reduce(found)
    return Weights(found, float(np.logaddexp.reduce(ln) - np.log(ln.size)), float(k))


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


class Exact:
    """The exact density of draws; the structure is summed over nodes.

    Some of the nodes lie over its prior, others about the mode, where the data often know it to a few per cent.
    """

    def __init__(self, joint: Joint, z: np.ndarray, covariance: np.ndarray) -> None:
        self.joint, self.outer = joint, Outer(joint)
        c = joint.coordinates
        self.u, self.ln_u, self.f = np.zeros(1), np.zeros(1), np.array([c.f])
        if c.structure:
            place = c.places["structure"].start
            near = z[place] + REACH * np.sqrt(covariance[place, place]) * np.linspace(-1, 1, NEAR)
            self.u = np.unique(np.concatenate([np.linspace(-4, 4, WIDE), np.clip(near, -6, 6)]))
            self.ln_u = np.log(np.gradient(self.u)) - 0.5 * self.u**2 - 0.5 * np.log(2 * np.pi)
            rows = np.tile(z, (self.u.size, 1))
            rows[:, place] = self.u
            self.f = np.array([c.point(row).f for row in rows])

    def judge(self, drawn: Completed, ln_drawn: np.ndarray, rng: np.random.Generator) -> Judged:
        """Weigh draws whose ln density was `ln_drawn` (b,), but for what was completed; give each a structure.

        That is drawn from its distribution given all else.
        """
        c, z = self.joint.coordinates, drawn.z
        flux = self.joint.fluxes([c.point(row) for row in z])
        per_node = np.stack([self._per_node(*row) for row in zip(flux, drawn.gains, strict=True)])
        prior = -0.5 * (z[:, self.outer.inputs] ** 2).sum(axis=1) + drawn.ln_odds
        value = np.logaddexp.reduce(per_node, axis=1) + prior
        if c.structure:
            share = np.cumsum(np.exp(per_node - np.logaddexp.reduce(per_node, axis=1, keepdims=True)), axis=1)
            node = (rng.random((len(z), 1)) > share).sum(axis=1).clip(0, self.u.size - 1)
            z = z.copy()
            z[:, c.places["structure"].start] = (
                self.u[node] + rng.uniform(-0.5, 0.5, len(z)) * np.gradient(self.u)[node]
            )
        return Judged(z, flux, value - ln_drawn)

    def _per_node(self, flux: np.ndarray, gains: np.ndarray) -> np.ndarray:
        """Ln likelihood (m,) of one spectrum with its gains, per node of the structure."""
        data = self.joint.data
        residual = data.flux - flux * (1 + gains[data.detector])
        variance = data.error**2 + (self.f[:, None] * flux) ** 2
        return self.ln_u - 0.5 * (residual**2 / variance + np.log(variance)).sum(axis=1)
