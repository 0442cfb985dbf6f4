"""Line widths that no training varied: half-widths times 1.30, temperature exponents minus 0.15."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kappaflow.calibrate.interval_coverage import nearest
from kappaflow.experiments.cells import cell, table
from kappaflow.experiments.item import Found, Item, Library
from kappaflow.experiments.measures import Measured
from kappaflow.experiments.published import published
from kappaflow.experiments.steps import Step
from kappaflow.experiments.study import BROADENED, Study
from kappaflow.plots import INK, QUIET, style
from kappaflow.plots.experiment_figures import colour_of, label_of

__all__ = ["ITEM"]

METHOD = "marginalized ensemble"


class Broadening(Item):
    """Every parameter, before and after."""

    name, order = "broadening", 10
    title = "Line widths beyond the prior"
    about = (
        f"Half-widths times {BROADENED[0]:g} and temperature exponents {BROADENED[1]:+g} for every absorber, the same "
        "objects and fields otherwise (the smooth field alone), by the marginalized ensemble. The paper: section 4."
    )

    def needs(self, study: Study) -> Sequence[Step]:
        """Return the ensemble's draws on the reference and the broadened set."""
        return [step for test in ("smooth", "broadened") for step in study.drawn(METHOD, test)]

    def compute(self, study: Study, library: Library) -> Found:
        """Return coverage of every parameter on both sets, and the ratio of widths."""
        reference, broadened = (library.measured(study.drawn(METHOD, test)) for test in ("smooth", "broadened"))
        at = nearest(reference.summary.levels, 0.9)
        pair = broadened.inside[at] - reference.inside[at]  # the same objects: the errors of the difference are paired
        ratio = broadened.widths() / reference.widths()
        difference, error = pair.mean(axis=0), pair.std(axis=0, ddof=1) / np.sqrt(len(pair))
        rows = []
        for k in np.argsort(difference):
            name = reference.names[k]
            paper = [published("broadening", name, c) for c in ("reference", "broadened", "difference")]
            cells = [reference.coverage_cell(0.9, paper[0], name), broadened.coverage_cell(0.9, paper[1], name)]
            rows.append(
                (name, [*cells, cell(float(difference[k]), float(error[k]), paper[2]), cell(float(ratio[k]), digits=2)])
            )
        mean = pair.mean(axis=1)
        paper = [published("broadening", "overall", c) for c in ("reference", "broadened", "difference")]
        cells = [reference.overall_cell(paper[0]), broadened.overall_cell(paper[1])]
        moved = cell(float(mean.mean()), float(mean.std(ddof=1) / np.sqrt(len(mean))), paper[2])
        rows.insert(0, ("all parameters", [*cells, moved, cell(float(np.median(ratio)), digits=2)]))
        columns = ["reference", "broadened", "difference", "width, broadened / reference"]
        shown = table(f"Coverage at 0.90 on {reference.n:,} objects, worst first", columns, rows)
        return Found([shown], _drawn(reference, broadened, difference, error))

    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw the change of coverage of every parameter."""
        order = np.argsort(drawn["difference"])
        y = np.arange(len(order))
        with style():
            figure = Figure(figsize=(6.4, 0.27 * len(order) + 1.4), layout="constrained")
            axes = figure.subplots()
            axes.axvline(0.0, color=INK, lw=0.8, ls=":")
            values, errors = (np.array(drawn[key])[order] for key in ("difference", "error"))
            axes.errorbar(values, y, xerr=errors, fmt="o", ms=5, capsize=2, color=colour_of(METHOD), label=METHOD)
            paper = np.array([np.nan if drawn["paper"][k] is None else drawn["paper"][k] for k in order])
            axes.plot(paper, y, "D", ms=5.5, mfc="none", mec=QUIET, label="the paper's")
            axes.set_yticks(y, [label_of(drawn["names"][k]) for k in order])
            axes.invert_yaxis()
            axes.set_xlabel("coverage at 0.90, broadened − reference")
            axes.legend(loc="lower left")
        return figure


def _drawn(reference: Measured, broadened: Measured, difference: np.ndarray, error: np.ndarray) -> dict[str, Any]:
    return {
        "names": list(reference.names),
        "reference": [reference.share(0.9, name) for name in reference.names],
        "broadened": [broadened.share(0.9, name) for name in reference.names],
        "difference": difference.tolist(),
        "error": error.tolist(),
        "paper": [published("broadening", name, "difference") for name in reference.names],
    }


ITEM = Broadening()
