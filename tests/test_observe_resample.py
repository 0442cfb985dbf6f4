"""Resampling keeps the energy, the errors honest and the masks where they belong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kappaflow.errors import UserError
from kappaflow.observe import Spectrum, covered_fraction, mask_outliers, pixel_edges, resample
from kappaflow.observe.resampling import overlap_mean

NATIVE = np.concatenate([np.arange(2.87, 3.684, 0.00066), np.arange(3.788, 5.27, 0.00068)])
BINNED = np.concatenate([np.arange(2.88, 3.68, 0.001336), np.arange(3.80, 5.25, 0.001336)])
C = 2.99792458e14  # um/s


def lines(wavelength):
    return 1 + 0.8 * np.sin(300 * wavelength) * np.sin(17 * wavelength)


def spectrum(wavelength=NATIVE, flux=None, error=0.1, mask=True):
    flux = lines(wavelength) if flux is None else flux
    return Spectrum(wavelength, flux, np.broadcast_to(error, wavelength.shape), np.broadcast_to(mask, wavelength.shape))


def energy(flux, edges):
    """Integral of f_nu d nu, in mJy Hz."""
    return (flux * (C / edges[:, 0] - C / edges[:, 1])).sum()


def test_the_same_pixels_come_back_unchanged():
    same = resample(spectrum(), NATIVE)
    np.testing.assert_allclose(same.flux, lines(NATIVE), rtol=1e-9)
    np.testing.assert_allclose(same.error, 0.1, rtol=1e-9)
    assert same.mask.all()


@pytest.mark.parametrize("width", [0.0002, 0.0005, 0.001336, 0.012])
def test_the_energy_in_any_fully_covered_range_is_kept(width):
    """Finer, shifted or coarser pixels: the sum of f_nu d nu over them is the sum of the source's parts in them."""
    target = np.arange(3.9001, 5.2, width)
    edges = np.column_stack([target, target + width])[:-1]
    result = resample(spectrum(), edges)
    source = pixel_edges(NATIVE)
    inside = np.clip(source, edges[0, 0], edges[-1, 1])
    assert energy(result.flux, edges) == pytest.approx(energy(lines(NATIVE), inside), rel=1e-10)


def test_a_constant_flux_stays_constant_even_beside_gaps_and_masks():
    mask = np.ones(NATIVE.size, bool)
    mask[500:530] = mask[900] = False
    result = resample(spectrum(flux=np.full(NATIVE.size, 7.0), mask=mask), BINNED)
    np.testing.assert_allclose(result.flux[result.mask], 7.0)
    assert not result.mask.all()


def test_errors_match_a_monte_carlo():
    rng = np.random.default_rng(3)
    error = 0.05 + 0.1 * rng.random(NATIVE.size)
    truth = lines(NATIVE)
    draws = np.array(
        [resample(spectrum(flux=truth + error * rng.normal(size=truth.size)), BINNED).flux for _ in range(400)]
    )
    predicted = resample(spectrum(error=error), BINNED).error
    ratio = draws.std(axis=0) / predicted
    assert np.median(ratio) == pytest.approx(1.0, abs=0.015)
    assert ratio.std() < 1.3 / np.sqrt(2 * 400)  # no more than the scatter of 400 draws' standard deviation


def test_masked_pixels_carry_no_weight_and_mostly_masked_targets_are_masked():
    flux, mask = lines(NATIVE), np.ones(NATIVE.size, bool)
    mask[200:203] = False
    flux[200:203] = 1e6  # what a cosmic ray leaves
    result = resample(spectrum(flux=flux, mask=mask), BINNED)
    assert np.abs(result.flux[result.mask]).max() < 2
    hole = (BINNED > NATIVE[200]) & (BINNED < NATIVE[202])
    assert hole.any()
    assert not result.mask[hole].any()
    assert result.mask.sum() >= BINNED.size - 3


