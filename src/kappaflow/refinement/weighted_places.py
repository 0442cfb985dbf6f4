"""Weighted places of a density: adaptive importance sampling with Student's t.

With brightness and coefficients integrated out and parameters in probit coordinates a posterior is round enough for a
single t density with its moments: a tenth to a fifth of what that proposes counts, at a thousandth of a second each,
and places know nothing of each other. The moments are learnt on the way (Cornuet et al. 2012, Scand. J. Stat. 39, 798):
all that was ever proposed is weighed by the mean of all proposals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln

__all__ = ["WeightedPlaces", "Student", "explored", "thinned"]

FREEDOM = 8.0  # degrees of freedom: tails have to be wider than those of what is proposed for
WIDER = 1.1  # and the middle a little
TOGETHER = 32  # places at once, which stay in the processor's cache
STEADY = 4.0  # effective places per coordinate from which moments are learnt: weights are flattened until there are


@dataclass(frozen=True, eq=False)
class Student:
    """A t density about `centre` (k,), of scale root root'."""

    centre: np.ndarray
    root: np.ndarray  # (k, k), lower

    @classmethod
    def learnt(cls, x: np.ndarray, weight: np.ndarray, before: Student | Mixture) -> Student:
        """Mean and covariance of places x (n, k) of `weight` (n,), the latter mixed with that of the one before."""
        k = x.shape[1]
        n = 1 / (weight**2).sum()
        share = n / (n + k)
        covariance = share * np.cov(x.T, aweights=weight, ddof=0).reshape(k, k) * WIDER**2
        return cls(weight @ x, np.linalg.cholesky(covariance + (1 - share) * before.root @ before.root.T))

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draws (n, k)."""
        unit = rng.standard_normal((n, self.centre.size))
        return self.centre + unit @ self.root.T * np.sqrt(FREEDOM / rng.chisquare(FREEDOM, (n, 1)))

    def ln_density(self, x: np.ndarray) -> np.ndarray:
        """Ln density (n,) at x (n, k), normalized."""
        k = self.centre.size
        far = (np.linalg.solve(self.root, (x - self.centre).T) ** 2).sum(axis=0)
        constant = gammaln((FREEDOM + k) / 2) - gammaln(FREEDOM / 2) - 0.5 * k * np.log(FREEDOM * np.pi)
        return constant - np.log(np.diag(self.root)).sum() - 0.5 * (FREEDOM + k) * np.log1p(far / FREEDOM)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Several t densities, equally likely."""

    parts: tuple[Student, ...]

    @property
    def centre(self) -> np.ndarray:
        """Mean."""
        return np.mean([part.centre for part in self.parts], axis=0)

    @cached_property
    def root(self) -> np.ndarray:
        """Of the covariance of all."""
        off = np.stack([part.centre for part in self.parts]) - self.centre
        within = np.mean([part.root @ part.root.T for part in self.parts], axis=0)
        return np.linalg.cholesky(within + off.T @ off / len(off))

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draws (n, k)."""
        counts = np.bincount(rng.permutation(n) % len(self.parts), minlength=len(self.parts))
        return np.concatenate([part.draw(int(count), rng) for part, count in zip(self.parts, counts, strict=True)])

    def ln_density(self, x: np.ndarray) -> np.ndarray:
        """Ln density (n,) at x (n, k)."""
        return np.logaddexp.reduce([part.ln_density(x) for part in self.parts], axis=0) - np.log(len(self.parts))


@dataclass(frozen=True, eq=False)
class WeightedPlaces:
    """Weighted places of a density, and the last proposal."""

    x: np.ndarray  # (n, k)
    ln_weight: np.ndarray  # (n,), density over what proposed
    proposal: Student | Mixture

    @property
    def ln_total(self) -> float:
        """Ln of the integral of the density."""
        return float(np.logaddexp.reduce(self.ln_weight) - np.log(len(self.x)))

    @property
    def ess(self) -> float:
        """How many places count."""
        return _count(self.ln_weight)

    def drawn(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Places (n, k) drawn by their weights: as often as these say, give or take one."""
        edges = np.cumsum(_flattened(self.ln_weight, n))
        chosen = np.searchsorted(edges, (np.arange(n) + rng.random()) / n * edges[-1])
        return self.x[rng.permutation(chosen.clip(0, len(edges) - 1))]

    def thinned(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Choose at most `n` places, none twice; returns which, and ln of the share of the weight that each has.

        Where fewer than `n` count, by flattened weights: what takes all the weight may be an error of the emulator, and
        the forward model should see others, too.
        """
        flat = _flattened(self.ln_weight, n)
        kept, ln_share = thinned(flat, n, rng)
        odds = np.log(np.maximum(_shares(self.ln_weight)[kept], 1e-300)) - np.log(flat[kept])
        return kept, ln_share + odds


def explored(
    ln_density: Callable[[np.ndarray], np.ndarray],
    first: Student | Mixture,
    rng: np.random.Generator,
    *,
    wanted: float,
    batch: int = 256,
    most: int = 12,
) -> WeightedPlaces:
    """Propose batches, each from the moments of all before, until `wanted` places count or there were `most`."""
    proposals, x, value = [first], np.empty((0, first.centre.size)), np.empty(0)
    while True:
        new = proposals[-1].draw(batch, rng)
        found = np.concatenate([ln_density(new[i : i + TOGETHER]) for i in range(0, batch, TOGETHER)])
        x, value = np.concatenate([x, new]), np.concatenate([value, np.where(np.isnan(found), -np.inf, found)])
        mixed = np.logaddexp.reduce([one.ln_density(x) for one in proposals], axis=0) - np.log(len(proposals))
        seen = WeightedPlaces(x, value - mixed, proposals[-1])
        if seen.ess >= wanted or len(proposals) == most:
            return seen
        proposals.append(Student.learnt(x, _flattened(seen.ln_weight, STEADY * x.shape[1]), first))


def thinned(share: np.ndarray, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Choose at most `n` of many with a `share` (m,) of the weight each, none twice; which, and ln of what they weigh.

    Heavy ones are kept as they are, light ones by chance, with the weight of all that they stand for: sums keep their
    expectation, and weights scatter as little as can be (Fearnhead & Clifford 2003, J. R. Stat. Soc. B 65, 887).
    """
    if (share > 0).sum() <= n:
        kept = np.flatnonzero(share)
        return kept, np.log(share[kept])
    ranked = np.sort(share)[::-1]
    left = 1 - np.cumsum(ranked) + ranked  # of this one and all lighter
    # The first `heavy` are kept; the others share what is left equally.
    heavy = int(np.argmax(ranked * (n - np.arange(len(ranked))) <= left))
    unit = left[heavy] / (n - heavy)
    light = np.flatnonzero(share < unit) if heavy else np.arange(len(share))
    edges = np.cumsum(share[light])
    picked = np.searchsorted(edges, unit * (np.arange(n - heavy) + rng.random()), side="right")
    chosen = light[np.unique(picked.clip(0, len(light) - 1))]
    kept = np.concatenate([np.setdiff1d(np.arange(len(share)), light), chosen])
    return kept, np.log(np.maximum(share[kept], unit))


def _shares(ln_weight: np.ndarray) -> np.ndarray:
    share = np.exp(ln_weight - ln_weight.max())
    return share / share.sum()


def _count(ln_weight: np.ndarray) -> float:
    return float(1 / (_shares(ln_weight) ** 2).sum()) if np.isfinite(ln_weight.max()) else 0.0


def _flattened(ln_weight: np.ndarray, wanted: float) -> np.ndarray:
    """Shares (n,) by the highest power of the weights, at most 1, at which `wanted` places count."""
    ln_weight = np.where(np.isfinite(ln_weight), ln_weight, -1e30)
    low, high = 0.0, 1.0
    if _count(ln_weight) < wanted:
        for _ in range(30):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if _count(middle * ln_weight) >= wanted else (low, middle)
        high = low
    return _shares(high * ln_weight)
