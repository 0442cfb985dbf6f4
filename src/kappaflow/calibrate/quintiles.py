"""Coverage and width in quantile bins of any quantity: where a posterior holds and where it does not."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kappaflow.calibrate.interval_coverage import level_index, wilson
from kappaflow.calibrate.summary import Summary
from kappaflow.errors import UserError
from kappaflow.plain_data import plain

__all__ = ["breakdown", "check_covariates", "quantile_bins"]

QUINTILES = 5


def quantile_bins(values: np.ndarray, bins: int = QUINTILES) -> np.ndarray:
    """Bin of each value, (n,): equal shares of the objects, equal values always together.

    Ties can leave fewer bins than asked for: a constant has one.
    """
    edges = np.unique(np.quantile(values, np.arange(1, bins) / bins))
    return np.unique(np.searchsorted(edges, values, side="left"), return_inverse=True)[1]


def check_covariates(covariates: Mapping[str, ArrayLike], n: int) -> dict[str, np.ndarray]:
    """Return every covariate as floats (n,), or raise naming the one that is wrong."""
    checked = {}
    for name, values in covariates.items():
        try:
            array = np.asarray(values, dtype=float)
        except (TypeError, ValueError):
            raise UserError(f"covariate {name}: not numbers; expected one number per object") from None
        if array.shape != (n,) or not np.isfinite(array).all():
            raise UserError(
                f"covariate {name}: shape {array.shape}, {int((~np.isfinite(array)).sum())} not finite; "
                f"expected ({n},) finite numbers, one per object"
            )
        checked[str(name)] = array
    return checked


def breakdown(
    summary: Summary, inside: np.ndarray, by: np.ndarray, *, level: float = 0.9, bins: int = QUINTILES
) -> dict[str, Any]:
    """Coverage and median width of every parameter in each bin of `by` (n,).

    Returns plain lists: `low`, `high` (the bin's own values) and `objects` (b,); `coverage`, `wilson_low`,
    `wilson_high`, `width`, `width_over_prior` (b, p).
    """
    at = level_index(summary.levels, level)
    cell = quantile_bins(by, bins)
    members = [np.flatnonzero(cell == b) for b in range(int(cell.max()) + 1)]
    size = np.array([len(m) for m in members])
    hits = np.array([inside[at, m].sum(axis=0) for m in members])
    low, high = wilson(hits, size[:, None])
    width = np.array([np.median(summary.width[at, m], axis=0) for m in members])
    return plain(
        {
            "level": level,
            "low": [by[m].min() for m in members],
            "high": [by[m].max() for m in members],
            "objects": size,
            "coverage": hits / size[:, None],
            "wilson_low": low,
            "wilson_high": high,
            "width": width,
            "width_over_prior": None if summary.prior_width is None else width / summary.prior_width,
        }
    )
