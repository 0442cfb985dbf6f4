"""What `kappaflow retrieve` leaves behind: netCDF, JSON, CSV, figures, and their place in the report."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kappaflow.parameters import INDEX, PARAMETERS
from kappaflow.storage import written_whole

if TYPE_CHECKING:
    from kappaflow.report.page import Section
    from kappaflow.retrieval.pipeline import Retrieval

__all__ = ["LEVELS", "Outcome", "overview", "row_of", "section_of", "summary_of", "write_object", "write_rows"]

LEVELS = (0.05, 0.16, 0.5, 0.84, 0.95)
_HEADER = ("parameter", "unit", *(f"q{round(100 * level):02d}" for level in LEVELS), "width_over_prior")


@dataclass(frozen=True)
class Outcome:
    """One object of a call: what came of it, or why nothing did."""

    name: str
    folder: Path
    result: Retrieval | None
    error: str | None = None

    @property
    def title(self) -> str:
        """Return the target's name where the file states one, else the file's."""
        target = self.result.spectrum.meta.get("target") if self.result is not None else None
        return target if isinstance(target, str) and target else self.name


def quantiles(draws: np.ndarray) -> np.ndarray:
    """Quantiles (5, ...) of draws (n, ...) at LEVELS, by Weibull's rule: linear interpolation reads tails narrow."""
    return np.quantile(draws, LEVELS, axis=0, method="weibull")


def parameter_rows(draws: np.ndarray) -> list[list[Any]]:
    """One row a parameter: name, unit, quantiles, 90 % width over the prior's."""
    table = quantiles(draws)
    return [
        [p.name, p.unit, *map(float, table[:, i]), float((table[4, i] - table[0, i]) / (0.9 * p.width))]
        for i, p in enumerate(PARAMETERS)
    ]


def summary_of(outcome: Outcome, provenance: dict[str, Any]) -> dict[str, Any]:
    """Plain data of one object, for summary.json."""
    result = outcome.result
    if result is None:
        return {"name": outcome.name, "error": outcome.error}
    from kappaflow.retrieval.trust import worst

    meta = {k: list(v) if isinstance(v, tuple) else v for k, v in result.spectrum.meta.items()}
    control = result.control_draws
    return {
        "name": outcome.name,
        "verdict": worst(result.checks),
        "trust": [check.as_dict() for check in result.checks],
        "parameters": {row[0]: dict(zip(_HEADER[1:], row[1:], strict=True)) for row in parameter_rows(result.draws)},
        "control_c_to_o": None if control is None else [float(q) for q in quantiles(control[:, INDEX["C_O"]])],
        "levels": list(LEVELS),
        "snr": result.spectrum.snr,
        "covered_fraction": float(result.spectrum.mask.mean()),
        "spectrum": meta,
        **provenance,
    }


def row_of(outcome: Outcome) -> dict[str, Any]:
    """One line of the table of many objects."""
    if outcome.result is None:
        return {"name": outcome.name, "verdict": "error", "error": outcome.error}
    from kappaflow.retrieval.trust import worst

    result = outcome.result
    found = dict(zip(_HEADER[2:-1], map(float, quantiles(result.draws[:, INDEX["C_O"]])), strict=True))
    row = {"name": outcome.name, "verdict": worst(result.checks), "snr": result.spectrum.snr}
    row |= {"covered_fraction": float(result.spectrum.mask.mean())} | {f"C_O_{k}": v for k, v in found.items()}
    if result.control_draws is not None:
        other = quantiles(result.control_draws[:, INDEX["C_O"]])
        row |= {f"control_C_O_{k}": float(v) for k, v in zip(found, other, strict=True)}
    return row


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write `rows` as CSV under the union of their keys."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    with written_whole(path) as part, part.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, names)
        writer.writeheader()
        writer.writerows(rows)


def write_object(outcome: Outcome, provenance: dict[str, Any]) -> None:
    """Write posterior.nc, summary.json, summary.csv and the figures of one object into its folder."""
    result, folder = outcome.result, outcome.folder
    assert result is not None
    folder.mkdir(parents=True, exist_ok=True)
    _netcdf(result, folder / "posterior.nc", provenance)
    with written_whole(folder / "summary.json") as part:
        part.write_text(json.dumps(summary_of(outcome, provenance), indent=1) + "\n", encoding="utf-8")
    rows = [dict(zip(_HEADER, row, strict=True)) for row in parameter_rows(result.draws)]
    write_rows(folder / "summary.csv", rows)
    _figures(outcome)


def _netcdf(result: Retrieval, path: Path, provenance: dict[str, Any]) -> None:
    """ArviZ's InferenceData, one group a data set: a chain is a network of the ensemble; flux in mJy.

    Written with xarray: importing arviz takes seconds and leaves a stamp in the user's cache folder.
    """
    import xarray as xr

    def draws(values: np.ndarray) -> Any:
        axes = ("chain", "draw")
        columns = {p.name: (axes, values[..., i], {"units": p.unit}) for i, p in enumerate(PARAMETERS)}
        chains, n = values.shape[:2]
        return xr.Dataset(columns, {"chain": np.arange(chains), "draw": np.arange(n)})

    spectrum, axis = result.spectrum, ("wavelength",)
    pixels = {"wavelength": (axis, spectrum.wavelength, {"units": "um"})}
    flux, error = (np.where(spectrum.mask, a, np.nan) for a in (spectrum.flux, spectrum.error))
    constant = {"error": (axis, error, {"units": "mJy"}), "mask": (axis, spectrum.mask.astype(np.int8))}
    groups = {
        "posterior": draws(result.members),
        "observed_data": xr.Dataset({"flux": (axis, flux, {"units": "mJy"})}, pixels),
        "constant_data": xr.Dataset(constant, pixels),
    }
    if result.control is not None:
        groups["control"] = draws(result.control)
    groups["posterior"].attrs.update({k: v for k, v in provenance.items() if isinstance(v, str)})
    with written_whole(path) as part:
        for i, (name, data) in enumerate(groups.items()):
            data.to_netcdf(part, mode="a" if i else "w", group=name, engine="h5netcdf")


