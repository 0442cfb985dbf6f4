"""The cloud of Ackerman and Marley: its slope, its limits, its grains."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kappaflow.constants import AMU, BAR, K
from kappaflow.physics.cloud import (
    DIAMETER,
    RHO,
    WELL,
    Air,
    Grains,
    condensed_fraction,
    effective_radius,
    optical_depth,
)

LEVELS = np.linspace(-5, 3, 241)
LOG_P = 0.5 * (LEVELS[1:] + LEVELS[:-1])
RATIO = np.diff(LEVELS) * np.log(10)


def air(temperature):
    return Air(jnp.asarray(10.0**LOG_P), jnp.asarray(RATIO), jnp.asarray(temperature), jnp.full(LOG_P.size, 2.33))


def grains(f_sed=2.0, sigma=2.0, log_kzz=8.0, log_g=4.5, metallicity=0.0):
    return Grains(*(jnp.asarray(x) for x in (f_sed, sigma, log_kzz, log_g, metallicity)))


WARM = air(np.interp(LOG_P, [-5, 0, 3], [900.0, 1500.0, 3000.0]))


def test_the_condensation_curve_is_visschers():
    """Visscher, Lodders and Fegley 2010: enstatite at 1 bar, solar, condenses at 10^4/6.26 = 1597 K."""
    probe = Air(jnp.array([1.0]), jnp.array([0.1]), jnp.array([1e4 / 6.26]), jnp.array([2.33]))
    assert float(condensed_fraction(probe, jnp.asarray(0.0))[0]) == pytest.approx(0.5, abs=1e-3)


def test_the_condensate_falls_with_pressure_to_the_power_f_sed():
    f_sed = 3.0
    depth = optical_depth(WARM, grains(f_sed))
    per_mass = depth * effective_radius(WARM, grains(f_sed)) / WARM.pressure  # proportional to the mixing ratio
    high = (LOG_P > -3) & (LOG_P < -1.5)
    slope = np.polyfit(LOG_P[high], np.log10(per_mass[high]), 1)[0]
    assert slope == pytest.approx(f_sed, rel=0.02)


def test_the_cloud_goes_as_f_sed_grows():
    total = [float(optical_depth(WARM, grains(f)).sum()) for f in (0.5, 2.0, 8.0, 100.0, 1e4)]
    assert all(a > 2 * b for a, b in zip(total[:-1], total[1:], strict=True))
    assert total[-1] < 3e-4 * total[0]


def test_a_profile_hotter_than_the_curve_has_no_cloud():
    depth = optical_depth(air(np.full(LOG_P.size, 3500.0)), grains())
    assert float(depth[LOG_P < 2].sum()) < 1e-3  # a trace is left at 1000 bar, far below any photosphere


def test_a_profile_that_crosses_the_curve_many_times_is_finite_and_differentiable():
    wavy = 1500 + 900 * np.sin(4 * LOG_P)
    depth = optical_depth(air(wavy), grains(0.5))
    assert np.isfinite(depth).all()
    assert (np.asarray(depth) >= 0).all()
    gradient = jax.grad(lambda t: optical_depth(air(t), grains(0.5)).sum())(jnp.asarray(wavy))
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).max() > 0


def test_the_mass_of_condensate_is_that_of_the_silicon_above_the_base():
    """A layer's mean mixing ratio integrates to the deep one over f_sed: nothing is made or lost between layers."""
    f_sed = 1.0
    size = effective_radius(WARM, grains(f_sed))
    thickness = 2 * np.sinh(RATIO / 2) * 10.0**LOG_P * BAR / 10**4.5
    mean = np.asarray(optical_depth(WARM, grains(f_sed)) * RHO * size / 1.5) / thickness
    deep = 10 ** (7.51 - 12) * 1.68 * 100.389 / 2.33
    assert (mean * RATIO * f_sed).sum() == pytest.approx(deep, rel=1e-3)


@pytest.mark.parametrize("layer", [20, 120, 220])
def test_grains_of_the_mixing_speed_fall_at_that_speed(layer):
    """Undo f_sed and the size distribution, then put the radius back into Stokes' law with slip."""
    size = float(effective_radius(WARM, grains(1.0, 1.0))[layer])
    t, p = float(WARM.temperature[layer]), float(WARM.pressure[layer]) * BAR
    gravity = 10**4.5
    viscosity = 5 / 16 * np.sqrt(np.pi * 2.016 * AMU * K * t) / (np.pi * DIAMETER**2) * (t / WELL) ** 0.16 / 1.22
    free_path = K * t / (np.sqrt(2) * np.pi * DIAMETER**2 * p)
    speed = 2 / 9 * gravity * RHO * size**2 * (1 + 1.26 * free_path / size) / viscosity
    mixing = 1e8 / (K * t / (2.33 * AMU * gravity))
    assert speed == pytest.approx(mixing, rel=1e-3)


def test_grains_grow_with_mixing_and_shrink_with_a_wider_spread():
    base = effective_radius(WARM, grains())
    assert (np.asarray(effective_radius(WARM, grains(log_kzz=9.0)) > base)).all()
    assert (np.asarray(effective_radius(WARM, grains(sigma=2.5)) < base)).all()
    assert (np.asarray(effective_radius(WARM, grains(log_g=5.5)) < base * 1.001)[LOG_P > 1]).all()
