"""A line list that training never saw."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from kappaflow.experiments.cells import table
from kappaflow.experiments.item import Found, Item, Library
from kappaflow.experiments.measures import binomial_error
from kappaflow.experiments.published import published
from kappaflow.experiments.steps import Step
from kappaflow.experiments.study import HELD_OUT, Study
from kappaflow.plots import style
from kappaflow.plots.experiment_figures import dot_panel, legend_below, nominal_line

__all__ = ["ITEM"]

TESTS = ("withheld list", "lists of training")
METHODS = {"marginalized, list withheld": "held-out", "marginalized, all lists": "marginalized", "control": "control"}


class HeldOutList(Item):
    """CH4's alternative withheld."""

    name, order = "heldout", 7
    title = "A line list withheld in training"
    about = (
        f"A network trained without the {HELD_OUT[0]} list `{HELD_OUT[1]}` meets spectra made with that list alone, "
        "and the same objects made with the lists it knows; beside it networks that knew all lists, and one that knew "
        "only the base. The paper: section 3(e)."
    )

    def needs(self, study: Study) -> Sequence[Step]:
        """Return the draws of three networks on both sets."""
        return [step for kind in METHODS.values() for test in TESTS for step in study.drawn(kind, test)]

    def compute(self, study: Study, library: Library) -> Found:
        """Return coverage on both sets."""
        rows, drawn = [], {}
        for name, kind in METHODS.items():
            cells, shares, papers = [], [], []
            for test in TESTS:
                one = library.measured(study.drawn(kind, test))
                own = kind == "held-out"
                paper = [published("heldout", test, c) if own else None for c in ("0.90", "overall")]
                cells += [one.coverage_cell(0.9, paper[0]), one.overall_cell(paper[1]), one.width_cell()]
                shares.append(one.share())
                papers.append(paper[0])
            rows.append((name, cells))
            errors = [binomial_error(share, one.n) for share in shares]
            drawn[name] = {"values": shares, "errors": errors, "paper": papers}
        columns = [f"{test}: {what}" for test in TESTS for what in ("0.90", "all parameters", "width / prior")]
        shown = table(f"C/O on {one.n:,} objects, perturbed", columns, rows)
        return Found([shown], {"tests": list(TESTS), "methods": drawn})

    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw coverage on both sets."""
        with style():
            figure = Figure(figsize=(6.4, 4.0), layout="constrained")
            axes = figure.subplots()
            nominal_line(axes)
            dot_panel(axes, drawn["tests"], [{"name": name, **one} for name, one in drawn["methods"].items()])
            axes.set(ylabel="coverage of C/O at 0.90", ylim=(0.0, 1.0))
            legend_below(axes, columns=2, gap=-0.1)
        return figure


ITEM = HeldOutList()
