"""Judges of a posterior: arrays in, plain data out. Nothing here knows of networks or stars."""

from kappaflow.calibrate.bootstrap import bootstrap_mean, bootstrap_median, percentile_interval, resamples
from kappaflow.calibrate.draws import LEVELS, Draws, check_draws
from kappaflow.calibrate.interval_coverage import CoverageReport, coverage, highest_density_coverage, wilson
from kappaflow.calibrate.pairing import paired
from kappaflow.calibrate.pit import PitReport, pit_report, randomized_pit
from kappaflow.calibrate.quintiles import breakdown
from kappaflow.calibrate.random_points import TarpReport, tarp
from kappaflow.calibrate.recalibrate import Conformal, PitMap, fit_conformal, fit_pit_map, split_half
from kappaflow.calibrate.rows import comparison_table, parameter_rows
from kappaflow.calibrate.scores import ScoreReport, interval_score, score_report
from kappaflow.calibrate.summary import Summary, sample_quantiles, summarize
from kappaflow.calibrate.verdict import JudgeSettings, Verdict, judge, judge_intervals

__all__ = [
    "LEVELS",
    "Conformal",
    "CoverageReport",
    "Draws",
    "PitMap",
    "PitReport",
    "ScoreReport",
    "JudgeSettings",
    "Summary",
    "TarpReport",
    "Verdict",
    "bootstrap_mean",
    "bootstrap_median",
    "breakdown",
    "check_draws",
    "comparison_table",
    "coverage",
    "fit_conformal",
    "fit_pit_map",
    "highest_density_coverage",
    "interval_score",
    "judge",
    "judge_intervals",
    "paired",
    "parameter_rows",
    "percentile_interval",
    "pit_report",
    "randomized_pit",
    "resamples",
    "sample_quantiles",
    "score_report",
    "split_half",
    "summarize",
    "tarp",
    "wilson",
]
