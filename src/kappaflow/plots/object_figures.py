"""Figures of a retrieval: the spectrum with its predictive band, the corner, C/O twice.

Every function takes plain arrays and returns a Matplotlib figure on a white ground; nothing is saved here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.ndimage import gaussian_filter, gaussian_filter1d

from kappaflow.instrument import GAP
from kappaflow.parameters import INDEX, NAMED
from kappaflow.plots import INK, PALETTE, QUIET, style
from kappaflow.spectra import Box

__all__ = [
    "CONTROL",
    "MARGINALIZED",
    "c_to_o",
    "corner",
    "gallery",
    "informative",
    "pieces",
    "shown_limits",
    "spectrum",
]

MARGINALIZED, CONTROL, PUBLISHED = PALETTE[0], PALETTE[1], PALETTE[5]
_COLOURS = {"refined": MARGINALIZED, "one line list": CONTROL, "networks": PALETTE[2], "control networks": PALETTE[3]}
MODEL = "#D7191C"  # over black data; a fit has the same
_CO = NAMED["C_O"]


@style()
def spectrum(
    wavelength: np.ndarray,
    data: tuple[np.ndarray, np.ndarray, np.ndarray],
    band: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    *,
    title: str = "",
    distance: str = "",
) -> Figure:
    """Flux [mJy] against `wavelength` [um] with residuals in units of the error below.

    Parameters
    ----------
    wavelength
        Pixel centres (p,) [um].
    data
        Flux, error and mask, each (p,).
    band
        Lower edge, median and upper edge of the 90 % predictive band, each (p,); no residuals without it.
    title
        Object and SNR, say.
    distance
        Of the flux, where it is not as observed: " at 10 pc".
    """
    flux, error, mask = data
    figure = Figure(figsize=(9, 5.2 if band is not None else 3.8), layout="constrained")
    ratios = [3, 1] if band is not None else [1]
    panels = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
    top = panels[0]
    shown = np.where(mask, flux, np.nan)
    for part in pieces(wavelength):
        top.plot(wavelength[part], shown[part], color=INK, lw=0.7, label="data" if part.start == 0 else None, zorder=2)
        if band is not None:
            low, median, high = (b[part] for b in band)
            first = part.start == 0
            top.fill_between(
                wavelength[part],
                low,
                high,
                color=MARGINALIZED,
                alpha=0.25,
                lw=0,
                label="90 % predictive" if first else None,
            )
            label = "model, median" if first else None
            top.plot(wavelength[part], median, color=MODEL, lw=0.7, alpha=0.9, zorder=3, label=label)
    top.set_ylim(*shown_limits(shown))
    _mark_missing(top, wavelength, mask)
    top.set_ylabel(f"flux density{distance} (mJy)")
    for line in figure.legend(loc="outside lower center", ncols=4).get_lines():  # below: above, it would cover data
        line.set_linewidth(1.8)  # as seen in a legend; in the figure they are as fine as the pixels
    if title:
        top.set_title(title, loc="left", fontsize=11)
    if band is not None:
        _residuals(panels[1], wavelength, (flux, error, mask), band[1])
    panels[-1].set_xlabel("wavelength (µm)")
    panels[-1].set_xlim(float(wavelength[0]) - 0.02, float(wavelength[-1]) + 0.02)
    return figure


@style()
def gallery(wavelength: np.ndarray, objects: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Figure:
    """Many spectra one above the other on the pixels `wavelength` [um]: name -> flux, error and mask, each (p,)."""
    figure = Figure(figsize=(9, 1.35 * len(objects) + 0.6), layout="constrained")
    panels = figure.subplots(len(objects), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, (flux, error, mask)) in zip(panels, objects.items(), strict=True):
        good = np.asarray(mask, bool)
        shown, sigma = np.where(good, flux, np.nan), np.where(good, error, np.nan)
        for part in pieces(wavelength):
            low, high = (shown - sigma)[part], (shown + sigma)[part]
            axes.fill_between(wavelength[part], low, high, color=MARGINALIZED, alpha=0.3, lw=0)
            axes.plot(wavelength[part], shown[part], color=INK, lw=0.5)
        _mark_missing(axes, wavelength, good)
        snr = np.median(flux[good] / error[good])
        axes.set_title(f"{name}   SNR {snr:.0f}, {good.mean():.0%} good", loc="left", fontsize=9, y=0.84, x=0.01)
        axes.set_ylim(*shown_limits(shown))
    panels[-1].set_xlabel("wavelength (µm)")
    figure.supylabel("flux density (mJy)", fontsize=10)
    return figure


def shown_limits(shown: np.ndarray) -> tuple[float, float]:
    """Return limits that show all but a few pixels of `shown`, with room for a legend above."""
    if np.isnan(shown).all():
        return 0.0, 1.0
    low, high = np.nanquantile(shown, [0.002, 0.999])
    span = max(float(high - low), 1e-12)
    return float(low) - 0.08 * span, float(high) + 0.12 * span


def pieces(wavelength: np.ndarray) -> list[slice]:
    """Pieces without a jump, so that no line crosses the gap."""
    step = np.diff(wavelength)
    cuts = [0, *(np.flatnonzero(step > 5 * np.median(step)) + 1), len(wavelength)]
    return [slice(int(a), int(b)) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]


def _mark_missing(axes: Axes, wavelength: np.ndarray, mask: np.ndarray) -> None:
    """Short ticks at the foot where pixels are masked; the detector gap named."""
    bad = wavelength[~np.asarray(mask, bool)]
    if bad.size:
        axes.plot(
            bad, np.full(bad.size, 0.015), "|", ms=5, mew=0.6, color=CONTROL, transform=axes.get_xaxis_transform()
        )
        axes.plot([], [], "|", ms=6, mew=1, color=CONTROL, label="masked")
    if wavelength[0] < GAP[0] and wavelength[-1] > GAP[1]:
        axes.axvspan(*GAP, color=QUIET, alpha=0.18, lw=0)


def _residuals(axes: Axes, wavelength: np.ndarray, data: tuple[np.ndarray, ...], median: np.ndarray) -> None:
    flux, error, mask = data
    good = np.asarray(mask, bool)
    z = (flux[good] - median[good]) / error[good]
    limit = float(np.clip(np.quantile(np.abs(z), 0.995) * 1.1, 4, 40)) if z.size else 4.0
    axes.axhspan(-1, 1, color=QUIET, alpha=0.25, lw=0)
    axes.axhline(0, color=MARGINALIZED, lw=0.8)
    axes.plot(wavelength[good], np.clip(z, -limit, limit), ".", ms=1.6, color=INK, alpha=0.6, rasterized=True)
    axes.set_ylim(-limit, limit)
    axes.set_ylabel("residual / σ")
    if wavelength[0] < GAP[0] and wavelength[-1] > GAP[1]:
        axes.axvspan(*GAP, color=QUIET, alpha=0.18, lw=0)


def informative(draws: np.ndarray, box: Box, *, most: int = 7) -> list[str]:
    """C/O, log g and the parameters whose 90 % intervals are narrowest against their priors', `most` at most."""
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    ratio = (high - low) / (0.9 * box.widths)
    ratio[[INDEX["C_O"], INDEX["log_g"]]] = 0.0
    chosen = [i for i in np.argsort(ratio)[:most] if ratio[i] < 0.9]
    return [box.names[i] for i in sorted(chosen)]


