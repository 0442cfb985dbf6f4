"""Simulation-based calibration: PIT histograms, their tests, and TARP; the paper's figure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import binom

from kappaflow.calibrate import Draws, pit_report, resamples, tarp
from kappaflow.experiments.cells import cell, table
from kappaflow.experiments.item import Found, Item, Library, claim
from kappaflow.experiments.measures import Measured
from kappaflow.experiments.published import PUBLISHED, published
from kappaflow.experiments.steps import Step
from kappaflow.experiments.study import Study
from kappaflow.plain_data import plain
from kappaflow.plots import INK, QUIET, style
from kappaflow.plots.experiment_figures import colour_of, look_of

__all__ = ["ITEM"]

METHODS = ("control", "marginalized", "marginalized ensemble")
SIGNIFICANCE = 0.05


class Sbc(Item):
    """PIT and TARP."""

    name, order = "sbc", 4
    title = "Simulation-based calibration"
    about = (
        "The rank of the truth among the draws (PIT), uniform for an exact posterior: chi2 over 20 bins, 19 degrees of "
        "freedom; and TARP, the joint test: the largest deviation of expected coverage from nominal. The paper: "
        "section 3(b) and its figure."
    )

    def needs(self, study: Study) -> Sequence[Step]:
        """Return the draws of the three methods on perturbed spectra."""
        return [step for method in METHODS for step in study.drawn(method)]

    def compute(self, study: Study, library: Library) -> Found:
        """Return both tests of each method."""
        rows, joint, drawn = [], [], {}
        for method in METHODS:
            one = library.measured(study.drawn(method))
            pit = pit_report(one.summary).to_dict()
            k = one.index()
            tests = _tarp(one, study)
            drawn[method] = {
                "n": one.n,
                "histogram": pit["histogram"][k],
                "chi2": pit["chi2"][k],
                "p_value": pit["chi2_p_value"][k],
                "rank_mean": pit["rank_mean"][k],
                "tarp": tests["all"],
            }
            failed = sum(p < SIGNIFICANCE for p in pit["ks_p_bonferroni"])
            rows.append((method, _pit_cells(method, pit, k, failed)))
            joint.append((method, _tarp_cells(method, tests)))
        columns = ["chi2, C/O", "its p", "rank mean, C/O", "chi2, pooled", "its p, correlations kept", "KS failed"]
        names = ["deviation", "95 % of bootstraps", "p", "informative parameters", "its p"]
        note = "Deviation: the largest |expected coverage - nominal|; p: the chance of as much for an exact posterior."
        n = one.n
        tables = [
            table(f"PIT on {n:,} perturbed spectra", columns, rows, PUBLISHED["sbc"].place.join(("Paper: ", "."))),
            table("TARP, all parameters jointly", names, joint, note),
        ]
        best = max(found["p_value"] or 0.0 for name, found in drawn.items() if name.startswith("marginalized"))
        text = "p of the PIT of C/O, marginalized: the better of single and ensemble"
        return Found(tables, drawn, [claim(text, best, best >= 0.01, "at least 0.01")])

    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw three PIT histograms and the TARP curves."""
        with style():
            figure = Figure(figsize=(12.4, 3.7), layout="constrained")
            panels = figure.subplots(1, 4)
            tallest = max(max(one["histogram"]) / _expected(one) for one in list(drawn.values())[1:])
            for axes, (method, one) in zip(panels, drawn.items(), strict=False):
                _histogram(axes, method, one)
                if method != METHODS[0]:
                    axes.set_ylim(0.0, max(1.8, 1.35 * tallest))
            panels[0].set_ylabel("count / expected")
            _tarp_panel(panels[3], drawn)
        return figure


def _tarp(measured: Measured, study: Study) -> dict[str, Any]:
    draws: Draws = measured.draws
    counts = resamples(measured.n, study.sizes.bootstraps)
    chosen = {"all": None, "informative": measured.informative if measured.informative.any() else None}
    made = {
        name: tarp(draws, parameters=which, count=study.sizes.references, resampled=counts)
        for name, which in chosen.items()
    }
    return {name: plain(report.to_dict()) for name, report in made.items()}


def _pit_cells(method: str, pit: dict[str, Any], k: int, failed: int) -> list[Any]:
    pooled = pit["pooled"]
    return [
        cell(pit["chi2"][k], None, published("sbc", method, "chi2"), digits=0),
        _p(pit["chi2_p_value"][k]),
        cell(pit["rank_mean"][k], pit["rank_mean_error"][k], published("sbc", method, "rank mean")),
        cell(pooled["chi2"], None, published("sbc", method, "pooled chi2"), digits=0),
        _p(pooled["p_value"]),
        cell(failed, None, published("sbc", method, "KS failed"), digits=0),
    ]


def _tarp_cells(method: str, tests: dict[str, Any]) -> list[Any]:
    every, some = tests["all"], tests["informative"]
    low, high = every["deviation_interval"]
    span = f"{low:.4f} to {high:.4f}"
    theirs = [published("sbc", method, f"TARP {end}") for end in ("low", "high")]
    if None not in theirs:
        span += f" · *{theirs[0]:.4f} to {theirs[1]:.4f}*"
    return [
        cell(every["deviation"], None, published("sbc", method, "TARP"), digits=4),
        span,
        _p(every["p_value"]),
        cell(some["deviation"], digits=4),
        _p(some["p_value"]),
    ]


def _p(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _expected(one: dict[str, Any]) -> float:
    return one["n"] / len(one["histogram"])


def _histogram(axes: Any, method: str, one: dict[str, Any]) -> None:
    bins, expected = len(one["histogram"]), _expected(one)
    band = np.array(binom.ppf([0.025, 0.975], one["n"], 1.0 / bins)) / expected
    axes.axhspan(*band, color=QUIET, alpha=0.3, lw=0)
    axes.axhline(1.0, color=INK, lw=0.8, ls="--")
    edges, height = np.linspace(0.0, 1.0, bins + 1), np.array(one["histogram"]) / expected
    axes.stairs(height, edges, fill=True, color=colour_of(method), alpha=0.45)
    axes.stairs(height, edges, color=colour_of(method), lw=1.2)
    axes.set(xlim=(0.0, 1.0), xlabel="PIT of C/O")
    axes.set_ylim(0.0, max(1.8, 1.35 * height.max()))
    axes.set_title(method, loc="left", color=colour_of(method))
    words = rf"$\chi^2$ {one['chi2']:,.0f}" + "\n" + f"rank mean {one['rank_mean']:.3f}"
    axes.text(0.5, 0.96, words, transform=axes.transAxes, ha="center", va="top", fontsize=9)


def _tarp_panel(axes: Any, drawn: dict[str, Any]) -> None:
    alpha = np.array(next(iter(drawn.values()))["tarp"]["alpha"])
    low, high = np.array(drawn[METHODS[-1]]["tarp"]["null_band"]) - alpha
    axes.fill_between(alpha, low, high, color=QUIET, alpha=0.35, lw=0, label="exact posterior, 95 %")
    axes.axhline(0.0, color=INK, lw=0.8, ls="--")
    for method, one in drawn.items():
        look = look_of(method)
        axes.plot(alpha, np.array(one["tarp"]["ecp"]) - alpha, color=look["color"], ls=look["ls"], label=method)
    axes.set(xlim=(0.0, 1.0), xlabel="nominal", ylabel="expected coverage − nominal")
    axes.set_title("TARP, all parameters", loc="left")
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)


ITEM = Sbc()
