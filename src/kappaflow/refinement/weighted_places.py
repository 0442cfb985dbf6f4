"""Weighted places of a density: adaptive importance sampling with a mixture of Student's t.

With brightness and coefficients integrated out and parameters in probit coordinates many a posterior is round enough
for a t density with its moments: a tenth to a fifth of what that proposes counts, at a thousandth of a second each, and
places know nothing of each other. Where it is curved, the t densities that the search began with, about places known
to be on it, stay beside that one, and others are added where too little was proposed, with shares by what they
explain. All is learnt on the way (Cornuet et al. 2012, Scand. J. Stat. 39, 798; Cappé et al. 2008, Stat. Comput. 18,
447): what was ever proposed is weighed by the mean of all proposals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln

__all__ = ["Mixture", "Student", "WeightedPlaces", "explored", "thinned"]

FREEDOM = 8.0  # degrees of freedom: tails have to be wider than those of what is proposed for
WIDER = 1.1  # and the middle a little
KEPT = 0.3  # share of what all began with, and of one part as wide as all, whatever they seem to explain
NEWEST = 0.3  # of draws about the place of most weight
NEW = 0.4  # odds that new parts begin with
IDLE = 1e-3  # share of a part that explains nothing
NEIGHBOURS = 8  # per coordinate, that say how wide the density is about a place
FLOOR = 0.02  # of the whole covariance in that of a neighbourhood
LEARNT = 3  # steps of expectation and maximization of the shares
STEADY = 4.0  # effective places per coordinate from which moments are learnt: weights are flattened until there are


@dataclass(frozen=True, eq=False)
class Student:
    """A t density about `centre` (k,), of scale root root'."""

    centre: np.ndarray
    root: np.ndarray  # (k, k), lower

    @classmethod
    def learnt(cls, x: np.ndarray, weight: np.ndarray, before: Mixture) -> Student:
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
    """Several t densities, each with a share of the draws."""

    parts: tuple[Student, ...]
    share: np.ndarray  # (parts,)

    @classmethod
    def equal(cls, *parts: Student) -> Mixture:
        """All with the same share."""
        return cls(parts, np.full(len(parts), 1 / len(parts)))

    @property
    def centre(self) -> np.ndarray:
        """Mean."""
        return self.share @ [part.centre for part in self.parts]

    @cached_property
    def root(self) -> np.ndarray:
        """Of the covariance of all."""
        off = np.stack([part.centre for part in self.parts]) - self.centre
        within = np.einsum("p,pij->ij", self.share, [part.root @ part.root.T for part in self.parts])
        return np.linalg.cholesky(within + (off.T * self.share) @ off)

    def ln_density(self, x: np.ndarray) -> np.ndarray:
        """Ln density (n,) at x (n, k), normalized."""
        return _ln_mixed(_ln_densities(self.parts, x), self.share)

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draws (n, k): of each part as many as its share says, give or take one."""
        edges = np.cumsum(self.share)
        owner = np.searchsorted(edges, (np.arange(n) + rng.random()) / n * edges[-1]).clip(0, len(edges) - 1)
        counts = np.bincount(owner, minlength=len(edges))
        return np.concatenate([part.draw(int(count), rng) for part, count in zip(self.parts, counts, strict=True)])


@dataclass(frozen=True, eq=False)
class WeightedPlaces:
    """Weighted places of a density, and the last proposal."""

    x: np.ndarray  # (n, k)
    ln_weight: np.ndarray  # (n,), density over what proposed
    proposal: Mixture  # by what was learnt from all

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
    first: Mixture,
    rng: np.random.Generator,
    *,
    wanted: float,
    batch: int = 256,
    most: int = 12,
) -> WeightedPlaces:
    """Propose batches, each from what was learnt of all before, until `wanted` places count or there were `most`.

    What is learnt from a place takes weight from it before others like it are found: ends of a density are a little too
    light. That is why what all began with stays; a last batch that is not learnt from would cost several times as much.
    """
    parts, proposals = list(first.parts), [first.share]
    x, value = np.empty((0, first.centre.size)), np.empty(0)
    ln_parts = np.empty((0, len(parts)))  # densities of all parts at all places
    while True:
        new = Mixture(tuple(parts), proposals[-1]).draw(batch, rng)
        x, value = np.concatenate([x, new]), np.concatenate([value, _values(ln_density, new)])
        ln_parts = np.concatenate([ln_parts, _ln_densities(parts, new)])
        mean = np.mean([np.pad(share, (0, len(parts) - share.size)) for share in proposals], axis=0)
        ln_weight = value - _ln_mixed(ln_parts, mean)
        weight = _flattened(ln_weight, STEADY * x.shape[1])
        wide = Student.learnt(x, weight, first)
        done = _count(ln_weight) >= wanted or len(proposals) == most
        added = [wide] if done else [_about(x, int(np.argmax(ln_weight)), weight, wide), wide]
        parts += added
        ln_parts = np.concatenate([ln_parts, _ln_densities(added, x)], axis=1)
        odds = _odds(ln_parts, weight, np.append((1 - NEW) * mean, np.full(len(added), NEW / len(added))))
        always = np.zeros(len(parts))
        always[: len(first.parts)], always[-1] = 0.5 * first.share, 0.5
        share = (1 - KEPT) * odds + KEPT * always
        if done:
            kept = np.flatnonzero(share > IDLE)
            proposal = Mixture(tuple(parts[i] for i in kept), share[kept] / share[kept].sum())
            return WeightedPlaces(x, ln_weight, proposal)
        share *= 1 - NEWEST
        share[-2] += NEWEST
        proposals.append(share)


def _values(ln_density: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    """Ln density (n,) at x (n, k); none where it is not known."""
    found = ln_density(x)
    return np.where(np.isnan(found), -np.inf, found)


def _ln_densities(parts: Sequence[Student], x: np.ndarray) -> np.ndarray:
    """Ln density (n, parts) of each at x (n, k)."""
    return np.stack([part.ln_density(x) for part in parts], axis=1)


def _ln_mixed(ln_parts: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Ln density (n,) of parts, each with its `share`, from those of the parts (n, parts)."""
    top = ln_parts.max(axis=1)
    return top + np.log(np.exp(ln_parts - top[:, None]) @ share)


def _odds(ln_parts: np.ndarray, weight: np.ndarray, odds: np.ndarray) -> np.ndarray:
    """Shares (parts,) by what each part explains of places of `weight` (n,): expectation and maximization."""
    parts = np.exp(ln_parts - ln_parts.max(axis=1, keepdims=True))
    for _ in range(LEARNT):
        odds = odds * ((weight / (parts @ odds)) @ parts)
    return odds / odds.sum()


def _about(x: np.ndarray, heaviest: int, weight: np.ndarray, wide: Student) -> Student:
    """Return a t density about the place of most weight, as wide as those near it: there too little is proposed.

    Raftery & Bao (2010, Biometrics 66, 1162).
    """
    k = x.shape[1]
    far = (np.linalg.solve(wide.root, (x - x[heaviest]).T) ** 2).sum(axis=0)
    near = np.argsort(far)[: NEIGHBOURS * k]
    share = weight[near] / max(weight[near].sum(), 1e-300) + 1 / near.size
    off = x[near] - x[heaviest]
    covariance = (off.T * share / share.sum()) @ off
    return Student(x[heaviest], np.linalg.cholesky(covariance + FLOOR * wide.root @ wide.root.T))


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
