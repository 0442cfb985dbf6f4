"""Real JWST spectra: C/O of the T8 benchmark by every method, all against SNR, predictive verdicts."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kappaflow.calibrate import PitMap, check_draws, fit_pit_map
from kappaflow.evaluate.scoring import focus
from kappaflow.experiments.cells import Cell, cell, table
from kappaflow.experiments.item import Found, Item, Library
from kappaflow.experiments.published import published
from kappaflow.experiments.steps import Step
from kappaflow.experiments.study import Study
from kappaflow.experiments.treatments import readable_spectra
from kappaflow.inference.posterior import pooled
from kappaflow.plots import QUIET, style
from kappaflow.plots.experiment_figures import colour_of, look_of
from kappaflow.retrieval.result import Retrieval, RetrievalSettings
from kappaflow.retrieval.retriever import Retriever
from kappaflow.spectra import Box

__all__ = ["ITEM"]

BENCHMARK = "0415"  # in the name of the T8 benchmark's file: 2MASS J04151954-0935066
KINDS = ("control", "marginalized", "mask-augmented")
QUANTILES = (0.05, 0.16, 0.5, 0.84, 0.95)
SUPPORT = 10.0  # lowest SNR of the training
IN_FIGURE = ("control ensemble", "marginalized ensemble", "mask-augmented ensemble")


class Real(Item):
    """The path of `kf.retrieve`, with the networks of this study."""

    name, order, reads_files = "real", 13, True
    title = "Real JWST spectra"
    about = (
        "The packaged spectrum and those in --spectra DIR, read and retrieved as `kappaflow retrieve` does it, by the "
        "control, the marginalized and the mask-augmented networks; recalibrated by the maps frozen on simulations. A "
        "consistency check, no validation: nobody knows the truth. The paper: section 3(g)."
    )

    def needs(self, study: Study) -> Sequence[Step]:
        """Return the networks, and the calibration half of the two that are recalibrated."""
        networks = [study.network(kind, seed) for kind in KINDS for seed in range(study.pooled(kind))]
        return [*networks, *(s for kind in KINDS[:2] for s in study.drawn(kind, "calibration"))]

    def compute(self, study: Study, library: Library) -> Found:
        """Return every object's C/O by every method."""
        spectra, refused = readable_spectra(study.files)
        networks = {
            kind: library.posterior(*(study.network(kind, seed) for seed in range(study.pooled(kind))))
            for kind in KINDS
        }
        maps = {k: fit_pit_map(library.measured(study.drawn(k, "calibration")).draws) for k in KINDS[:2]}
        alone = RetrievalSettings(amortized=True)
        bare, masked = (Retriever(networks[k], networks["control"], settings=alone) for k in KINDS[1:])
        objects = []
        for name, spectrum in spectra:
            retrievals = {"marginalized": bare(spectrum), "mask-augmented": masked(spectrum)}
            objects.append(_object(name, retrievals, networks["control"].box, maps))
        box = networks["control"].box
        width = float(box.widths[box.names.index(focus(box.names))])
        tables = [_benchmark(one) for one in objects if BENCHMARK in one["name"]]
        tables += [_every(objects), _sample(objects, width)]
        notes = [f"Not read: {line}" for line in refused]
        if not any(BENCHMARK in one["name"] for one in objects):
            notes.append(f"The T8 benchmark is not among them: no file in --spectra has {BENCHMARK!r} in its name.")
        return Found(tables, {"objects": objects}, (), notes)

    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw C/O of all objects, ordered by SNR."""
        objects = sorted(drawn["objects"], key=lambda one: one["snr"])
        band = [published("literature", "T8", c) for c in ("C_O", "error")]
        with style():
            figure = Figure(figsize=(1.1 * len(objects) + 3.4, 4.6), layout="constrained")
            axes = figure.subplots()
            assert band[0] is not None, "the paper quotes it"
            assert band[1] is not None, "with its error"
            axes.axhspan(
                band[0] - band[1], band[0] + band[1], color="#E6B800", alpha=0.5, lw=0, label="Hood et al., T8"
            )
            for k, method in enumerate(IN_FIGURE):
                x = np.arange(len(objects)) + 0.22 * (k - 1)
                quantiles = np.array([one["methods"][method] for one in objects])
                look = {**look_of(method), "ls": "none"}
                reach = np.abs(quantiles[:, [1, 3]] - quantiles[:, [2]]).T
                axes.errorbar(x, quantiles[:, 2], yerr=reach, ms=5, lw=1.6, capsize=0, label=method, **look)
                axes.vlines(x, quantiles[:, 0], quantiles[:, 4], color=colour_of(method), lw=0.6)
            labels = [f"{_short(one['name'])}\nSNR {one['snr']:.0f}" for one in objects]
            axes.set_xticks(range(len(objects)), labels, rotation=30, ha="right", fontsize=8)
            for tick, one in zip(axes.get_xticklabels(), objects, strict=True):
                tick.set_color(QUIET if one["snr"] < SUPPORT else "black")
            axes.set(ylabel="C/O", xlim=(-0.6, len(objects) - 0.4))
            axes.set_title("bars: 68 % and 90 %; spectra in order of SNR", loc="left", fontsize=9)
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        return figure


def _object(name: str, found: dict[str, Retrieval], box: Box, maps: dict[str, PitMap]) -> dict[str, Any]:
    """All methods' quantiles of C/O for one object, and what the trust card says."""
    bare = found["marginalized"]
    assert bare.control is not None, "given to the retriever"
    members = {"control": bare.control, "marginalized": bare.members, "mask-augmented": found["mask-augmented"].members}
    k = box.names.index(focus(box.names))
    methods: dict[str, list[float]] = {}
    for kind, draws in members.items():
        single = draws[0]
        methods[kind] = _quantiles(single[:, k])
        if kind in maps:
            methods[f"recalibrated {kind}"] = _moved(single, box, maps[kind])[k]
        methods[f"{kind} ensemble"] = _quantiles(pooled(draws, draws.shape[0] * draws.shape[1])[:, k])
    checks = {kind: {c.name: [c.value, c.verdict] for c in one.checks} for kind, one in found.items()}
    seeds = {kind: _seeds(draws[..., k]) for kind, draws in members.items()}
    predictive = {kind: found[kind].envelope for kind in found}
    return {
        "name": name,
        "snr": float(bare.spectrum.snr),
        "good": float(bare.spectrum.mask.mean()),
        "methods": methods,
        "seeds": seeds,
        "predictive": {kind: None if one is None else one.p_value for kind, one in predictive.items()},
        "verdicts": {kind: checks[kind]["posterior predictive"][1] for kind in found},
    }


