"""The bootstrap over objects: replicates addressed by a seed, means and medians of all of them at once.

Objects are resampled, never parameters or draws: the parameters of one object are correlated, and an interval that
treats them as independent is too short.
"""

import numpy as np

from kappaflow.randomness import generator

__all__ = ["bootstrap_mean", "bootstrap_median", "percentile_interval", "resamples"]

BOOTSTRAPS = 1000


def resamples(n: int, count: int = BOOTSTRAPS, *, seed: int = 0) -> np.ndarray:
    """How often each of `n` objects appears in each replicate, (count, n), int32; rows sum to n.

    Replicate b is the same whatever `count` is, and no two replicates share their random numbers.
    """
    rng = generator("bootstrap", seed)
    counts = np.empty((count, n), dtype=np.int32)
    for row in counts:
        row[:] = np.bincount(rng.integers(0, n, n), minlength=n)
    return counts


def bootstrap_mean(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Means over objects of `values` (n, ...) in every replicate of `counts` (b, n): (b, ...)."""
    n = len(values)
    flat = np.asarray(values, dtype=np.float64).reshape(n, -1)
    return (counts.astype(np.float64) @ flat / n).reshape(len(counts), *values.shape[1:])


def bootstrap_median(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Medians over objects of `values` (n, ...) in every replicate of `counts` (b, n): (b, ...)."""
    n = len(values)
    flat = np.asarray(values, dtype=np.float64).reshape(n, -1)
    medians = np.empty((len(counts), flat.shape[1]))
    by_object = np.ascontiguousarray(counts.T, dtype=np.int16 if n < 2**15 else np.int32)  # small: memory is the cost
    ranks = sorted({(n - 1) // 2, n // 2})
    for k, column in enumerate(flat.T):
        order = np.argsort(column)
        ordered = column[order]
        reached = np.cumsum(by_object[order], axis=0, dtype=by_object.dtype)  # values up to each place, per replicate
        medians[:, k] = np.mean([ordered[np.count_nonzero(reached <= r, axis=0)] for r in ranks], axis=0)
    return medians.reshape(len(counts), *values.shape[1:])


def percentile_interval(replicates: np.ndarray, confidence: float = 0.95) -> np.ndarray:
    """Central interval over replicates (b, ...): (2, ...), low and high."""
    tail = 0.5 * (1.0 - confidence)
    return np.quantile(replicates, [tail, 1.0 - tail], axis=0, method="weibull")


def undefined_for_one(interval: np.ndarray, n: int) -> np.ndarray:
    """NaN instead of the interval of no width that resampling a single object gives."""
    return np.full_like(interval, np.nan) if n < 2 else interval
