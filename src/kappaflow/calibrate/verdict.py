"""The verdict: every judge on one set of draws, what each found, and one reading of it all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from kappaflow.calibrate.bootstrap import BOOTSTRAPS, resamples
from kappaflow.calibrate.draws import LEVELS, Draws
from kappaflow.calibrate.interval_coverage import (
    CoverageReport,
    coverage_report,
    inside_by_interval,
    inside_by_rank,
    nearest,
)
from kappaflow.calibrate.pit import PitReport, pit_report
from kappaflow.calibrate.quintiles import breakdown, check_covariates
from kappaflow.calibrate.random_points import REFERENCES, TarpReport, tarp
from kappaflow.calibrate.scores import ScoreReport, score_report
from kappaflow.calibrate.summary import Summary, summarize
from kappaflow.errors import UserError
from kappaflow.plain_data import plain

__all__ = ["STAGES", "JudgeSettings", "Verdict", "judge", "judge_intervals"]

CURVE = np.linspace(0.02, 0.98, 49)  # levels of the curve of coverage against nominal
STAGES = 5  # calls of `advance` that one judgement makes


@dataclass(frozen=True)
class JudgeSettings:
    """What decides a verdict besides the draws; `significance` is the chance that an exact posterior fails."""

    levels: tuple[float, ...] = LEVELS
    bootstraps: int = BOOTSTRAPS
    references: int = REFERENCES
    seed: int = 0
    significance: float = 0.05

    def __post_init__(self) -> None:
        if self.bootstraps < 100:
            raise UserError(f"bootstraps: {self.bootstraps}; expected at least 100, for a p-value below 0.01 to exist")
        if self.references < 1 or self.seed < 0:
            raise UserError(f"references: {self.references}, seed: {self.seed}; expected at least 1 and at least 0")


@dataclass(frozen=True, eq=False)
class Verdict:
    """All findings on one method; `checks` say what was tested and whether an exact posterior could look like it.

    Intervals that are not those of draws have no PIT and no TARP: of them only coverage is tested.
    """

    summary: Summary
    inside: np.ndarray
    coverage: CoverageReport
    scores: ScoreReport
    breakdown: dict[str, dict[str, Any]]
    pit: PitReport | None = None
    tarp: dict[str, TarpReport] = field(default_factory=dict)
    checks: tuple[dict[str, Any], ...] = ()
    readings: dict[str, str] = field(default_factory=dict)
    outside_prior: np.ndarray | None = None
    curve: np.ndarray | None = None  # coverage (c, p) at the levels CURVE

    @property
    def calibrated(self) -> bool:
        """Whether every check passed."""
        return all(check["passed"] for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON: everything but the objects' own numbers."""
        return plain(
            {
                "calibrated": self.calibrated,
                "checks": self.checks,
                "readings": self.readings,
                "coverage": self.coverage.to_dict(),
                "coverage_curve": None if self.curve is None else {"levels": CURVE, "coverage": self.curve},
                "pit": None if self.pit is None else self.pit.to_dict(),
                "tarp": {name: report.to_dict() for name, report in self.tarp.items()},
                "scores": self.scores.to_dict(),
                "draws_outside_prior": self.outside_prior,
                "breakdown": self.breakdown,
            }
        )