def _quantiles(draws: np.ndarray) -> list[float]:
    return [float(q) for q in np.quantile(draws, QUANTILES, method="weibull")]


def _moved(draws: np.ndarray, box: Box, pit_map: PitMap) -> dict[int, list[float]]:
    """Quantiles of every parameter after the map; the median stays the raw one, as in the paper."""
    checked = check_draws(
        np.asarray([(low + high) / 2 for low, high in zip(box.low, box.high, strict=True)])[None],
        draws[None],
        prior=(np.asarray(box.low), np.asarray(box.high)),
        names=box.names,
    )
    after = pit_map.apply(checked).draws[0]
    rows = {}
    for k in range(after.shape[1]):
        rows[k] = _quantiles(after[:, k])
        rows[k][2] = _quantiles(draws[:, k])[2]
    return rows


def _seeds(members: np.ndarray) -> float | None:
    """Median distance of the members' medians of C/O (M, n), over pairs."""
    medians = np.median(members, axis=1)
    pairs = [abs(a - b) for a, b in combinations(medians, 2)]
    return float(np.median(pairs)) if pairs else None


def _benchmark(one: dict[str, Any]) -> dict[str, Any]:
    truth = published("literature", "T8", "C_O")
    assert truth is not None, "the paper quotes it"
    rows: list[tuple[str, list[Cell]]] = []
    for method, (low90, low68, median, high68, high90) in one["methods"].items():
        theirs = [published("real", method, c) for c in ("median", "68 low", "68 high", "90 low", "90 high")]
        inside = [
            f"{level} %" for level, low, high in ((68, low68, high68), (90, low90, high90)) if low <= truth <= high
        ]
        spans = [_span(low68, high68, theirs[1:3]), _span(low90, high90, theirs[3:5])]
        rows.append((method, [cell(median, None, theirs[0]), *spans, " and ".join(inside) or "neither"]))
    note = f"Hood et al. (2024): {truth:g} ± {published('literature', 'T8', 'error'):g}, statistical alone."
    title = f"T8 benchmark, {one['name']}: C/O (SNR {one['snr']:.1f}, {one['good']:.0%} of pixels good)"
    return table(title, ["median", "68 %", "90 %", f"contains {truth:g}"], rows, note)


