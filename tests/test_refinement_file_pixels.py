"""A file's own pixels and a point source's line spread: against the observation code, analytically, and in a fit."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf
from synthetic_tables import chemistry_table, opacity_table

from kappaflow.instrument import POINT_SOURCE, pixel_grid, resolving_power
from kappaflow.model import ForwardModel
from kappaflow.model.arrays import on_device
from kappaflow.model.detector_matrix import matrix_of_file, prepare_detector
from kappaflow.model.prepare import prepare, prepare_cia
from kappaflow.observe.resampling import on_pixels, resample, shares
from kappaflow.observe.spectrum import Spectrum, pixel_edges
from kappaflow.physics.detector import Detector
from kappaflow.presets import preset
from kappaflow.refinement import FitSettings
from kappaflow.refinement.best_fit import solved
from kappaflow.refinement.file_pixels import seen_by
from kappaflow.refinement.posing import posed
from kappaflow.tables.cia import load_cia

NU = np.geomspace(1850.0, 3550.0, 20_000)
DETECTOR = on_device(Detector, prepare_detector(NU, 2))
TARGET = pixel_grid(2).T
SIZES = preset("tiny").model_copy(update={"stride": 1})
THETA = np.array([350.0, 550.0, 950.0, 1500.0, 2400.0, 0.55, 0.1, 7.0, 4.7, 1.1, 3.0, 2.0, 12.0, 2.0, 0.02])


def pixels_of_a_file(pitch, first=2.8713, last=5.2):
    """Return pixel centres that share no edge with the model's, but for chance."""
    return np.arange(first, last, pitch)


def line_in(wave, centre, sigma):
    """Mean over each pixel of a Gaussian line of `sigma` in ln(wavelength)."""
    low, high = np.log(pixel_edges(wave)).T
    scale = np.sqrt(2) * sigma
    area = erf((high - np.log(centre)) / scale) - erf((low - np.log(centre)) / scale)
    return np.sqrt(np.pi / 2) * sigma * area / (high - low)


@pytest.mark.parametrize("centre", [2.951, 3.4137, 4.0302, 4.6781, 5.0113])
def test_a_line_looks_as_it_does_after_the_file_has_been_resampled(centre):
    """An intrinsic Gaussian, the telescope's on top, means over a file's pixels, some bad, then `resample`."""
    wave, intrinsic = pixels_of_a_file(6.7e-4), 2e-4
    mask = np.random.default_rng(0).random(wave.size) > 0.1
    spread = POINT_SOURCE / (resolving_power(np.array(centre)) * np.sqrt(8 * np.log(2)))
    flux = line_in(wave, centre, np.hypot(intrinsic, spread)) * np.hypot(intrinsic, spread) ** -1 * intrinsic
    native = Spectrum(wave, flux, np.ones(wave.size), mask)
    expected = resample(native, TARGET)

    # The Doppler kernel of a source at rest adds a quarter of a squared step: here in the line.
    step = float(DETECTOR.step)
    at_rest = np.sqrt(intrinsic**2 + step**2 / 4)
    line = np.exp(-0.5 * (np.log(1e4 / NU / centre) / at_rest) ** 2) * intrinsic / at_rest
    matrix = matrix_of_file(DETECTOR, NU, pixel_edges(wave), shares(native, TARGET), POINT_SOURCE)
    windows = np.asarray(DETECTOR.first)[:, None] + np.arange(matrix.shape[1])
    found = np.einsum("gw,gwp->gp", line[windows], matrix).ravel()[np.asarray(DETECTOR.place)]
    peak = expected.flux[expected.mask].max()
    np.testing.assert_allclose(found[expected.mask], expected.flux[expected.mask], atol=2e-3 * peak)
    # What the networks know is another line, so that the test can fail.
    nominal = np.einsum("gw,gwp->gp", line[windows], np.asarray(DETECTOR.matrix)).ravel()[np.asarray(DETECTOR.place)]
    assert np.abs(nominal - expected.flux)[expected.mask].max() > 4e-3 * peak


def test_a_flat_spectrum_stays_flat_on_any_file():
    wave = pixels_of_a_file(6.6e-4)
    native = Spectrum(wave, np.ones(wave.size), np.ones(wave.size), np.random.default_rng(1).random(wave.size) > 0.3)
    matrix = matrix_of_file(DETECTOR, NU, pixel_edges(wave), shares(native, TARGET), POINT_SOURCE)
    sums = matrix.sum(axis=1).ravel()[np.asarray(DETECTOR.place)]
    np.testing.assert_allclose(sums, 1.0, rtol=1e-5)


@pytest.fixture(scope="module")
def model():
    chemistry = chemistry_table(SIZES.layers)
    return ForwardModel.of(prepare(opacity_table(), chemistry, prepare_cia(load_cia()), SIZES, (1.0, 0.0)))


def test_spectra_on_the_models_pixels_are_left_alone(model):
    clean = model(THETA)
    simulated = Spectrum(model.wavelength, clean, 0.01 * clean, np.ones(clean.size, bool))
    assert seen_by(model, simulated) is None
    # A file that has been brought onto them cannot be told from a simulation.
    wave = pixels_of_a_file(6.7e-4)
    file = Spectrum(wave, np.ones(wave.size), np.full(wave.size, 0.01), np.ones(wave.size, bool))
    assert seen_by(model, file) is not None
    assert seen_by(model, on_pixels(file, model.wavelength)) is None


@pytest.mark.parametrize("sharper", [True, False])
def test_a_fit_takes_the_files_pixels_where_they_made_the_data_and_only_there(model, sharper):
    # The tiny grid knows no line-spread function: its pixels are blurred instead.
    matrix = model.tables.detector.matrix
    blurred = 0.8 * matrix + 0.1 * (jnp.roll(matrix, 1, axis=2) + jnp.roll(matrix, -1, axis=2))
    tables = model.tables._replace(detector=model.tables.detector._replace(matrix=blurred))
    seen = replace(model, tables=tables, meta={**model.meta, "line_spread": POINT_SOURCE})
    clean = (seen if sharper else model)(THETA).astype(float)
    error = np.full(clean.size, np.median(clean) / 300)
    noise = error * np.random.default_rng(2).standard_normal(clean.size)
    data = Spectrum(model.wavelength, clean + noise, error, np.ones(clean.size, bool))
    settings = FitSettings(starts=3, screened=32, field=False)
    problem = posed(data, distance=10.0, lists={}, model=model, posterior=None, settings=settings)
    assert problem.seen is None
    best = solved(replace(problem, seen=seen), settings)
    assert best.line_spread == (POINT_SOURCE if sharper else 1.0)
    assert best.chi2 / best.n < 1 + 4 * np.sqrt(2 / best.n)
