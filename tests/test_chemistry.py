"""The equilibrium lookup and the quenching: limits, conservation, gradients, continuity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kappaflow.model.arrays import on_device
from kappaflow.model.prepare import prepare_chemistry
from kappaflow.parameters import INDEX, SPECIES, bounds
from kappaflow.physics.composition import (
    GASES,
    EquilibriumTable,
    equilibrium,
    ln_time_carbon,
    ln_time_mixing,
    ln_time_nitrogen,
    quench,
    quenched_composition,
    water_gas,
)
from kappaflow.tables.chemistry import GASES as TABLE_COLUMNS
from kappaflow.tables.chemistry import load_chemistry

LOG_PRESSURE = np.linspace(-4.9, 2.9, 40)
LN_PRESSURE = jnp.asarray(LOG_PRESSURE * np.log(10.0), jnp.float32)
H2O, CH4, CO, CO2, NH3, H2S, H2, HE = range(8)
O_SOLAR, S_SOLAR, HE_SOLAR = 10**-3.31, 10**-4.88, 10**-1.07  # Asplund et al. 2009, table 1


@pytest.fixture(scope="module")
def table():
    return on_device(EquilibriumTable, prepare_chemistry(load_chemistry(), LOG_PRESSURE))


_equilibrium = jax.jit(equilibrium)


def vmr(table, T, co=0.55, mh=0.0):
    T = jnp.broadcast_to(jnp.asarray(T, jnp.float32), LOG_PRESSURE.shape)
    return np.exp(np.asarray(_equilibrium(table, T, jnp.float32(co), jnp.float32(mh))[0], float))


def at(log_pressure):
    return int(np.abs(LOG_PRESSURE - log_pressure).argmin())


def test_the_species_axis_is_the_absorbers_then_hydrogen_and_helium():
    assert GASES == TABLE_COLUMNS == (*SPECIES, "H2", "He")


def test_carbon_is_in_methane_when_cold_and_in_carbon_monoxide_when_hot(table):
    cold, hot = vmr(table, 500.0)[:, at(1.0)], vmr(table, 1800.0)[:, at(0.0)]
    assert cold[CH4] > 1e4 * cold[CO]
    assert hot[CO] > 1e3 * hot[CH4]


def test_methane_and_carbon_monoxide_swap_where_lodders_and_fegley_say(table):
    """Lodders & Fegley 2002, Icarus 155, 393: equal abundances at 1 bar near 1100-1200 K for solar gas."""
    T = np.linspace(900.0, 1400.0, 51)
    ratio = [np.log(x[CH4, at(0.0)] / x[CO, at(0.0)]) for x in (vmr(table, t) for t in T)]
    swap = np.interp(0.0, -np.array(ratio), T)
    assert 1050.0 < swap < 1250.0


def test_ammonia_gives_way_to_nitrogen_when_hot(table):
    assert vmr(table, 400.0)[NH3, at(-1.0)] > 100 * vmr(table, 1500.0)[NH3, at(-1.0)]


def test_carbon_rich_hot_gas_has_no_water_and_no_carbon_dioxide(table):
    rich, poor = vmr(table, 1500.0, co=1.3)[:, at(-2.0)], vmr(table, 1500.0, co=0.5)[:, at(-2.0)]
    assert rich[H2O] < 1e-3 * poor[H2O]
    assert rich[CO2] < 1e-3 * poor[CO2]
    assert rich[CH4] > 1e2 * poor[CH4]


@pytest.mark.parametrize("mh", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("co", [0.2, 0.55, 0.9, 1.3])
def test_carbon_is_conserved(table, co, mh):
    """At 700 K and above 0.1 bar the three carriers hold all carbon: C/He is the elemental ratio."""
    x = vmr(table, 700.0, co, mh)[:, at(-1.0) :]
    ratio = (x[CH4] + x[CO] + x[CO2]) / x[HE]
    np.testing.assert_allclose(ratio, co * O_SOLAR * 10**mh / HE_SOLAR, rtol=0.005)


def test_most_sulfur_is_in_hydrogen_sulfide_in_cool_dense_gas(table):
    """The rest is in metal sulfides, which a gas without condensates keeps."""
    x = vmr(table, 500.0)[:, at(2.0)]
    assert 0.85 < x[H2S] / x[HE] / (S_SOLAR / HE_SOLAR) < 1.005


def test_mean_molecular_weight_is_the_mass_over_the_number_of_molecules(table):
    """Cold solar gas: 1.008 (1 + 0.0851 x 4.003/1.008 + metals) per (0.5 + 0.0851) gives 2.33-2.36 u."""
    _, mu = equilibrium(table, jnp.full(LOG_PRESSURE.size, 600.0), jnp.float32(0.55), jnp.float32(0.0))
    np.testing.assert_allclose(mu, 2.345, atol=0.015)
    _, heavy = equilibrium(table, jnp.full(LOG_PRESSURE.size, 600.0), jnp.float32(0.55), jnp.float32(1.5))
    assert np.all(np.asarray(heavy) > np.asarray(mu) + 0.5)


def test_hydrogen_dissociates_when_hot_and_thin(table):
    _, mu = equilibrium(table, jnp.full(LOG_PRESSURE.size, 3400.0), jnp.float32(0.55), jnp.float32(0.0))
    assert mu[0] < 1.4
    assert mu[-1] > 2.2


def test_outside_the_table_the_edge_is_used(table):
    np.testing.assert_array_equal(vmr(table, 3500.0), vmr(table, 5000.0))
    np.testing.assert_array_equal(vmr(table, 900.0, co=1.5)[:HE], vmr(table, 900.0, co=1.7)[:HE])


def test_the_table_is_met_at_its_nodes():
    packaged = load_chemistry()
    nodes = on_device(EquilibriumTable, prepare_chemistry(packaged, packaged.log_pressure))
    for c, m in ((3, 1), (packaged.co.size // 2, 4), (packaged.co.size - 2, 0)):
        for t in (5, 20, 40):
            T = jnp.full(packaged.log_pressure.size, packaged.temperature[t], jnp.float32)
            got = equilibrium(nodes, T, jnp.float32(packaged.co[c]), jnp.float32(packaged.mh[m]))[0] / np.log(10.0)
            np.testing.assert_allclose(got.T, packaged.log_vmr[c, m, :, t], atol=2e-3)


def test_gradients_agree_with_finite_differences(table):
    with jax.enable_x64(True):
        double = jax.tree.map(lambda a: jnp.asarray(np.asarray(a, np.float64)), table)
        T0 = np.linspace(400.0, 2600.0, LOG_PRESSURE.size)

        @jax.jit
        @jax.value_and_grad
        def total(x, table):
            ln, mu = equilibrium(table, T0 * x[0], x[1], x[2])
            return jnp.sum(ln * jnp.arange(1.0, 9.0)[:, None]) + jnp.sum(mu)

        x = np.array([1.01, 0.613, 0.217])
        gradient = total(x, double)[1]
        for i, h in enumerate((1e-6, 1e-6, 1e-6)):
            step = np.eye(3)[i] * h
            numeric = (total(x + step, double)[0] - total(x - step, double)[0]) / (2 * h)
            np.testing.assert_allclose(gradient[i], numeric, rtol=1e-4)


def test_chemical_times_are_those_of_zahnle_and_marley():
    """ZM14 equations 12-14 and 32 by hand: 1 bar, 1000 K, solar; and ten times solar."""
    one, zero = jnp.array([1000.0]), jnp.zeros(1)
    q1, q2 = 1.5e-6 * np.exp(42.0), 40.0 * np.exp(25.0)
    np.testing.assert_allclose(np.exp(ln_time_carbon(one, zero, 0.0))[0], 1 / (1 / q1 + 1 / q2), rtol=1e-4)
    rich = 1 / (10**0.7 / q1 + 1 / q2)
    np.testing.assert_allclose(np.exp(ln_time_carbon(one, zero, 1.0))[0], rich, rtol=1e-4)
    np.testing.assert_allclose(np.exp(ln_time_nitrogen(one, zero))[0], 1e-7 * np.exp(52.0), rtol=1e-4)


def test_mixing_time_is_scale_height_squared_over_kzz():
    """H = k T / (mu g): 1000 K, 2.3 u, 1e5 cm s-2 gives 3.61 km; over 1e8 cm2 s-1, 1.31e3 s."""
    t = np.exp(ln_time_mixing(jnp.array([1000.0]), jnp.array([2.3]), 5.0, 8.0))[0]
    np.testing.assert_allclose(t, 361.5e3**2 / 1e8, rtol=1e-3)


def profile(top, bottom):
    return jnp.asarray(np.interp(LOG_PRESSURE, [-5.0, 3.0], [top, bottom]), jnp.float32)


def test_tiny_kzz_quenches_nothing(table):
    T = profile(600.0, 2500.0)
    free, _ = equilibrium(table, T, jnp.float32(0.55), jnp.float32(0.0))
    same, _ = quenched_composition(table, T, LN_PRESSURE, (0.55, 0.0, -200.0, 4.5))
    np.testing.assert_allclose(same, free, atol=1e-5)


def test_carbon_monoxide_is_frozen_above_its_level_and_free_below(table):
    T = profile(400.0, 2400.0)
    free, mu = equilibrium(table, T, jnp.float32(0.55), jnp.float32(0.0))
    got, _ = quenched_composition(table, T, LN_PRESSURE, (0.55, 0.0, 8.0, 4.5))
    ratio = np.asarray(ln_time_carbon(T, LN_PRESSURE, 0.0) - ln_time_mixing(T, mu, 4.5, 8.0))
    level = int(np.flatnonzero(ratio > 0).max())  # the deepest frozen layer
    assert 3 < level < LOG_PRESSURE.size - 3
    for s, slack in ((H2O, 3e-3), (CH4, 1e-6), (CO, 3e-3)):  # CO2 takes some of CO and H2O
        np.testing.assert_allclose(got[s, : level + 1], got[s, level], atol=slack)
        np.testing.assert_allclose(got[s, level + 1 :], free[s, level + 1 :], atol=1e-5)
        low, high = sorted((float(free[s, level]), float(free[s, level + 1])))
        assert low - slack <= got[s, 0] <= high + slack
    assert got[CO, 0] > free[CO, 0] + 5
    np.testing.assert_array_equal(got[H2S], free[H2S])


def test_carbon_dioxide_follows_frozen_monoxide_and_water_up_to_its_own_level(table):
    """CO2 = CO2_eq CO H2O / (CO_eq H2O_eq) between the level of CO and that of CO2 (1e-10 P^-0.5 exp(38000/T) s)."""
    T = profile(400.0, 2400.0)
    free, mu = equilibrium(table, T, jnp.float32(0.55), jnp.float32(0.0))
    got, _ = quenched_composition(table, T, LN_PRESSURE, (0.55, 0.0, 8.0, 4.5))
    mixing = np.asarray(ln_time_mixing(T, mu, 4.5, 8.0))
    carbon = int(np.flatnonzero(np.asarray(ln_time_carbon(T, LN_PRESSURE, 0.0)) > mixing).max())
    own = np.log(1e-10) - 0.5 * np.asarray(LN_PRESSURE) + 38000.0 / np.asarray(T)
    level = int(np.flatnonzero(own > mixing).max())
    assert level < carbon - 3  # CO2 freezes higher up
    between = slice(level + 2, carbon + 1)
    expected = free[CO2] + got[CO] + got[H2O] - free[CO] - free[H2O]
    np.testing.assert_allclose(got[CO2, between], expected[between], atol=2e-4)
    np.testing.assert_allclose(got[CO2, :level], got[CO2, 0], atol=1e-4)
    assert got[CO2, 0] > got[CO2, carbon] + 0.3  # more of it than frozen with CO


def test_carbon_and_oxygen_are_conserved_where_carbon_dioxide_follows(table):
    T = profile(300.0, 2000.0)
    got = np.exp(np.asarray(quenched_composition(table, T, LN_PRESSURE, (0.7, 0.5, 7.0, 5.0))[0], float))
    free, mu = equilibrium(table, T, jnp.float32(0.7), jnp.float32(0.5))
    frozen = np.asarray(ln_time_carbon(T, LN_PRESSURE, 0.5) - ln_time_mixing(T, mu, 5.0, 7.0)) > 0
    top = np.flatnonzero(frozen)
    for weights in ({CH4: 1, CO: 1, CO2: 1}, {H2O: 1, CO: 1, CO2: 2}):
        total = sum(n * got[s, top] for s, n in weights.items())
        np.testing.assert_allclose(total, total[0], rtol=2e-6)


def test_the_water_gas_exchange_stops_at_what_there_is():
    """K beyond all bounds turns the scarcer of CO and H2O wholly into CO2; K of nothing turns all CO2 back."""
    ln = jnp.log(jnp.array([[3e-4], [1e-5], [1e-4], [1e-6]]))  # H2O, CH4, CO, CO2
    water, monoxide, dioxide = (np.exp(a)[0] for a in water_gas(ln, jnp.array([60.0])))
    np.testing.assert_allclose([water, dioxide], [2e-4, 1.01e-4], rtol=1e-5)
    assert 0 < monoxide < 1e-9
    water, monoxide, dioxide = (np.exp(a)[0] for a in water_gas(ln, jnp.array([-60.0])))
    np.testing.assert_allclose([water, monoxide], [3.01e-4, 1.01e-4], rtol=1e-5)
    assert 0 < dioxide < 1e-11


def test_more_mixing_freezes_more_layers(table):
    T = profile(400.0, 2400.0)
    runs = [quenched_composition(table, T, LN_PRESSURE, (0.55, 0.0, k, 4.5))[0][CO] for k in (2.0, 4.0, 6.0, 8.0, 10.0)]
    frozen = [int(np.sum(np.abs(co - co[0]) < 1e-6)) for co in runs]
    assert np.all(np.diff(frozen) > 0)


def test_a_hot_layer_above_a_cold_interior_resets_the_gas(table):
    """Non-monotonic profile: 800 K at the bottom, 2500 K in the middle, cold on top. The hot layer decides."""
    T = jnp.asarray(np.interp(LOG_PRESSURE, [-5.0, -1.0, 1.0, 3.0], [400.0, 700.0, 2500.0, 800.0]), jnp.float32)
    free, _ = equilibrium(table, T, jnp.float32(0.55), jnp.float32(0.0))
    got, _ = quenched_composition(table, T, LN_PRESSURE, (0.55, 0.0, 8.0, 4.5))
    assert free[CH4, -1] > free[CO, -1]
    assert got[CO, 0] > got[CH4, 0] + 2
    np.testing.assert_allclose(got[:4, at(1.0)], free[:4, at(1.0)], atol=1e-5)


def test_blending_frozen_and_equilibrium_gas_conserves_elements():
    """Two carriers share one element. Frozen below, then a layer only half reset (t_chem = t_mix e^-0.5)."""
    share = jnp.array([0.2, 0.9, 0.2, 0.2])
    ln = jnp.log(jnp.stack([share, 1.0 - share]))
    got = np.exp(quench(ln, jnp.array([-0.5, -0.5, 4.0, 4.0])))
    np.testing.assert_allclose(got.sum(axis=0), 1.0, rtol=1e-5)
    np.testing.assert_allclose(got[0], [0.2, 0.55, 0.2, 0.2], rtol=1e-5)


def test_the_quench_level_is_found_between_layers():
    """ln(t_chem/t_mix) = -1 and 3 on either side: a quarter of the way up, in ln VMR."""
    ln = jnp.array([[-9.0, -8.0, -4.0, -2.0]])
    got = quench(ln, jnp.array([5.0, 3.0, -1.0, -5.0]))
    np.testing.assert_allclose(got, [[-5.0, -5.0, -4.0, -2.0]], rtol=1e-6)


@jax.jit
def _compositions(rows, table):
    """Quenched composition at rows of four temperatures, then C/O, [M/H], log kzz and log g."""

    def top(x):
        T = jnp.interp(jnp.asarray(LOG_PRESSURE), jnp.array([-5.0, -2.0, 0.5, 3.0]), x[:4])
        return quenched_composition(table, T, LN_PRESSURE, tuple(x[4:]))[0]

    return jax.vmap(top)(rows)


@pytest.mark.parametrize("seed", range(4))
def test_quenched_composition_is_continuous_along_lines_through_the_prior(table, seed):
    """No jump as parameters move: halving the step must about halve the largest change."""
    rng = np.random.default_rng(seed)
    a, b = (
        rng.uniform([300, 500, 700, 800, 0.3, -0.5, 6.0, 3.0], [1500, 2500, 3000, 3500, 0.8, 1.0, 10.0, 5.5])
        for _ in "ab"
    )
    t = jnp.linspace(0.0, 1.0, 4001)[:, None]
    vmr = jnp.exp(_compositions(jnp.asarray(a) * (1 - t) + jnp.asarray(b) * t, table)[:, :5])

    def largest(values):
        return float(jnp.abs(jnp.diff(values, axis=0)).max() / values.max())

    assert largest(vmr) < 0.6 * largest(vmr[::4]) + 1e-4


def test_every_prior_draw_is_finite_with_finite_gradients(table):
    low, high = bounds()
    rng = np.random.default_rng(5)
    theta = rng.uniform(low, high, (512, low.size))
    corners = np.where(rng.uniform(size=(256, low.size)) < 0.5, low, high)
    theta = jnp.asarray(np.concatenate([theta, corners]), jnp.float32)
    names = [INDEX[n] for n in ("C_O", "M_H", "log_kzz", "log_g")]

    def total(p, table):
        T = jnp.interp(jnp.asarray(LOG_PRESSURE, jnp.float32), jnp.array([-5.0, -3.0, -1.0, 1.0, 3.0]), p[:5])
        ln, mu = quenched_composition(table, T, LN_PRESSURE, tuple(p[i] for i in names))
        return jnp.sum(ln) + jnp.sum(mu), (ln, mu)

    of_all = jax.vmap(jax.value_and_grad(total, has_aux=True), in_axes=(0, None))
    (_, (ln, mu)), gradient = jax.jit(of_all)(theta, table)
    assert np.all(np.isfinite(ln))
    assert np.all(ln <= 0)
    assert np.all((mu > 1.1) & (mu < 5.0))
    assert np.all(np.isfinite(gradient))
