"""The public forward model: what it promises to a user, on made-up opacities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_tables import chemistry_table, opacity_table

import kappaflow as kf
from kappaflow.errors import UserError
from kappaflow.model import ForwardModel
from kappaflow.model.prepare import prepare, prepare_cia
from kappaflow.parameters import INDEX, PARAMETERS, SPECIES, bounds
from kappaflow.physics.emission import spectra
from kappaflow.presets import preset
from kappaflow.tables.cia import load_cia

THETA = np.array([350.0, 550.0, 950.0, 1500.0, 2400.0, 0.55, 0.1, 7.0, 4.7, 1.1, 3.0, 2.0, 12.0, 8.0, 0.01])
SIZES = preset("tiny").model_copy(update={"stride": 1})


@pytest.fixture(scope="module")
def model():
    return made_of(opacity_table())


def made_of(opacity, broadening=(1.0, 0.0)):
    chemistry = chemistry_table(SIZES.layers)
    return ForwardModel.of(prepare(opacity, chemistry, prepare_cia(load_cia()), SIZES, broadening))


def draws(n, seed=0):
    low, high = bounds()
    return np.random.default_rng(seed).uniform(low, high, (n, low.size))


def test_a_spectrum_has_one_value_per_pixel_and_keeps_the_batch_shape(model):
    assert model(THETA).shape == model.wavelength.shape
    assert model(np.broadcast_to(THETA, (2, 3, 15))).shape == (2, 3, model.wavelength.size)
    assert model(np.empty((0, 15))).shape == (0, model.wavelength.size)
    assert model(THETA).dtype == np.float32


def test_the_flux_scales_as_the_radius_squared(model):
    twice = THETA.copy()
    twice[INDEX["R"]] *= 1.5
    np.testing.assert_allclose(model(twice), 2.25 * model(THETA), rtol=1e-5)


def test_an_isothermal_atmosphere_is_a_blackbody_of_known_flux(model):
    """pi B(900 K) (R/10 pc)^2 in mJy, from SI constants."""
    theta = THETA.copy()
    theta[:5] = 900.0
    frequency = 2.99792458e14 / model.wavelength
    planck = (
        2
        * 6.62607015e-34
        * frequency**3
        / 2.99792458e8**2
        / np.expm1(6.62607015e-34 * frequency / (1.380649e-23 * 900))
    )
    solid = np.pi * (1.1 * 7.1492e7 / (10 * 3.0856775814913673e16)) ** 2
    np.testing.assert_allclose(model(theta), planck * solid * 1e29, rtol=3e-3)  # the tiny grid is coarse


def test_a_zero_field_changes_no_bit(model):
    theta = draws(5)
    assert np.array_equal(model(theta), model(theta, field=np.zeros((5, 54))))
    assert np.array_equal(model(theta), model(theta, field=np.zeros((6, 9))))


def test_a_constant_field_on_every_species_is_the_opacity_scaled(model):
    """Lists twice as strong and c0 = ln 2 must agree."""
    strong = opacity_table()
    for names in strong.lists.values():
        for entry in names.values():
            entry.mean[:] += np.log(2)
    other = made_of(strong)
    field = np.zeros((6, 9))
    field[:, 0] = np.log(2)
    np.testing.assert_allclose(model(THETA, field=field), other(THETA), rtol=1e-4)


def test_flat_and_shaped_coefficients_mean_the_same(model):
    field = np.random.default_rng(0).normal(0, 0.2, (6, 9))
    assert np.array_equal(model(THETA, field=field), model(THETA, field=field.ravel()))
    assert not np.array_equal(model(THETA, field=field), model(THETA))


def test_a_spectrum_does_not_depend_on_its_company(model):
    theta = draws(70)
    together = model(theta)
    np.testing.assert_allclose(model(theta[7]), together[7], rtol=2e-6)
    assert np.array_equal(model(theta[:64]), together[:64])


def test_lists_are_chosen_by_name_or_by_index(model):
    named = model(THETA, lists={"H2O": "alternative"})
    assert np.array_equal(named, model(THETA, lists=[1, 0, 0, 0, 0, 0]))
    assert not np.allclose(named, model(THETA), rtol=1e-3)
    theta = np.stack([THETA, THETA])
    mixed = model(theta, lists=np.array([[1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]))
    np.testing.assert_allclose(mixed, [named, model(THETA)], rtol=2e-6)


def test_wider_lines_change_the_spectrum(model):
    table = opacity_table()
    wide = made_of(table, (1.3, -0.15))
    assert not np.allclose(wide(THETA), model(THETA), rtol=1e-3)
    assert wide.digest != model.digest


def test_temperatures_beyond_the_table_are_counted(model):
    cool, hot = THETA.copy(), THETA.copy()
    cool[:5] = [300, 400, 600, 900, 1500]
    hot[4] = 3500.0
    assert model.clamped(cool).tolist() == [0, 0]
    counts = model.clamped(np.stack([cool, hot]))
    assert counts.shape == (2, 2)
    assert counts[1, 0] == 0
    assert 0 < counts[1, 1] < 15


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda p: p.name)
def test_a_value_outside_its_prior_is_named_with_its_bounds(model, parameter):
    theta = THETA.copy()
    theta[INDEX[parameter.name]] = parameter.high * 1.5 + 1
    with pytest.raises(
        UserError, match=rf"{parameter.name} = .*outside its prior \[{parameter.low:g}, {parameter.high:g}"
    ):
        model(theta)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0],), "shape"),
        ((np.full(15, np.nan),), "T1 = nan"),
        ((THETA, np.zeros(7)), "field: shape"),
        ((THETA, np.full(54, np.inf)), "finite"),
        ((THETA, None, {"H2O": "hitemp"}), "H2O has no list 'hitemp'; expected one of base, alternative"),
        ((THETA, None, {"HCN": "base"}), "no species 'HCN'"),
        ((THETA, None, [5, 0, 0, 0, 0, 0]), "H2O index 5"),
        ((THETA, None, [0.5] * 6), "integers"),
    ],
)
def test_bad_input_is_one_clear_error(model, arguments, message):
    with pytest.raises(UserError, match=message) as caught:
        model(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("broadening", [(0.0, 0.0), (float("nan"), 0.0), (1.0, 3.0)])
def test_an_absurd_broadening_is_refused(broadening):
    with pytest.raises(UserError, match="broadening"):
        kf.ForwardModel.load("tiny", broadening=broadening)


def test_an_unknown_cia_family_is_refused():
    with pytest.raises(UserError, match="no family 'abel'"):
        kf.ForwardModel.load("tiny", cia="abel")


def double(tree):
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float64) if a.dtype.kind == "f" else a, tree)


def test_gradients_in_all_parameters_and_coefficients_are_those_of_finite_differences(model):
    """In double precision, along every parameter and eleven coefficients."""
    with jax.enable_x64(True):
        tables = double(model.tables)  # an argument below: the compiler would fold constants for most of a minute

        @jax.jit
        def scores(rows, tables):
            flux = spectra(rows[:, :15], rows[:, 15:].reshape(-1, 6, 9), jnp.zeros(6, jnp.int32), tables)
            return (jnp.log(flux) * jnp.cos(jnp.arange(flux.shape[1]))).sum(axis=1)

        x = np.concatenate([THETA, np.random.default_rng(0).normal(0, 0.1, 54)])
        gradient = np.asarray(jax.jit(jax.grad(lambda x, tables: scores(x[None], tables)[0]))(x, tables))
        assert np.isfinite(gradient).all()
        places = [*range(15), *range(15, 69, 5)]
        steps = 1e-5 * np.maximum(1.0, np.abs(x[places]))
        shifts = steps[:, None] * np.eye(x.size)[places]
        above, below = np.split(np.asarray(scores(np.concatenate([x + shifts, x - shifts]), tables)), 2)
        for i, difference in zip(places, (above - below) / (2 * steps), strict=True):
            assert gradient[i] == pytest.approx(difference, rel=2e-3, abs=1e-7), i


def test_single_precision_is_enough(model):
    theta = draws(100, seed=3)
    with jax.enable_x64(True):
        fields, lists = jnp.zeros((100, 6, 9)), jnp.zeros(6, jnp.int32)
        exact = np.asarray(jax.jit(spectra)(jnp.asarray(theta), fields, lists, double(model.tables)))
    assert np.abs(model(theta) / exact - 1).max() < 1e-3


def test_every_species_shows_in_the_spectrum(model):
    for i, species in enumerate(SPECIES):
        field = np.zeros((6, 9))
        field[i, 0] = 1.0
        assert np.abs(model(THETA, field=field) / model(THETA) - 1).max() > 1e-3, species
