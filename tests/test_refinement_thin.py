"""A few wavenumbers: fluxes are the whole model's, derivatives are differences, and they bend as all pixels do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_tables import chemistry_table, opacity_table

from kappaflow.model import ForwardModel
from kappaflow.model.prepare import prepare, prepare_cia
from kappaflow.observe.spectrum import Spectrum
from kappaflow.parameters import COEFFICIENTS, INDEX, SPECIES
from kappaflow.physics.emission import atmosphere, emergent_spectra, sloped
from kappaflow.physics.thinned import FluxPlace, local, opened, pulled, thinned
from kappaflow.presets import preset
from kappaflow.refinement.coordinates import Coordinates
from kappaflow.refinement.emulator import About, Emulator, Lessons
from kappaflow.refinement.likelihood import Joint, ListedModel, Observation
from kappaflow.simulation.opacity_draws import coefficient_sigma, sigma_table
from kappaflow.spectra import Box
from kappaflow.tables.cia import load_cia

THETA = np.array([350.0, 550.0, 950.0, 1500.0, 2400.0, 0.55, 0.1, 7.0, 4.7, 1.1, 3.0, 2.0, 12.0, 8.0, 0.02])
LISTS = (1, 0, 1, 0, 0, 0)
INSIDE = ("T2", "T3", "T4", "C_O", "M_H", "log_kzz", "log_g", "f_sed")


@pytest.fixture(scope="module")
def model():
    sizes = preset("tiny").model_copy(update={"stride": 1})
    return ForwardModel.of(
        prepare(opacity_table(), chemistry_table(sizes.layers), prepare_cia(load_cia()), sizes, (1.0, 0.0))
    )


@pytest.fixture(scope="module")
def about(model):
    clean = np.asarray(model(THETA, np.zeros(len(SPECIES) * COEFFICIENTS)), float)
    spectrum = Spectrum(model.wavelength, clean, np.full(clean.size, np.median(clean) / 50), np.ones(clean.size, bool))
    parameters = model.parameters
    box = Box(parameters.names, parameters.low, parameters.high)
    coordinates = Coordinates(box, coefficient_sigma(sigma_table()).ravel(), structure=False)
    joint = Joint(Observation.of(spectrum), ListedModel(model, LISTS), coordinates)
    return About(joint, coordinates.at(THETA))


@pytest.fixture(scope="module")
def thin(model):
    """Tables at some places of the grid, and the places."""
    lines = model.tables.lines
    place = jnp.linspace(0.1, 0.9, 24) * lines.nodes.shape[0] * lines.fourier.shape[2]
    place = place.astype(jnp.int32)
    return jax.jit(thinned)(model.tables, jnp.array(LISTS), place), place


def fields(few, seed=0, slope=0.0):
    """Return a batch of two columns, ln factors of opacities at a few wavenumbers and slopes in temperature."""
    rng = np.random.default_rng(seed)
    theta = np.stack([THETA, THETA])
    theta[1, [INDEX["T3"], INDEX["M_H"]]] += [60.0, 0.2]
    ln_field = 0.1 * rng.standard_normal((2, len(SPECIES), few))
    slopes = slope * rng.standard_normal((2, len(SPECIES)))
    return (jnp.asarray(a, jnp.float32) for a in (theta, ln_field, slopes))


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_fluxes_at_a_few_wavenumbers_are_those_of_the_whole_model(model, thin, slope):
    tables, place = thin
    rng, lists = np.random.default_rng(1), jnp.array(LISTS)
    theta, _, slopes = fields(place.size, slope=slope)
    field = jnp.asarray(0.1 * rng.standard_normal((2, len(SPECIES), COEFFICIENTS)), jnp.float32)

    def whole(theta, field):
        air = jax.vmap(sloped)(jax.vmap(atmosphere, in_axes=(0, None, None))(theta, lists, model.tables), field)
        return emergent_spectra(air, field, lists, model.tables.lines)

    exact = jax.jit(whole)(theta, jnp.concatenate([field, slopes[..., None]], axis=2))[:, place]
    made = jax.jit(local)(jax.jit(opened)(theta, lists, tables), field @ tables.fourier, slopes)
    np.testing.assert_allclose(made.flux, exact, rtol=1e-3)


def test_slopes_by_field_and_by_temperature_slope_are_differences(thin):
    tables, place = thin
    theta, ln_field, slopes = fields(place.size, slope=0.2)
    air = jax.jit(opened)(theta, jnp.array(LISTS), tables)
    at, step = jax.jit(local)(air, ln_field, slopes), 0.02
    scale = float(jnp.abs(at.by_field).max())
    for s in range(len(SPECIES)):
        # Transfer is local: one shift of all wavenumbers is a shift of each.
        ends = [local(air, ln_field.at[:, s].add(w * step), slopes).flux for w in (1, -1)]
        np.testing.assert_allclose(at.by_field[:, s], (ends[0] - ends[1]) / (2 * step), atol=2e-3 * scale)
        ends = [local(air, ln_field, slopes.at[:, s].add(w * step)).flux for w in (1, -1)]
        np.testing.assert_allclose(at.by_slope[:, s], (ends[0] - ends[1]) / (2 * step), atol=2e-3 * scale)


def test_pulled_back_weights_are_differences(thin):
    tables, place = thin
    lists, (theta, ln_field, slopes) = jnp.array(LISTS), fields(place.size, slope=0.2)
    flux = jax.jit(lambda t: local(opened(t, lists, tables), ln_field, slopes))
    at = flux(theta)
    weight = jnp.asarray(np.random.default_rng(2).standard_normal(at.flux.shape), jnp.float32) / at.flux
    found = jax.jit(pulled)(FluxPlace(theta, ln_field, slopes, at.by_depth, at.by_source), weight, lists, tables)
    for name in INSIDE:
        i, step = INDEX[name], 1e-2 * max(1.0, abs(THETA[INDEX[name]]))
        ends = [(weight * flux(theta.at[:, i].add(w * step)).flux).sum(axis=1) for w in (1, -1)]
        slope = np.asarray(ends[0] - ends[1]) / (2 * step)
        atol = 0.01 * np.abs(slope).max() + 1e-5 / step  # of which the last is rounding: C_O does next to nothing here
        np.testing.assert_allclose(found[:, i], slope, rtol=0.02, atol=atol, err_msg=name)
    outside = [INDEX[name] for name in ("R", "v_r", "v_sin_i", "sigma_cal")]
    assert float(jnp.abs(found[:, jnp.array(outside)]).max()) == 0


def test_slopes_of_thinned_fluxes_at_the_mode_are_differences(about):
    unit, bends = about.thinned
    names = [about.joint.coordinates.box.names[i] for i in about.joint.coordinates.free[about.outer.smooth]]
    step = 2e-2
    for i in [*(names.index(name) for name in INSIDE), about.count, about.count + 11, about.outer.inputs.size - 1]:
        ends = []
        for w in (1, -1):
            theta, _, field = about.points((about.centre + w * step * np.eye(about.centre.size)[i])[None])
            ends.append(about.thin.at(theta).local(field)[0][0] / unit)
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(bends[i], slope, atol=0.02 * np.abs(bends[i]).max() + 2e-4)


def test_batches_of_any_size_give_the_same_fluxes_and_gradients(about):
    rng = np.random.default_rng(3)
    inputs = about.centre + 0.2 * rng.standard_normal((35, about.centre.size))
    theta, _, field = about.points(inputs)
    whole, part = about.thin.at(theta), about.thin.at(theta[33:])
    for one, two in zip(whole.local(field), part.local(field[33:]), strict=True):
        np.testing.assert_allclose(one[33:], two, rtol=1e-4, atol=1e-4 * np.abs(two).max())
    weight = rng.standard_normal((35, about.thinned[0].size)) / about.thinned[0]
    one, two = whole.pulled(weight)[33:], part.pulled(weight[33:])
    np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-4 * np.abs(two).max())


@pytest.fixture(scope="module")
def posterior(about):
    """Coordinates and exact flux over the plain factor of draws of one posterior."""
    joint = about.joint
    (here,) = joint.expand(about.z[None])
    root = np.linalg.cholesky(np.linalg.inv(here.information))
    z = about.z + np.random.default_rng(2).standard_normal((120, about.z.size)) @ root.T
    return Lessons(z, joint.fluxes([joint.coordinates.point(row) for row in z]) / about.outer.factor(z)[:, None])


def test_a_few_wavenumbers_bend_as_all_pixels_do(about, posterior):
    """Taught by exact spectra of a posterior, an emulator misses fresh ones by far less than their linear part does."""
    z, flux = posterior
    emulator = Emulator(about, Lessons(z[:96], flux[:96]))
    inputs = z[96:, about.outer.inputs]
    theta, _, field = about.points(inputs)
    shares, _ = emulator.shares(inputs, about.thin.at(theta), field)
    plain = 1 + inputs.shape[1]
    linear, made = shares[:, :plain] @ emulator.rows[:plain], shares @ emulator.rows
    exact = flux[96:] * about.white
    misses = [np.median(np.linalg.norm(exact - some, axis=1)) for some in (linear, made)]
    assert misses[1] < 0.3 * misses[0]
