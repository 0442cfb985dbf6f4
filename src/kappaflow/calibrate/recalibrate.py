"""Two corrections after the fact, fitted on one half of the objects and frozen: PIT maps and conformal intervals.

They repair coverage on average over objects like those they were fitted on. Neither can repair a displacement that
differs from object to object, and neither adds information.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kappaflow.calibrate.draws import LEVELS, Draws
from kappaflow.calibrate.pit import randomized_pit
from kappaflow.calibrate.summary import Summary, sample_quantiles, summarize
from kappaflow.errors import UserError
from kappaflow.randomness import generator

__all__ = ["Conformal", "PitMap", "fit_conformal", "fit_pit_map", "split_half"]


def split_half(n: int, *, seed: int = 0, share: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Split n objects at random into two disjoint sets of indices, calibration (`share` of them) and test."""
    size = round(share * n)
    if not 0.0 < share < 1.0 or not 0 < size < n:
        raise UserError(f"split: {n} objects with share {share:g} leave a side empty; expected objects on both")
    order = generator("halves", seed).permutation(n)
    return np.sort(order[:size]), np.sort(order[size:])


@dataclass(frozen=True, eq=False)
class PitMap:
    """Kuleshov's map of each parameter: `pit` (m, p), the sorted PIT of the m calibration objects; frozen.

    R is their empirical CDF; the recalibrated quantile at p is the posterior's own at R^-1(p).
    """

    names: tuple[str, ...]
    pit: np.ndarray

    def inverse(self, probability: np.ndarray) -> np.ndarray:
        """R^-1 at probabilities (q,): (q, p)."""
        return sample_quantiles(self.pit.T, np.asarray(probability, dtype=float)).T

    def saturated(self, levels: np.ndarray, count: int) -> np.ndarray:
        """Whether an end of the interval at each level lies beyond the outermost of `count` draws, (l, p).

        There the map asks for tails the posterior does not have, and the end stays at its last draw.
        """
        low, high = self.inverse(0.5 * (1.0 - levels)), self.inverse(0.5 * (1.0 + levels))
        return (low * (count + 1) < 1.0) | (high * (count + 1) > count)

    def apply(self, draws: Draws) -> Draws:
        """Recalibrated draws (n, s, p): the k-th smallest becomes the quantile at R^-1(k/(s + 1)).

        Each draw keeps its rank in each parameter, so that the dependence between parameters stays as it was.
        """
        if draws.names != self.names:
            raise UserError(f"recalibration was fitted on {', '.join(self.names)}, not on {', '.join(draws.names)}")
        s = draws.draws.shape[1]
        at = self.inverse(np.arange(1, s + 1) / (s + 1.0))  # (s, p)
        moved = np.empty_like(draws.draws)
        for k in range(at.shape[1]):
            column = np.ascontiguousarray(draws.draws[..., k])
            order = np.argsort(column, axis=1)
            quantiles = sample_quantiles(np.take_along_axis(column, order, axis=1), at[:, k])
            restored = np.empty_like(column)
            np.put_along_axis(restored, order, quantiles.astype(column.dtype), axis=1)
            moved[..., k] = restored
        return replace(draws, draws=moved)


def fit_pit_map(calibration: Draws | Summary, *, seed: int = 0) -> PitMap:
    """Fit the map of every parameter on the calibration objects, which must not be judged with it."""
    summary = summarize(calibration, [0.5]) if isinstance(calibration, Draws) else calibration
    pit = randomized_pit(summary.below, summary.ties, summary.count, seed=seed)
    if len(pit) < 2:
        raise UserError(f"recalibration: {len(pit)} calibration object; expected at least 2 (hundreds to be useful)")
    return PitMap(summary.names, np.sort(pit, axis=0))


@dataclass(frozen=True, eq=False)
class Conformal:
    """Split-conformal correction (conformalized quantile regression, Romano et al. 2019): `margin` (l, p); frozen.

    Every interval at a level is widened, or narrowed, by the same margin at both ends.
    """

    names: tuple[str, ...]
    levels: np.ndarray
    margin: np.ndarray

    def apply(self, summary: Summary) -> Summary:
        """Corrected intervals of other objects, cut at the prior box where there is one; never turned inside out."""
        if summary.names != self.names or not np.array_equal(summary.levels, self.levels):
            raise UserError("conformal: fitted on other parameters or levels than these; fit and apply with the same")
        middle = 0.5 * (summary.lower + summary.upper)
        lower = np.minimum(summary.lower - self.margin[:, None], middle)
        upper = np.maximum(summary.upper + self.margin[:, None], middle)
        if summary.low is not None and summary.high is not None:
            lower, upper = np.maximum(lower, summary.low), np.minimum(upper, summary.high)
        return summary.with_intervals(lower, upper)


def fit_conformal(calibration: Draws | Summary, levels: Sequence[float] = LEVELS) -> Conformal:
    r"""Fit the margins: the ceil((m + 1) L)-th smallest of max(lower - t, t - upper) over m calibration objects.

    A truth exchangeable with theirs is then inside with probability at least L, whatever the posterior is worth.
    """
    summary = summarize(calibration, levels) if isinstance(calibration, Draws) else calibration
    m = len(summary.truth)
    rank = np.ceil((m + 1) * summary.levels - 1e-9).astype(int)
    if rank.max() > m:
        level = summary.levels[rank.argmax()]
        raise UserError(
            f"conformal: {m} calibration objects cannot give level {level:g}; "
            f"expected at least {int(np.ceil(level / (1.0 - level) - 1e-9))}"
        )
    miss = np.sort(np.maximum(summary.lower - summary.truth, summary.truth - summary.upper), axis=1)
    return Conformal(summary.names, summary.levels, np.array([row[r - 1] for row, r in zip(miss, rank, strict=True)]))