@style()
def corner(draws: Mapping[str, np.ndarray], box: Box, names: Sequence[str] | None = None) -> Figure:
    """Pairs and marginals of one or two posteriors: `draws` maps label -> (n, D), the first drawn in front.

    Contours hold 68 and 95 % of the draws; dotted lines are the prior's edges where they are in sight.
    """
    labels = list(draws)
    names = list(names) if names is not None else informative(draws[labels[0]], box)
    k = len(names)
    size = 1.25 * k + 1.15  # inch: panels, and the room for labels that does not grow with them
    figure = Figure(figsize=(size, size))
    edge = 1.0 / size
    room = {"left": edge, "right": 1 - 0.15 / size, "bottom": edge, "top": 1 - 0.15 / size}
    places = figure.add_gridspec(k, k, wspace=0.06, hspace=0.06, **room)
    columns = [INDEX[name] for name in names]
    ranges = [_range([d[:, c] for d in draws.values()], (box.low[c], box.high[c])) for c in columns]
    colours = {label: _colour(label, i) for i, label in enumerate(labels)}
    for row in range(k):
        for column in range(row + 1):
            axes = figure.add_subplot(places[row, column])
            axes.spines[["top", "right"]].set_visible(True)
            for label in reversed(labels):
                x = draws[label][:, columns[column]]
                if row == column:
                    _marginal(axes, x, ranges[row], colours[label])
                else:
                    y = draws[label][:, columns[row]]
                    _contours(axes, x, y, (ranges[column], ranges[row]), colours[label])
            _dress(axes, (row, column), names, ranges)
    for i, label in enumerate(labels):
        figure.text(
            1 - 0.15 / size, 1 - (0.2 + 0.28 * i) / size, label, color=colours[label], ha="right", va="top", fontsize=12
        )
    return figure


