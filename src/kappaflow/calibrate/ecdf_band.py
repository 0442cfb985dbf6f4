r"""Where the empirical distribution of n uniform values stays, at all points at once, with a given probability.

At a point z the count of values below it is binomial, and a pointwise interval holds it with probability 1 - gamma. The
band of Säilynoja, Bürkner & Vehtari (2022) takes one gamma for all points, so small that the whole curve stays inside
its intervals with the probability asked for. The counts at increasing points are a Markov chain, so that this
probability is computed (`band_probability`), not simulated.

References
----------
Säilynoja, T., Bürkner, P.-C. & Vehtari, A. 2022, Graphical test for discrete uniformity and its applications in
goodness-of-fit evaluation and multiple sample comparison, Statistics and Computing 32, 32
"""

from functools import lru_cache

import numpy as np
from scipy.stats import binom, poisson

__all__ = ["POINTS", "band_probability", "ecdf", "simultaneous_band"]

POINTS = 100  # at which curve and band are evaluated


def ecdf(values: np.ndarray, points: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Return points z = 1/K, ..., 1 and the share (p, K) of values (n, p) at or below each."""
    z = np.arange(1, points + 1) / points
    share = [np.searchsorted(np.sort(column), z, side="right") / len(values) for column in values.T]
    return z, np.array(share)


@lru_cache(maxsize=64)
def simultaneous_band(n: int, level: float, points: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest share (K,) at z = 1/K, ..., 1 between which the curve stays with `level`.

    Counts are whole: the band is the narrowest of its kind that holds at least `level`, not exactly it.

    Examples
    --------
    >>> low, high = simultaneous_band(100, 0.95)
    >>> float(low[49]), float(high[49])
    (0.36, 0.64)
    """
    z = np.arange(1, points + 1) / points
    inside, outside = np.log((1.0 - level) / (2.0 * points)), np.log(1.0 - level)  # of gamma: Bonferroni, and one point
    for _ in range(24):
        middle = 0.5 * (inside + outside)
        if band_probability(n, *_intervals(n, z, np.exp(middle))) >= level:
            inside = middle
        else:
            outside = middle
    low, high = _intervals(n, z, np.exp(inside))
    return low / n, high / n


def _intervals(n: int, z: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest count at each point, whose binomial tails hold at most gamma/2 each."""
    return binom.ppf(gamma / 2, n, z).astype(int), binom.ppf(1.0 - gamma / 2, n, z).astype(int)


def band_probability(n: int, low: np.ndarray, high: np.ndarray) -> float:
    """Probability that the counts of n uniform values at or below 1/K, ..., 1 stay in [low, high], each (K,).

    The counts are those of a Poisson process of n expected events, given that it has n: the steps of a Poisson process
    are independent, and each is one convolution, cut to the interval.
    """
    steps = poisson.pmf(np.arange(n + 1), n / len(low))
    steps = steps[: np.flatnonzero(steps > 1e-18)[-1] + 1]  # what is left out cannot be seen in the sum
    first, weight = 0, np.ones(1)
    for least, most in zip(low, high, strict=True):
        reached = np.convolve(weight, steps)  # counts from `first` on
        kept = np.zeros(most - least + 1)
        start, stop = max(least, first), min(most, first + len(reached) - 1)
        kept[start - least : stop - least + 1] = reached[start - first : stop - first + 1]
        first, weight = int(least), kept
    return float(weight[n - first] / poisson.pmf(n, n)) if first <= n < first + len(weight) else 0.0
