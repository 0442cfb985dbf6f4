"""How far our own pairs of line lists differ, beside the amplitudes that the networks are trained with."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from kappaflow.build.tables.list_ratio import LOG_PRESSURES, TEMPERATURES, compare_lists
from kappaflow.experiments.cells import cell, table
from kappaflow.experiments.item import Found, Item, Library
from kappaflow.experiments.published import amplitudes
from kappaflow.experiments.steps import Step
from kappaflow.experiments.study import Study
from kappaflow.plots import PALETTE, style
from kappaflow.tables.opacity import load_opacity

__all__ = ["ITEM"]

COLUMNS = ("const", "mode 1", "mode 2", "mode 3", "mode 4")


class Priors(Item):
    """Measured spreads of the Fourier coefficients."""

    name, order = "priors", 12
    title = "Amplitudes measured between our own lists"
    about = (
        "The ratio of two line lists of one absorber at R = 200, over temperature and pressure, fitted with the field "
        "of the perturbation: root-mean-square coefficients, beside the prior of the training (the paper's table of "
        "amplitudes, which it set well above what it measured)."
    )

    def needs(self, study: Study) -> Sequence[Step]:
        """Return nothing: the tables are packaged."""
        return ()

    def compute(self, study: Study, library: Library) -> Found:
        """Return the spread of every pair of lists of the packaged table."""
        opacity = load_opacity()
        rows, rest, drawn = [], [], {}
        for species, lists in opacity.lists.items():
            base, *others = lists
            for other in others:
                found = compare_lists((opacity, species, other), (opacity, species, base)).summary()
                spread, paper = [found["sigma"]["const"], *found["sigma"]["modes"]], amplitudes(species)
                label = f"{species}: {other} / {base}"
                rows.append((label, [cell(s, None, p) for s, p in zip(spread, paper, strict=True)]))
                rms = [found[f"rms {what}"] for what in ("ln ratio", "field", "residual")]
                rest.append((label, [cell(value) for value in rms]))
                drawn[label] = {"species": species, "spread": spread, "paper": paper}
        low, high = (f"{10**p:.2g}" for p in LOG_PRESSURES)
        where = f"{TEMPERATURES[0]:g}-{TEMPERATURES[1]:g} K, {low}-{high} bar"
        tables = [
            table(f"Spread of the coefficients of ln(ratio), {where}", COLUMNS, rows),
            table("Root-mean-square of ln(ratio)", ["of the ratio", "of the field", "left over"], rest),
        ]
        alone = [species for species, lists in opacity.lists.items() if len(lists) < 2]
        notes = [f"One list only: {', '.join(alone)}."] if alone else []
        return Found(tables, drawn, (), notes)

    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw measured spreads over the prior's, mode by mode."""
        with style():
            figure = Figure(figsize=(2.5 * max(1, len(drawn)) + 0.6, 3.4), layout="constrained")
            panels = figure.subplots(1, max(1, len(drawn)), squeeze=False, sharey=True)[0]
            for axes, (label, one) in zip(panels, drawn.items(), strict=False):
                x = range(len(COLUMNS))
                axes.bar(x, one["spread"], color=PALETTE[0], alpha=0.6, label="measured here")
                if None not in one["paper"]:
                    axes.plot(x, one["paper"], "D", ms=6, mfc="none", mec=PALETTE[1], label="prior of the training")
                axes.set_title(label, loc="left")
                axes.set_xticks(list(x), ["const", "1", "2", "3", "4"])
                axes.set_xlabel("mode")
            panels[0].set_ylabel("standard deviation of ln opacity")
            panels[0].legend()
        return figure


ITEM = Priors()
