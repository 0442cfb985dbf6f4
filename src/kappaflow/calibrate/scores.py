"""Proper scores: interval score, CRPS and negative log likelihood, smaller is better, with bootstrap intervals."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kappaflow.calibrate.bootstrap import bootstrap_mean, percentile_interval, undefined_for_one
from kappaflow.calibrate.summary import Summary
from kappaflow.errors import UserError
from kappaflow.plain_data import plain

__all__ = ["ScoreReport", "interval_score", "score_report"]


@dataclass(frozen=True, eq=False)
class ScoreReport:
    """Mean scores over n objects: interval score (l, p), CRPS (p,), NLL (nats); intervals lead with an axis of 2.

    Scores of parameters are in the parameter's unit, `*_over_prior` divided by the prior's width.
    """

    names: tuple[str, ...]
    levels: np.ndarray
    interval_score: np.ndarray
    interval_score_interval: np.ndarray
    interval_score_over_prior: np.ndarray | None
    crps: np.ndarray | None
    crps_interval: np.ndarray | None
    crps_over_prior: np.ndarray | None
    nll: float | None
    nll_interval: np.ndarray | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return plain(asdict(self))


def interval_score(truth: np.ndarray, lower: np.ndarray, upper: np.ndarray, levels: np.ndarray) -> np.ndarray:
    r"""Interval score of each object, (l, n, p): (u - l) + 2/a (l - t)+ + 2/a (t - u)+, a = 1 - level.

    Its expectation is least for the exact central interval (Gneiting & Raftery 2007): width is paid for, and so is
    every miss, by how far it misses.
    """
    price = 2.0 / (1.0 - levels.reshape(-1, 1, 1))
    return (upper - lower) + price * (np.clip(lower - truth, 0, None) + np.clip(truth - upper, 0, None))


def score_report(
    summary: Summary, counts: np.ndarray, *, log_prob: ArrayLike | None = None, draws_scored: bool = True
) -> ScoreReport:
    """Score the intervals and draws of `summary`; `log_prob` (n,) is the posterior's log density at the truth.

    `draws_scored=False` leaves CRPS out, for intervals that no longer are those of the draws.
    """
    n, prior = len(summary.truth), summary.prior_width
    each = interval_score(summary.truth, summary.lower, summary.upper, summary.levels)
    mean = each.mean(axis=1)
    crps = summary.crps.mean(axis=0) if draws_scored else None
    nll = None if log_prob is None else -_log_prob(log_prob, n)
    return ScoreReport(
        names=summary.names,
        levels=summary.levels,
        interval_score=mean,
        interval_score_interval=_interval(np.moveaxis(each, 1, 0), counts),
        interval_score_over_prior=None if prior is None else mean / prior,
        crps=crps,
        crps_interval=None if crps is None else _interval(summary.crps, counts),
        crps_over_prior=None if prior is None or crps is None else crps / prior,
        nll=None if nll is None else float(nll.mean()),
        nll_interval=None if nll is None else _interval(nll, counts),
    )


def _interval(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return undefined_for_one(percentile_interval(bootstrap_mean(values, counts)), len(values))


def _log_prob(values: ArrayLike, n: int) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if array.shape != (n,):
        raise UserError(f"log_prob: shape {array.shape}; expected ({n},), one log density per object")
    if not np.isfinite(array).all():
        raise UserError(
            f"log_prob: {int((~np.isfinite(array)).sum())} of {n} values are not finite; a truth of zero density has "
            "no mean NLL: find out why before judging"
        )
    return array
