"""Figures of opacity tables: two lists side by side."""

import numpy as np
from matplotlib.figure import Figure

from kappaflow.plots import INK, PALETTE, QUIET, style

__all__ = ["comparison_figure"]


def comparison_figure(
    nu: np.ndarray, ln_ratio: np.ndarray, field: np.ndarray, temperature: np.ndarray, title: str
) -> Figure:
    """Ratio spectra (P, T, nu) of two lists and the Fourier fits: median over pressure, one colour per temperature."""
    wavelength = 1e4 / nu
    with style():
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.subplots()
        chosen = np.unique(np.linspace(0, temperature.size - 1, min(4, temperature.size)).round().astype(int))
        for colour, t in zip(PALETTE, chosen, strict=False):
            middle = np.median(ln_ratio[:, t], axis=0)
            axes.plot(wavelength, middle, color=colour, lw=1.2, label=f"{temperature[t]:.0f} K")
            axes.fill_between(wavelength, ln_ratio[:, t].min(0), ln_ratio[:, t].max(0), color=colour, alpha=0.15, lw=0)
            axes.plot(wavelength, np.median(field[:, t], axis=0), color=colour, lw=1.0, ls="--")
        axes.plot([], [], color=INK, ls="--", lw=1.0, label="Fourier fit, 4 modes")
        axes.axhline(0, color=QUIET, lw=0.8)
        axes.set(xlabel="wavelength [µm]", ylabel="ln ratio of cross sections, R = 200", title=title)
        axes.legend(ncols=2)
    return figure
