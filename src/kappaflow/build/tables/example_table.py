"""The packaged real spectrum, made from the public table.

    python -m kappaflow.build.tables.example_table TABLE.csv --out wolf1130c.ecsv

TABLE is JWST-NIRSPEC-G395H_Wolf1130C_Burgasser2025.csv of the Python package ucdmcmc.
"""

import argparse
import os
from pathlib import Path

from astropy.table import Table

from kappaflow.observe.example import EXAMPLE
from kappaflow.observe.read import read_spectrum
from kappaflow.storage import written_whole

__all__ = ["write_example"]

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
_FORMATS = {"wavelength": ".7f", "flux": ".6g", "unc": ".4g"}


def write_example(table: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Convert the public table (um, erg s-1 cm-2 um-1) into the packaged ECSV (um, mJy)."""
    spectrum = read_spectrum(table, flux_unit="erg/s/cm2/um", wavelength_unit="um")
    columns = {"wavelength": spectrum.wavelength, "flux": spectrum.flux, "unc": spectrum.error}
    # Rounded, for astropy writes every digit of a number in ECSV.
    rounded = {name: [float(f"{v:{_FORMATS[name]}}") for v in values] for name, values in columns.items()}
    made = Table(rounded, units={"wavelength": "um", "flux": "mJy", "unc": "mJy"}, meta=_META)
    with written_whole(path) as part:
        made.write(part, format="ascii.ecsv", delimiter=",", overwrite=True)


def main(words: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--out", type=Path, default=Path(EXAMPLE))
    given = parser.parse_args(words)
    write_example(given.table, given.out)
    print(given.out)


if __name__ == "__main__":
    main()
