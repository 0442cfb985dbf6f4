"""Recalibration against marginalization: raw and recalibrated, control and marginalized, single and pooled."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from kappaflow.calibrate import paired, resamples
from kappaflow.calibrate.interval_coverage import nearest
from kappaflow.experiments.cells import table
from kappaflow.experiments.item import Found, Item, Library
from kappaflow.experiments.measures import Measured, binomial_error, recalibrated
from kappaflow.experiments.published import published
from kappaflow.experiments.steps import Step
from kappaflow.experiments.study import Study
from kappaflow.plots import style
from kappaflow.plots.experiment_figures import colour_of, look_of, nominal_line

__all__ = ["ITEM"]

METHODS = ("control", "marginalized", "control ensemble", "marginalized ensemble")
PAIRS = (
    ("recalibrated marginalized ensemble", "recalibrated control ensemble"),
    ("marginalized ensemble", "recalibrated control ensemble"),
    ("recalibrated marginalized", "recalibrated control"),
)


class Recalibration(Item):
    """The two by two factorial."""

    name, order = "recalibration", 5
    title = "Recalibration is no substitute"
    about = (
        "Monotone maps of the PIT of every parameter (Kuleshov et al. 2018), fitted on a disjoint half of as many "
        "perturbed spectra and frozen, applied to the control and to the marginalized networks. The paper: 3(c)."
    )

    def needs(self, study: Study) -> Sequence[Step]:
        """Return the draws of four methods on the test set and on the calibration half."""
        return [step for m in METHODS for test in ("perturbed", "calibration") for step in study.drawn(m, test)]

    def compute(self, study: Study, library: Library) -> Found:
        """Return the factorial and the paired differences."""
        every: dict[str, Measured] = {}
        for method in METHODS:
            raw = library.measured(study.drawn(method))
            every[method] = raw
            every[f"recalibrated {method}"] = recalibrated(raw, library.measured(study.drawn(method, "calibration")))
        rows, drawn = [], {}
        for name, one in every.items():
            paper = {c: published("recalibration", name, c) for c in ("0.90", "overall", "width")}
            cells = [one.coverage_cell(0.9, paper["0.90"]), one.overall_cell(paper["overall"])]
            rows.append((name, [*cells, one.width_cell(paper["width"]), one.score_cell()]))
            share = one.share()
            drawn[name] = {
                "coverage": share,
                "error": binomial_error(share, one.n),
                "width": one.width(),
                "paper": [paper["0.90"], paper["width"]],
            }
        columns = ["0.90", "all parameters", "width / prior", "interval score / prior"]
        n = every["control"].n
        pairs = [_pair(every[a], every[b], f"{a} − {b}", study) for a, b in PAIRS]
        head = ["coverage at 0.90", "width / prior", "interval score / prior"]
        tables = [
            table(f"C/O on {n:,} perturbed spectra", columns, rows),
            table("Paired differences [95 % of bootstraps over objects]", head, pairs),
        ]
        return Found(tables, drawn)

    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw width against coverage: as low as can be, on the nominal line."""
        with style():
            figure = Figure(figsize=(7.8, 4.4), layout="constrained")
            axes = figure.subplots()
            nominal_line(axes, vertical=True)
            for name, one in drawn.items():
                bars = {**look_of(name), "ls": "none"}
                axes.errorbar(one["coverage"], one["width"], xerr=one["error"], ms=7, capsize=2, label=name, **bars)
                if None not in one["paper"]:
                    axes.plot(*one["paper"], "D", ms=6, mfc="none", mec=colour_of(name), alpha=0.8)
            axes.plot([], [], "D", ms=6, mfc="none", mec="grey", label="the paper's")
            axes.set(xlabel="coverage of C/O at 0.90", ylabel="median 90 % width / prior")
            axes.set_ylim(bottom=0.0)
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        return figure


def _pair(first: Measured, second: Measured, label: str, study: Study) -> tuple[str, list[str]]:
    counts = resamples(first.n, study.sizes.bootstraps)
    found = paired((first.summary, first.inside), (second.summary, second.inside), counts)
    at, k = nearest(first.summary.levels, 0.9), first.index()
    cells = []
    for key in ("coverage", "width", "interval_score"):
        low, high = (found[f"{key}_interval"][side][at][k] for side in (0, 1))
        words = f"{found[key][at][k]:+.3f} [{low:+.3f}, {high:+.3f}]"
        theirs = [published("recalibrated pair", key, c) for c in ("difference", "low", "high")]
        if label == " − ".join(PAIRS[0]) and None not in theirs:
            words += " · *{:+.3f} [{:+.3f}, {:+.3f}]*".format(*theirs)
        cells.append(words)
    return label, cells


ITEM = Recalibration()
