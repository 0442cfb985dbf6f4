"""Hamiltonian Monte Carlo for a population of chains in step, and the normalization of what they sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

__all__ = ["Population", "bridged", "effective", "log_normalization", "split_r_hat", "walk"]

Density = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
Between = Callable[[np.ndarray, np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]
WANTED = 0.8  # share of short trajectories that are accepted, to which the step is tuned
SHORT = (0.5, 1.5)  # reach of a trajectory that tunes the step
REACH = (0.8, 1.8)  # and of others: a quarter of a turn is 1.57
LONGEST = 64  # steps of one
FINER = 0.4  # of the step: every chain has its own at every trajectory, so that none is held where the density is stiff


@dataclass(frozen=True, eq=False)
class Population:
    """Where the chains are, and how they step."""

    at: np.ndarray  # (b, k)
    root: np.ndarray  # (k, k), a square root of the metric's inverse
    step: float = 0.3
    accepted: float = 0.0  # mean over the last walk


def walk(
    density: Density,
    start: Population,
    n: int,
    rng: np.random.Generator,
    *,
    tune: bool = False,
    between: Between | None = None,
) -> tuple[Population, np.ndarray, np.ndarray]:
    """Walk `n` trajectories; return where it ended, the path (n, b, k) and ln density along it (n, b).

    `density` gives ln density (b,) and a force (b, k) at points (b, k). The force may be any function of the place: an
    approximate gradient costs acceptance, never exactness. With `tune` the step is adapted on the way, and the path
    must not be used as draws. Before or after every trajectory, as a coin falls, `between` may move chains at (b, k)
    with ln density (b,) by steps of its own. Where these are reversible both together are, which they would not be in a
    fixed order, and delayed acceptance (`exact_chains.py`) asks for it. A trajectory that diverges is not accepted, and
    not worth a warning.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _walk(density, start, n, rng, tune, between)


def _walk(
    density: Density, start: Population, n: int, rng: np.random.Generator, tune: bool, between: Between | None
) -> tuple[Population, np.ndarray, np.ndarray]:
    at, root, step = start.at, start.root, start.step
    value, force = density(at)
    path, values, accepted = np.empty((n, *at.shape)), np.empty((n, len(at))), 0.0
    low, high = SHORT if tune else REACH
    for i in range(n):
        first = between is not None and rng.random() < 0.5
        if between is not None and first:
            at, _ = between(at, value, rng)
            value, force = density(at)
        momentum = rng.standard_normal(at.shape)
        before = value - 0.5 * (momentum**2).sum(axis=1)
        size = step * FINER ** rng.random((len(at), 1))
        length = int(np.clip(np.ceil(rng.uniform(low, high) / size.mean()), 1, LONGEST))
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
        if between is not None and not first:
            at, _ = between(at, value, rng)
            value, force = density(at)
        path[i], values[i] = at, value
        accepted += float(chance.mean()) / n
        if tune:
            step = float(np.clip(step * np.exp((chance.mean() - WANTED) / np.sqrt(1 + i / 3)), 1e-3, 1.5))
    return replace(start, at=at, step=step, accepted=accepted), path, values


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


def split_r_hat(path: np.ndarray, groups: int = 4) -> float:
    """Largest R-hat over coordinates of a path (n, b, k): `groups` of chains, each split into halves, are compared.

    Many short chains: single ones need not have been everywhere, groups must have (Margossian et al. 2024, who call
    them superchains). Chains that began at one place belong into one group.
    """
    n, b, k = path.shape
    half, groups = n // 2, min(groups, b)
    each = b // groups
    parts = path[: 2 * half, : groups * each].reshape(2, half, groups, each, k)
    parts = parts.transpose(0, 2, 1, 3, 4).reshape(2 * groups, half * each, k)
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    return float(np.sqrt(1 + between / np.maximum(within, 1e-300)).max())


def effective(values: np.ndarray, weight: np.ndarray, chain: np.ndarray) -> float:
    """Effective number of draws: variance over that of the mean, the least over coordinates.

    Of draws `values` (n, k) with `weight` (n,), which belong to chains `chain` (n,); the mean's variance from leaving
    out one chain after the other: what weights and what slow chains cost, together.
    """
    weight = weight / weight.sum()
    mean = weight @ values
    spread = weight @ (values - mean) ** 2
    owners, chain = np.unique(chain, return_inverse=True)
    if owners.size < 2:
        return 0.0
    of_chain = np.bincount(chain, weight)
    sums = np.zeros((owners.size, values.shape[1]))
    np.add.at(sums, chain, weight[:, None] * values)
    without = (mean - sums) / np.maximum(1 - of_chain, 1e-12)[:, None]
    error = (owners.size - 1) * without.var(axis=0)
    return float((spread / np.maximum(error, 1e-300)).min().clip(0, 1 / (weight**2).sum()))
