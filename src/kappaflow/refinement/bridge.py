"""The normalization of a density from draws of it, by a bridge to one that is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["bridged", "log_normalization"]

Density = Callable[[np.ndarray], np.ndarray]


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
    at_normal = density(mean + normal @ root.T) + 0.5 * (normal**2).sum(axis=1) + ln_root
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
