"""Hamiltonian Monte Carlo for a population of chains in step, and the normalization of what they sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

__all__ = ["Population", "bridged", "efficiency", "log_normalization", "split_r_hat", "walk"]

Density = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
WANTED = 0.8  # share of trajectories that are accepted, to which the step is tuned
REACH = (1.0, 3.0)  # of a trajectory, in standard deviations: a quarter of a turn, 1.57, forgets where it began
LONGEST = 64  # steps of one
OUTSTANDING = 2.5  # variance over the metric's: what a few hundred draws of it reach by chance


@dataclass(frozen=True, eq=False)
class Population:
    """Where the chains are, and how they step."""

    at: np.ndarray  # (b, k)
    root: np.ndarray  # (k, k), a square root of the metric's inverse: the posterior's covariance
    step: float = 0.3
    accepted: float = 0.0  # mean over the last walk

    def stretched(self, draws: np.ndarray) -> Population:
        """Return the same with a metric that is longer where `draws` (n, k) are, in the few directions that stand out.

        In all others the covariance of a few hundred draws of 80 coordinates is noise.
        """
        x = np.linalg.solve(self.root, (draws - draws.mean(axis=0)).T)
        length, direction = np.linalg.eigh(np.cov(x))
        more = np.where(length > OUTSTANDING, length - 1, 0.0)
        stretched = self.root @ (np.eye(len(x)) + (direction * more) @ direction.T) @ self.root.T
        return replace(self, root=np.linalg.cholesky(stretched))


def walk(
    density: Density, start: Population, n: int, rng: np.random.Generator, *, tune: bool = False
) -> tuple[Population, np.ndarray, np.ndarray]:
    """Walk `n` trajectories; return where it ended, the path (n, b, k) and ln density along it (n, b).

    `density` gives ln density (b,) and a force (b, k) at points (b, k). The force may be any function of the place: an
    approximate gradient costs acceptance, never exactness. With `tune` the step is adapted on the way, and the path
    must not be used as draws. A trajectory that diverges is not accepted, and not worth a warning.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _walk(density, start, n, rng, tune)


def _walk(
    density: Density, start: Population, n: int, rng: np.random.Generator, tune: bool
) -> tuple[Population, np.ndarray, np.ndarray]:
    at, root, step = start.at, start.root, start.step
    value, force = density(at)
    path, values, accepted = np.empty((n, *at.shape)), np.empty((n, len(at))), 0.0
    for i in range(n):
        momentum = rng.standard_normal(at.shape)
        before = value - 0.5 * (momentum**2).sum(axis=1)
        size = step * rng.uniform(0.7, 1.0)
        length = int(np.clip(np.ceil(rng.uniform(*REACH) / size), 1, LONGEST))
        there, pull = at, force
        momentum = momentum + 0.5 * size * (pull @ root)
        for j in range(length):
            there = there + size * (momentum @ root.T)
            height, pull = density(there)
            momentum = momentum + (size if j < length - 1 else 0.5 * size) * (pull @ root)
        odds = height - 0.5 * (momentum**2).sum(axis=1) - before
        chance = np.exp(np.minimum(0.0, np.where(np.isfinite(odds), odds, -np.inf)))
        moved = rng.random(len(at)) < chance
        at, force = np.where(moved[:, None], there, at), np.where(moved[:, None], pull, force)
        value = np.where(moved, height, value)
        path[i], values[i] = at, value
        accepted += float(chance.mean()) / n
        if tune:
            step = float(np.clip(step * np.exp(0.3 * (chance.mean() - WANTED)), 1e-3, 1.5))
    return Population(at, root, step, accepted), path, values


def log_normalization(
    density: Density, draws: np.ndarray, values: np.ndarray, rng: np.random.Generator, *, about: np.ndarray
) -> float:
    """Ln of the integral of a density of which `draws` (n, k) with ln density `values` (n,) are given.

    By a bridge to a normal density with the first half's mean and covariance, the latter
    mixed with that of the root `about` (k, k): few draws leave directions out.
    """
    half = len(draws) // 2
    share = half / (half + 3 * draws.shape[1])
    covariance = share * np.cov(draws[:half].T) + (1 - share) * about @ about.T
    mean, root = draws[:half].mean(axis=0), np.linalg.cholesky(covariance)
    normal = rng.standard_normal((len(draws) - half, draws.shape[1]))
    ln_root = np.log(np.diag(root)).sum() + 0.5 * draws.shape[1] * np.log(2 * np.pi)
    own = np.linalg.solve(root, (draws[half:] - mean).T).T
    at_draws = values[half:] + 0.5 * (own**2).sum(axis=1) + ln_root
    at_normal = density(mean + normal @ root.T)[0] + 0.5 * (normal**2).sum(axis=1) + ln_root
    return bridged(at_normal, at_draws)


def bridged(of_one: np.ndarray, of_other: np.ndarray) -> float:
    """Ln of the ratio of two normalizations from ln weights, the other over the one, of draws of each.

    Bridge sampling (Meng & Wong 1996).
    """
    share = of_one.size / (of_one.size + of_other.size)
    found = float(np.median(of_other))
    for _ in range(500):
        common = np.log(1 - share) + found
        top = np.logaddexp.reduce(of_one - np.logaddexp(np.log(share) + of_one, common)) - np.log(of_one.size)
        bottom = np.logaddexp.reduce(-np.logaddexp(np.log(share) + of_other, common)) - np.log(of_other.size)
        found, last = float(top - bottom), found
        if abs(found - last) < 1e-6:
            break
    return found


def split_r_hat(path: np.ndarray) -> float:
    """Largest R-hat over coordinates of a path (n, b, k), every chain split into halves (Gelman et al. 2013)."""
    half = len(path) // 2
    halves = np.concatenate([path[:half], path[half : 2 * half]], axis=1)
    within = halves.var(axis=0, ddof=1).mean(axis=0)
    between = halves.mean(axis=0).var(axis=0, ddof=1)
    return float(np.sqrt((within * (half - 1) / half + between) / np.maximum(within, 1e-300)).max())


def efficiency(path: np.ndarray) -> float:
    """Effective over all draws of a path (n, b, k), least over coordinates: from how much the chains' means vary."""
    means = path.mean(axis=0).var(axis=0, ddof=1)
    total = path.reshape(-1, path.shape[2]).var(axis=0, ddof=1)
    return float(np.clip(total / np.maximum(len(path) * means, 1e-300), 0.0, 1.0).min())
