"""What a result says of the atmosphere: atmosphere.ecsv, its two figures, and their part of the report."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kappaflow.report.page import Figure, Table
from kappaflow.retrieval.interior import BANDS, Interior
from kappaflow.retrieval.quantiles import KEYS
from kappaflow.retrieval.result import Retrieval
from kappaflow.storage import written_whole

__all__ = [
    "atmosphere_figures",
    "atmosphere_summary",
    "derived_notes",
    "derived_table",
    "with_unit",
    "write_atmosphere",
]

_CAPTIONS = {
    "atmosphere": (
        "Temperature, gases and cloud with 68 and 95 % bands (gases 68 %). Shaded: where 68 and 95 % of the light is "
        "emitted; above and below it the profile is extrapolated. Marks at the left of the gases: where they freeze."
    ),
    "contribution": "Where each pixel's light comes from (contribution function of one atmosphere of the posterior).",
}


def write_atmosphere(result: Retrieval, folder: Path) -> list[Path]:
    """Write atmosphere.ecsv and the figures into `folder`; return their paths. Nothing without a forward model."""
    if result.interior is None:
        return []
    from kappaflow.plots import save_figure
    from kappaflow.plots.atmosphere_figures import Bands, atmosphere, contribution

    inside = result.interior
    bands = Bands(
        inside.pressure,
        inside.temperature,
        inside.log_vmr,
        inside.cloud_depth,
        inside.quench,
        inside.cloud_base,
        inside.metallicity,
    )
    figures = {
        "atmosphere": atmosphere(bands, inside.probed_by(_flux(result)), title=result.title),
        "contribution": contribution(
            inside.wavelength, inside.pressure, inside.light[:-1], inside.probed, title=result.title
        ),
    }
    table = folder / "atmosphere.ecsv"
    _write_table(inside, _flux(result), table)
    return [table, *(path for name, figure in figures.items() for path in save_figure(figure, folder / name))]


def _flux(result: Retrieval) -> np.ndarray:
    """Flux that weighs the pixels: predicted, or the data's where they are good."""
    spectrum = result.spectrum
    return np.where(spectrum.mask, spectrum.flux, 0.0) if result.envelope is None else result.envelope.median


def _write_table(inside: Interior, flux: np.ndarray, path: Path) -> None:
    from astropy.table import QTable
    from astropy.units import Unit

    names = [f"p{100 * level:g}".replace(".", "_") for level in BANDS]
    table = QTable({"pressure": inside.pressure * Unit("bar")})
    for name, row in zip(names, inside.temperature, strict=True):
        table[f"T_{name}"] = row * Unit("K")
    for gas, band in inside.log_vmr.items():
        for name, row in zip(names, band, strict=True):
            table[f"log_{gas}_{name}"] = row
    for name, row in zip(names, inside.cloud_depth, strict=True):
        table[f"cloud_depth_{name}"] = row
    table["light"] = inside.probed_by(flux)[0]
    table.meta = {
        "columns": "T, log10 mole fraction and cloud optical depth from the top at the quantiles p2_5 to p97_5; light: "
        "share of the window's flux emitted in the layer",
        **{f"log_pressure_{key}": value for key, value in _levels(inside).items()},
    }
    with written_whole(path) as part:
        table.write(part, format="ascii.ecsv", overwrite=True)


def _levels(inside: Interior) -> dict[str, list[float]]:
    found = {f"quench {name}": level for name, level in inside.quench.items()}
    found |= {} if inside.cloud_base is None else {"cloud base": inside.cloud_base}
    return {name: [round(float(v), 4) for v in level] for name, level in found.items()}


def atmosphere_summary(result: Retrieval) -> dict[str, Any] | None:
    """Plain data: levels [log10(P/bar)] at the quantiles BANDS, where light comes from, cloud depth above it."""
    inside = result.interior
    if inside is None:
        return None
    probed = inside.probed_by(_flux(result))[1]
    depth = [np.interp(probed[2], np.log10(inside.pressure), row) for row in inside.cloud_depth]
    return {
        "levels": list(BANDS),
        "log_pressure": {**_levels(inside), "probed": [round(float(v), 4) for v in probed]},
        "cloud_depth_above_probed": [float(v) for v in depth],
    }


def atmosphere_figures(summary: Mapping[str, Any], folder: Path) -> list[Figure]:
    """Return the figures of an object's part of the report, where they were made."""
    names = {"atmosphere": "temperature, gases and cloud against pressure", "contribution": "contribution function"}
    there = summary.get("files", [path.name for path in folder.iterdir()] if folder.is_dir() else [])
    return [Figure(folder / f"{n}.png", _CAPTIONS[n], alt) for n, alt in names.items() if f"{n}.png" in there]


def derived_table(summary: Mapping[str, Any]) -> list[Table]:
    """Return the table of derived quantities; nothing where there are none."""
    derived = summary.get("derived") or {}
    if not derived:
        return []
    rows = [[with_unit(name, row["unit"]), *(f"{row[key]:.4g}" for key in KEYS)] for name, row in derived.items()]
    return [
        Table(["derived", "5 %", "16 %", "median", "84 %", "95 %"], rows, "Derived from the draws (how: see below).")
    ]


def derived_notes(summary: Mapping[str, Any]) -> list[str]:
    """Return how each derived quantity was found, in words."""
    return [f"{name}: {row['how']}." for name, row in (summary.get("derived") or {}).items()]


def with_unit(name: str, unit: str) -> str:
    """Return a name with its unit behind it; of a logarithm, that of its argument."""
    return f"{name} ({unit.removeprefix('dex(').removesuffix(')')})" if unit and unit != "dex" else name