def judge(
    draws: Draws,
    settings: JudgeSettings | None = None,
    *,
    covariates: Mapping[str, ArrayLike] | None = None,
    log_prob: ArrayLike | None = None,
    fitted_on: int | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Verdict:
    """Judge `draws` whole: coverage, width, PIT, TARP, scores and breakdowns.

    `covariates` (name -> (n,)) are further quantities to break down by, such as SNR; `log_prob` (n,) the log density
    of the posterior at the truth, for the NLL; `fitted_on` the number of other objects that draws were recalibrated
    on, for whose chance the checks then allow; `advance` is called after each of `STAGES` stages.
    """
    settings = JudgeSettings() if settings is None else settings
    extra = check_covariates(covariates or {}, len(draws.truth))
    summary = summarize(draws, settings.levels)
    inside = inside_by_rank(summary.below, summary.ties, summary.count, summary.levels)
    counts = resamples(len(draws.truth), settings.bootstraps, seed=settings.seed)
    advance()
    covered = coverage_report(summary, inside, counts, fitted_on=fitted_on)
    pit = pit_report(summary, seed=settings.seed, fitted_on=fitted_on)
    scores = score_report(summary, counts, log_prob=log_prob)
    tables = _breakdowns(summary, inside, extra)
    advance()
    joint: dict[str, TarpReport] = {}
    for name, options in _joint_tests(draws, covered).items():
        if options is not None:
            joint[name] = tarp(draws, count=settings.references, resampled=counts, seed=settings.seed, **options)
        advance()
    share = _share(covered, pit, joint, settings.significance)
    return Verdict(
        summary=summary,
        inside=inside,
        coverage=covered,
        scores=scores,
        breakdown=tables,
        pit=pit,
        tarp=joint,
        checks=_checks(covered, pit, joint, share),
        readings=_readings(covered, pit, share),
        outside_prior=draws.outside_prior(),
        curve=inside_by_rank(summary.below, summary.ties, summary.count, CURVE).mean(axis=1),
    )


def judge_intervals(
    summary: Summary,
    settings: JudgeSettings | None = None,
    *,
    covariates: Mapping[str, ArrayLike] | None = None,
    fitted_on: int | None = None,
) -> Verdict:
    """Judge intervals that are not of draws, such as conformal ones: coverage, width, interval score, breakdowns."""
    settings = JudgeSettings() if settings is None else settings
    extra = check_covariates(covariates or {}, len(summary.truth))
    inside = inside_by_interval(summary.truth, summary.lower, summary.upper)
    counts = resamples(len(summary.truth), settings.bootstraps, seed=settings.seed)
    covered = coverage_report(summary, inside, counts, fitted_on=fitted_on)
    return Verdict(
        summary=summary,
        inside=inside,
        coverage=covered,
        scores=score_report(summary, counts, draws_scored=False),
        breakdown=_breakdowns(summary, inside, extra),
        checks=_checks(covered, None, {}, settings.significance),  # one family: the whole of it
        readings=_readings(covered, None, settings.significance),
    )


def _breakdowns(summary: Summary, inside: np.ndarray, extra: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """By covariate, by the posterior median (known from data, as SNR is) and by the truth (not known: see docs)."""
    by = dict(extra)
    by |= {f"median {name}": summary.median[:, k] for k, name in enumerate(summary.names)}
    by |= {f"true {name}": summary.truth[:, k] for k, name in enumerate(summary.names)}
    level = float(summary.levels[nearest(summary.levels, 0.9)])
    return {name: breakdown(summary, inside, values, level=level) for name, values in by.items()}


def _joint_tests(draws: Draws, covered: CoverageReport) -> dict[str, dict[str, Any] | None]:
    vary = bool((draws.draws[:, :1] != draws.draws).any())
    some = covered.informative is not None and covered.informative.any() and not covered.informative.all()
    return {
        "all": {"references": "local"} if vary else None,
        "informative": {"references": "local", "parameters": covered.informative} if vary and some else None,
        "all, prior references": {"references": "prior"} if vary and draws.low is not None else None,
    }


def _share(
    covered: CoverageReport, pit: PitReport | None, joint: Mapping[str, TarpReport], significance: float
) -> float:
    """Level of each family of tests, which share `significance`: what a check says and what it decides use the same."""
    return significance / (1 + (pit is not None) + sum(_tested(report, covered) for report in joint.values()))


def _tested(report: TarpReport, covered: CoverageReport) -> bool:
    """Whether TARP is tested: its null band is that of draws never fitted; of recalibrated ones it is reported only."""
    return report.references == "local" and covered.fitted_on is None


def _checks(
    covered: CoverageReport, pit: PitReport | None, joint: Mapping[str, TarpReport], share: float
) -> tuple[dict[str, Any], ...]:
    """One row per family of tests, each corrected within (Bonferroni) and passed at `share`."""
    least = covered.p_value.min()
    level, k = np.unravel_index(covered.p_value.argmin(), covered.p_value.shape)
    rows: list[tuple[str, float, str]] = [
        (
            "coverage",
            float(min(1.0, covered.p_value.size * least)),
            f"worst: {covered.names[k]} covers {covered.coverage[level, k]:.3f} at {covered.levels[level]:g}",
        )
    ]
    if pit is not None:
        worst = int(pit.ks_p_value.argmin())
        failed = int((pit.ks_p_bonferroni < share).sum())
        text = f"{failed} of {len(pit.names)} parameters fail KS; worst: {pit.names[worst]}, D = {pit.ks[worst]:.3f}"
        rows.append(("PIT", float(pit.ks_p_bonferroni[worst]), text))
    for name, report in joint.items():
        if _tested(report, covered):
            text = (
                f"max |ECP - alpha| {report.deviation:.4f}; a perfect posterior stays below {report.null_deviation:.4f}"
            )
            rows.append((f"TARP ({name})", report.p_value, text))
    return tuple(
        {"check": name, "p_value": p, "threshold": share, "passed": p >= share, "finding": text}
        for name, p, text in rows
    )


def _readings(covered: CoverageReport, pit: PitReport | None, share: float) -> dict[str, str]:
    """Each parameter in words: covers too little or too much, sits too high or too low, misshapen, or sound."""
    readings = {}
    for k, name in enumerate(covered.names):
        words = []
        worst = int(covered.p_value[:, k].argmin())
        if covered.p_value.size * covered.p_value[worst, k] < share:
            words.append("covers too " + ("little" if covered.coverage[worst, k] < covered.levels[worst] else "much"))
        if pit is not None and pit.ks_p_bonferroni[k] < share:  # what no check found is not said either
            excess = 1.0 if covered.fitted_on is None else 1.0 + covered.objects / covered.fitted_on
            error = np.sqrt(excess / (12.0 * covered.objects))  # of the mean of uniform PITs
            z = (pit.rank_mean[k] - 0.5) / error
            if 2.0 * norm.sf(abs(z)) * len(covered.names) < share:
                words.append("sits too " + ("high" if z < 0 else "low"))
            if not words:
                words.append("misshapen")
        readings[name] = ", ".join(words) or "sound"
    return readings