def _range(samples: Sequence[np.ndarray], prior: tuple[float, float]) -> tuple[float, float]:
    both = np.concatenate([np.quantile(s, [0.002, 0.998]) for s in samples])
    pad = 0.08 * np.ptp(both) + 1e-9
    return max(float(both.min() - pad), prior[0]), min(float(both.max() + pad), prior[1])


def _marginal(axes: Axes, x: np.ndarray, span: tuple[float, float], colour: str) -> None:
    counts, edges = np.histogram(x, bins=40, range=span, density=True)
    density = gaussian_filter1d(counts, 1.2, mode="nearest")
    centres = (edges[1:] + edges[:-1]) / 2
    axes.fill_between(centres, density, color=colour, alpha=0.18, lw=0)
    axes.plot(centres, density, color=colour, lw=1.2)
    axes.axvline(float(np.median(x)), color=colour, lw=0.8, ls="--")


def _contours(axes: Axes, x: np.ndarray, y: np.ndarray, spans: tuple[Any, Any], colour: str) -> None:
    counts, ex, ey = np.histogram2d(x, y, bins=36, range=spans)
    density = gaussian_filter(counts, 1.4, mode="nearest")
    ordered = np.sort(density.ravel())[::-1]
    mass = np.cumsum(ordered) / ordered.sum()
    levels = sorted({float(ordered[np.searchsorted(mass, level)]) for level in (0.95, 0.68)})
    centres = ((ex[1:] + ex[:-1]) / 2, (ey[1:] + ey[:-1]) / 2)
    axes.contourf(*centres, density.T, levels=[*levels, density.max() * 1.01], colors=[colour], alpha=0.15)
    axes.contour(*centres, density.T, levels=levels, colors=[colour], linewidths=0.9)


def _dress(axes: Axes, place: tuple[int, int], names: Sequence[str], ranges: Sequence[tuple[float, float]]) -> None:
    row, column = place
    axes.set_xlim(*ranges[column])
    axes.xaxis.set_major_locator(MaxNLocator(3, prune="both"))
    if row != column:
        axes.set_ylim(*ranges[row])
        axes.yaxis.set_major_locator(MaxNLocator(3, prune="both"))
    else:
        axes.set_ylim(bottom=0)
    last = row == len(names) - 1
    axes.tick_params(labelsize=8, labelbottom=last, labelleft=column == 0 < row, left=row != column)
    axes.tick_params(axis="x", rotation=40)
    if last:
        axes.set_xlabel(_labelled(names[column]), fontsize=10)
        axes.xaxis.set_label_coords(0.5, -0.48)
    if column == 0 < row:
        axes.set_ylabel(_labelled(names[row]), fontsize=10)
        axes.yaxis.set_label_coords(-0.48, 0.5)


