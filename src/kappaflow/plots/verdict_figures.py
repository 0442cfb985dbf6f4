"""Figures of a verdict: PIT histograms and curves, TARP curves, coverage against nominal, width against coverage.

Every function takes the plain data of `verdict.json` and returns a Matplotlib figure; nothing is saved here. A method
looks the same in all of them (`looks_of`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from scipy.stats import binom

from kappaflow.plots import INK, PALETTE, QUIET, style

__all__ = [
    "Look",
    "coverage_against_nominal",
    "looks_of",
    "pit_curves",
    "pit_histograms",
    "tarp_curves",
    "width_against_coverage",
]

Findings = Mapping[str, Any]
_CORRECTED = {" recalibrated": "--", " conformal": ":"}
_DASHES, _MARKS = ("-", "-.", (0, (5, 1, 1, 1, 1, 1))), "osD^vP"


@dataclass(frozen=True)
class Look:
    """How a method is drawn, in every panel of every figure."""

    colour: str
    dash: Any = "-"
    mark: str = "o"


def looks_of(names: Sequence[str]) -> dict[str, Look]:
    """Give each method its look: a colour and a mark in order; what corrects a method has its colour, another dash.

    Examples
    --------
    >>> found = looks_of(["a", "a recalibrated", "b"])
    >>> found["a"].colour == found["a recalibrated"].colour != found["b"].colour
    True
    """
    found: dict[str, Look] = {}
    for name in names:
        for ending, dash in _CORRECTED.items():
            if name.removesuffix(ending) in found and name.endswith(ending):
                base = found[name.removesuffix(ending)]
                found[name] = Look(base.colour, dash, "xX"[dash == ":"])
                break
        else:
            k = len({id(look) for other, look in found.items() if not other.endswith(tuple(_CORRECTED))})
            found[name] = Look(PALETTE[k % len(PALETTE)], _DASHES[k // len(PALETTE) % 3], _MARKS[k % len(_MARKS)])
    return found


def pit_histograms(
    verdict: Findings, look: Look, *, title: str = "", labels: Mapping[str, str] | None = None
) -> Figure:
    """One panel per parameter: counts over the uniform expectation, with the band that holds 95 % of bins when exact.

    Hatched where Kolmogorov-Smirnov (Bonferroni) rejects uniformity.
    """
    pit, names = verdict["pit"], verdict["pit"]["names"]
    bins, n = pit["bins"], verdict["coverage"]["objects"]
    expected = n / bins
    columns = min(5, len(names))
    rows = -(-len(names) // columns)
    edges = np.linspace(0.0, 1.0, bins + 1)
    band = np.array(binom.ppf([0.025, 0.975], n, 1.0 / bins)) / expected
    with style():
        figure = Figure(figsize=(2.3 * columns + 0.6, 1.75 * rows + 0.9), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True)
        for k, (name, axes) in enumerate(zip(names, panels.flat, strict=False)):
            height = np.array(pit["histogram"][k]) / expected
            rejected = pit["ks_p_bonferroni"][k] < 0.05
            axes.axhspan(*band, color=QUIET, alpha=0.25, lw=0)
            axes.axhline(1.0, color=INK, lw=0.8, ls="--")
            colour = look.colour
            axes.stairs(height, edges, fill=True, fc=to_rgba(colour, 0.3), ec=colour, lw=0, hatch="////" * rejected)
            axes.stairs(height, edges, color=colour, lw=1.2)
            axes.set_ylim(0.0, max(2.0, 1.25 * height.max()))
            axes.set_xlim(0.0, 1.0)
            axes.set_title((labels or {}).get(name, name), loc="left")
            note = rf"$\chi^2$ {pit['chi2'][k]:.0f}   mean {pit['rank_mean'][k]:.3f}"
            axes.text(0.97, 0.95, note, transform=axes.transAxes, ha="right", va="top", fontsize=8)
        for axes in panels.flat[len(names) :]:
            axes.set_visible(False)
        figure.supxlabel("PIT of the truth", fontsize=10)
        figure.supylabel("count / expected", fontsize=10)
        if title:
            figure.suptitle(title, fontsize=11)
    return figure


def pit_curves(
    verdicts: Mapping[str, Findings], looks: Mapping[str, Look], *, labels: Mapping[str, str] | None = None
) -> Figure:
    """One panel per parameter: share of PITs below z, minus z, of every method.

    Grey: where the curves of an exact posterior stay, at all points and in all panels at once, with 95 % (Säilynoja,
    Bürkner & Vehtari 2022); lighter, where recalibrated ones do. Of the method with the fewest objects.
    """
    names = next(iter(verdicts.values()))["pit"]["names"]
    columns = min(5, len(names))
    rows = -(-len(names) // columns)
    bands = _bands(verdicts)
    with style():
        figure = Figure(
            figsize=(max(4.8, 2.3 * columns + 0.6), 1.9 * rows + 0.8 + 0.2 * len(verdicts)), layout="constrained"
        )
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for name, axes in zip(names, panels.flat, strict=False):
            for label, (z, low, high) in bands.items():
                axes.fill_between(z, low, high, color=QUIET, alpha=0.22, lw=0, label=label)
            axes.axhline(0.0, color=INK, lw=0.8, ls="--")
            for method, verdict in verdicts.items():
                if name in verdict["pit"]["names"]:
                    share = verdict["pit"]["ecdf"][verdict["pit"]["names"].index(name)]
                    look, z = looks[method], np.concatenate([[0.0], verdict["pit"]["ecdf_at"]])
                    axes.plot(z, np.concatenate([[0.0], share]) - z, color=look.colour, ls=look.dash, label=method)
            axes.set_title((labels or {}).get(name, name), loc="left")
            axes.set_xlim(0.0, 1.0)
            axes.set_xticks([0.0, 0.5, 1.0])
        for axes in panels.flat[len(names) :]:
            axes.set_visible(False)
        figure.supxlabel("PIT of the truth, z", fontsize=10)
        figure.supylabel(r"share below z $-$ z", fontsize=10)
        handles, told = panels.flat[0].get_legend_handles_labels()
        figure.legend(handles, told, loc="outside upper center", ncols=min(3, len(told)))
    return figure


def _bands(verdicts: Mapping[str, Findings]) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Points and ends of the widest band, minus z: of posteriors as they are, and of those fitted on other objects."""
    found = {}
    for label, fitted in (("exact posterior, 95 %, all panels", False), ("the same, recalibrated", True)):
        some = [v["pit"] for v in verdicts.values() if (v["coverage"]["fitted_on"] is not None) == fitted]
        if some:
            pit = max(some, key=lambda one: one["ecdf_high"][len(one["ecdf_high"]) // 2])
            z = np.concatenate([[0.0], pit["ecdf_at"]])
            low, high = (np.concatenate([[0.0], pit[side]]) - z for side in ("ecdf_low", "ecdf_high"))
            found[label] = z, low, high
    return found


def tarp_curves(verdicts: Mapping[str, Findings], looks: Mapping[str, Look]) -> Figure:
    """Draw expected coverage minus credibility of each method; grey: where a perfect posterior's curve would stay.

    One panel for all parameters and one for the informative ones where they differ. The grey band is that of the
    first method (same objects and references: nearly the same for all); shades are bootstrap intervals.
    """
    kinds = [kind for kind in ("all", "informative") if any(kind in v["tarp"] for v in verdicts.values())]
    titles = {"all": "all parameters", "informative": "informative parameters"}
    with style():
        figure = Figure(figsize=(4.6 * max(1, len(kinds)) + 0.4, 3.8 + 0.2 * len(verdicts)), layout="constrained")
        panels = figure.subplots(1, max(1, len(kinds)), squeeze=False, sharey=True)[0]
        for kind, axes in zip(kinds, panels, strict=False):
            reports = {name: v["tarp"][kind] for name, v in verdicts.items() if kind in v["tarp"]}
            first = next(iter(reports.values()))
            alpha = np.array(first["alpha"])
            low, high = np.array(first["null_band"]) - alpha
            axes.fill_between(alpha, low, high, color=QUIET, alpha=0.35, lw=0, label="perfect posterior, 95 %")
            axes.axhline(0.0, color=INK, lw=0.8, ls="--")
            for name, report in reports.items():
                tested = verdicts[name]["coverage"]["fitted_on"] is None  # the null is that of draws never fitted
                label = f"{name} (p = {report['p_value']:.2g})" if tested else name
                _tarp_line(axes, alpha, label, report, looks[name])
            axes.set_title(titles[kind], loc="left")
            axes.set_xlabel(r"credibility $\alpha$")
            axes.set_xlim(0.0, 1.0)
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16))
        panels[0].set_ylabel(r"expected coverage $-\ \alpha$")
    return figure


