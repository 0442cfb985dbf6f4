"""The house style of figures: white ground, colours told apart by every eye, PNG and PDF, written whole.

Figures are Matplotlib `Figure` objects made without pyplot, so that no display and no global state is needed.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

from kappaflow.storage import written_whole

__all__ = ["INK", "PALETTE", "QUIET", "save_figure", "style"]

# Okabe & Ito (2008), told apart with any colour vision; yellow is left out, too faint on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
INK, QUIET = "#22282e", "#8b949c"
DPI = 200  # of PNG, and of what is rasterized in a PDF

_STYLE: dict[Any, Any] = {
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "axes.facecolor": "white",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    "text.color": INK,
    "font.size": 10,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "pdf.fonttype": 42,  # text stays text: editable, searchable, accepted by journals
    "svg.fonttype": "none",
}


@contextmanager
def style() -> Iterator[None]:
    """Make every figure created in the body look like the others."""
    with mpl.rc_context(_STYLE):
        yield


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Write `figure` as PATH.png (200 dpi) and PATH.pdf, each whole or not at all; the same figure, the same bytes.

    By the canvases themselves: `Figure.savefig` draws a figure that has a layout twice per file, once to find it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    path = Path(path)
    targets = path.with_name(f"{path.name}.png"), path.with_name(f"{path.name}.pdf")
    engine, dpi, canvas = figure.get_layout_engine(), figure.dpi, figure.canvas
    with mpl.rc_context(_STYLE):
        try:
            figure.dpi = DPI
            with written_whole(targets[0]) as part:
                FigureCanvasAgg(figure).print_png(part, metadata={"Software": None})
            figure.set_layout_engine("none")  # the second file has the places found for the first
            with written_whole(targets[1]) as part:
                undated = {"CreationDate": None, "Creator": None, "Producer": None}
                FigureCanvasPdf(figure).print_pdf(part, metadata=undated)
        finally:
            figure.set_layout_engine(engine)
            figure.dpi = dpi
            figure.set_canvas(canvas)
    return targets
