"""The packaged real spectrum, and how it was made from the public table."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from kappaflow.observe.read import read_spectrum
from kappaflow.observe.spectrum import Spectrum
from kappaflow.storage import written_whole

__all__ = ["EXAMPLE", "example_path", "example_spectrum", "write_example"]

EXAMPLE = "wolf1130c.ecsv"
_META = {
    "target": "Wolf 1130C",
    "instrument": "JWST NIRSpec G395H/F290LP",
    "medium": "vacuum",
    "distance_pc": 16.6,
    "flux": "apparent, as observed from Earth; unc is one standard deviation",
    "citation": "Burgasser et al. 2025, Science 390, 697, doi:10.1126/science.adu0401",
    "provenance": "table JWST-NIRSPEC-G395H_Wolf1130C_Burgasser2025.csv of the Python package ucdmcmc 1.4.5 "
    "(MIT licence, copyright 2024 Adam Burgasser), erg s-1 cm-2 um-1 converted to mJy by kappaflow",
}


def example_path() -> AbstractContextManager[Path]:
    """Lend the packaged file as a path."""
    return as_file(files("kappaflow.data") / EXAMPLE)


def example_spectrum() -> Spectrum:
    """Wolf 1130C, a T8 subdwarf, as JWST/NIRSpec G395H saw it (Burgasser et al. 2025)."""
    with example_path() as path:
        return read_spectrum(path)


def write_example(table: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Convert the public table (um, erg s-1 cm-2 um-1) into the packaged ECSV (um, mJy)."""
    spectrum = read_spectrum(table, flux_unit="erg/s/cm2/um", wavelength_unit="um")
    columns = (("wavelength", "um"), ("flux", "mJy"), ("unc", "mJy"))
    lines = ["# %ECSV 1.0", "# ---", "# delimiter: ','", "# datatype:"]
    lines += [f"# - {{name: {name}, unit: {unit}, datatype: float64}}" for name, unit in columns]
    lines += ["# meta:", *(f"#   {key}: {_yaml(value)}" for key, value in _META.items()), "# schema: astropy-2.0"]
    lines.append(",".join(name for name, _ in columns))
    rows = np.column_stack([spectrum.wavelength, spectrum.flux, spectrum.error])
    lines += [f"{w:.7f},{f:.6g},{e:.4g}" for w, f, e in rows]
    with written_whole(path) as part:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _yaml(value: str | float) -> str:
    return f"'{value}'" if isinstance(value, str) else repr(value)
