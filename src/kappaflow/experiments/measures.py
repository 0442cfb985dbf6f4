"""What the items measure of draws: coverage with its binomial error, width, scores; in the cells of their tables."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kappaflow.calibrate import Draws, breakdown, fit_pit_map, interval_score, summarize
from kappaflow.calibrate.draws import LEVELS
from kappaflow.calibrate.interval_coverage import INFORMATIVE, inside_by_rank, nearest
from kappaflow.calibrate.summary import Summary
from kappaflow.evaluate.scoring import focus
from kappaflow.experiments.cells import Cell, cell

__all__ = ["LEVEL_NAMES", "Measured", "binomial_error", "recalibrated"]

LEVEL_NAMES = tuple(f"{level:.2f}" for level in LEVELS)


def binomial_error(share: float, n: int) -> float:
    """Return the standard error of a share of n objects."""
    return float(np.sqrt(share * (1.0 - share) / n))


@dataclass(frozen=True, eq=False)
class Measured:
    """One method on one test set, reduced to what tables need."""

    draws: Draws
    snr: np.ndarray
    log_prob: np.ndarray | None = None

    @cached_property
    def summary(self) -> Summary:
        """Ranks, intervals and medians."""
        return summarize(self.draws, LEVELS)

    @cached_property
    def inside(self) -> np.ndarray:
        """Whether each interval holds its truth, (level, object, parameter)."""
        s = self.summary
        return inside_by_rank(s.below, s.ties, s.count, s.levels)

    @property
    def n(self) -> int:
        """Objects."""
        return len(self.draws.truth)

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters."""
        return self.draws.names

    def index(self, parameter: str | None = None) -> int:
        """Place of a parameter; C/O by default."""
        return self.names.index(parameter or focus(self.names))

    def share(self, level: float = 0.9, parameter: str | None = None) -> float:
        """Coverage of one parameter, C/O by default."""
        return float(self.inside[nearest(self.summary.levels, level), :, self.index(parameter)].mean())

    def overall(self, level: float = 0.9, chosen: np.ndarray | None = None) -> tuple[float, float]:
        """Mean coverage over parameters (or the `chosen` ones), and its standard error over objects."""
        at = self.inside[nearest(self.summary.levels, level)]
        each = (at if chosen is None else at[:, chosen]).mean(axis=1)
        return float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))

    def widths(self, level: float = 0.9) -> np.ndarray:
        """Median widths of the central intervals over the prior's width, (parameter,)."""
        s = self.summary
        assert s.prior_width is not None, "draws of networks carry their prior"
        return np.median(s.width[nearest(s.levels, level)], axis=0) / s.prior_width

    def width(self, parameter: str | None = None) -> float:
        """Median 90 % width of one parameter over its prior's width."""
        return float(self.widths()[self.index(parameter)])

    @property
    def informative(self) -> np.ndarray:
        """Parameters whose median 90 % width is below 0.9 of the prior's own, (parameter,)."""
        return self.widths() / 0.9 < INFORMATIVE

    def score(self) -> tuple[float, float]:
        """Interval score of C/O at 0.90 over the prior's width, and its standard error."""
        s, k = self.summary, self.index()
        each = interval_score(s.truth, s.lower, s.upper, s.levels)[nearest(s.levels, 0.9), :, k]
        assert s.prior_width is not None, "draws of networks carry their prior"
        each = each / s.prior_width[k]
        return float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))

    def nats(self) -> tuple[float, float] | None:
        """Mean log density of the truth over the prior's, and its standard error."""
        if self.log_prob is None or self.draws.prior_width is None:
            return None
        each = self.log_prob + np.log(self.draws.prior_width).sum()
        return float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))

    def quintiles(self, by: np.ndarray) -> dict[str, Any]:
        """Coverage of C/O in quintiles of a quantity (object,): low and high ends, coverage, Wilson interval."""
        found, k = breakdown(self.summary, self.inside, by), self.index()
        columns = ("coverage", "wilson_low", "wilson_high")
        return {"low": found["low"], "high": found["high"]} | {c: [row[k] for row in found[c]] for c in columns}

    def coverage_cell(self, level: float = 0.9, paper: float | None = None, parameter: str | None = None) -> Cell:
        """Coverage, its binomial error, the paper's."""
        share = self.share(level, parameter)
        return cell(share, binomial_error(share, self.n), paper)

    def overall_cell(self, paper: float | None = None) -> Cell:
        """Mean coverage over parameters at 0.90."""
        return cell(*self.overall(), paper)

    def width_cell(self, paper: float | None = None) -> Cell:
        """Median 90 % width of C/O over the prior."""
        return cell(self.width(), None, paper)

    def score_cell(self) -> Cell:
        """Interval score of C/O over the prior."""
        return cell(*self.score())


def recalibrated(raw: Measured, calibration: Measured) -> Measured:
    """Return `raw` after the PIT map of every parameter, fitted on the `calibration` half and frozen."""
    return Measured(fit_pit_map(calibration.draws).apply(raw.draws), raw.snr)
