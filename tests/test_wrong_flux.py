"""Flux that is known to be wrong is masked before anything is fitted, counted, and nothing else is touched."""

import numpy as np
import pytest
from folders import DATA, needs
from x1d_files import NRS1, NRS2

from kappaflow.instrument import CALIBRATION_END, PIXEL, pixel_grid
from kappaflow.observe import Spectrum, read_spectrum
from kappaflow.observe.resampling import on_pixels, trusted
from kappaflow.observe.wrong_flux import faint_pixels, mask_clipped
from kappaflow.retrieval.data_checks import faint_check

WAVE = np.concatenate([NRS1, NRS2])
PIXELS = pixel_grid(2).mean(axis=0)
FAINT = WAVE < 3.3  # as a late T dwarf's methane band: the rest is bright
TEXT = sorted((DATA / "spectra").glob("*_apparent_SED.txt"))


def noisy(seed=0, snr=0.5):
    """A spectrum with errors of one that is faint, of SNR `snr`, in a part of the first detector."""
    rng = np.random.default_rng(seed)
    return np.where(FAINT, snr, 50.0) + rng.standard_normal(WAVE.size)


def spectrum(flux, keep=None):
    keep = np.ones(WAVE.size, bool) if keep is None else keep
    return Spectrum(WAVE[keep], flux[keep], np.ones(keep.sum()), np.ones(keep.sum(), bool), {"rows": {"read": 1}})


@pytest.mark.parametrize("how", ["left out", "set to zero"])
def test_the_faint_part_of_a_clipped_spectrum_is_masked_and_counted(how):
    flux = noisy()
    native = spectrum(flux, flux > 0) if how == "left out" else spectrum(np.maximum(flux, 0))
    found = mask_clipped(native)
    bright = native.wavelength > 3.31
    assert not found.mask[(native.wavelength > 2.87) & (native.wavelength < 3.29)].any()
    assert found.mask[bright].all()
    assert found.meta["rows"]["faint, clipped"] == (~found.mask).sum()
    assert native.mask.all()


@pytest.mark.parametrize("snr", [-0.5, 0.0, 1.0, 2.0])
def test_honest_faint_flux_is_kept_to_the_last_pixel(snr):
    for seed in range(20):
        native = spectrum(noisy(seed, snr))
        assert mask_clipped(native) is native


def test_left_out_negatives_would_have_been_taken_for_light():
    """Half a normal about zero has a mean of sqrt(2/pi) = 0.80 sigma; masked, nothing of it is left."""
    flux = noisy(snr=0.0)
    native = spectrum(flux, flux > 0)
    dark = native.wavelength < 3.29
    assert native.flux[dark].mean() == pytest.approx(np.sqrt(2 / np.pi), abs=0.06)
    assert not on_pixels(native, PIXELS).mask[PIXELS < 3.28].any()


def test_a_spectrum_without_noise_is_not_taken_for_a_clipped_one():
    smooth = spectrum(np.where(FAINT, 0.2, 50.0) * (1 + 0.1 * np.sin(40 * WAVE)))
    assert faint_pixels(smooth).expected < 1
    assert mask_clipped(smooth) is smooth


def test_flux_without_negatives_is_not_masked_unless_rows_are_missing_or_equal():
    """An absolute value, or deep lines under errors stated too large: strange, but no proof that any value was lost."""
    odd = spectrum(np.abs(noisy(snr=1.0)))
    found = faint_pixels(odd)
    assert (found.one_sided, found.missing, found.clipped) == (True, 0, False)
    assert mask_clipped(odd) is odd
    assert faint_check(odd).verdict == "warn"
    assert "absolute value" in faint_check(odd).sentence


def test_rows_missing_between_faint_pixels_are_counted_and_the_gap_is_not():
    keep = np.ones(WAVE.size, bool)
    keep[[100, 101, 300]] = False
    keep[400:450] = False  # too long a run for noise
    assert faint_pixels(spectrum(noisy(snr=0.0), keep)).missing == 3


def test_the_end_of_the_calibration_is_masked_and_what_lies_beyond_is_kept():
    native = spectrum(noisy())
    low, high = CALIBRATION_END
    end = (WAVE - PIXEL / 2 > low) & (WAVE + PIXEL / 2 < high)
    found = trusted(native, PIXELS)
    assert end.sum() > 15
    assert (found.mask == ~end).all()
    assert found.meta["rows"] == {"read": 1, "at the end of the calibration": end.sum()}
    once = on_pixels(native, PIXELS, 10.0)
    assert not once.mask[(PIXELS > low + 2 * PIXEL) & (PIXELS < high - 2 * PIXEL)].any()
    again = on_pixels(once, PIXELS)
    np.testing.assert_array_equal(again.mask, once.mask)
    assert again.meta["rows"] == found.meta["rows"]


@needs("spectra")
@pytest.mark.parametrize("path", TEXT, ids=lambda p: p.name)
def test_the_real_spectra_that_lost_their_negatives_lose_their_faint_pixels(path):
    native = read_spectrum(path)
    faint = faint_pixels(native)
    assert faint.clipped
    assert (native.flux[native.mask] > 0).all()
    found = on_pixels(native, PIXELS)
    bright = (PIXELS > 3.8) & (PIXELS < 5.05)
    assert found.mask[bright].mean() > 0.97
    assert found.meta["rows"]["faint, clipped"] == faint.where.sum()


@needs("spectra")
def test_the_real_spectrum_with_its_negatives_keeps_its_faint_pixels():
    native = read_spectrum(DATA / "spectra" / "seda_2M0415_NIRSpec_G395H.dat")
    assert not faint_pixels(native).clipped
    assert mask_clipped(native) is native