def _span(low: float, high: float, theirs: Sequence[float | None]) -> str:
    ours = f"{low:.3f} to {high:.3f}"
    return ours if None in theirs else f"{ours} · *{theirs[0]:.3f} to {theirs[1]:.3f}*"


def _every(objects: list[dict[str, Any]]) -> dict[str, Any]:
    rows = []
    for one in sorted(objects, key=lambda one: one["snr"]):
        cells: list[Cell] = [cell(one["snr"], digits=1)]
        for method in IN_FIGURE:
            _, low, median, high, _ = one["methods"][method]
            cells.append(f"{median:.2f} ({low:.2f} to {high:.2f})")
        p = one["predictive"]["mask-augmented"]
        cells.append("–" if p is None else f"{p:.3f}: {one['verdicts']['mask-augmented']}")
        rows.append((one["name"], cells))
    return table("C/O of every object: median (68 %)", ["SNR", *IN_FIGURE, "predictive p, mask-augmented"], rows)


def _sample(objects: list[dict[str, Any]], width: float) -> dict[str, Any]:
    """Widths, seeds and predictive verdicts over the objects inside the training's SNR."""
    some = [one for one in objects if one["snr"] >= SUPPORT]
    rows = []
    for method in ("control", "marginalized", "mask-augmented", *IN_FIGURE):
        kind = method.removesuffix(" ensemble")
        widths = [one["methods"][method][4] - one["methods"][method][0] for one in some]
        paper = [published("sample", method, c) for c in ("width", "seeds")]
        seeds = [one["seeds"][kind] for one in some if one["seeds"][kind] is not None]
        known = [one["verdicts"].get(kind) for one in some if one["predictive"].get(kind) is not None]
        beyond = f"{sum(v == 'fail' for v in known)} of {len(known)}" if known else "–"
        theirs = [published("sample", kind, c) for c in ("beyond", "scored")]
        beyond += "" if None in theirs or not known else f" · *{theirs[0]:.0f} of {theirs[1]:.0f}*"
        single = method == kind
        cells: list[Cell] = [cell(float(np.median(widths)) / width, None, paper[0], digits=2) if widths else "–"]
        cells.append(cell(float(np.median(seeds)), None, paper[1], digits=2) if seeds and single else "–")
        rows.append((method, [*cells, beyond if kind != "control" and not single else "–"]))
    columns = ["median 90 % width / prior", "seeds apart", "beyond the predictive envelope"]
    note = (
        "Seeds apart: median over objects of the distance between members' medians. Envelope: what the draws of the "
        "ensemble predict with opacities varied; beyond it, the trust card's check fails."
    )
    return table(f"{len(some)} objects with SNR of at least {SUPPORT:g}", columns, rows, note)


def _short(name: str) -> str:
    return name.removesuffix("_apparent_SED")[:18]


ITEM = Real()
