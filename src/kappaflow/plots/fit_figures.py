"""Figures of a best fit: the spectrum, what is left of it, and what the opacities had to do for it."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kappaflow.instrument import GAP
from kappaflow.parameters import SPECIES, TRACES
from kappaflow.plots import INK, PALETTE, QUIET, style
from kappaflow.plots.object_figures import pieces, shown_limits

__all__ = ["best_fit"]

FIT, SMOOTH = PALETTE[1], PALETTE[0]


@style()
def best_fit(
    wavelength: np.ndarray,
    data: tuple[np.ndarray, np.ndarray, np.ndarray],
    fit: np.ndarray,
    smooth: np.ndarray,
    field: np.ndarray | None = None,
    *,
    title: str = "",
) -> Figure:
    """Draw flux and fit, the relative residual with its smooth part, and the opacity field.

    Parameters
    ----------
    wavelength
        Pixel centres (p,) [um].
    data
        Flux, error and mask, each (p,) [mJy].
    fit
        Fitted flux (p,) [mJy].
    smooth
        Smooth part of data - fit, (p,) [mJy].
    field
        Ln of the factor on the opacity of each species, (species, p); no panel without it.
    title
        Object, chi2, C/O.
    """
    rows = [3.0, 1.4] + ([1.4] if field is not None else [])
    figure = Figure(figsize=(9, 1.35 * sum(rows)), layout="constrained")
    panels = figure.subplots(len(rows), 1, sharex=True, height_ratios=rows, squeeze=False)[:, 0]
    _spectrum(panels[0], wavelength, data, fit)
    panels[0].set_ylabel("flux density (mJy)")
    panels[0].legend(loc="upper left", ncols=3)
    panels[0].set_title(title, loc="left", fontsize=11)
    _relative(panels[1], wavelength, data, (fit, smooth))
    panels[1].legend(loc="lower left", ncols=3, fontsize=8)
    if field is not None:
        for name, row, colour in zip((*SPECIES, *TRACES), field, (*PALETTE, INK, QUIET), strict=False):
            for i, part in enumerate(pieces(wavelength)):
                panels[2].plot(wavelength[part], row[part], color=colour, lw=1.2, label=None if i else name)
        panels[2].axhline(0, color=QUIET, lw=0.8)
        panels[2].set_ylabel("ln opacity factor")
        panels[2].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    panels[-1].set_xlabel("wavelength (µm)")
    return figure


def _spectrum(axes: Axes, wavelength: np.ndarray, data: tuple[np.ndarray, ...], fit: np.ndarray) -> None:
    flux, error, mask = data
    good = np.asarray(mask, bool)
    shown, sigma = np.where(good, flux, np.nan), np.where(good, error, np.nan)
    for i, part in enumerate(pieces(wavelength)):
        x, y, e = wavelength[part], shown[part], sigma[part]
        axes.fill_between(x, y - e, y + e, color=QUIET, alpha=0.4, lw=0)
        axes.plot(x, y, color=INK, lw=0.6, label=None if i else "data")
        axes.plot(x, fit[part], color=FIT, lw=0.7, label=None if i else "best fit")
    axes.set_ylim(*shown_limits(shown))
    axes.axvspan(*GAP, color=QUIET, alpha=0.18, lw=0)


def _relative(
    axes: Axes, wavelength: np.ndarray, data: tuple[np.ndarray, ...], fitted: tuple[np.ndarray, np.ndarray]
) -> None:
    (flux, error, mask), (fit, smooth) = data, fitted
    good = np.asarray(mask, bool)
    ratio = np.where(good, (flux - fit) / fit, np.nan) * 100
    band = np.where(good, error / fit, np.nan) * 100
    for i, part in enumerate(pieces(wavelength)):
        x = wavelength[part]
        axes.fill_between(x, -band[part], band[part], color=QUIET, alpha=0.35, lw=0, label=None if i else "error")
        axes.plot(x, ratio[part], ".", ms=1.5, color=INK, alpha=0.5, rasterized=True, label=None if i else "pixels")
        mean = 100 * (smooth / fit)[part]
        axes.plot(x, mean, color=SMOOTH, lw=1.2, label=None if i else "mean of 25 pixels")
    bright = good & (fit > 0.2 * np.nanmax(np.where(good, fit, np.nan)))  # dim pixels are all noise
    limit = float(np.clip(1.3 * np.nanquantile(np.abs(ratio[bright]), 0.99), 3, 60))
    axes.axhline(0, color=INK, lw=0.6)
    axes.set_ylim(-limit, limit)
    axes.set_ylabel("residual (% of fit)")
    axes.axvspan(*GAP, color=QUIET, alpha=0.18, lw=0)
