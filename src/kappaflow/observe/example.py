"""The packaged real spectrum; `kappaflow.build.tables.example_table` made it from the public table."""

from contextlib import AbstractContextManager
from importlib.resources import as_file, files
from pathlib import Path

from kappaflow.observe.read import read_spectrum
from kappaflow.observe.spectrum import Spectrum

__all__ = ["EXAMPLE", "example_path", "example_spectrum"]

EXAMPLE = "wolf1130c.ecsv"


def example_path() -> AbstractContextManager[Path]:
    """Lend the packaged file as a path."""
    return as_file(files("kappaflow.data") / EXAMPLE)


def example_spectrum() -> Spectrum:
    """Wolf 1130C, a T8 subdwarf, as JWST/NIRSpec G395H saw it (Burgasser et al. 2025)."""
    with example_path() as path:
        return read_spectrum(path)
