"""Coverage of C/O under perturbation: the paper's first table, its clean check, its quintiles; and the two recipes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kappaflow.calibrate.draws import LEVELS
from kappaflow.experiments.cells import cell, table
from kappaflow.experiments.item import Found, Item, Library, claim
from kappaflow.experiments.measures import LEVEL_NAMES, Measured, binomial_error, recalibrated
from kappaflow.experiments.published import published
from kappaflow.experiments.steps import Step
from kappaflow.experiments.study import Study
from kappaflow.plots import style
from kappaflow.plots.experiment_figures import legend_below, line_panel, look_of, nominal_line

__all__ = ["ITEM"]

METHODS = ("control", "control ensemble", "marginalized", "marginalized ensemble")
RECIPES = ("paper recipe control", "control", "paper recipe", "marginalized")
IN_QUINTILES = ("control", "recalibrated control", "marginalized ensemble")


class Coverage(Item):
    """Four levels; single and ensemble; control and marginalized."""

    name, order = "coverage", 1
    title = "Coverage under perturbed opacities"
    about = (
        "How often the central interval of C/O holds the truth, for networks trained with fixed (control) and with "
        "randomized opacities (marginalized), one network and pooled, on the same perturbed spectra; on clean ones; "
        "and in quintiles of T4 and SNR. The paper: section 3(a)."
    )

    def needs(self, study: Study) -> Sequence[Step]:
        """Return the draws of all methods on perturbed and clean spectra, and the control's calibration half."""
        perturbed = [step for method in (*METHODS, *RECIPES) for step in study.drawn(method)]
        clean = [step for method in METHODS for step in study.drawn(method, "clean")]
        return [*perturbed, *clean, *study.drawn("control", "calibration")]

    def compute(self, study: Study, library: Library) -> Found:
        """Return the four tables."""
        found = {method: library.measured(study.drawn(method)) for method in METHODS}
        clean = {method: library.measured(study.drawn(method, "clean")) for method in METHODS}
        recipes = {method: library.measured(study.drawn(method)) for method in RECIPES}
        half = library.measured(study.drawn("control", "calibration"))
        regimes = found | {"recalibrated control": recalibrated(found["control"], half)}
        quintiles = {name: _quintiles(regimes[name]) for name in IN_QUINTILES}
        n = found["control"].n
        tables = [
            _main(found, n),
            _clean(clean, clean["control"].n),
            _regimes(quintiles, n),
            _recipes(recipes, n),
        ]
        drawn = {
            "levels": list(LEVELS),
            "n": n,
            "methods": {
                m: _curve(f, [published("coverage", m, level) for level in LEVEL_NAMES]) for m, f in found.items()
            },
            "quintiles": quintiles,
        }
        notes = [
            f"No simulation is discarded: {n:,} of {study.sizes.test:,} test objects are judged (the paper drops about "
            "10 % of its spectra as not finite, up to 20 % at high C/O)."
        ]
        return Found(tables, drawn, _claims(found, clean), notes)

    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw coverage against nominal, and coverage in quintiles of T4 and SNR."""
        with style():
            figure = Figure(figsize=(10.5, 4.3), layout="constrained")
            left, *others = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
            left.plot([0, 1], [0, 1], color="black", lw=0.8, ls=":")
            line_panel(left, drawn["levels"], [{"name": name, **one} for name, one in drawn["methods"].items()])
            left.set(xlim=(0.45, 1.0), ylim=(0.0, 1.02), xlabel="nominal level", ylabel="coverage of C/O")
            legend_below(left, columns=2)
            for axes, by in zip(others, ("T4", "SNR"), strict=True):
                nominal_line(axes)
                for name, regimes in drawn["quintiles"].items():
                    one = regimes[by]
                    y = np.array(one["coverage"])
                    reach = [y - np.array(one["wilson_low"]), np.array(one["wilson_high"]) - y]
                    x = np.arange(1, len(y) + 1)
                    axes.errorbar(x, y, yerr=reach, ms=5, lw=1.2, capsize=2, label=name, **look_of(name))
                axes.set(xlabel=f"quintile of {by}", ylim=(0.0, 1.02), xticks=range(1, 6))
                axes.set_title("coverage of C/O at 0.90", loc="left")
            legend_below(others[0], columns=1, paper=False)
        return figure


def _curve(measured: Measured, paper: list[float | None]) -> dict[str, Any]:
    shares = [measured.share(level) for level in LEVELS]
    return {"values": shares, "errors": [binomial_error(s, measured.n) for s in shares], "paper": paper}


def _quintiles(measured: Measured) -> dict[str, Any]:
    truth = measured.draws.truth
    return {"T4": measured.quintiles(truth[:, measured.index("T4")]), "SNR": measured.quintiles(measured.snr)}


def _main(found: dict[str, Measured], n: int) -> dict[str, Any]:
    rows = [
        (name, [one.coverage_cell(level, published("coverage", m, name)) for m, one in found.items()])
        for level, name in zip(LEVELS, LEVEL_NAMES, strict=True)
    ]
    rows += [
        ("all parameters at 0.90", [one.overall_cell(published("coverage", m, "overall")) for m, one in found.items()]),
        ("width / prior at 0.90", [one.width_cell(published("coverage", m, "width")) for m, one in found.items()]),
        ("interval score / prior", [one.score_cell() for one in found.values()]),
    ]
    return table(f"C/O on {n:,} perturbed spectra", list(found), rows)


def _clean(clean: dict[str, Measured], n: int) -> dict[str, Any]:
    rows = [
        ("0.90", [one.coverage_cell(0.9, published("clean", m, "0.90")) for m, one in clean.items()]),
        ("width / prior at 0.90", [one.width_cell() for one in clean.values()]),
    ]
    return table(f"C/O on the same {n:,} objects with clean opacities", list(clean), rows)


def _regimes(quintiles: dict[str, Any], n: int) -> dict[str, Any]:
    columns = ["lowest of ten", "highest of ten", "T4, cold to hot", "SNR, low to high"]
    rows = []
    for name, found in quintiles.items():
        each = [*found["T4"]["coverage"], *found["SNR"]["coverage"]]
        ends = [
            cell(min(each), None, published("quintiles", name, "lowest")),
            cell(max(each), None, published("quintiles", name, "highest")),
        ]
        rows.append((name, [*ends, *(" ".join(f"{c:.2f}" for c in found[by]["coverage"]) for by in ("T4", "SNR"))]))
    note = f"About {n // 5:,} objects per quintile: standard error {binomial_error(0.9, n // 5):.3f} at 0.90."
    return table("C/O at 0.90 in quintiles of T4 and of SNR", columns, rows, note)


def _recipes(recipes: dict[str, Measured], n: int) -> dict[str, Any]:
    rows = []
    for name, one in recipes.items():
        nats = one.nats()
        cells = [one.coverage_cell(), one.overall_cell(), one.width_cell(), one.score_cell()]
        rows.append((name, [*cells, "" if nats is None else cell(*nats, digits=2)]))
    columns = ["0.90", "all parameters", "width / prior", "interval score / prior", "nats over the prior"]
    note = "One network each, on the same spectra, at about the same training time; nats: log density of the truth."
    return table(f"The two recipes on {n:,} perturbed spectra", columns, rows, note)


def _claims(found: dict[str, Measured], clean: dict[str, Measured]) -> list[dict[str, Any]]:
    control, marginalized = found["control ensemble"].share(), found["marginalized ensemble"].share()
    unspoilt, gap = clean["control ensemble"].share(), marginalized - control
    return [
        claim("control ensemble on clean spectra", unspoilt, 0.86 <= unspoilt <= 0.94, "0.86 to 0.94"),
        claim("marginalized minus control ensemble on perturbed spectra", gap, gap >= 0.15, "at least 0.15"),
        claim("marginalized ensemble on perturbed spectra", marginalized, 0.88 <= marginalized <= 0.93, "0.88 to 0.93"),
        claim("objects of the test set", found["control"].n, found["control"].n >= 2048, "at least 2,048"),
    ]


ITEM = Coverage()
