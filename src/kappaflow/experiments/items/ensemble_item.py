"""How many networks to pool: coverage and score of one, two, three and more, over every choice of members."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kappaflow.experiments.cells import cell, table
from kappaflow.experiments.item import Found, Item, Library
from kappaflow.experiments.measures import Measured, binomial_error
from kappaflow.experiments.published import published
from kappaflow.experiments.steps import Step
from kappaflow.experiments.study import Study
from kappaflow.plots import style
from kappaflow.plots.experiment_figures import legend_below, line_panel, nominal_line

__all__ = ["ITEM"]


class Ensemble(Item):
    """Saturation with the number of members."""

    name, order = "ensemble", 3
    title = "How many networks to pool"
    about = (
        "Marginalized networks that differ in their seed alone, pooled with equal weight. The paper (section 3(b)) "
        "pools one, two and three, in one order, and leaves open where it saturates; here every choice of members is "
        "averaged."
    )

    def needs(self, study: Study) -> Sequence[Step]:
        """Return the draws of all members on perturbed spectra."""
        return study.drawn("marginalized", members=study.sizes.marginalized)

    def compute(self, study: Study, library: Library) -> Found:
        """Return means over every choice of M members, and those of the first M."""
        steps = study.drawn("marginalized", members=study.sizes.marginalized)
        counts = range(1, len(steps) + 1)
        rows, drawn = [], {"members": list(counts)}
        columns: dict[str, list[Any]] = {"coverage": [], "spread": [], "overall": [], "width": [], "score": []}
        for count in counts:
            first = library.measured(steps[:count])
            each = [_numbers(library.measured(chosen)) for chosen in combinations(steps, count)]
            mean, spread = np.mean(each, axis=0), np.std(each, axis=0)
            paper = published("ensemble", "marginalized", str(count))
            cells = [first.coverage_cell(0.9, paper), cell(mean[0], spread[0]), *(cell(m) for m in mean[1:])]
            rows.append((f"{count}", cells))
            for name, value in zip(columns, (mean[0], spread[0], *mean[1:]), strict=True):
                columns[name].append(float(value))
        n = library.measured(steps[:1]).n
        drawn |= columns | {"error": [binomial_error(share, n) for share in columns["coverage"]]}
        drawn["paper"] = [published("ensemble", "marginalized", str(count)) for count in counts]
        head = ["first members", "mean over choices ± their spread", "all parameters", "width / prior"]
        shown = table(
            f"C/O at 0.90 on {n:,} perturbed spectra, by members pooled", [*head, "interval score / prior"], rows
        )
        return Found([shown], drawn)

    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw coverage, all parameters and interval score against the number of members."""
        x, panels = drawn["members"], (("coverage", "coverage of C/O at 0.90"), ("overall", "all parameters at 0.90"))
        with style():
            figure = Figure(figsize=(10.2, 3.5), layout="constrained")
            left, middle, right = figure.subplots(1, 3)
            for axes, (name, label) in zip((left, middle), panels, strict=True):
                nominal_line(axes)
                one: dict[str, Any] = {"name": "marginalized ensemble", "values": drawn[name]}
                if name == "coverage":
                    one |= {"errors": drawn["spread"], "paper": drawn["paper"]}
                line_panel(axes, x, [one])
                axes.set_ylabel(label)
            line_panel(right, x, [{"name": "marginalized ensemble", "values": drawn["score"]}])
            right.set_ylabel("interval score of C/O / prior")
            for axes in (left, middle, right):
                axes.set(xlabel="networks pooled", xticks=x)
                axes.margins(x=0.12, y=0.25)
            left.set_title("bars: spread over choices of members", loc="left", fontsize=9)
            legend_below(left, columns=2, gap=-0.2)
        return figure


def _numbers(measured: Measured) -> list[float]:
    """Coverage of C/O, of all parameters, width and interval score, at 0.90."""
    return [measured.share(), measured.overall()[0], measured.width(), measured.score()[0]]


ITEM = Ensemble()
