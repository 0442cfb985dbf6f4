"""Two methods on the same objects: paired bootstrap of the differences in coverage, width and interval score."""

from typing import Any

import numpy as np

from kappaflow.calibrate.bootstrap import (
    bootstrap_mean,
    bootstrap_median,
    percentile_interval,
    undefined_for_one,
)
from kappaflow.calibrate.scores import interval_score
from kappaflow.calibrate.summary import Summary
from kappaflow.errors import UserError
from kappaflow.plain_data import plain

__all__ = ["check_paired", "paired"]


def check_paired(first: Summary, second: Summary) -> None:
    """Raise where two summaries are not of the same objects, parameters and levels."""
    if first.names != second.names:
        raise UserError(
            f"pair: parameters {', '.join(first.names)} against {', '.join(second.names)}; expected the same"
        )
    one, other = first.prior_width, second.prior_width
    same = one is other if one is None or other is None else np.allclose(one, other)
    if not same:
        raise UserError("pair: the two methods have different priors, or only one has any; give both the same bounds")
    if not np.array_equal(first.levels, second.levels):
        raise UserError(f"pair: levels {list(first.levels)} against {list(second.levels)}; expected the same")
    if first.truth.shape != second.truth.shape or not np.allclose(first.truth, second.truth, rtol=1e-6, atol=0):
        raise UserError(
            f"pair: {len(first.truth)} against {len(second.truth)} objects, or other truths; a paired comparison needs "
            "both methods on the same objects in the same order"
        )


def paired(first: tuple[Summary, np.ndarray], second: tuple[Summary, np.ndarray], counts: np.ndarray) -> dict[str, Any]:
    """Differences first - second with bootstrap intervals; each method is its (summary, inside (l, n, p)).

    Returns plain lists: `coverage`, `width` (difference of median widths, over the prior where there is one) and
    `interval_score` (likewise), (l, p) each, their `*_interval` (2, l, p), and `overall_coverage` (l,).
    """
    (a, inside_a), (b, inside_b) = first, second
    check_paired(a, b)
    n, unit = len(a.truth), 1.0 if a.prior_width is None else a.prior_width
    coverage = np.moveaxis(inside_a - inside_b, 1, 0)  # (n, l, p)
    score = np.moveaxis(_score(a) - _score(b), 1, 0) / unit
    widths = [np.moveaxis(x.width, 1, 0) / unit for x in (a, b)]
    replicates = {
        "coverage": bootstrap_mean(coverage, counts),
        "overall_coverage": bootstrap_mean(coverage.mean(axis=-1), counts),
        "width": bootstrap_median(widths[0], counts) - bootstrap_median(widths[1], counts),
        "interval_score": bootstrap_mean(score, counts),
    }
    result: dict[str, Any] = {
        "names": a.names,
        "levels": a.levels,
        "objects": n,
        "over_prior": a.prior_width is not None,
        "coverage": coverage.mean(axis=0),
        "overall_coverage": coverage.mean(axis=(0, 2)),
        "width": np.median(widths[0], axis=0) - np.median(widths[1], axis=0),
        "interval_score": score.mean(axis=0),
    }
    intervals = {f"{key}_interval": undefined_for_one(percentile_interval(x), n) for key, x in replicates.items()}
    return plain(result | intervals)


def _score(summary: Summary) -> np.ndarray:
    return interval_score(summary.truth, summary.lower, summary.upper, summary.levels)
