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
from kappaflow.physics.sensitivity import column_response, column_values, sensitivities
from kappaflow.presets import preset
from kappaflow.refinement.coordinates import Coordinates
from kappaflow.refinement.emulator import design
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
    made = design(joint, z[None])
    return Warp(joint, z, made.flux[0], made.slopes[0])


def test_a_columns_numbers_carry_what_parameters_inside_the_atmosphere_do(model):
    """The chain rule through the numbers gives the derivatives, but for the continuum between its few places."""
    theta, lists = jnp.asarray(THETA, jnp.float32), jnp.array(LISTS)
    field = jnp.asarray(0.1 * np.random.default_rng(0).standard_normal((len(SPECIES), COEFFICIENTS)), jnp.float32)
    jacobian = jax.jit(jax.jacfwd(column_values))(theta, jnp.zeros(len(SPECIES)), lists, model.tables)
    through = jacobian.T @ jax.jit(column_response)(theta, field, lists, model.tables)
    whole = jax.jit(sensitivities)(theta[None], field[None], lists, model.tables).theta[0]
    for name in ("T2", "T3", "T4", "C_O", "M_H", "log_kzz", "log_g", "f_sed"):
        i = INDEX[name]
        np.testing.assert_allclose(through[i], whole[i], atol=0.02 * float(jnp.abs(whole[i]).max()), err_msg=name)


def test_the_bent_part_vanishes_at_the_mode_with_its_derivatives_and_knows_them_elsewhere(warp):
    here = warp.centre[None]
    assert np.abs(warp.bent(here)).max() < 1e-3
    assert np.abs(warp.bends(here)).max() < 1e-6
    rng = np.random.default_rng(0)
    inputs = here + 0.2 * rng.standard_normal((2, here.size))
    weight = rng.standard_normal((2, warp.first.size)) / 100
    np.testing.assert_allclose(
        warp.pulled(inputs, weight), np.einsum("bkv,bv->bk", warp.bends(inputs), weight), rtol=2e-3, atol=2e-3
    )
    step, i = 2e-2, INDEX["M_H"]
    shift = step * np.eye(here.size)[i]
    slope = (warp.bent(inputs + shift) - warp.bent(inputs - shift)) / (2 * step)
    np.testing.assert_allclose(warp.bends(inputs)[:, i], slope, atol=0.02 * np.abs(slope).max())


def test_the_shear_is_undone_and_moves_coefficients_only(warp):
    inputs = warp.centre + 0.3 * np.random.default_rng(1).standard_normal((3, warp.centre.size))
    sheared = warp.warped(inputs)
    np.testing.assert_array_equal(sheared[:, : warp.count], inputs[:, : warp.count])
    assert np.abs(sheared - inputs).max() > 0.1
    np.testing.assert_allclose(warp.plain(sheared), inputs, atol=1e-4)


def test_spectra_of_one_posterior_are_straighter_in_warped_coordinates(warp):
    """Along the posterior's valley abundances move and coefficients make good for it: little is left to bend."""
    joint, outer = warp.joint, warp.outer
    made, (here,) = design(joint, warp.mode[None]), joint.expand(warp.mode[None])
    root = np.linalg.cholesky(np.linalg.inv(here.information))
    z = warp.mode + np.random.default_rng(2).standard_normal((24, warp.mode.size)) @ root.T
    warped = z[:, outer.inputs]
    z[:, outer.inputs] = warp.plain(warped)
    flux = joint.fluxes([joint.coordinates.point(row) for row in z]) / outer.factor(z)[:, None]
    plain, straight = (x - warp.centre for x in (z[:, outer.inputs], warped))
    misses = [
        np.median(np.sqrt((((flux - made.flux[0] - expected) * warp.white) ** 2).sum(axis=1)))
        for expected in (plain @ made.slopes[0], straight @ made.slopes[0] + warp.bent(warped) @ warp.left)
    ]
    assert misses[1] < 0.6 * misses[0]
