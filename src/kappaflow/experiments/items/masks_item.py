"""Bad pixels: what filling them costs, and what telling the network of them keeps; also for masks it never met."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from kappaflow.experiments.cells import Cell, cell, table
from kappaflow.experiments.item import Found, Item, Library, claim
from kappaflow.experiments.measures import Measured, binomial_error
from kappaflow.experiments.published import published
from kappaflow.experiments.steps import Drawn, Step
from kappaflow.experiments.study import Study
from kappaflow.plots import style
from kappaflow.plots.experiment_figures import dot_panel, legend_below, nominal_line

__all__ = ["ITEM"]

METHODS = ("control", "marginalized", "marginalized ensemble", "mask-augmented", "mask-augmented ensemble")
AUGMENTED = METHODS[-2:]
# Column -> (path of `evaluate.stress.PATHS`, kind of masks), and the paper's name of it.
TREATMENTS = {
    "none": ("none", "none"),
    "median fill": ("real-mask median fill", "drawn"),
    "re-noise": ("scalar re-noise", "none"),
    "full path": ("full path", "drawn"),
    "mask channel": ("mask channel", "drawn"),
}
UNSEEN = {
    "bands": ("mask channel", "bands"),
    "comb": ("mask channel", "comb"),
    "real masks": ("mask channel", "real"),
}


class Masks(Item):
    """Four paths of the paper, and the mask channel; masks seen and unseen."""

    name, order = "masks", 9
    title = "Bad pixels"
    about = (
        "Masks as the augmentation draws them, applied to the same perturbed spectra and treated as the paper does "
        "(median fill, scalar noise, both), or told to the network (mask channel); networks trained without and with "
        "masks; and masks of kinds that no training drew. The paper: section 3(f)."
    )

    def needs(self, study: Study) -> Sequence[Step]:
        """Return the draws of all methods after every treatment, and of the augmented ones under unseen masks."""
        seen = [step for m in METHODS for name in TREATMENTS for step in _steps(study, m, name)]
        return [*seen, *(step for m in AUGMENTED for name in UNSEEN for step in _steps(study, m, name))]

    def compute(self, study: Study, library: Library) -> Found:
        """Return coverage, mean coverage and width after every treatment."""
        every = {m: [*TREATMENTS, *(UNSEEN if m in AUGMENTED else ())] for m in METHODS}
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for method, names in every.items():
            found[method] = {name: _numbers(library.measured(_steps(study, method, name))) for name in names}
        n = library.measured(_steps(study, "control", "none")).n
        good = {name: library.good_share(_steps(study, AUGMENTED[0], name)) for name in ("mask channel", *UNSEEN)}
        tables = [_seen(found, n), _unseen(found, good, n)]
        names = [name for name in UNSEEN if name != "real masks" or study.files]
        notes = [f"Median share of good pixels: {', '.join(f'{name} {share:.2f}' for name, share in good.items())}."]
        if not study.files:
            notes.append("Real masks: the packaged spectrum's alone; --spectra DIR brings others.")
        return Found(tables, {"found": found, "good": good}, _claims(found[AUGMENTED[1]], names), notes)

    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw coverage after every treatment, and under unseen masks; widths below."""
        found = drawn["found"]
        with style():
            figure = Figure(figsize=(10.6, 6.2), layout="constrained")
            panels = figure.subplots(2, 2, width_ratios=(1.6, 1), height_ratios=(1.3, 1), sharex="col")
            groups = ((METHODS, list(TREATMENTS)), (AUGMENTED, ["none", *UNSEEN]))
            for column, (methods, names) in enumerate(groups):
                top, bottom = panels[:, column]
                nominal_line(top)
                shares = [_series(m, found[m], names, "coverage") for m in methods]
                dot_panel(top, names, shares)
                dot_panel(bottom, names, [_series(m, found[m], names, "width") for m in methods])
                top.set_ylim(0.0, 1.02)
                bottom.set_ylim(bottom=0.0)
                top.set_title(("treated as", "masks never drawn in training")[column], loc="left")
            panels[0, 0].set_ylabel("coverage of C/O at 0.90")
            panels[1, 0].set_ylabel("90 % width / prior")
            legend_below(panels[1, 0], columns=3, gap=-0.18)
        return figure


def _steps(study: Study, method: str, name: str) -> tuple[Drawn, ...]:
    path, masks = (TREATMENTS | UNSEEN)[name]
    return study.drawn(method, path=path, masks=masks)


def _numbers(measured: Measured) -> dict[str, Any]:
    share = measured.share()
    return {
        "coverage": share,
        "error": binomial_error(share, measured.n),
        "overall": measured.overall(),
        "width": measured.width(),
        "score": measured.score(),
    }


def _cell(one: dict[str, Any], paper: float | None = None) -> Cell:
    return cell(one["coverage"], one["error"], paper)


def _seen(found: dict[str, dict[str, dict[str, Any]]], n: int) -> dict[str, Any]:
    rows: list[tuple[str, Sequence[Cell]]] = []
    for name in TREATMENTS:
        rows.append((name, [_cell(one[name], published("masks", m, name)) for m, one in found.items()]))
    told = "mask channel"
    for name in ("full path", told):
        cells = []
        for method, one in found.items():
            mean, error = one[name]["overall"]
            cells.append(cell(mean, error, published("masks", method, f"overall, {name}")))
        rows.append((f"all parameters, {name}", cells))
    for name, label in (("none", "width"), ("full path", "width, full path"), (told, f"width, {told}")):
        cells = [cell(one[name]["width"], None, published("masks", m, label)) for m, one in found.items()]
        rows.append((f"width / prior, {name}", cells))
    note = "The mask channel is ours: masked pixels hold zero, and the network is told which they are."
    return table(f"C/O at 0.90 on {n:,} perturbed spectra, by treatment of their bad pixels", list(found), rows, note)


def _unseen(found: dict[str, dict[str, dict[str, Any]]], good: dict[str, float], n: int) -> dict[str, Any]:
    rows = []
    for name in ("none", "mask channel", *UNSEEN):
        cells: list[Cell] = [cell(good.get(name, 1.0), digits=2)]
        for method in AUGMENTED:
            one, whole = found[method][name], found[method]["none"]
            cells += [_cell(one), cell(one["width"] / whole["width"], digits=2)]
        rows.append(({"none": "no masks", "mask channel": "as in training"}.get(name, name), cells))
    columns = ["good pixels", *(f"{m}: {what}" for m in AUGMENTED for what in ("0.90", "width / unmasked"))]
    return table(f"Masks never drawn in training, told by the mask channel; C/O on {n:,} spectra", columns, rows)


def _claims(one: dict[str, dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    claims = []
    for name in names:
        share, ratio = one[name]["coverage"], one[name]["width"] / one["none"]["width"]
        claims.append(
            claim(f"mask-augmented ensemble, unseen masks ({name}): coverage", share, share >= 0.87, "at least 0.87")
        )
        claims.append(claim(f"its width over the unmasked ({name})", ratio, ratio <= 1.3, "at most 1.3"))
    return claims


def _series(method: str, one: dict[str, dict[str, Any]], names: list[str], what: str) -> dict[str, Any]:
    label = {"width": {"none": "width", "full path": "width, full path"}, "coverage": {n: n for n in names}}[what]
    paper = [published("masks", method, label[n]) if n in label else None for n in names]
    errors = [one[n]["error"] for n in names] if what == "coverage" else None
    return {"name": method, "values": [one[n][what] for n in names], "errors": errors, "paper": paper}


ITEM = Masks()
