"""One pass over the draws: all that the marginal judges need of them, kept as small arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kappaflow.calibrate.draws import LEVELS, Draws, check_levels

__all__ = ["Summary", "sample_quantiles", "summarize"]


@dataclass(frozen=True, eq=False)
class Summary:
    """Ranks, intervals and scores of each object and parameter; n objects, p parameters, l levels, s draws.

    `below` and `ties` (n, p) count the draws below and equal to the truth; `lower` and `upper` (l, n, p) are the
    central intervals at `levels` (l,); `median` and `crps` are (n, p); `low`, `high` as in `Draws`.
    """

    names: tuple[str, ...]
    levels: np.ndarray
    count: int
    truth: np.ndarray
    below: np.ndarray
    ties: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    median: np.ndarray
    crps: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None

    @property
    def width(self) -> np.ndarray:
        """Widths of the central intervals, (l, n, p)."""
        return self.upper - self.lower

    @property
    def prior_width(self) -> np.ndarray | None:
        """Widths of the prior, (p,), or None without a prior."""
        return None if self.low is None or self.high is None else self.high - self.low

    def with_intervals(self, lower: np.ndarray, upper: np.ndarray) -> Summary:
        """Return the same objects with other intervals, as a post-hoc correction makes them."""
        return replace(self, lower=lower, upper=upper)


def sample_quantiles(ordered: np.ndarray, probability: np.ndarray) -> np.ndarray:
    r"""Quantiles of sorted draws by the Weibull rule: probability q lies at rank q (s + 1).

    The k-th of s draws has expected probability k/(s + 1), so that the interval between the quantiles a and 1 - a
    covers a truth exchangeable with the draws with probability 1 - 2a, exactly where a (s + 1) is whole. The
    "linear" rule, rank 1 + q (s - 1), is too narrow by about 2 (1 - 2a)/s in rank.

    `ordered` (..., s), `probability` (q,) -> (..., q); beyond the outermost draws the quantile is that draw.
    """
    s = ordered.shape[-1]
    rank = np.clip(np.asarray(probability, dtype=float) * (s + 1) - 1.0, 0.0, s - 1.0)
    base = np.minimum(rank.astype(int), s - 2)
    part = rank - base
    return ordered[..., base] * (1.0 - part) + ordered[..., base + 1] * part


def summarize(draws: Draws, levels: Sequence[float] = LEVELS) -> Summary:
    r"""Reduce draws (n, s, p) to a `Summary`, one parameter at a time (memory: a few (n, s) arrays).

    CRPS is the fair estimate, E|X - t| - E|X - X'|/2 with distinct X and X', from the sorted draws:
    E|X - X'| = 2/(s (s - 1)) sum_k (2k - s - 1) x_(k).
    """
    n, s, p = draws.draws.shape
    levels_ = check_levels(levels, s)
    ends = np.concatenate([0.5 * (1.0 - levels_), 0.5 * (1.0 + levels_), [0.5]])
    quantiles = np.empty((len(ends), n, p))
    below, ties = np.empty((n, p), dtype=np.int64), np.empty((n, p), dtype=np.int64)
    crps = np.empty((n, p))
    spread = (2.0 * np.arange(1, s + 1) - s - 1.0) / (s * (s - 1.0))
    for k in range(p):
        # Compared in the precision the draws came in: a truth widened to double would never tie with them.
        truth = draws.truth[:, k].astype(draws.draws.dtype)[:, None]
        raw = np.array(draws.draws[..., k], order="C")  # a copy always: it is sorted in place below
        below[:, k] = np.count_nonzero(raw < truth, axis=1)
        ties[:, k] = np.count_nonzero(raw == truth, axis=1)
        raw.sort(axis=1)
        ordered = raw.astype(np.float64, copy=False)
        quantiles[:, :, k] = sample_quantiles(ordered, ends).T
        crps[:, k] = np.abs(ordered - draws.truth[:, k, None]).mean(axis=1) - ordered @ spread
    half = len(levels_)
    return Summary(
        names=draws.names,
        levels=levels_,
        count=s,
        truth=draws.truth.astype(np.float64),
        below=below,
        ties=ties,
        lower=quantiles[:half],
        upper=quantiles[half : 2 * half],
        median=quantiles[-1],
        crps=crps,
        low=draws.low,
        high=draws.high,
    )
