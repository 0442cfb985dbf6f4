"""Figures of an atmosphere: temperature, gases and cloud against pressure; where the light comes from."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from kappaflow.instrument import GAP
from kappaflow.plots import INK, PALETTE, QUIET, style

__all__ = ["Bands", "atmosphere", "contribution"]

GAS_COLOURS: dict[str, str] = dict(zip(("H2O", "CH4", "CO", "CO2", "NH3", "H2S", "PH3"), (*PALETTE, INK), strict=True))
LIGHT = "#E69F00"  # where light comes from
_BIN = 6  # pixels averaged in the picture of the contribution function


@dataclass(frozen=True)
class Bands:
    """What is drawn against pressure; every band is (5, layer): 2.5, 16, 50, 84 and 97.5 %."""

    pressure: np.ndarray  # (layer,), bar
    temperature: np.ndarray  # K
    log_vmr: Mapping[str, np.ndarray]
    cloud_depth: np.ndarray  # from the top
    quench: Mapping[str, np.ndarray]  # name -> (5,), log10(P/bar)
    cloud_base: np.ndarray | None  # (5,), log10(P/bar)
    metallicity: float


@style()
def atmosphere(bands: Bands, light: tuple[np.ndarray, np.ndarray], *, title: str = "") -> Figure:
    """Draw temperature, abundances and cloud against pressure, with 68 and 95 % bands.

    `light`: share of all light from each layer, (layer,), and the pressures above which 2.5 to 97.5 % of it is emitted,
    (5,), log10(P/bar). Outside of them the profile is the prior's as much as the data's.
    """
    figure = Figure(figsize=(9.4, 5.0), layout="constrained")
    left, middle, right = figure.subplots(1, 3, sharey=True, width_ratios=[1.15, 1.35, 0.9])
    share, probed = light
    for axes in (left, middle, right):
        axes.axhspan(10 ** probed[0], 10 ** probed[4], color=LIGHT, alpha=0.10, lw=0)
        axes.axhspan(10 ** probed[1], 10 ** probed[3], color=LIGHT, alpha=0.12, lw=0)
    _temperature(left, bands, share)
    _gases(middle, bands)
    _cloud(right, bands)
    left.set_ylabel("pressure (bar)")
    left.set_yscale("log")
    left.set_ylim(float(bands.pressure[-1]), float(bands.pressure[0]))
    left.yaxis.set_major_locator(LogLocator(numticks=10))
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _band(axes: Axes, band: np.ndarray, pressure: np.ndarray, colour: str, *, wide: bool = True) -> None:
    if wide:
        axes.fill_betweenx(pressure, band[0], band[4], color=colour, alpha=0.15, lw=0)
    axes.fill_betweenx(pressure, band[1], band[3], color=colour, alpha=0.25, lw=0)


def _temperature(axes: Axes, bands: Bands, share: np.ndarray) -> None:
    _band(axes, bands.temperature, bands.pressure, PALETTE[0])
    axes.plot(bands.temperature[2], bands.pressure, color=PALETTE[0], label="median; 68, 95 %")
    span = float(bands.temperature[4].max())
    axes.set_xlim(0, 1.05 * span)
    curve = 1e4 / (6.26 - 0.35 * np.log10(bands.pressure) - 0.70 * bands.metallicity)
    axes.plot(curve, bands.pressure, color=QUIET, ls="--", lw=1.1, label="MgSiO$_3$ condenses")
    axes.plot(0.28 * span * share / share.max(), bands.pressure, color=LIGHT, lw=1.4, label="light comes from")
    axes.set_xlabel("temperature (K)")
    axes.legend(loc="upper right", fontsize=8)


def _gases(axes: Axes, bands: Bands) -> None:
    for gas, band in bands.log_vmr.items():
        colour = GAS_COLOURS[gas]
        _band(axes, band, bands.pressure, colour, wide=False)
        label = "".join(f"$_{c}$" if c.isdigit() else c for c in gas)
        axes.plot(band[2], bands.pressure, color=colour, lw=1.3, label=label)
    lowest = min(float(band[2].min()) for band in bands.log_vmr.values())
    left = float(np.clip(np.floor(lowest) - 2.5, -16, -10))
    axes.set_xlim(left, -1.5)
    _quench_levels(axes, bands.quench, left)
    axes.set_xlabel("log mole fraction")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, fontsize=8, handlelength=1.2, columnspacing=1.0)


def _quench_levels(axes: Axes, quench: Mapping[str, np.ndarray], left: float) -> None:
    """Mark the levels at the left edge, each with its 68 % range; labels keep their distance from each other."""
    last = -np.inf
    for name, level in sorted(quench.items(), key=lambda item: item[1][2]):
        at = max(float(level[2]), last + 0.36)
        last = at
        axes.fill_between([left, left + 0.25], 10 ** level[1], 10 ** level[3], color=INK, alpha=0.25, lw=0)
        axes.plot([left, left + 0.5, left + 0.8], [10 ** level[2], 10 ** level[2], 10**at], color=INK, lw=1.0)
        words = f"{name} freeze" if "," in name else f"{name} freezes"
        axes.text(left + 0.9, 10**at, words, fontsize=7.5, va="center")


def _cloud(axes: Axes, bands: Bands) -> None:
    depth = np.maximum(bands.cloud_depth, 1e-6)
    _band(axes, depth, bands.pressure, PALETTE[3])
    axes.plot(depth[2], bands.pressure, color=PALETTE[3])
    axes.axvline(1.0, color=INK, lw=0.8, ls=":")
    axes.set_xscale("log")
    axes.set_xlim(1e-4, max(1e3, float(depth[3].max()) * 3))
    axes.set_xlabel("cloud optical depth")
    if bands.cloud_base is not None:
        axes.axhline(10 ** bands.cloud_base[2], color=PALETTE[3], lw=1.0, ls="--")
        axes.text(
            0.97,
            10 ** bands.cloud_base[2],
            "base ",
            fontsize=8,
            va="bottom",
            ha="right",
            color=PALETTE[3],
            transform=axes.get_yaxis_transform(),
        )


@style()
def contribution(
    wavelength: np.ndarray, pressure: np.ndarray, light: np.ndarray, probed: np.ndarray, *, title: str = ""
) -> Figure:
    """Draw where each pixel's light comes from.

    Parameters
    ----------
    wavelength
        Pixel centres (p,) [um].
    pressure
        Of the layers (layer,) [bar].
    light
        Share of each pixel's flux from each layer, (layer, p).
    probed
        log10(P/bar) above which 2.5, 16, 50, 84 and 97.5 % of a pixel's light is emitted, (5, p).
    title
        Object, say.
    """
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots()
    per_decade = light / np.abs(np.gradient(np.log10(pressure)))[:, None]
    top = float(np.quantile(per_decade.max(axis=0), 0.95))
    for part in (wavelength < GAP[0], wavelength > GAP[1]):
        wave, picture, median = (_binned(a[..., part]) for a in (wavelength, per_decade, probed[2]))
        if wave.size < 2:
            continue
        image = axes.pcolormesh(
            wave, pressure, picture, cmap="YlOrBr", vmin=0, vmax=top, shading="nearest", rasterized=True
        )
        axes.plot(
            wave, 10**median, color=INK, lw=0.8, label="half of the light from above" if wave[0] < GAP[0] else None
        )
    figure.colorbar(image, ax=axes, label="share of flux per decade of pressure", pad=0.01)
    axes.axvspan(*GAP, color=QUIET, alpha=0.18, lw=0)
    axes.set_yscale("log")
    ends = np.quantile(probed[[0, 4]], [0.01, 0.99])
    axes.set_ylim(min(10 ** (ends[1] + 0.7), float(pressure[-1])), max(10 ** (ends[0] - 1), float(pressure[0])))
    axes.set_xlabel("wavelength (µm)")
    axes.set_ylabel("pressure (bar)")
    axes.legend(loc="upper left", fontsize=8)
    if title:
        axes.set_title(title, loc="left", fontsize=11)
    return figure


def _binned(values: np.ndarray) -> np.ndarray:
    """Mean over groups of pixels of the last axis; what is left over is dropped."""
    size = max(1, min(_BIN, values.shape[-1] // 40))
    whole = values.shape[-1] // size * size
    return values[..., :whole].reshape(*values.shape[:-1], -1, size).mean(axis=-1)