def _labelled(name: str) -> str:
    """Return the label with its unit, where it has one other than `dex`."""
    p = NAMED[name]
    unit = {"R_Jup": r"$R_\mathrm{Jup}$", "km s-1": "km/s"}.get(p.unit, p.unit)
    return f"{p.label} ({unit})" if unit and not unit.startswith("dex") else p.label


def _colour(label: str, place: int) -> str:
    """Return the colour of what is so called, or of its place."""
    return _COLOURS.get(label, PALETTE[place % len(PALETTE)])


@style()
def c_to_o(
    draws: Mapping[str, np.ndarray],
    *,
    prior: tuple[float, float] = (_CO.low, _CO.high),
    published: tuple[str, float, float] | None = None,
) -> Figure:
    """C/O by several methods: `draws` maps label -> (n,); densities above, 68 and 90 % intervals and `prior` below.

    Every density is drawn to the same height: an interval ten times narrower would hide the others.
    `published` is (label, value, error), drawn as a band.
    """
    figure = Figure(figsize=(7, 2.9 + 0.28 * len(draws)), layout="constrained")
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 0.35 * (len(draws) + 1)])
    for i, (label, values) in enumerate(draws.items()):
        colour = _colour(label, i)
        centres, density = _peaked(values, prior)
        top.fill_between(centres, density, color=colour, alpha=0.2, lw=0)
        top.plot(centres, density, color=colour, lw=1.4, label=label)
        _interval(below, values, -float(i), colour)
    _interval(below, np.linspace(*prior, 2001), -float(len(draws)), QUIET)
    below.set_yticks([-float(i) for i in range(len(draws) + 1)], [*draws, "prior"])
    below.set_ylim(-len(draws) - 0.6, 0.6)
    if published is not None:
        label, value, error = published
        for axes in (top, below):
            axes.axvspan(
                value - max(error, 0.004), value + max(error, 0.004), color=PUBLISHED, alpha=0.6, lw=0, zorder=0
            )
        top.plot([], [], color=PUBLISHED, lw=6, alpha=0.6, label=label)
    top.set_ylabel("density / its maximum")
    top.set_ylim(0, 1.1)
    top.set_yticks([])
    top.legend()
    below.set_xlabel("C/O (bulk elemental)")
    below.set_xlim(*prior)
    top.spines["left"].set_visible(False)
    return figure


def _peaked(values: np.ndarray, prior: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Return a density of draws `values` (n,) in `prior`, on a grid as fine as they need, with the maximum 1."""
    low, high = np.quantile(values, [0.16, 0.84])
    bins = int(np.clip(np.ptp(prior) / max(0.12 * (high - low), 1e-4), 60, 3000))
    counts, edges = np.histogram(values, bins, range=prior)
    density = gaussian_filter1d(counts.astype(float), 1.5, mode="nearest")
    density = density / max(density.max(), 1e-300)
    return (edges[1:] + edges[:-1]) / 2, np.where(density > 2e-3, density, np.nan)  # no line along the axis


def _interval(axes: Axes, values: np.ndarray, at: float, colour: str) -> None:
    a, b, m, c, d = np.quantile(values, [0.05, 0.16, 0.5, 0.84, 0.95])
    axes.plot([a, d], [at, at], color=colour, lw=1.2, solid_capstyle="butt")
    axes.plot([b, c], [at, at], color=colour, lw=5, alpha=0.55, solid_capstyle="butt")
    axes.plot([m], [at], "o", color=colour, ms=5, mec="white", mew=0.7)
