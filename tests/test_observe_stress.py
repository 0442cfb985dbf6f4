"""What deployment does to spectra: filled, re-noised, both, or told."""

import numpy as np
import pytest

from kappaflow.errors import UserError
from kappaflow.evaluate.stress import PATHS, assign_masks, median_fill, real_masks, renoise
from kappaflow.observe import Spectrum
from kappaflow.spectra import Spectra

N, P = 400, 300
RNG = np.random.default_rng(0)
CLEAN = np.exp(RNG.normal(size=(N, 1))) * (1 + 0.5 * np.sin(np.linspace(0, 20, P)))
ERROR = 0.05 * CLEAN
NOISY = CLEAN + ERROR * RNG.normal(size=CLEAN.shape)
DRAWN = Spectra(NOISY, ERROR, np.ones((N, P), bool), np.ones(N, bool))
MASK = RNG.random((N, P)) < 0.47


def run(name):
    return PATHS[name](CLEAN, DRAWN, MASK, np.random.default_rng(1))


def test_the_paths_are_those_of_the_papers_table_and_the_mask_channel():
    assert list(PATHS) == ["none", "real-mask median fill", "scalar re-noise", "full path", "mask channel"]


def test_no_stress_shows_what_was_drawn():
    plain = run("none")
    np.testing.assert_array_equal(plain.flux, DRAWN.flux)
    assert plain.mask.all()


def test_the_fill_is_the_median_of_the_good_pixels_and_the_network_is_not_told():
    filled = run("real-mask median fill")
    np.testing.assert_array_equal(filled.flux[MASK], DRAWN.flux[MASK])
    expected = np.median(DRAWN.flux[7][MASK[7]])
    np.testing.assert_array_equal(filled.flux[7][~MASK[7]], expected)
    assert filled.mask.all()


def test_scalar_noise_has_one_deviation_a_spectrum_and_the_same_snr():
    noisy = run("scalar re-noise")
    assert np.ptp(noisy.error, axis=1).max() == 0
    scatter = (noisy.flux - CLEAN).std(axis=1) / noisy.error[:, 0]
    assert scatter.mean() == pytest.approx(1.0, abs=0.01)
    np.testing.assert_allclose(np.median(CLEAN, axis=1) / noisy.error[:, 0], 20.0)


def test_the_full_path_is_the_noise_then_the_fill():
    full, noisy = run("full path"), run("scalar re-noise")
    np.testing.assert_array_equal(full.flux, median_fill(noisy.flux, MASK))


def test_the_mask_channel_tells_and_never_invents():
    told = run("mask channel")
    np.testing.assert_array_equal(told.mask, MASK)
    assert (told.flux[~MASK] == 0).all()


def test_noise_depends_on_the_generator_alone():
    snr = np.full(N, 30.0)
    a, b = (renoise(CLEAN, snr, np.random.default_rng(seed)) for seed in (5, 5))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, renoise(CLEAN, snr, np.random.default_rng(6)))


def test_a_spectrum_without_a_good_pixel_cannot_be_filled():
    with pytest.raises(UserError, match="no good pixel"):
        median_fill(CLEAN, np.zeros(P, bool))


def test_real_masks_follow_the_holes_of_the_spectra():
    wave = np.arange(3.8, 5.2, 0.000668)
    good = np.ones(wave.size, bool)
    good[500:600] = False
    spectra = [Spectrum(wave, wave, wave, good), Spectrum(wave, wave, wave, ~good)]
    masks = real_masks(spectra, np.arange(3.9, 5.1, 0.001336))
    assert masks.shape == (2, 899)
    assert (masks[0] != masks[1]).mean() > 0.99
    hole = ~masks[0]
    assert hole.sum() == pytest.approx(50, abs=1)


def test_masks_are_assigned_with_equal_chance():
    masks = np.eye(5, dtype=bool)
    counts = assign_masks(masks, 5000, np.random.default_rng(0)).sum(axis=0)
    assert counts.min() > 850
