"""Panels of the experiments' figures: one colour per method everywhere, the paper's values as hollow diamonds.

A series is plain data: {"name", "values", "errors", "paper"}, one entry per label or per x, None where there is none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from kappaflow.parameters import PARAMETER_SETS
from kappaflow.plots import INK, PALETTE, QUIET

__all__ = ["colour_of", "dot_panel", "label_of", "legend_below", "line_panel", "look_of", "nominal_line"]

# The first that a method's name contains; the order matters.
COLOURS = {
    "recalibrated control": PALETTE[5],
    "recalibrated marginalized": PALETTE[4],
    "paper recipe control": "#7a5c3e",
    "paper recipe": PALETTE[3],
    "mask-augmented": PALETTE[2],
    "control": PALETTE[1],
    "list withheld": "#5e3c99",
    "marginalized": PALETTE[0],
    "recalibrated": PALETTE[4],
}
LABELS = {p.name: p.label for chosen in PARAMETER_SETS.values() for p in chosen.parameters}
Series = Mapping[str, Any]


def colour_of(method: str) -> str:
    """Return the colour of a method: the same for one network and for an ensemble."""
    return next((colour for name, colour in COLOURS.items() if name in method), INK)


def label_of(parameter: str) -> str:
    """Return a parameter as figures write it."""
    return LABELS.get(parameter, parameter)


def look_of(method: str) -> dict[str, Any]:
    """Return colour, marker and line of a method: ensembles are filled and solid, single networks open and dashed."""
    ensemble, colour = "ensemble" in method, colour_of(method)
    return {
        "color": colour,
        "marker": "o" if ensemble else "s",
        "mfc": colour if ensemble else "white",
        "ls": "-" if ensemble else "--",
    }


def nominal_line(axes: Axes, level: float = 0.9, *, vertical: bool = False) -> None:
    """Draw the nominal level."""
    (axes.axvline if vertical else axes.axhline)(level, color=INK, lw=0.8, ls=":", zorder=0)


def dot_panel(axes: Axes, labels: Sequence[str], series: Sequence[Series], *, rotate: bool = False) -> None:
    """Values with errors above their labels, the series side by side; the paper's beside them."""
    x, width = np.arange(len(labels)), 0.7 / max(1, len(series))
    for k, one in enumerate(series):
        place = x + (k - (len(series) - 1) / 2) * width
        _dots(axes, place, one, line=False)
        _paper(axes, place + 0.28 * width, one)
    axes.set_xticks(x, labels)
    if rotate:
        axes.tick_params(axis="x", rotation=35)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
    axes.set_xlim(-0.6, len(labels) - 0.4)
    for edge in x[1:] - 0.5:
        axes.axvline(edge, color=QUIET, lw=0.4, alpha=0.5, zorder=0)


def line_panel(axes: Axes, x: Sequence[float], series: Sequence[Series]) -> None:
    """Values with errors over numbers, joined; the paper's over the same numbers."""
    for one in series:
        _dots(axes, np.asarray(x, float), one, line=True)
        _paper(axes, np.asarray(x, float), one)


def _dots(axes: Axes, x: np.ndarray, one: Series, *, line: bool) -> None:
    look = look_of(one["name"])
    if not line:
        look["ls"] = "none"
    y = np.array([np.nan if v is None else v for v in one["values"]], dtype=float)
    errors = one.get("errors")
    yerr = None if errors is None else np.array([0.0 if e is None else e for e in errors])
    axes.errorbar(x, y, yerr=yerr, ms=5, lw=1.2, capsize=2, label=one["name"], **look)


def _paper(axes: Axes, x: np.ndarray, one: Series) -> None:
    paper = one.get("paper")
    if paper is None or all(value is None for value in paper):
        return
    y = np.array([np.nan if value is None else value for value in paper], dtype=float)
    axes.plot(x, y, ls="none", marker="D", ms=5.5, mfc="none", mec=colour_of(one["name"]), mew=1.0, alpha=0.8)


def legend_below(axes: Axes, *, columns: int = 2, paper: bool = True, gap: float = -0.16) -> None:
    """Name the series below a panel, and what the diamonds are."""
    if paper:
        axes.plot([], [], ls="none", marker="D", ms=5.5, mfc="none", mec=QUIET, label="the paper's")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, gap), ncols=columns)
