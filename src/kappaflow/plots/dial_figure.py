"""C/O against the dial: the size of line-list errors that the network is told."""

import numpy as np
from matplotlib.figure import Figure

from kappaflow.plots import INK, PALETTE, QUIET, style

__all__ = ["c_to_o_against_dial"]


@style()
def c_to_o_against_dial(amplitude: np.ndarray, quantiles: np.ndarray, chosen: float) -> Figure:
    """Median and central 68 and 90 % of C/O, `quantiles` (k, 5), over `amplitude` (k,); `chosen` is the one reported.

    At exactly 0 lists and half-widths are fixed, too: that posterior stands apart.
    """
    figure = Figure(figsize=(5.4, 3.0), layout="constrained")
    axes = figure.subplots()
    varied = amplitude > 0
    x, (a, b, m, c, d) = amplitude[varied], quantiles[varied].T
    axes.fill_between(x, a, d, color=PALETTE[0], alpha=0.18, lw=0, label="90 %")
    axes.fill_between(x, b, c, color=PALETTE[0], alpha=0.35, lw=0, label="68 %")
    axes.plot(x, m, color=PALETTE[0], lw=1.6, label="median")
    for place, row in zip(amplitude[~varied], quantiles[~varied], strict=True):
        axes.plot([place, place], [row[0], row[4]], color=PALETTE[1], lw=1.4)
        axes.plot([place, place], [row[1], row[3]], color=PALETTE[1], lw=5, alpha=0.5, solid_capstyle="butt")
        axes.plot([place], [row[2]], "o", color=PALETTE[1], ms=6, mec="white", mew=0.8, label="fixed line lists")
    axes.axvline(chosen, color=QUIET, lw=1.0, ls="--", zorder=0)
    axes.text(chosen, 1.0, " reported", color=INK, fontsize=8, va="top", transform=axes.get_xaxis_transform())
    axes.set(xlabel="line-list errors / packaged prior", ylabel="C/O (bulk elemental)")
    axes.set_xlim(-0.06 * float(amplitude[-1]), float(amplitude[-1]))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=4)
    return figure
