"""The opacity field that a spectrum asks for, against what was thought of it before."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from kappaflow.instrument import GAP
from kappaflow.plots import PALETTE, QUIET, style
from kappaflow.plots.object_figures import pieces

__all__ = ["FoundField", "field_against_prior"]


@dataclass(frozen=True)
class FoundField:
    """Ln of the factor on one species' opacity at the pixels."""

    species: str
    bands: np.ndarray  # (5, p): 2.5, 16, 50, 84 and 97.5 % of the posterior
    prior: np.ndarray  # (p,), standard deviation before
    slope: tuple[float, float, float] | None = None  # in temperature: mean, standard deviation, that of the prior


@style()
def field_against_prior(wavelength: np.ndarray, found: Sequence[FoundField], *, title: str = "") -> Figure:
    """Draw one panel per species: posterior bands of 68 and 95 % over the prior's one and two standard deviations."""
    rows = -(-len(found) // 2)
    figure = Figure(figsize=(9, 1.7 * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, 2, sharex=True, squeeze=False).ravel()
    for axes, one in zip(panels, found, strict=False):
        for i, part in enumerate(pieces(wavelength)):
            x, prior, band = wavelength[part], one.prior[part], one.bands[:, part]
            axes.fill_between(x, -2 * prior, 2 * prior, color=QUIET, alpha=0.15, lw=0)
            axes.fill_between(x, -prior, prior, color=QUIET, alpha=0.25, lw=0, label=None if i else "prior")
            axes.fill_between(x, band[0], band[4], color=PALETTE[0], alpha=0.2, lw=0)
            axes.fill_between(x, band[1], band[3], color=PALETTE[0], alpha=0.35, lw=0, label=None if i else "found")
            axes.plot(x, band[2], color=PALETTE[0], lw=1.2)
        axes.axhline(0, color=QUIET, lw=0.7)
        axes.axvspan(*GAP, color=QUIET, alpha=0.18, lw=0)
        limit = 1.15 * float(max(2 * one.prior.max(), np.abs(one.bands).max(), 1e-6))
        axes.set_ylim(-limit, limit)
        slope = (
            ""
            if one.slope is None
            else f"   T slope {one.slope[0]:.2f} ± {one.slope[1]:.2f} (prior {one.slope[2]:.2f})"
        )
        axes.set_title(f"{one.species}{slope}", loc="left", fontsize=9, y=0.97)
    for axes in panels[len(found) :]:
        axes.set_visible(False)
    panels[0].legend(loc="upper right", ncols=2, fontsize=8)
    figure.supxlabel("wavelength (µm)", fontsize=10)
    figure.supylabel("ln opacity factor", fontsize=10)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure
