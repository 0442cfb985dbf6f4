"""Coverage of central intervals by rank, with Wilson intervals, beside the widths that buy it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import betabinom, binom, norm

from kappaflow.calibrate.bootstrap import (
    bootstrap_mean,
    bootstrap_median,
    percentile_interval,
    resamples,
    undefined_for_one,
)
from kappaflow.calibrate.draws import LEVELS, check_draws, check_levels
from kappaflow.calibrate.summary import Summary, summarize
from kappaflow.errors import UserError
from kappaflow.plain_data import plain

__all__ = [
    "CoverageReport",
    "coverage",
    "coverage_report",
    "highest_density_coverage",
    "inside_by_interval",
    "inside_by_rank",
    "wilson",
]

INFORMATIVE = 0.9  # a parameter is informative where its median 90 % width is below this share of the prior's own


@dataclass(frozen=True, eq=False)
class CoverageReport:
    """Coverage and width at l levels of p parameters over n objects.

    `coverage`, `wilson_low`, `wilson_high`, `p_value`, `width` (median, in the parameter's unit),
    `width_over_prior`, `width_over_prior_own` (the latter over the prior's own central width) are (l, p);
    `overall` and `informative_mean` (l,) are unweighted means over parameters, with bootstrap intervals (2, l).
    What needs a prior is None without one. Intervals have 95 % confidence. `fitted_on` counts the objects that a
    correction was fitted on, whose chance the p-values then allow for.
    """

    names: tuple[str, ...]
    levels: np.ndarray
    objects: int
    draws: int
    coverage: np.ndarray
    wilson_low: np.ndarray
    wilson_high: np.ndarray
    p_value: np.ndarray
    overall: np.ndarray
    overall_interval: np.ndarray
    width: np.ndarray
    width_interval: np.ndarray
    width_over_prior: np.ndarray | None
    width_over_prior_own: np.ndarray | None
    informative: np.ndarray | None
    informative_mean: np.ndarray | None
    informative_interval: np.ndarray | None
    fitted_on: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return plain(asdict(self))

    def __str__(self) -> str:
        head = f"{'':>12s}" + "".join(f"  {level:>19.3g}" for level in self.levels) + "   width/prior"
        last = nearest(self.levels, 0.9)
        lines = [f"coverage of {self.objects} objects, {self.draws} draws each [Wilson 95 %]", head]
        for k, name in enumerate(self.names):
            cells = (
                f"  {c:.3f} [{lo:.3f},{hi:.3f}]"
                for c, lo, hi in zip(self.coverage[:, k], self.wilson_low[:, k], self.wilson_high[:, k], strict=True)
            )
            width = "" if self.width_over_prior is None else f"   {self.width_over_prior[last, k]:.3f}"
            lines.append(f"{name:>12s}" + "".join(cells) + width)
        lines.append(f"{'overall':>12s}" + "".join(f"  {c:<19.3f}" for c in self.overall))
        return "\n".join(line.rstrip() for line in lines)


def wilson(hits: ArrayLike, n: ArrayLike, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Wilson score interval of a proportion from `hits` of `n`; `hits` may be fractional."""
    k, n = np.asarray(hits, dtype=float), np.asarray(n, dtype=float)
    z = float(norm.isf(0.5 * (1.0 - confidence)))
    share = k / n
    middle = (share + 0.5 * z**2 / n) / (1.0 + z**2 / n)
    half = z / (1.0 + z**2 / n) * np.sqrt(share * (1.0 - share) / n + 0.25 * z**2 / n**2)
    return np.clip(middle - half, 0.0, 1.0), np.clip(middle + half, 0.0, 1.0)


def inside_by_rank(below: np.ndarray, ties: np.ndarray, count: int, levels: np.ndarray) -> np.ndarray:
    r"""Share of each truth's rank cell inside the central region of each level: (l, ...), 0 or 1 but at the ends.

    Under an exact posterior truth and draws are exchangeable, so the truth's PIT is uniform over the cell
    [b, b + ties + 1]/(s + 1), b the draws below it. The share of that cell inside [(1 - L)/2, (1 + L)/2] is the
    probability that the randomized PIT falls inside; its mean is L for every s, with no interpolation.
    """
    edge = 0.5 * (1.0 - levels.reshape(-1, *([1] * below.ndim))) * (count + 1)
    start, stop = below.astype(float), below + ties + 1.0
    return np.clip(np.minimum(stop, count + 1 - edge) - np.maximum(start, edge), 0.0, None) / (ties + 1.0)


def inside_by_interval(truth: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """1 where the closed interval holds the truth, else 0, (l, n, p): for intervals that are not of the draws."""
    return ((truth >= lower) & (truth <= upper)).astype(float)


def coverage(
    truth: ArrayLike,
    draws: ArrayLike,
    levels: Sequence[float] = LEVELS,
    *,
    prior: tuple[ArrayLike, ArrayLike] | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> CoverageReport:
    """Coverage of the central intervals of `draws` (n, s, p) for `truth` (n, p) at nominal `levels`.

    `prior` (low, high) adds widths over the prior and the informative-only mean; `seed` addresses the bootstrap.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> centre = rng.normal(size=(500, 1))
    >>> truth, draws = centre + rng.normal(size=(500, 1)), centre[:, None] + rng.normal(size=(500, 199, 1))
    >>> report = coverage(truth, draws, levels=[0.9])
    >>> bool(report.wilson_low[0, 0] < 0.9 < report.wilson_high[0, 0])
    True
    """
    checked = check_draws(truth, draws, prior=prior, names=names)
    summary = summarize(checked, levels)
    inside = inside_by_rank(summary.below, summary.ties, summary.count, summary.levels)
    return coverage_report(summary, inside, resamples(len(summary.truth), seed=seed))


def coverage_report(
    summary: Summary, inside: np.ndarray, counts: np.ndarray, *, fitted_on: int | None = None
) -> CoverageReport:
    """Assemble the report from `inside` (l, n, p) and the bootstrap `counts` (b, n)."""
    n = len(summary.truth)
    hits = inside.sum(axis=1)
    low, high = wilson(hits, n)
    by_object = np.moveaxis(inside, 1, 0)  # (n, l, p)
    width = np.median(summary.width, axis=1)
    width_replicates = bootstrap_median(np.moveaxis(summary.width, 1, 0), counts)
    prior = summary.prior_width
    over_prior = over_own = informative = mean = interval = None
    if prior is not None:
        over_prior = width / prior
        over_own = over_prior / summary.levels[:, None]  # a uniform prior's own central interval at L is L wide
        informative = over_own[nearest(summary.levels, 0.9)] < INFORMATIVE
        if informative.any():
            mean, interval = _mean_over_parameters(by_object[..., informative], counts)
    overall, overall_interval = _mean_over_parameters(by_object, counts)
    return CoverageReport(
        names=summary.names,
        levels=summary.levels,
        objects=n,
        draws=summary.count,
        coverage=hits / n,
        wilson_low=low,
        wilson_high=high,
        p_value=binomial_p_value(hits, n, summary.levels[:, None], fitted_on=fitted_on),
        overall=overall,
        overall_interval=overall_interval,
        width=width,
        width_interval=undefined_for_one(percentile_interval(width_replicates), n),
        width_over_prior=over_prior,
        width_over_prior_own=over_own,
        informative=informative,
        informative_mean=mean,
        informative_interval=interval,
        fitted_on=fitted_on,
    )


def highest_density_coverage(
    log_prob: ArrayLike, log_prob_draws: ArrayLike, levels: Sequence[float] = LEVELS
) -> dict[str, Any]:
    """Rank the truth's log density (n,) among its draws' (n, s): expected coverage of highest-density regions.

    A truth is inside the region of level L where fewer than a share L of the draws are denser than it. One number
    for all parameters jointly, but blind to a shift that inflation absorbs, as every test by density is.
    """
    checked = check_draws(np.asarray(log_prob)[..., None], np.asarray(log_prob_draws)[..., None], names=["log_prob"])
    values, s = check_levels(levels, checked.draws.shape[1]), checked.draws.shape[1]
    denser = np.count_nonzero(checked.draws[..., 0] > checked.truth, axis=1)
    ties = np.count_nonzero(checked.draws[..., 0] == checked.truth, axis=1)
    inside = np.clip((values[:, None] * (s + 1) - denser) / (ties + 1.0), 0.0, 1.0)
    hits, n = inside.sum(axis=1), len(denser)
    low, high = wilson(hits, n)
    report = {"levels": values, "coverage": hits / n, "wilson_low": low, "wilson_high": high}
    return plain(report | {"p_value": binomial_p_value(hits, n, values)})


def binomial_p_value(hits: np.ndarray, n: int, level: np.ndarray, *, fitted_on: int | None = None) -> np.ndarray:
    """Exact two-sided p-value (twice the smaller tail) of `hits` of `n` when each hits with probability `level`.

    An interval whose ends were fitted on m other objects as order statistics covers with a probability that itself
    varies, Beta((m + 1) L, (m + 1) (1 - L)): the hits are then beta-binomial.
    """
    k = np.rint(hits)
    if fitted_on is None:
        law = binom(n, level)
    else:
        law = betabinom(n, (fitted_on + 1.0) * level, (fitted_on + 1.0) * (1.0 - level))
    return np.minimum(1.0, 2.0 * np.minimum(law.cdf(k), law.sf(k - 1)))


def nearest(levels: np.ndarray, level: float) -> int:
    """Index of the level nearest to `level`."""
    return int(np.argmin(np.abs(levels - level)))


def level_index(levels: np.ndarray, level: float) -> int:
    """Index of `level` among `levels`, or raise naming those there are."""
    k = nearest(levels, level)
    if abs(levels[k] - level) > 1e-9:
        raise UserError(f"level {level:g} was not computed; there are {', '.join(f'{x:g}' for x in levels)}")
    return k


def _mean_over_parameters(by_object: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    each = by_object.mean(axis=-1)
    interval = percentile_interval(bootstrap_mean(each, counts))
    return each.mean(axis=0), undefined_for_one(interval, len(each))
