"""Every real spectrum of the data folder, and the packaged one, from file to pixels without a hand edit."""

from pathlib import Path

import numpy as np
import pytest
from folders import DATA, needs

from kappaflow import data
from kappaflow.build.tables.example_table import write_example
from kappaflow.errors import UserError
from kappaflow.observe import pixel_edges, read_spectrum, resample
from kappaflow.observe.example import example_spectrum

SPECTRA = DATA / "spectra"
needs_data = needs("spectra")
PIXELS = np.concatenate([np.arange(2.87, 3.684, 0.001336), np.arange(3.788, 5.27, 0.001336)])
TABLES = sorted(p for p in SPECTRA.glob("*") if not p.name.endswith("_results.txt"))


def hint(path):
    return {"flux_unit": "erg/s/cm2/um"} if path.suffix == ".csv" else {}


@needs_data
@pytest.mark.parametrize("path", TABLES, ids=lambda p: p.name)
def test_a_real_spectrum_reads_and_keeps_its_energy_on_pixels(path):
    spectrum = read_spectrum(path, **hint(path))
    pixels = resample(spectrum, PIXELS)
    assert pixels.mask.mean() > 0.8
    assert 10 < pixels.snr < 100
    window = pixels.mask & (PIXELS > 4.0) & (PIXELS < 5.1)
    native = spectrum.mask & (spectrum.wavelength > 4.0) & (spectrum.wavelength < 5.1)
    widths = np.diff(pixel_edges(spectrum.wavelength), axis=1)[native, 0]
    mean = np.average(spectrum.flux[native], weights=widths)
    assert pixels.flux[window].mean() == pytest.approx(mean, rel=0.01)


@needs_data
def test_there_are_seven_of_them():
    assert len(TABLES) == 7


@needs_data
def test_the_2m0415_table_loses_exactly_its_39_invalid_rows():
    spectrum = read_spectrum(SPECTRA / "seda_2M0415_NIRSpec_G395H.dat")
    assert spectrum.meta["rows"] == {"read": 3270, "error missing": 39}
    assert spectrum.mask.sum() == 3231
    assert (spectrum.flux[~spectrum.mask] == 0).sum() == 35  # four have a flux but no error
    assert (spectrum.flux[spectrum.mask] < 0).any()
    assert spectrum.meta["flux_unit"] == "Jy"


@needs_data
def test_a_table_of_results_is_refused_as_no_spectrum():
    for path in SPECTRA.glob("*_results.txt"):
        with pytest.raises(UserError, match="columns"):
            read_spectrum(path)


@needs_data
def test_the_packaged_example_is_what_the_converter_makes_of_the_public_table(tmp_path):
    write_example(next(SPECTRA.glob("*Wolf1130C*.csv")), tmp_path / "a.ecsv")
    assert (tmp_path / "a.ecsv").read_bytes() == (Path(data.__file__).parent / "wolf1130c.ecsv").read_bytes()


def test_the_packaged_example_is_read_without_a_flag_and_says_whose_it_is():
    """Tenths of a mJy at 4.0-5.2 um: what a T8 at 16.6 pc has, where per Angstrom instead of um would be 1e4 off."""
    spectrum = example_spectrum()
    assert spectrum.meta["target"] == "Wolf 1130C"
    assert "Burgasser et al. 2025" in spectrum.meta["citation"]
    assert spectrum.meta["medium"] == "vacuum"
    assert spectrum.meta["covered_fraction"] > 0.95
    assert spectrum.snr == pytest.approx(51.5, abs=0.5)
    band = (spectrum.wavelength > 4.0) & (spectrum.wavelength < 5.2)
    assert 0.12 < spectrum.flux[band].mean() < 0.4