def _tarp_line(axes: Axes, alpha: np.ndarray, label: str, report: Mapping[str, Any], look: Look) -> None:
    colour = look.colour
    axes.plot(alpha, np.array(report["ecp"]) - alpha, color=colour, ls=look.dash, label=label)
    interval = np.array(report["interval"], dtype=float)
    if np.isfinite(interval).all():
        axes.fill_between(alpha, *(interval - alpha), color=colour, alpha=0.18, lw=0)


def coverage_against_nominal(
    verdicts: Mapping[str, Findings],
    parameter: str,
    looks: Mapping[str, Look],
    *,
    labels: Mapping[str, str] | None = None,
) -> Figure:
    """Coverage minus nominal level, one panel per method: `parameter` bold with Wilson bars, the others thin.

    Grey: the 95 % range of an exact posterior's coverage at this number of objects.
    """
    columns = 2 if len(verdicts) == 4 else min(3, len(verdicts))
    rows = -(-len(verdicts) // columns)
    with style():
        figure = Figure(figsize=(3.7 * columns + 0.5, 3.0 * rows + 0.5), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for (name, verdict), axes in zip(verdicts.items(), panels.flat, strict=False):
            label = f"{(labels or {}).get(parameter, parameter)} [Wilson 95 %]"
            _coverage_panel(axes, verdict, parameter, label, looks[name].colour)
            axes.set_title(name, loc="left")
        for axes in panels.flat[len(verdicts) :]:
            axes.set_visible(False)
        panels.flat[0].legend(loc="best")
        figure.supxlabel("nominal level", fontsize=10)
        figure.supylabel("coverage − nominal", fontsize=10)
    return figure


def _coverage_panel(axes: Axes, verdict: Findings, parameter: str, label: str, colour: str) -> None:
    covered, curve = verdict["coverage"], verdict["coverage_curve"]
    levels, share = np.array(covered["levels"]), np.array(covered["coverage"])
    k, n = covered["names"].index(parameter), covered["objects"]
    grid = np.linspace(0.01, 0.99, 99)
    low, high = (binom.ppf(q, n, grid) / n - grid for q in (0.025, 0.975))
    axes.fill_between(grid, low, high, color=QUIET, alpha=0.3, lw=0, label="exact posterior, 95 %")
    axes.axhline(0.0, color=INK, lw=0.8, ls="--")
    if curve is not None:
        at, all_ = np.array(curve["levels"]), np.array(curve["coverage"])
        others = [j for j in range(all_.shape[1]) if j != k]
        for i, j in enumerate(others):
            axes.plot(at, all_[:, j] - at, color=QUIET, lw=0.7, label="other parameters" if i == 0 else None)
        axes.plot(at, all_[:, k] - at, color=colour, lw=1.8)
    gap = share[:, k] - levels
    reach = np.abs([np.array(covered["wilson_low"])[:, k], np.array(covered["wilson_high"])[:, k]] - share[:, k])
    axes.errorbar(levels, gap, yerr=reach, fmt="o", ms=4, color=colour, capsize=2, label=label)
    axes.set_xlim(0.0, 1.0)


def width_against_coverage(
    verdicts: Mapping[str, Findings],
    parameter: str,
    looks: Mapping[str, Look],
    *,
    labels: Mapping[str, str] | None = None,
) -> Figure:
    """Median width against coverage at the level nearest 0.9: of `parameter` for several methods, of all for one.

    The best method is on the dashed line and as low as can be.
    """
    several, points = len(verdicts) > 1, _points(verdicts, parameter)
    level, over_prior = points[0]["level"], points[0]["over_prior"]
    with style():
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        axes.axvline(level, color=INK, lw=0.8, ls="--", label=f"nominal {level:g}")
        for point in points:
            look = looks[point["name"] if several else next(iter(verdicts))]
            bars: dict[str, Any] = {"xerr": point["dx"], "yerr": point["dy"], "fmt": look.mark}
            label = point["name"] if several else None
            point["name"] = (labels or {}).get(point["name"], point["name"])
            axes.errorbar(point["x"], point["y"], ms=6, capsize=2, lw=1.0, color=look.colour, label=label, **bars)
        of = f" of {(labels or {}).get(parameter, parameter)}" if several else ""
        axes.set_xlabel(f"coverage{of} at nominal {level:g}")
        axes.set_ylabel(f"median width at {level:g}" + (" / prior" if over_prior else ""))
        axes.set_ylim(0.0, 1.12 * max(point["y"] for point in points) or 1.0)
        axes.margins(x=0.15)
        if several:
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        else:
            _name_points(axes, points)
    return figure


def _name_points(axes: Axes, points: list[dict[str, Any]], gap: float = 0.058) -> None:
    """Write the names down the right side, spread so that none covers another, each tied to its point."""
    ordered = sorted(points, key=lambda point: point["y"])
    top = axes.get_ylim()[1]
    heights: list[float] = []
    for point in ordered:
        heights.append(max(point["y"] / top, heights[-1] + gap if heights else 0.0))
    spill = max(0.0, heights[-1] - 1.0)
    for i in range(len(heights) - 1, -1, -1):  # push back down what left the axes
        heights[i] = min(heights[i] - (spill if i == len(heights) - 1 else 0.0), 1.0 - gap * (len(heights) - 1 - i))
    tie = {"arrowstyle": "-", "color": QUIET, "lw": 0.6, "shrinkA": 0, "shrinkB": 4}
    for point, height in zip(ordered, heights, strict=True):
        where = {"xytext": (1.04, height), "textcoords": "axes fraction", "va": "center", "fontsize": 9}
        axes.annotate(point["name"], (point["x"], point["y"]), arrowprops=tie, **where)


def _points(verdicts: Mapping[str, Findings], parameter: str) -> list[dict[str, Any]]:
    points = []
    for name, verdict in verdicts.items():
        covered = verdict["coverage"]
        at = int(np.argmin(np.abs(np.array(covered["levels"]) - 0.9)))
        over_prior = covered["width_over_prior"] is not None
        for k, each in enumerate(covered["names"]):
            if len(verdicts) > 1 and each != parameter:
                continue
            x, width = covered["coverage"][at][k], covered["width"][at][k]
            y = covered["width_over_prior"][at][k] if over_prior else width
            unit = width / y if y else 1.0
            low, high = (covered["width_interval"][side][at][k] for side in (0, 1))
            reach = [[0.0], [0.0]] if low is None else [[max(0, y - low / unit)], [max(0, high / unit - y)]]
            wilson = [[x - covered["wilson_low"][at][k]], [covered["wilson_high"][at][k] - x]]
            points.append(
                {
                    "name": name if len(verdicts) > 1 else each,
                    "level": covered["levels"][at],
                    "x": x,
                    "y": y,
                    "dx": wilson,
                    "dy": reach,
                    "over_prior": over_prior,
                }
            )
    return points
