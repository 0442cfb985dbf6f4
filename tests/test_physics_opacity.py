"""The opacity lookup: exact where it should be, close in between, held at the edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from kappaflow.model.arrays import on_device
from kappaflow.model.line_terms import block_grid, reduce_rank, temperature_grid
from kappaflow.physics.absorption import TemperatureGrid, temperature_weights
from kappaflow.physics.transfer import planck
from kappaflow.tables.field_prior import fourier_basis

NODES = np.geomspace(150.0, 2000.0, 16)
GRID = on_device(TemperatureGrid, temperature_grid(NODES))


def test_the_weights_are_a_cubic_spline_in_ln_t():
    t = np.array([150.0, 163.0, 700.0, 1234.5, 2000.0])
    values = np.sin(3 * np.log(NODES))
    expected = CubicSpline(np.log(NODES), values)(np.log(t))
    np.testing.assert_allclose(temperature_weights(GRID, jnp.asarray(t)) @ values, expected, atol=2e-5)


def test_a_boltzmann_factor_is_followed_between_the_nodes():
    """ln sigma = -E/T with E = 4000 K, a hot band: within 0.3 % of sigma from 300 K."""
    t = np.linspace(300.0, 2000.0, 400)
    found = temperature_weights(GRID, jnp.asarray(t)) @ (-4000.0 / NODES)
    np.testing.assert_allclose(found, -4000.0 / t, atol=3e-3)


@pytest.mark.parametrize(("outside", "edge"), [(100.0, 150.0), (3400.0, 2000.0)])
def test_temperatures_outside_the_table_take_its_edge(outside, edge):
    a, b = (temperature_weights(GRID, jnp.array([t])) for t in (outside, edge))
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_the_weights_have_a_gradient():
    slope = jax.grad(lambda t: temperature_weights(GRID, t) @ (-4000.0 / NODES))(jnp.asarray(800.0))
    assert float(slope) == pytest.approx(4000.0 / 800.0**2, rel=0.01)


def test_a_table_of_low_rank_is_reproduced():
    rng = np.random.default_rng(0)
    exact = rng.normal(size=(3, 16, 4)) @ rng.normal(size=(3, 4, 200)) - 50
    loading, basis = reduce_rank(exact, 6)
    np.testing.assert_allclose(loading @ basis, exact, atol=1e-3)


def test_few_temperatures_are_kept_as_they_are():
    exact = np.random.default_rng(0).normal(size=(2, 5, 50)).astype(np.float32)
    loading, basis = reduce_rank(exact, 8)
    assert np.array_equal(loading @ basis, exact)


@pytest.mark.parametrize(("points", "block"), [(1000, 128), (10_000, 256), (10_000, 512), (20_000, 512)])
def test_the_planck_function_between_the_nodes_of_a_block(points, block):
    nu = np.geomspace(1850.0, 3550.0, points)
    blocks = block_grid(nu, block)
    np.testing.assert_allclose(blocks.nu.ravel()[:points], nu, rtol=1e-10)
    for t in (150.0, 600.0, 3500.0):
        at_nodes = np.asarray(planck(jnp.asarray(blocks.nodes), jnp.full(blocks.nodes.shape[0], t)[:, None]))[:, 0]
        exact = np.asarray(planck(jnp.asarray(blocks.nu), jnp.full(blocks.nu.shape[0], t)[:, None]))[:, 0]
        np.testing.assert_allclose(at_nodes @ blocks.between, exact, rtol=2e-4)


def test_the_field_is_a_constant_and_four_harmonics():
    nu = np.geomspace(1850.0, 3550.0, 4001)
    basis = fourier_basis(nu)
    gram = basis[:, :-1] @ basis[:, :-1].T / 4000
    np.testing.assert_allclose(gram, np.diag([1.0] + [0.5] * 8), atol=1e-9)
    assert basis[5, 500] == pytest.approx(np.sin(2 * np.pi / 8))
