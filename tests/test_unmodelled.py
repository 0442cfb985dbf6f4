"""The shape of the structure that no model has, against astropy's black body."""

import astropy.units as u
import numpy as np
import pytest
from astropy.constants import c, h, k_B
from astropy.modeling.models import BlackBody

from kappaflow.instrument import WINDOW
from kappaflow.unmodelled import steepness, structure_shape

WAVELENGTH = np.linspace(*WINDOW, 40)
R_JUP = 7.1492e7 * u.m  # nominal equatorial radius, IAU 2015: astropy's jupiterRad


def disc(temperature, radius):
    """Flux (40,) [mJy] of a black body of `radius` (Jupiter's) at 10 pc."""
    surface = BlackBody(temperature * u.K)(WAVELENGTH * u.um)
    return (np.pi * u.sr * surface * (radius * R_JUP / (10 * u.pc)) ** 2).to_value(u.mJy)


@pytest.mark.parametrize(("temperature", "radius"), [(250.0, 1.0), (640.0, 0.8), (1500.0, 1.4)])
def test_a_blackbody_has_its_own_temperature_at_every_wavelength(temperature, radius):
    expected = (h * c / (WAVELENGTH * u.um) / (k_B * temperature * u.K)).to_value(u.one)
    np.testing.assert_allclose(steepness(disc(temperature, radius), radius, WAVELENGTH), expected, rtol=1e-5)


@pytest.mark.parametrize("temperature", [300.0, 640.0, 2500.0])
def test_the_shape_is_the_squared_share_by_which_flux_follows_temperature(temperature):
    up, down = disc(1.001 * temperature, 1.0), disc(0.999 * temperature, 1.0)
    follows = np.log(up / down) / np.log(1.001 / 0.999)
    shape, _ = structure_shape(disc(temperature, 1.0), 1.0, WAVELENGTH)
    np.testing.assert_allclose(shape, (follows / 5) ** 2, rtol=1e-4)


def test_its_slope_is_that_of_differences_and_a_larger_source_has_the_same_shape():
    flux = disc(500.0, 1.0) * np.geomspace(0.01, 3, 40)
    shape, slope = structure_shape(flux, 1.0, WAVELENGTH)
    up, down = (structure_shape(flux * np.exp(s), 1.0, WAVELENGTH)[0] for s in (1e-4, -1e-4))
    np.testing.assert_allclose(slope, np.log(up / down) / 2e-4, rtol=1e-5)
    np.testing.assert_allclose(structure_shape(4 * flux, 2.0, WAVELENGTH)[0], shape)


def test_flux_that_is_nothing_or_negative_has_a_finite_shape():
    shape, slope = structure_shape(np.array([-1.0, 0.0, 1e-30]), 1.0, WAVELENGTH[:3])
    assert (shape == shape[0]).all()
    assert 30 < shape[0] < 40
    assert (slope == 0).all()


def test_a_batch_is_its_rows_each_with_its_radius():
    flux = np.stack([disc(500.0, 1.0), disc(900.0, 1.2)])
    both, _ = structure_shape(flux, np.array([1.0, 1.2]), WAVELENGTH)
    for row, radius, shape in zip(flux, (1.0, 1.2), both, strict=True):
        np.testing.assert_allclose(structure_shape(row, radius, WAVELENGTH)[0], shape)
