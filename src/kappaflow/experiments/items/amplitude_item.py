"""The amplitude of the opacity field in nature is not known: networks trained at one, judged at others."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from kappaflow.experiments.cells import table
from kappaflow.experiments.item import Found, Item, Library
from kappaflow.experiments.measures import binomial_error
from kappaflow.experiments.published import published
from kappaflow.experiments.steps import Step
from kappaflow.experiments.study import AMPLITUDES, Study
from kappaflow.plots import INK, style
from kappaflow.plots.experiment_figures import legend_below, line_panel, nominal_line

__all__ = ["ITEM"]

METHODS = ("control", "marginalized", "marginalized ensemble")


class Amplitude(Item):
    """Four amplitudes of the field."""

    name, order = "amplitude", 6
    title = "The amplitude of the prior misjudged"
    about = (
        "The same objects and the same random fields, scaled: networks trained at amplitude 1 meet 0.43 to 2.14 times "
        "it. The paper: section 3(d)."
    )

    def needs(self, study: Study) -> Sequence[Step]:
        """Return the draws of three methods at every amplitude."""
        return [step for m in METHODS for a in AMPLITUDES for step in study.drawn(m, _test(a))]

    def compute(self, study: Study, library: Library) -> Found:
        """Return coverage and width at every amplitude."""
        covered, widths, drawn = [], [], {}
        for method in METHODS:
            found = [library.measured(study.drawn(method, _test(a))) for a in AMPLITUDES]
            paper = [published("amplitude", method, f"{a:g}") for a in AMPLITUDES]
            covered.append((method, [one.coverage_cell(0.9, p) for one, p in zip(found, paper, strict=True)]))
            widths.append((method, [one.width_cell() for one in found]))
            shares = [one.share() for one in found]
            errors = [binomial_error(share, found[0].n) for share in shares]
            drawn[method] = {"values": shares, "errors": errors, "paper": paper}
        columns, n = [f"× {a:g}" for a in AMPLITUDES], found[0].n
        tables = [
            table(f"C/O at 0.90 on {n:,} perturbed spectra, by the amplitude of their field", columns, covered),
            table("Median 90 % width of C/O / prior", columns, widths),
        ]
        return Found(tables, {"amplitudes": list(AMPLITUDES), "methods": drawn})

    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw coverage against the amplitude."""
        with style():
            figure = Figure(figsize=(6.4, 4.2), layout="constrained")
            axes = figure.subplots()
            nominal_line(axes)
            axes.axvline(1.0, color=INK, lw=0.6, alpha=0.4)
            line_panel(axes, drawn["amplitudes"], [{"name": name, **one} for name, one in drawn["methods"].items()])
            axes.set(xlabel="amplitude of the field / trained", ylabel="coverage of C/O at 0.90", ylim=(0.0, 1.0))
            legend_below(axes, columns=2)
        return figure


def _test(amplitude: float) -> str:
    return "perturbed" if amplitude == 1 else f"amplitude {amplitude:g}"


ITEM = Amplitude()
