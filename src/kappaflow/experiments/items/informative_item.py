"""Calibration is no information: how wide each parameter's interval is beside its prior."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kappaflow.calibrate.interval_coverage import INFORMATIVE
from kappaflow.experiments.cells import cell, table
from kappaflow.experiments.item import Found, Item, Library
from kappaflow.experiments.measures import Measured
from kappaflow.experiments.published import published
from kappaflow.experiments.steps import Step
from kappaflow.experiments.study import Study
from kappaflow.plots import INK, style
from kappaflow.plots.experiment_figures import dot_panel, label_of, legend_below

__all__ = ["ITEM"]

METHODS = ("control", "marginalized", "marginalized ensemble")


class Informative(Item):
    """Width over the prior's own, parameter by parameter."""

    name, order = "informative", 11
    title = "What the spectra say of each parameter"
    about = (
        "Median 90 % width over the prior's own 90 % width: 1 returns the prior, and is calibrated for nothing. Mean "
        f"coverage over all parameters, and over those below {INFORMATIVE:g}. The paper: appendix."
    )

    def needs(self, study: Study) -> Sequence[Step]:
        """Return the draws of three methods on perturbed spectra."""
        return [step for method in METHODS for step in study.drawn(method)]

    def compute(self, study: Study, library: Library) -> Found:
        """Return widths and coverage of every parameter."""
        found = {method: library.measured(study.drawn(method)) for method in METHODS}
        widths = {method: one.widths() / 0.9 for method, one in found.items()}
        names = found["marginalized"].names
        rows = []
        for k in np.argsort(widths["marginalized"]):
            paper = published("informative", names[k], "width")
            cells = [cell(float(widths[m][k]), None, paper if m == "marginalized" else None, digits=2) for m in METHODS]
            rows.append((names[k], [*cells, *(found[m].coverage_cell(0.9, None, names[k]) for m in METHODS)]))
        columns = [*(f"width, {m}" for m in METHODS), *(f"coverage, {m}" for m in METHODS)]
        n = found["control"].n
        means = [_means(method, one, found["marginalized"].informative) for method, one in found.items()]
        tables = [
            table(f"Each parameter at 0.90 on {n:,} perturbed spectra, the best measured first", columns, rows),
            table("Mean coverage at 0.90", ["all parameters", "informative parameters"], means),
        ]
        count = int(found["marginalized"].informative.sum())
        notes = [
            f"Informative for the marginalized network: {count} of {len(names)} parameters (the paper: ten of 15)."
        ]
        drawn = {"names": list(names), "widths": {m: w.tolist() for m, w in widths.items()}}
        drawn["paper"] = [published("informative", name, "width") for name in names]
        return Found(tables, drawn, (), notes)

    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw the width of every parameter."""
        order = np.argsort(drawn["widths"]["marginalized"])
        with style():
            figure = Figure(figsize=(9.0, 4.2), layout="constrained")
            axes = figure.subplots()
            axes.axhline(1.0, color=INK, lw=0.8, ls=":")
            series = []
            for method, widths in drawn["widths"].items():
                paper = [drawn["paper"][k] for k in order] if method == "marginalized" else None
                series.append({"name": method, "values": [widths[k] for k in order], "paper": paper})
            dot_panel(axes, [label_of(drawn["names"][k]) for k in order], series, rotate=True)
            axes.set(ylabel="90 % width / the prior's own", ylim=(0.0, 1.12))
            legend_below(axes, columns=4, gap=-0.22)
        return figure


def _means(method: str, one: Measured, chosen: np.ndarray) -> tuple[str, list[Any]]:
    """Mean over all parameters, and over those that are informative for the marginalized network."""
    paper = [published("informative means", method, c) for c in ("overall", "informative")]
    some = cell(*one.overall(chosen=chosen), paper[1]) if chosen.any() else "–"
    return method, [cell(*one.overall(), paper[0]), some]


ITEM = Informative()