def test_half_a_pixel_of_data_is_enough_and_less_is_not():
    edges = np.array([[3.0, 3.01], [3.01, 3.02], [3.02, 3.03]])
    wave = np.arange(3.0005, 3.02, 0.001)
    for covered, good in ((0.6, True), (0.4, False)):
        mask = (wave < 3.01) | (wave < 3.01 + 0.01 * covered)
        assert resample(spectrum(wave, mask=mask), edges).mask.tolist() == [True, good, False]


def test_negative_flux_is_kept():
    assert resample(spectrum(flux=lines(NATIVE) - 3), BINNED).flux.max() < 0


def test_dropped_pixels_and_the_detector_gap_are_holes_not_wide_pixels():
    keep = np.ones(NATIVE.size, bool)
    keep[::3] = False  # a third of the rows missing from the file, as in published tables
    edges = pixel_edges(NATIVE[keep])
    np.testing.assert_allclose(edges[:, 1] - edges[:, 0], 0.00067, atol=2.5e-5)
    assert covered_fraction(spectrum(NATIVE[keep])) == pytest.approx(2 / 3 * covered_fraction(spectrum()), abs=0.002)


def test_targets_beyond_the_data_are_masked():
    result = resample(spectrum(), np.arange(2.5, 5.6, 0.001336))
    outside = (result.wavelength < 2.869) | (result.wavelength > 5.271)
    assert not result.mask[outside].any()
    gap = (result.wavelength > 3.686) & (result.wavelength < 3.786)
    assert not result.mask[gap].any()
    assert result.mask[~outside & ~gap].mean() > 0.99


def test_too_little_overlap_is_an_error_that_names_both_ranges():
    with pytest.raises(UserError, match=r"5.00-6.00 um.*2.87-5.27 um.*at least 50%"):
        resample(spectrum(), np.linspace(5.0, 6.0, 500), min_covered=0.5)


def test_what_are_no_pixels_are_refused():
    for pixels in (np.array([3.0, 2.9, 3.1]), np.zeros((4, 3)), np.array([[3.0, 3.2], [3.1, 3.3]])):
        with pytest.raises(UserError, match=r"pixel"):
            resample(spectrum(), pixels)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(3, 60), st.integers(3, 60))
def test_any_two_grids_agree_on_the_energy_they_share(seed, n, m):
    rng = np.random.default_rng(seed)
    source, target = (np.sort(rng.uniform(3, 4, k + 1)) for k in (n, m))
    s, t = (np.column_stack([a[:-1], a[1:]]) for a in (source, target))
    flux = rng.normal(size=n)
    mean, sigma, fraction = overlap_mean(flux, np.ones(n), np.ones(n, bool), s, t)
    width = C / t[:, 0] - C / t[:, 1]
    inside = np.clip(s, target[0], target[-1])
    assert (mean * fraction * width).sum() == pytest.approx(energy(flux, inside), rel=1e-6, abs=1e-6 * C)
    assert (sigma > 0).all()


def test_one_hot_pixel_is_masked_and_real_lines_are_not():
    rng = np.random.default_rng(4)
    flux = lines(NATIVE) + rng.normal(0, 0.02, NATIVE.size)
    flux[700] += 8.0
    clean = mask_outliers(spectrum(flux=flux, error=0.02))
    assert list(np.flatnonzero(~clean.mask)) == [700]
    assert clean.meta["outliers_masked"] == 1


def test_a_spectrum_cannot_be_changed_in_place():
    with pytest.raises(ValueError, match="read-only"):
        spectrum().flux[0] = 1.0


@pytest.mark.parametrize("wavelength", [[1.0, 1.0, 2.0], [2.0, 1.0, 3.0], [np.nan, 1.0, 2.0], [-1.0, 1.0, 2.0]])
def test_a_spectrum_has_increasing_positive_wavelengths(wavelength):
    with pytest.raises(UserError, match="increasing"):
        Spectrum(np.array(wavelength), np.ones(3), np.ones(3), np.ones(3, bool))
