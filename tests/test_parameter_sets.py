"""Two parameter sets as data: what `full` adds to `paper`, in physics, noise and shards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_tables import chemistry_table, opacity_table

import kappaflow as kf
from kappaflow.errors import UserError
from kappaflow.model import ForwardModel
from kappaflow.model.prepare import prepare, prepare_cia
from kappaflow.parameters import INDEX, PARAMETER_SETS, parameter_set
from kappaflow.physics.emission import atmosphere, sloped
from kappaflow.physics.sensitivity import sensitivities
from kappaflow.physics.temperature import profile
from kappaflow.presets import preset
from kappaflow.simulation import Backend, Shards, make_config, simulate_directory
from kappaflow.simulation.config import plan_shards
from kappaflow.simulation.toy import ToyModel
from kappaflow.spectra import Box
from kappaflow.tables.cia import load_cia
from kappaflow.unmodelled import structure_shape

FULL, PAPER = PARAMETER_SETS["full"], PARAMETER_SETS["paper"]
FIFTEEN = [350.0, 550.0, 950.0, 1500.0, 2400.0, 0.55, 0.1, 7.0, 4.7, 1.1, 3.0, 2.0, 12.0, 8.0, 0.01]
THETA = np.array([*FIFTEEN, -7.0, -2.0])
SIZES = preset("tiny").model_copy(update={"stride": 1})


@pytest.fixture(scope="module")
def model():
    return made_of(FULL)


def made_of(parameters):
    chemistry = chemistry_table(SIZES.layers)
    return ForwardModel.of(prepare(opacity_table(), chemistry, prepare_cia(load_cia()), SIZES, parameters=parameters))


def test_full_is_the_paper_s_fifteen_in_their_order_wider_and_two_more():
    assert FULL.names[: len(PAPER)] == PAPER.names
    assert FULL.names[len(PAPER) :] == ("log_PH3", "log_f")
    assert np.all(FULL.low[: len(PAPER)] <= PAPER.low)
    assert np.all(FULL.high[: len(PAPER)] >= PAPER.high)
    assert FULL.species == (*PAPER.species, "PH3")
    assert (PAPER.coefficients, FULL.coefficients) == (9, 10)
    assert len(FULL.columns) == len(set(FULL.columns)) == 17 + 7 * 10 + 2


def test_an_unknown_set_is_one_line():
    with pytest.raises(UserError, match="unknown set 'mine'; expected one of paper, full"):
        parameter_set("mine")
    with pytest.raises(UserError, match="unknown set 'mine'"):
        make_config(parameters="mine")


def test_a_table_without_phosphine_is_refused_for_the_full_set_and_serves_the_paper_s():
    table = opacity_table()
    without = {s: names for s, names in table.lists.items() if s != "PH3"}
    table = type(table)(table.nu, table.log_pressure, table.temperature, without)
    arguments = table, chemistry_table(SIZES.layers), prepare_cia(load_cia()), SIZES
    prepare(*arguments)
    with pytest.raises(UserError, match="the table has no PH3, which the parameter set 'full' needs"):
        prepare(*arguments, parameters=FULL)


def test_without_phosphine_and_slopes_the_full_set_gives_the_paper_s_spectra(model):
    little = THETA.copy()
    little[INDEX["log_PH3"]] = -11.0
    paper = made_of(PAPER)
    np.testing.assert_allclose(model(little), paper(THETA[:15]), rtol=2e-3)


def test_phosphine_darkens_the_spectrum_more_the_more_there_is(model):
    theta = np.repeat(THETA[None], 4, axis=0)
    theta[:, INDEX["log_PH3"]] = [-11, -7, -6, -5]
    flux = model(theta).mean(axis=1)
    assert np.all(np.diff(flux) < 0)


def test_a_slope_multiplies_the_opacity_by_a_power_of_temperature_and_shows(model):
    """(T / 700 K)^slope rides on the column of its species, in every layer."""
    air = atmosphere(jnp.asarray(THETA, jnp.float32), jnp.zeros(7, jnp.int32), model.tables)
    field = np.zeros((7, 10), np.float32)
    field[1, 9] = 0.3
    more = np.asarray(sloped(air, jnp.asarray(field)).ln_column - air.ln_column)
    temperature = np.asarray(profile(jnp.asarray(THETA[:5], jnp.float32), model.tables.layers.at_layer))
    np.testing.assert_allclose(more[1], 0.3 * np.log(temperature / 700.0), atol=1e-5)
    assert not more[[0, 2, 3, 4, 5, 6]].any()
    assert np.abs(np.log(model(THETA, field) / model(THETA))).max() > 3e-3


def test_derivatives_of_the_full_set_are_differences(model):
    """All derivatives by one backward walk, slopes and PH3 among them, against central differences."""
    rng = np.random.default_rng(0)
    field = rng.normal(0, 0.1, (7, 10)).astype(np.float32)
    lists = np.zeros(7, np.int32)
    found = jax.jit(sensitivities)(
        jnp.asarray(THETA[None], jnp.float32), jnp.asarray(field[None]), jnp.asarray(lists), model.tables
    )

    def difference(step, theta_step=None, coefficient=None):
        pair = []
        for sign in (1, -1):
            theta, shifted = THETA.copy(), field.copy()
            if theta_step is not None:
                theta[theta_step] += sign * step
            if coefficient is not None:
                shifted[coefficient] += sign * step
            pair.append(np.asarray(model(theta, shifted), float))
        return (pair[0] - pair[1]) / (2 * step)

    for name, step in (("log_PH3", 0.02), ("T4", 4.0), ("C_O", 0.01), ("log_kzz", 0.05), ("R", 0.01)):
        expected = difference(step, theta_step=INDEX[name])
        got = np.asarray(found.theta[0, INDEX[name]])
        assert np.abs(got - expected).max() < 0.02 * np.abs(expected).max() + 1e-4 * found.flux.max(), name
    for place in ((0, 9), (6, 9), (1, 9), (6, 0)):
        expected = difference(0.02, coefficient=place)
        got = np.asarray(found.field[0][place])
        assert np.abs(got - expected).max() < 0.02 * np.abs(expected).max() + 1e-4 * found.flux.max(), place
    assert not np.asarray(found.theta[0, INDEX["log_f"]]).any()  # acts on the noise alone


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    where = tmp_path_factory.mktemp("full")
    config = make_config(model="toy", parameters="full", amplitude=(0.0, 2.5), broadening=((1.0, 0.0), (1.3, -0.15)))
    simulate_directory(where, config, 2048, backend=Backend(0))
    return Shards(where, seed=3)


def test_shards_of_the_full_set_say_what_they_are(shards):
    assert shards.card.box == Box.of(FULL)
    assert shards.card.parameters == "full"
    assert shards.theta.shape[1] == 17
    assert shards.field.shape[1] == 70
    assert [list(pair) for pair in shards.card.opacity.broadening] == [[1.0, 0.0], [1.3, -0.15]]


def test_structure_adds_to_the_noise_and_is_not_told(shards):
    """Noise over sqrt(error^2 + (f w F)^2) has unit variance; over the error that is told it has not."""
    seen = shards.evaluation(1024)
    clean = shards.flux(seen.index)
    f = 10.0 ** seen.truth[:, INDEX["log_f"], None]
    strong = (f[:, 0] > 0.05) & (seen.truth[:, INDEX["sigma_cal"]] < 0.002)
    told = ((seen.flux - clean) / seen.error)[strong]
    shape, _ = structure_shape(clean, seen.truth[:, INDEX["R"]], shards.wavelength)
    whole = ((seen.flux - clean) / np.sqrt(seen.error**2 + (f * shape * clean) ** 2))[strong]
    assert whole.var() == pytest.approx(1.0, abs=0.05)
    assert told.var() > 2.0


def test_the_amplitude_is_drawn_for_each_spectrum_stored_and_scales_its_field(shards):
    amplitude = shards.amplitude
    assert 0 <= amplitude.min() < 0.1
    assert 2.4 < amplitude.max() <= 2.5
    assert len(np.unique(amplitude)) > 2000
    spread = np.abs(shards.field).mean(axis=1)
    assert np.corrcoef(amplitude, spread)[0, 1] > 0.9
    assert np.array_equal(shards.evaluation(4).amplitude, amplitude[:4])


def test_half_widths_cycle_over_shards_beside_the_lists():
    config = make_config(model="toy", broadening=((1.0, 0.0), (1.2, -0.1), (0.8, 0.1)))
    plan = plan_shards(config, 0, ToyModel())
    both = [(plan.combination(i), plan.broadening(i)) for i in range(12)]
    assert len(set(both)) == 12
    assert both == [(plan.combination(i), plan.broadening(i)) for i in range(12, 24)]


def test_wider_lines_are_prepared_once_and_change_spectra():
    table = kf.simulate(n=640, preset="tiny", perturb="none", broadening=((1.0, 0.0), (1.5, 0.0)))
    plain = kf.simulate(n=640, preset="tiny", perturb="none")
    same = table.broadening[:, 0] == 1.0
    assert np.array_equal(table.flux[same], plain.flux[same])
    assert np.abs(np.log(table.flux[~same] / plain.flux[~same])).max() > 0.01


@pytest.mark.parametrize("value", ["-1", "2:1", "0:x", "1:2:3"])
def test_a_wrong_amplitude_is_one_line(value):
    from typer.testing import CliRunner

    from kappaflow.cli import app

    found = CliRunner().invoke(app, ["simulate", "--out", "unused", "--toy", f"--amplitude={value}"])
    assert isinstance(found.exception, UserError)
    assert "--amplitude" in str(found.exception)
