"""Doppler shift, rotation, line-spread function and pixels, against brute force and against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from folders import DATA, needs

from kappaflow.instrument import GAP, PIXEL, WINDOW, on_nrs2, pixel_grid, resolving_power
from kappaflow.model.arrays import on_device
from kappaflow.model.detector_matrix import prepare_detector, rotation_rule
from kappaflow.physics.detector import KM, Detector, doppler_kernel, observe

NU = np.geomspace(1850.0, 3550.0, 20_000)
WAVE = 1e4 / NU
PARTS = on_device(Detector, prepare_detector(NU, 1))


def seen(flux, v_r=0.0, v_sin_i=0.0, parts=PARTS):
    kernel = doppler_kernel(parts, jnp.array([v_r]), jnp.array([v_sin_i]))
    return np.asarray(observe(parts, jnp.asarray(flux)[None], kernel))[0].astype(float)


def line(centre, width=1e-4):
    return np.exp(-0.5 * (np.log(WAVE / centre) / width) ** 2)


def width_of(profile):
    """Standard deviation in ln wavelength of what the pixels show."""
    x = np.log(np.asarray(PARTS.wavelength, float))
    mean = (x * profile).sum() / profile.sum()
    return np.sqrt(((x - mean) ** 2 * profile).sum() / profile.sum())


def test_a_flat_spectrum_stays_flat_at_any_velocity():
    for v_r, v_sin_i in ((0, 0), (-100, 30), (100, 30), (37.3, 11.1)):
        np.testing.assert_allclose(seen(np.full(NU.size, 3.0), v_r, v_sin_i), 3.0, rtol=1e-5)


def test_the_pixels_are_those_of_the_two_detectors():
    low, high = pixel_grid(1)
    chip = on_nrs2(0.5 * (low + high))
    np.testing.assert_allclose(high - low, PIXEL, rtol=1e-9)
    assert low[0] == WINDOW[0]
    assert high[-1] <= WINDOW[1]
    assert not ((high > GAP[0] + 1e-9) & (low < GAP[1] - 1e-9)).any()
    assert (low[chip].min(), high[~chip].max()) == pytest.approx((GAP[1], GAP[0]), abs=PIXEL)
    assert pixel_grid(2)[1].size == pytest.approx(chip.size / 2, abs=1)


@pytest.mark.parametrize("centre", [3.0, 3.5, 4.2, 5.1])
def test_the_line_spread_function_has_the_tabulated_resolving_power(centre):
    narrow = 1e-4
    variance = width_of(seen(line(centre, narrow))) ** 2 - narrow**2 - (PIXEL / centre) ** 2 / 12
    assert 1 / np.sqrt(8 * np.log(2) * variance) == pytest.approx(float(resolving_power(centre)), rel=0.01)


@needs("instrument")
def test_the_resolving_power_follows_the_file():
    path = DATA / "instrument" / "jwst_nirspec_g395h_disp.fits"
    fits = pytest.importorskip("astropy.io.fits")
    with fits.open(path) as file:
        wave, power = (np.asarray(file[1].data[c], float) for c in ("WAVELENGTH", "R"))
    inside = (wave >= WINDOW[0]) & (wave <= WINDOW[1])
    np.testing.assert_allclose(resolving_power(wave[inside]), power[inside], rtol=2e-4)


def test_the_line_spread_function_integrates_to_one():
    totals = np.asarray(PARTS.matrix).sum(1).ravel()[np.asarray(PARTS.place)]
    np.testing.assert_allclose(totals, 1.0, atol=1e-5)
    flux = line(4.2)
    pixels = seen(flux)
    sent = np.trapezoid(flux[::-1], WAVE[::-1])
    assert pixels.sum() * PIXEL == pytest.approx(sent, rel=1e-3)


def test_a_velocity_of_one_pixel_shifts_by_one_pixel():
    centre = 4.5
    v = KM * PIXEL / centre
    still, moved = seen(line(centre, 4e-4)), seen(line(centre, 4e-4), v_r=v)
    core = np.flatnonzero(still > 0.05 * still.max())
    np.testing.assert_allclose(moved[core + 1], still[core], rtol=0.01)


def test_the_width_of_a_line_does_not_depend_on_the_sub_step_shift():
    widths = [width_of(seen(line(4.5), v_r=v)) for v in np.linspace(0, 9.8, 9)]
    np.testing.assert_allclose(widths, widths[0], rtol=1e-3)


def test_rotation_conserves_flux_and_adds_the_variance_of_grays_profile():
    x = np.linspace(-1, 1, 200_001)
    e = 0.6
    profile = 2 * (1 - e) * np.sqrt(1 - x**2) + np.pi * e / 2 * (1 - x**2)
    moment = (profile * x**2).sum() / profile.sum()
    still, turned = seen(line(4.5)), seen(line(4.5), v_sin_i=30.0)
    assert turned.sum() == pytest.approx(still.sum(), rel=1e-5)
    added = width_of(turned) ** 2 - width_of(still) ** 2
    assert added == pytest.approx(moment * (30 / KM) ** 2, rel=0.02)


def test_five_shifts_are_the_rotation_profile():
    nodes, weights = rotation_rule()
    x = np.linspace(-1, 1, 400_001)
    profile = 0.8 * np.sqrt(1 - x**2) + 0.3 * np.pi * (1 - x**2)
    profile /= profile.sum()
    for power in range(9):
        assert (weights * nodes**power).sum() == pytest.approx((profile * x**power).sum(), abs=1e-5)


def test_the_chain_is_a_brute_force_convolution():
    """Every grid point spread by rotation (2001 shifts), Gaussian and pixel, summed in double precision."""
    rng = np.random.default_rng(1)
    flux = rng.uniform(0, 1, NU.size) ** 4  # unresolved forest
    v_r, v_sin_i = 63.0, 25.0
    x = np.linspace(-1, 1, 2003)[1:-1]
    weight = 0.8 * np.sqrt(1 - x**2) + 0.3 * np.pi * (1 - x**2)
    low, high = pixel_grid(1)
    found = seen(flux, v_r, v_sin_i)
    for pixel in (10, 900, 2500, 3400):
        sigma = 1 / (resolving_power(0.5 * (low + high))[pixel] * np.sqrt(8 * np.log(2)))
        inner = np.linspace(np.log(low[pixel]), np.log(high[pixel]), 21)
        emitted = np.log(WAVE) + np.log1p(v_r / KM)
        near = np.abs(emitted - inner[10]) < 8 * sigma
        offset = inner[:, None, None] - emitted[near][None, :, None] - v_sin_i / KM * x[::50]
        kernel = (np.exp(-0.5 * (offset / sigma) ** 2) * weight[::50]).sum((0, 2))
        assert found[pixel] == pytest.approx((kernel * flux[near]).sum() / kernel.sum(), rel=3e-3)


def test_a_positive_spectrum_stays_positive():
    spike = np.full(NU.size, 1e-12)
    spike[9_000] = 1.0
    assert (seen(spike, 55.0, 3.0) > 0).all()


def test_velocities_have_gradients_also_at_rest():
    flux = jnp.asarray(line(4.5, 3e-4))

    def total(v):
        kernel = doppler_kernel(PARTS, v[:1], v[1:])
        return (observe(PARTS, flux[None], kernel)[0, 2290:2350] * jnp.arange(60)).sum()

    gradient = jax.grad(total)(jnp.array([0.0, 0.0]))
    assert np.isfinite(gradient).all()
    assert gradient[0] > 0
