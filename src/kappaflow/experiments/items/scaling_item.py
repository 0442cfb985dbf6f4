"""More simulations: whether they cure a network of fixed opacities or make it surer of what is wrong."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from kappaflow.experiments.cells import table
from kappaflow.experiments.item import Found, Item, Library
from kappaflow.experiments.measures import Measured, binomial_error
from kappaflow.experiments.published import published
from kappaflow.experiments.steps import Step
from kappaflow.experiments.study import Study
from kappaflow.plots import style
from kappaflow.plots.experiment_figures import legend_below, line_panel, nominal_line

__all__ = ["ITEM"]

ARMS = {"control": ("small control", "control"), "marginalized": ("small marginalized", "marginalized")}


class Scaling(Item):
    """Small against large training set."""

    name, order = "scaling", 2
    title = "Small and large training sets"
    about = (
        "The same networks trained for as many steps on few and on many spectra, judged on perturbed ones. The paper "
        "(section 3(a)) sees its control fall from 0.57 to 0.47 with more data."
    )

    def needs(self, study: Study) -> Sequence[Step]:
        """Return the draws of both arms on perturbed spectra."""
        return [step for arms in ARMS.values() for method in arms for step in study.drawn(method)]

    def compute(self, study: Study, library: Library) -> Found:
        """Return coverage and width of both arms."""
        sizes = [study.network(method).limit or round(0.9 * study.sizes.train) for method in ARMS["control"]]
        rows, drawn = [], {}
        for name, arms in ARMS.items():
            found = [library.measured(study.drawn(method)) for method in arms]
            paper = [published("scaling", name, size) for size in ("small", "large")]
            for one, value, size in zip(found, paper, sizes, strict=True):
                cells = [one.coverage_cell(0.9, value), one.overall_cell(), one.width_cell(), one.score_cell()]
                rows.append((f"{name}, {size:,} spectra", cells))
            drawn[name] = _series(found, paper)
        columns = ["0.90", "all parameters", "width / prior", "interval score / prior"]
        shown = table(f"C/O on {found[0].n:,} perturbed spectra", columns, rows)
        return Found([shown], {"sizes": sizes, "arms": drawn})

    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw coverage and width against the size of the training set."""
        with style():
            figure = Figure(figsize=(8.2, 3.6), layout="constrained")
            left, right = figure.subplots(1, 2)
            nominal_line(left)
            line_panel(left, drawn["sizes"], [{"name": name, **one} for name, one in drawn["arms"].items()])
            widths = [{"name": name, "values": one["widths"]} for name, one in drawn["arms"].items()]
            line_panel(right, drawn["sizes"], widths)
            left.set(ylim=(0.0, 1.0), ylabel="coverage of C/O at 0.90")
            right.set(ylabel="median 90 % width / prior")
            right.set_ylim(bottom=0.0)
            for axes in (left, right):
                axes.set(xscale="log", xlabel="training spectra")
                axes.set_xticks(drawn["sizes"], [f"{size:,}" for size in drawn["sizes"]])
                axes.minorticks_off()
                axes.margins(x=0.25)
            legend_below(left, columns=3, gap=-0.2)
        return figure


def _series(found: list[Measured], paper: list[float | None]) -> dict[str, Any]:
    shares = [one.share() for one in found]
    return {
        "values": shares,
        "errors": [binomial_error(share, found[0].n) for share in shares],
        "paper": paper,
        "widths": [one.width() for one in found],
    }


ITEM = Scaling()
