"""What a retrieval leaves behind: netCDF, JSON, CSV, figures, and their place in the report."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kappaflow.constants import REFERENCE_PC
from kappaflow.parameters import INDEX
from kappaflow.report.page import Figure, Report, Section, Table, write_report
from kappaflow.retrieval.result import Failed, Retrieval
from kappaflow.storage import written_whole

__all__ = ["write_collection", "write_object", "write_page"]

_CO = INDEX["C_O"]
_OMITTED = (
    "The model has six absorbers (H2O, CH4, CO, CO2, NH3, H2S), equilibrium chemistry with quenching and one grey "
    "cloud: no PH3, no patchy clouds, no isotopologues, no condensation of oxygen."
)
_CAPTIONS = {
    "band": "Data on the model's pixels and the 90 % posterior-predictive band, opacities varied; residuals below.",
    "spectrum": "Data on the model's pixels.",
    "c_to_o": "C/O; thick bars hold 68 %, thin ones 90 %. Control: the same network with the opacities fixed.",
    "corner": "C/O and the parameters the spectrum constrains; contours hold 68 and 95 %.",
}


def write_object(result: Retrieval, folder: Path) -> None:
    """Write posterior.nc, summary.json, summary.csv and the figures of one object into its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with written_whole(folder / "posterior.nc") as part:
        # With xarray: importing arviz takes seconds and leaves a stamp in the user's cache folder.
        for i, (name, data) in enumerate(result.datasets().items()):
            data.to_netcdf(part, mode="a" if i else "w", group=name, engine="h5netcdf")
    _write_json(folder / "summary.json", result.summary())
    _write_rows(folder / "summary.csv", result.parameters())
    _write_figures(result, folder)


def write_collection(outcomes: Sequence[Retrieval | Failed], out: Path, first: Sequence[Section] = ()) -> Path:
    """Write what concerns all objects: summary.json, summary.csv and report.html, whose path is returned."""
    _write_json(out / "summary.json", [outcome.summary() for outcome in outcomes])
    _write_rows(out / "summary.csv", [outcome.row() for outcome in outcomes])
    if len(outcomes) > 1:
        first = [*first, _overview(outcomes, out)]
    return write_page(outcomes, [out / outcome.name for outcome in outcomes], out / "report.html", first)


def write_page(
    outcomes: Sequence[Retrieval | Failed], folders: Sequence[Path], path: Path, first: Sequence[Section] = ()
) -> Path:
    """Write the report on objects whose figures are in `folders`, after the sections `first`."""
    sections = [_section(outcome, folder) for outcome, folder in zip(outcomes, folders, strict=True)]
    title = outcomes[0].title if len(outcomes) == 1 else f"{len(outcomes)} objects"
    made = next((outcome.provenance for outcome in outcomes if isinstance(outcome, Retrieval)), {})
    report = Report(f"C/O of {title}", "with the line lists in its error bar", [*first, *sections], made)
    return write_report(report, path)


def _write_json(path: Path, content: Any) -> None:
    with written_whole(path) as part:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write `rows` as CSV under the union of their keys."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    with written_whole(path) as part, part.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, names)
        writer.writeheader()
        writer.writerows(rows)


def _write_figures(result: Retrieval, folder: Path) -> None:
    from kappaflow.plots import object_figures as plots
    from kappaflow.plots import save_figure

    spectrum, band = result.spectrum, result.envelope
    data = (spectrum.flux, spectrum.error, spectrum.mask)
    title = f"{result.title}   SNR {spectrum.snr:.0f}"
    drawn = None if band is None else (band.low, band.median, band.high)
    scaled = f" at {REFERENCE_PC:g} pc" if spectrum.meta["scale_known"] else ""
    save_figure(plots.spectrum(spectrum.wavelength, data, drawn, title=title, distance=scaled), folder / "spectrum")
    draws = {"marginalized": result.draws}
    if result.control_draws is not None:
        draws["control"] = result.control_draws
    save_figure(plots.corner(draws, result.box), folder / "corner")
    save_figure(plots.c_to_o({k: v[:, _CO] for k, v in draws.items()}), folder / "c_to_o")


def _section(outcome: Retrieval | Failed, folder: Path) -> Section:
    """Return the object's part of the report."""
    if isinstance(outcome, Failed):
        return Section(outcome.title, "No result", outcome.error)
    _, q16, median, q84, _ = outcome.quantiles[:, _CO]
    rows = [
        [_named(name, unit), *map(_short, numbers), f"{width:.2f}"]
        for name, unit, *numbers, width in (row.values() for row in outcome.parameters())
    ]
    header = ["parameter", "5 %", "16 %", "median", "84 %", "95 %", "width / prior"]
    figures = [
        Figure(folder / "spectrum.png", _CAPTIONS["band" if outcome.envelope else "spectrum"], "spectrum"),
        Figure(folder / "c_to_o.png", _CAPTIONS["c_to_o"], "C/O densities and intervals"),
        Figure(folder / "corner.png", _CAPTIONS["corner"], "corner plot of the informative parameters"),
    ]
    meta = outcome.spectrum.meta
    unscaled = "No distance was given: the flux scale was not used, and R is close to its prior."
    return Section(
        outcome.title,
        f"C/O = {median:.2f} +{q84 - median:.2f} −{median - q16:.2f}",
        "68 % interval; bulk elemental ratio, line lists included",
        outcome.checks,
        [Table(header, rows, f"Posterior, {len(outcome.draws):,} draws.", frozenset({_CO}))],
        figures,
        [*([] if meta["scale_known"] else [unscaled]), *meta.get("notes", ()), _OMITTED],
    )


def _named(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit and not unit.startswith("dex") else name


def _short(value: float) -> str:
    """Three or four figures, no exponents: 1,234 or 0.0312."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _overview(outcomes: Sequence[Retrieval | Failed], folder: Path) -> Section:
    """Return the first section of a report on many: a table, and C/O against SNR."""
    from kappaflow.plots import object_figures as plots
    from kappaflow.plots import save_figure

    rows, shown = [], []
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            rows.append([outcome.name, "error", "", "", ""])
            continue
        q, snr = outcome.quantiles[:, _CO].tolist(), outcome.spectrum.snr
        control = outcome.control_c_to_o
        shown.append(plots.Retrieved(outcome.title[:24], snr, q, None if control is None else control.tolist()))
        rows.append([outcome.title, outcome.verdict, f"{snr:.0f}", f"{q[2]:.2f}", f"{q[1]:.2f} to {q[3]:.2f}"])
    figures = []
    if shown:
        path = save_figure(plots.c_to_o_against_snr(shown), folder / "c_to_o_snr")[0]
        figures.append(Figure(path, "C/O in order of SNR; thick bars hold 68 %, thin ones 90 %.", "C/O against SNR"))
    table = Table(["object", "trust", "SNR", "C/O", "68 %"], rows, f"{len(shown)} of {len(outcomes)} retrieved.")
    return Section("All objects", tables=[table], figures=figures)
