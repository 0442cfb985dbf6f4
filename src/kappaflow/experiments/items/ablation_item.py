"""Which half of the perturbation does it: the swapped lists, or the smooth field."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from kappaflow.experiments.cells import table
from kappaflow.experiments.item import Found, Item, Library
from kappaflow.experiments.measures import binomial_error, recalibrated
from kappaflow.experiments.published import published
from kappaflow.experiments.steps import Step
from kappaflow.experiments.study import Study
from kappaflow.plots import style
from kappaflow.plots.experiment_figures import dot_panel, legend_below, nominal_line

__all__ = ["ITEM"]

TRAINED = {"none": "control", "discrete": "discrete", "smooth": "smooth", "both": "marginalized"}
TESTED = ("control", "marginalized ensemble")


class Ablation(Item):
    """One axis at a time."""

    name, order = "ablation", 8
    title = "Lists swapped, field drawn, or both"
    about = (
        "Single networks whose training varied nothing, the lists alone, the smooth field alone, or both, on spectra "
        "perturbed in both; and networks trained as before on spectra perturbed along one axis. The paper: 3(h)."
    )

    def needs(self, study: Study) -> Sequence[Step]:
        """Return the draws of the arms on test set and calibration half, and of two methods along each axis."""
        arms = [s for kind in TRAINED.values() for t in ("perturbed", "calibration") for s in study.drawn(kind, t)]
        return [*arms, *(s for m in TESTED for axis in ("discrete", "smooth") for s in study.drawn(m, axis))]

    def compute(self, study: Study, library: Library) -> Found:
        """Return both blocks of the paper's table."""
        upper, lower = [], []
        drawn: dict[str, Any] = {"trained": {"raw": [], "recalibrated": []}, "tested": {}}
        for axis, kind in TRAINED.items():
            raw = library.measured(study.drawn(kind))
            moved = recalibrated(raw, library.measured(study.drawn(kind, "calibration")))
            paper = [published("ablation, training", axis, c) for c in ("raw", "recalibrated")]
            if axis == "none":
                paper = [published("recalibration", name, "0.90") for name in ("control", "recalibrated control")]
            cells = [raw.coverage_cell(0.9, paper[0]), moved.coverage_cell(0.9, paper[1])]
            upper.append((axis, [*cells, raw.width_cell(), moved.width_cell(), raw.score_cell()]))
            for name, one, theirs in zip(("raw", "recalibrated"), (raw, moved), paper, strict=True):
                drawn["trained"][name].append([one.share(), binomial_error(one.share(), one.n), theirs])
        for method in TESTED:
            found = {axis: library.measured(study.drawn(method, axis)) for axis in ("discrete", "smooth")}
            papers = [published("ablation, testing", axis, method) for axis in found]
            drawn["tested"][method] = [
                [one.share(), binomial_error(one.share(), one.n), paper]
                for one, paper in zip(found.values(), papers, strict=True)
            ]
            lower.append((method, [one.coverage_cell(0.9, p) for one, p in zip(found.values(), papers, strict=True)]))
        columns = ["0.90, raw", "0.90, recalibrated", "width / prior, raw", "recalibrated", "interval score, raw"]
        tables = [
            table(f"By what training varied; C/O on {raw.n:,} spectra perturbed in both", columns, upper),
            table("By what the test spectra vary; C/O at 0.90", ["lists alone", "field alone"], lower),
        ]
        return Found(tables, drawn)

    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw coverage by axis of training, and by axis of testing."""
        with style():
            figure = Figure(figsize=(9.4, 4.0), layout="constrained")
            left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
            trained = [_series(name, one) for name, one in drawn["trained"].items()]
            dot_panel(left, ["nothing\n(control)", "lists", "field", "both"], trained)
            dot_panel(right, ["lists", "field"], [_series(name, one) for name, one in drawn["tested"].items()])
            for axes, words in ((left, "varied in training"), (right, "varied in the test spectra")):
                nominal_line(axes)
                axes.set(ylim=(0.0, 1.02), xlabel=words)
                legend_below(axes, columns=1, gap=-0.22)
            left.set_ylabel("coverage of C/O at 0.90")
        return figure


def _series(name: str, rows: list[list[float | None]]) -> dict[str, Any]:
    values, errors, paper = (list(column) for column in zip(*rows, strict=True))
    return {"name": name, "values": values, "errors": errors, "paper": paper}


ITEM = Ablation()
