"""Figures of several objects: C/O against SNR, and [M/H] against C/O, every object with its whole name.

Few names stand beside their points, many above the axes, each with a line to its object.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from kappaflow.parameters import SNR
from kappaflow.plots import INK, PALETTE, QUIET, style

__all__ = ["Placed", "ratio_against_snr", "metallicity_against_ratio"]

_COLOURS = {"pass": PALETTE[0], "warn": PALETTE[5], "fail": QUIET}  # by verdict
_SIGNS = {"pass": "o", "warn": "s", "fail": "X"}
_LINE = 0.15  # inch that a name needs beside its neighbour
_LETTER = 0.068  # inch, of a name beside its point
FEW = 6  # objects whose names find room beside their points


@dataclass(frozen=True)
class Placed:
    """One object: quantiles are the 5, 16, 50, 84 and 95 %."""

    name: str
    snr: float
    c_to_o: Sequence[float]
    metallicity: Sequence[float]
    verdict: str = "pass"


@style()
def ratio_against_snr(objects: Sequence[Placed], *, prior: tuple[float, float] = (0.1, 1.5)) -> Figure:
    """C/O (68 and 90 % bars) against the SNR of the spectrum."""
    figure, axes = _room(objects)
    x = np.log10([max(one.snr, 0.1) for one in objects])
    for at, one in zip(x, objects, strict=True):
        _bar(axes, float(10**at), one.c_to_o, one.verdict)
    axes.set_xscale("log")
    low, high = float(x.min()), float(x.max())
    pad = max((0.04 if len(objects) > FEW else 0.15) * (high - low), 0.03)
    axes.set_xlim(10 ** (low - pad), 10 ** (high + pad))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5) if high - low < 1 else (1, 2, 5)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    for edge in (SNR.low, SNR.high):
        if low - pad < np.log10(edge) < high + pad:
            axes.axvline(edge, color=INK, ls="--", lw=0.9)
    axes.set_ylim(*prior)
    axes.set_xlabel("SNR (median per pixel)")
    axes.set_ylabel("C/O (bulk elemental)")
    _names(axes, (x - (low - pad)) / (high - low + 2 * pad), objects, [one.c_to_o[2] for one in objects])
    return figure


@style()
def metallicity_against_ratio(objects: Sequence[Placed], *, prior: tuple[float, float] = (-1.0, 1.5)) -> Figure:
    """[M/H] against C/O, crosses of 68 % intervals."""
    figure, axes = _room(objects)
    for one in objects:
        _, left, middle, right, _ = one.c_to_o
        _, bottom, centre, top, _ = one.metallicity
        colour = _COLOURS[one.verdict]
        axes.plot([left, right], [centre, centre], color=colour, lw=1.0, alpha=0.7)
        axes.plot([middle, middle], [bottom, top], color=colour, lw=1.0, alpha=0.7)
        axes.plot([middle], [centre], _SIGNS[one.verdict], color=colour, ms=5, mec="white", mew=0.6)
    axes.set_xlim(0.1, 1.5)
    axes.set_ylim(*prior)
    axes.set_xlabel("C/O (bulk elemental)")
    axes.set_ylabel("[M/H]")
    middles = np.array([one.c_to_o[2] for one in objects])
    _names(axes, (middles - 0.1) / 1.4, objects, [one.metallicity[2] for one in objects])
    return figure


def _room(objects: Sequence[Placed]) -> tuple[Figure, Axes]:
    """Return a figure wide enough for every name, and high enough for the longest; verdicts are told below it."""
    width = max(7.0, 1.3 + _LINE * len(objects))
    above = 0.2 if len(objects) <= FEW else 0.25 + 0.06 * max(len(one.name) for one in objects) + 0.35
    height = 3.75 + above
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0.75 / width, 0.7 / height, 1 - 0.95 / width, 3.0 / height))
    for verdict in dict.fromkeys(one.verdict for one in objects):
        axes.plot([], [], _SIGNS[verdict], color=_COLOURS[verdict], label=f"trust: {verdict}")
    axes.legend(loc="upper right", bbox_to_anchor=(1.01, -0.14), ncols=3, fontsize=8, borderaxespad=0)
    return figure, axes


def _bar(axes: Axes, x: float, quantiles: Sequence[float], verdict: str) -> None:
    a, b, m, c, d = quantiles
    colour = _COLOURS[verdict]
    axes.plot([x, x], [a, d], color=colour, lw=0.9)
    axes.plot([x, x], [b, c], color=colour, lw=3.5, alpha=0.55, solid_capstyle="butt")
    axes.plot([x], [m], _SIGNS[verdict], color=colour, ms=5, mec="white", mew=0.6)


def _names(axes: Axes, places: np.ndarray, objects: Sequence[Placed], middles: Sequence[float]) -> None:
    """Write the names of objects at `places` (fractions of the axes' width) and `middles` (data)."""
    if len(objects) > FEW:
        _above(axes, places, objects)
    else:
        _beside(axes, places, objects, middles)


def _beside(axes: Axes, places: np.ndarray, objects: Sequence[Placed], middles: Sequence[float]) -> None:
    """Write names beside their points, where they cover no other point, moved up or down where they would overlap."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    width = axes.get_position().width * figure.get_figwidth()
    low, high = axes.get_ylim()
    heights = np.clip((np.array(middles) - low) / (high - low), 0.02, 0.94)
    order = np.argsort(heights, kind="stable")
    at = dict(zip(order.tolist(), np.clip(spread(heights[order] + 0.015, 0.055), 0.01, 0.95), strict=True))
    for i, one in enumerate(objects):
        long = _LETTER * len(one.name) / width
        others = np.delete(places, i)[np.abs(np.delete(heights, i) - at[i] - 0.02) < 0.05]
        covered = [((others > start) & (others < start + long)).sum() for start in (places[i], places[i] - long)]
        outside = [max(places[i] + long - 1, 0.0), max(long - places[i], 0.0)]
        right = (outside[0], covered[0]) <= (outside[1], covered[1])
        axes.text(
            places[i] + (0.015 if right else -0.015),
            at[i],
            one.name,
            transform=axes.transAxes,
            ha="left" if right else "right",
            va="bottom",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.8},
        )


def _above(axes: Axes, places: np.ndarray, objects: Sequence[Placed]) -> None:
    """Write names above the axes at `places`, moved apart where they would overlap."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    width = axes.get_position().width * figure.get_figwidth()
    height = axes.get_position().height * figure.get_figheight()
    order = np.argsort(places, kind="stable")
    at = spread(places[order], _LINE / width)
    for place, here in zip(order, at, strict=True):
        line = (
            [places[place], places[place], here, here],
            [1.0, 1.0 + 0.04 / height, 1.0 + 0.25 / height, 1.0 + 0.29 / height],
        )
        axes.plot(*line, color=QUIET, lw=0.6, transform=axes.transAxes, clip_on=False)
        axes.text(
            here,
            1.0 + 0.32 / height,
            objects[place].name,
            transform=axes.transAxes,
            rotation=90,
            ha="center",
            va="bottom",
            fontsize=7,
        )


def spread(places: np.ndarray, apart: float) -> np.ndarray:
    """Move ascending `places` in [0, 1] as little as needed to lie at least `apart` from each other.

    Examples
    --------
    >>> spread(np.array([0.5, 0.5, 0.9]), 0.1).round(2).tolist()
    [0.45, 0.55, 0.9]
    """
    groups: list[list[float]] = []  # mean wanted start, members
    for place in places:
        groups.append([float(place), 1])
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < apart * (groups[-1][1] + groups[-2][1]) / 2:
            last, before = groups.pop(), groups.pop()
            members = last[1] + before[1]
            groups.append([(last[0] * last[1] + before[0] * before[1]) / members, members])
    found = []
    for centre, members in groups:
        found += [centre + apart * (i - (members - 1) / 2) for i in range(int(members))]
    moved = np.array(found)
    if moved.size:
        over = max(moved[-1] - 1.0, 0.0) if moved[0] > 0 else min(moved[0], 0.0)
        moved = moved - over
    return moved
