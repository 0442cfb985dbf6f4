"""Columns, and coordinates made of them: derivatives by differences, a shear that is undone, straighter spectra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_tables import chemistry_table, opacity_table

from kappaflow.model import ForwardModel
from kappaflow.model.prepare import prepare, prepare_cia
from kappaflow.observe.spectrum import Spectrum
from kappaflow.parameters import COEFFICIENTS, INDEX, SPECIES
from kappaflow.physics.sensitivity import column_response, few_nodes, sensitivities
from kappaflow.physics.thinned import columns
from kappaflow.presets import preset
from kappaflow.refinement.coordinates import Coordinates
from kappaflow.refinement.emulator import Emulator, Lessons, expansion
from kappaflow.refinement.likelihood import Joint, ListedModel, Observation
from kappaflow.refinement.warp import Warp
from kappaflow.simulation.opacity_draws import coefficient_sigma, sigma_table
from kappaflow.spectra import Box
from kappaflow.tables.cia import load_cia

THETA = np.array([350.0, 550.0, 950.0, 1500.0, 2400.0, 0.55, 0.1, 7.0, 4.7, 1.1, 3.0, 2.0, 12.0, 8.0, 0.02])
LISTS = (1, 0, 1, 0, 0, 0)


@pytest.fixture(scope="module")
def model():
    sizes = preset("tiny").model_copy(update={"stride": 1})
    return ForwardModel.of(
        prepare(opacity_table(), chemistry_table(sizes.layers), prepare_cia(load_cia()), sizes, (1.0, 0.0))
    )


@pytest.fixture(scope="module")
def warp(model):
    clean = np.asarray(model(THETA, np.zeros(len(SPECIES) * COEFFICIENTS)), float)
    spectrum = Spectrum(model.wavelength, clean, np.full(clean.size, np.median(clean) / 50), np.ones(clean.size, bool))
    parameters = model.parameters
    box = Box(parameters.names, parameters.low, parameters.high)
    coordinates = Coordinates(box, coefficient_sigma(sigma_table()).ravel(), structure=False)
    joint = Joint(Observation.of(spectrum), ListedModel(model, LISTS), coordinates)
    z = coordinates.at(THETA)
    return Warp(joint, z, *expansion(joint, z))


def test_a_columns_numbers_carry_what_parameters_inside_the_atmosphere_do(model):
    """The chain rule through the numbers gives the derivatives, but for the continuum between its few places."""
    theta, lists = jnp.asarray(THETA, jnp.float32), jnp.array(LISTS)
    field = jnp.asarray(0.1 * np.random.default_rng(0).standard_normal((len(SPECIES), COEFFICIENTS)), jnp.float32)
    few = model.tables._replace(lines=few_nodes(model.tables.lines))

    def numbers(row):
        return columns(row[None], jnp.zeros((1, len(SPECIES))), lists, few)[1][0]

    jacobian = jax.jit(jax.jacfwd(numbers))(theta)
    through = jacobian.T @ jax.jit(column_response)(theta, field, lists, model.tables)
    whole = jax.jit(sensitivities)(theta[None], field[None], lists, model.tables).theta[0]
    for name in ("T2", "T3", "T4", "C_O", "M_H", "log_kzz", "log_g", "f_sed"):
        i = INDEX[name]
        np.testing.assert_allclose(through[i], whole[i], atol=0.02 * float(jnp.abs(whole[i]).max()), err_msg=name)


def test_the_bent_part_vanishes_at_the_mode(warp):
    theta, _, field = warp.points(warp.centre[None])
    assert np.abs(warp.bent(warp.centre[None], warp.thin.at(theta, field).numbers)).max() < 1e-3
    step, i = 2e-2, INDEX["M_H"]
    shift = step * np.eye(warp.centre.size)[i]
    ends = [warp.thin.at(*warp.points((warp.centre + s * shift)[None])[::2]).numbers[0] for s in (1, -1)]
    slope = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(warp.linear[i], slope, atol=0.02 * np.abs(slope).max())


def test_the_shear_is_undone_and_moves_coefficients_only(warp):
    inputs = warp.centre + 0.3 * np.random.default_rng(1).standard_normal((3, warp.centre.size))
    sheared = warp.warped(inputs)
    np.testing.assert_array_equal(sheared[:, : warp.count], inputs[:, : warp.count])
    assert np.abs(sheared - inputs).max() > 0.1
    np.testing.assert_allclose(warp.plain(sheared), inputs, atol=1e-4)


@pytest.fixture(scope="module")
def posterior(warp):
    """Spectra of one posterior: warped inputs, coordinates and exact flux over the plain factor."""
    joint, outer = warp.joint, warp.outer
    (here,) = joint.expand(warp.mode[None])
    root = np.linalg.cholesky(np.linalg.inv(here.information))
    z = warp.mode + np.random.default_rng(2).standard_normal((120, warp.mode.size)) @ root.T
    warped = z[:, outer.inputs]
    z[:, outer.inputs] = warp.plain(warped)
    flux = joint.fluxes([joint.coordinates.point(row) for row in z]) / outer.factor(z)[:, None]
    return warped, Lessons(z, flux)


def test_a_few_wavenumbers_bend_as_all_pixels_do(warp, posterior):
    """Taught by exact spectra of a posterior, an emulator misses fresh ones by far less than their linear part does."""
    warped, (z, flux) = posterior
    expanded = expansion(warp.joint, warp.mode)
    emulator = Emulator(warp, *expanded, Lessons(z[:96], flux[:96]))
    plain, made, _ = emulator(warped[96:])
    np.testing.assert_allclose(plain, z[96:, warp.outer.inputs], atol=1e-4)
    linear = emulator.first + (plain - warp.centre) @ emulator.linear
    exact = flux[96:] * warp.white
    misses = [np.median(np.linalg.norm(exact - some, axis=1)) for some in (linear, made)]
    assert misses[1] < 0.3 * misses[0]


def test_slopes_of_the_emulator_are_its_gradients(warp, posterior):
    warped, lessons = posterior
    emulator = Emulator(warp, *expansion(warp.joint, warp.mode), lessons)
    at, rng = warped[:3], np.random.default_rng(4)
    plain, made, pulled = emulator(at)
    value, of_value, of_plain = emulator.slopes(at)
    np.testing.assert_allclose(value, made, rtol=1e-4, atol=2e-3)
    weights = rng.standard_normal(plain.shape), rng.standard_normal(made.shape) / 100
    through = np.einsum("bip,bp->bi", of_plain, weights[0]) + np.einsum("bin,bn->bi", of_value, weights[1])
    np.testing.assert_allclose(through, pulled(*weights), rtol=1e-2, atol=1e-2 * np.abs(through).max())


def test_a_coefficient_is_never_sheared_by_more_than_three_standard_deviations(warp):
    far = warp.centre + 3.0 * np.random.default_rng(5).standard_normal((8, warp.centre.size))
    assert np.abs(warp.warped(far) - far).max() <= 3.0


def test_gradients_of_the_emulator_are_differences(warp, posterior):
    warped, lessons = posterior
    emulator = Emulator(warp, *expansion(warp.joint, warp.mode), lessons)
    at, rng = warped[:2], np.random.default_rng(3)
    plain, made, pulled = emulator(at)
    weights = rng.standard_normal(plain.shape), rng.standard_normal(made.shape) / 100
    slopes = pulled(*weights)
    step = 1e-2
    for i in (INDEX["T3"], INDEX["C_O"], INDEX["M_H"], 20, 40):
        ends = [emulator(at + s * step * np.eye(at.shape[1])[i])[:2] for s in (1, -1)]
        sums = [(weights[0] * p).sum(axis=1) + (weights[1] * m).sum(axis=1) for p, m in ends]
        np.testing.assert_allclose(slopes[:, i], (sums[0] - sums[1]) / (2 * step), rtol=0.02, atol=0.05)