def _figures(outcome: Outcome) -> None:
    from kappaflow.plots import object_figures as plots
    from kappaflow.plots import save_figure
    from kappaflow.retrieval.pipeline import REFERENCE_PC

    result, folder = outcome.result, outcome.folder
    assert result is not None
    spectrum, band = result.spectrum, result.envelope
    data = (spectrum.flux, spectrum.error, spectrum.mask)
    title = f"{outcome.title}   SNR {spectrum.snr:.0f}"
    drawn = None if band is None else (band.low, band.median, band.high)
    scaled = f" at {REFERENCE_PC:g} pc" if spectrum.meta["scale_known"] else ""
    save_figure(plots.spectrum(spectrum.wavelength, data, drawn, title=title, distance=scaled), folder / "spectrum")
    draws = {"marginalized": result.draws}
    if result.control_draws is not None:
        draws["control"] = result.control_draws
    save_figure(plots.corner(draws), folder / "corner")
    save_figure(plots.c_to_o({k: v[:, INDEX["C_O"]] for k, v in draws.items()}), folder / "c_to_o")


def section_of(outcome: Outcome) -> Section:
    """Return the object's part of the report."""
    from kappaflow.report.page import Figure, Line, Section, Table

    result = outcome.result
    if result is None:
        return Section(outcome.title, "No result", outcome.error or "")
    _, q16, median, q84, _ = quantiles(result.draws[:, INDEX["C_O"]])
    rows = [[_named(r[0], r[1]), *(_short(v) for v in r[2:7]), f"{r[7]:.2f}"] for r in parameter_rows(result.draws)]
    header = ["parameter", "5 %", "16 %", "median", "84 %", "95 %", "width / prior"]
    known = result.spectrum.meta["scale_known"]
    figures = [
        Figure(outcome.folder / "spectrum.png", _CAPTIONS["band" if result.envelope else "spectrum"], "spectrum"),
        Figure(outcome.folder / "c_to_o.png", _CAPTIONS["c_to_o"], "C/O densities and intervals"),
        Figure(outcome.folder / "corner.png", _CAPTIONS["corner"], "corner plot of the informative parameters"),
    ]
    notes = [] if known else ["No distance was given: the flux scale was not used, and R is close to its prior."]
    return Section(
        outcome.title,
        f"C/O = {median:.2f} +{q84 - median:.2f} −{median - q16:.2f}",
        "68 % interval; bulk elemental ratio, line lists included",
        [Line(c.name, c.verdict, _value(c), c.sentence) for c in result.checks],
        [Table(header, rows, f"Posterior, {len(result.draws):,} draws.", frozenset({INDEX["C_O"]}))],
        figures,
        [*notes, *result.spectrum.meta.get("notes", ()), _OMITTED],
    )


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


def _named(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit and not unit.startswith("dex") else name


def _short(value: float) -> str:
    """Three or four figures, no exponents: 1,234 or 0.0312."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _value(check: Any) -> str:
    if np.isnan(check.value):
        return ""
    shares = {"covered fraction", "line-list share"}
    return f"{check.value:.0%}" if check.name in shares else f"{check.value:.3g}"


def overview(outcomes: Sequence[Outcome], folder: Path) -> Section:
    """Return the first section of a report on many: a table, and C/O against SNR."""
    from kappaflow.plots import object_figures as plots
    from kappaflow.plots import save_figure
    from kappaflow.report.page import Figure, Section, Table
    from kappaflow.retrieval.trust import worst

    rows, shown = [], []
    for outcome in outcomes:
        result = outcome.result
        if result is None:
            rows.append([outcome.name, "error", "", "", ""])
            continue
        q = quantiles(result.draws[:, INDEX["C_O"]])
        control = result.control_draws
        other = None if control is None else quantiles(control[:, INDEX["C_O"]])
        shown.append(
            plots.Retrieved(outcome.title[:24], result.spectrum.snr, list(q), None if other is None else list(other))
        )
        span = f"{q[1]:.2f} to {q[3]:.2f}"
        rows.append([outcome.title, worst(result.checks), f"{result.spectrum.snr:.0f}", f"{q[2]:.2f}", span])
    figures = []
    if shown:
        path = save_figure(plots.c_to_o_against_snr(shown), folder / "c_to_o_snr")[0]
        figures.append(Figure(path, "C/O in order of SNR; thick bars hold 68 %, thin ones 90 %.", "C/O against SNR"))
    table = Table(["object", "trust", "SNR", "C/O", "68 %"], rows, f"{len(shown)} of {len(outcomes)} retrieved.")
    return Section("All objects", tables=[table], figures=figures)
