"""The transfer against limits, against the exponential integral and against ExoJAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expn

from kappaflow.constants import C2
from kappaflow.physics.transfer import QUADRATURE, emergent_flux, emergent_response, gauss, planck

NU = jnp.linspace(1850.0, 3550.0, 40)


def column(levels, seed=0):
    """Optical depths that span 1e-6 to 1e4 and a source from a profile warming downwards."""
    rng = np.random.default_rng(seed)
    depth = 10 ** np.linspace(-6, 4, levels)[:, None] * 10 ** rng.uniform(-2, 2, NU.size)
    temperature = jnp.linspace(300.0, 2500.0, levels)
    return jnp.asarray(np.diff(depth, axis=0)), temperature


@pytest.mark.parametrize("depth", [0.0, 1e-9, 1e-3, 1.0, 1e5, 1e15])
@pytest.mark.parametrize("quadrature", [QUADRATURE, gauss(4)], ids=["six", "gauss"])
def test_an_isothermal_column_is_a_blackbody_at_any_depth(depth, quadrature):
    source = planck(NU, jnp.full(11, 700.0))
    flux = emergent_flux(jnp.full((10, NU.size), depth), source, quadrature)
    np.testing.assert_allclose(flux, source[0], rtol=1e-6)


def test_the_planck_function_integrates_to_stefan_boltzmann():
    nu = np.linspace(1.0, 40_000.0, 400_000)
    total = np.trapezoid(np.asarray(planck(jnp.asarray(nu), jnp.array([1000.0])))[0].astype(float), nu)
    assert total == pytest.approx(5.670374419e-5 * 1000.0**4, rel=1e-4)  # CODATA 2018


def test_six_angles_on_one_exponential_follow_the_exponential_integral():
    tau = np.concatenate([[0.0], np.geomspace(1e-4, 14, 200)])
    phi, _ = QUADRATURE.sums((jnp.exp(-QUADRATURE.units[0] * jnp.asarray(tau)),))
    exact = 2 * expn(3, tau)
    assert sum(QUADRATURE.weights) == pytest.approx(1, abs=1e-6)
    assert np.abs(np.asarray(phi) / exact - 1).max() < 1e-3
    thin = tau > 3e-3  # below, 1 - phi is rounding
    assert np.abs((1 - np.asarray(phi)[thin]) / (1 - exact[thin]) - 1).max() < 1.2e-3


def test_six_angles_give_the_flux_of_thirty_two_gauss_angles():
    dtau, temperature = column(61)
    source = planck(NU, temperature)
    np.testing.assert_allclose(emergent_flux(dtau, source), emergent_flux(dtau, source, gauss(32)), rtol=1e-3)


@pytest.mark.filterwarnings("ignore")
def test_the_flux_is_that_of_exojax_on_the_same_optical_depths():
    """ExoJAX `ArtEmisPure` with the linear source of Olson and Kunasz and the same Gauss angles: within 0.1 %."""
    emis = pytest.importorskip("exojax.rt", reason="exojax is not installed")
    dtau, temperature = column(61)
    with jax.enable_x64(True):
        art = emis.ArtEmisPure(
            pressure_top=1e-5, pressure_btm=1e3, nlayer=60, nu_grid=np.asarray(NU), rtsolver="ibased_linsap", nstream=10
        )
        theirs = art.run(jnp.asarray(dtau), jnp.asarray(temperature))
    ours = emergent_flux(dtau, planck(NU, temperature), gauss(5))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)


def test_halving_the_layers_changes_nothing():
    flux = {}
    for layers in (60, 120):
        log_p = np.linspace(-5, 3, layers + 1)
        depth = (10 ** (1.6 * log_p))[:, None] * np.geomspace(1e-2, 1e3, NU.size)
        temperature = 300 + 2200 * ((log_p + 5) / 8) ** 2
        flux[layers] = emergent_flux(jnp.asarray(np.diff(depth, axis=0)), planck(NU, jnp.asarray(temperature)))
    np.testing.assert_allclose(flux[60], flux[120], rtol=5e-3)


def test_optical_depths_from_nothing_to_enormous_leave_finite_gradients():
    dtau = jnp.asarray(np.geomspace(1e-30, 1e18, 30)[:, None] * np.ones(NU.size), jnp.float32).at[0].set(0.0)
    source = planck(NU, jnp.linspace(150.0, 3500.0, 31))
    gradient = jax.grad(lambda d: emergent_flux(d, source).sum())(dtau)
    assert np.isfinite(gradient).all()
    assert (np.asarray(gradient)[:20] <= 0).all()  # more absorber above a hotter layer dims


@pytest.mark.parametrize("quadrature", [QUADRATURE, gauss(4)], ids=["six", "gauss"])
def test_the_response_of_the_flux_is_its_gradient(quadrature):
    dtau, temperature = column(30)
    source = planck(NU, temperature)
    flux, back = jax.vjp(lambda d, s: emergent_flux(d, s, quadrature), dtau, source)
    found, of_dtau, of_source = emergent_response(dtau, source, quadrature)
    np.testing.assert_array_equal(found, flux)
    for ours, expected in zip((of_dtau, of_source), back(jnp.ones_like(flux)), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-4 * float(jnp.abs(expected).max()))


def test_the_coldest_blackbody_keeps_its_precision_in_single():
    nu, cold = 3550.0, 150.0
    exact = np.expm1(C2 * nu / cold)
    hot = np.expm1(C2 * nu / 300.0)
    ratio = planck(jnp.array([nu]), jnp.array([cold]))[0, 0] / planck(jnp.array([nu]), jnp.array([300.0]))[0, 0]
    assert float(ratio) == pytest.approx(hot / exact, rel=2e-5)
