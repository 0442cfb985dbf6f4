"""Inside of an atmosphere: profiles, quench levels, cloud, contribution function, and what is derived from draws."""

import json

import numpy as np
import pytest
from retrieval_toy import MODEL, observed, posteriors

from kappaflow.constants import L_SUN, PARSEC, R_JUP, SIGMA_SB, C
from kappaflow.instrument import pixel_grid
from kappaflow.model.atmospheres import QUENCHED, atmospheres, contributions
from kappaflow.model.forward import ForwardModel
from kappaflow.observe.spectrum import Spectrum
from kappaflow.parameters import GASES, INDEX, parameter_set
from kappaflow.physics.transfer import planck
from kappaflow.plots import atmosphere_figures as plots
from kappaflow.retrieval.derived import SHARE, derive, window_luminosity
from kappaflow.retrieval.interior import columns_of, interior, representative
from kappaflow.retrieval.pipeline import retrieve_spectrum
from kappaflow.retrieval.result import RetrievalSettings

T_DWARF = [300, 450, 750, 1400, 2400, 0.55, 0, 7, 5, 1, 3, 2, 0, 5, 0.02, -7, -2]


@pytest.fixture(scope="module")
def model():
    return ForwardModel.load("tiny", parameters="full")


@pytest.fixture(scope="module")
def columns(model):
    rng = np.random.default_rng(3)
    box = parameter_set("full")
    theta = np.vstack([T_DWARF, box.low + (box.high - box.low) * rng.random((40, len(box)))])
    return theta, atmospheres(model, theta)


def test_carbon_and_oxygen_are_those_of_the_parameters_at_every_layer(columns):
    """(CH4 + CO + CO2) / (H2O + CO + 2 CO2) is C/O, but for the oxygen that SiO holds: 6.6 % of it in the Sun."""
    theta, found = columns
    h2o, ch4, co, co2 = (10.0 ** found.log_vmr[0, GASES.index(gas)] for gas in ("H2O", "CH4", "CO", "CO2"))
    ratio = (ch4 + co + co2) / (h2o + co + 2 * co2) / theta[0, INDEX["C_O"]]
    assert ratio.min() > 0.99
    assert ratio.max() < 1.15


def test_above_its_quench_level_a_gas_is_constant_and_below_it_is_not(columns):
    _, found = columns
    place, gas = QUENCHED.index("CO, CH4"), GASES.index("CO")
    log_p, profile = np.log10(found.pressure), found.log_vmr[0, gas]
    level = found.quench[0, place]
    assert log_p[0] < level < log_p[-1]
    above, below = log_p < level - 0.4, log_p > level + 0.4
    assert np.ptp(profile[above]) < 0.02
    assert np.ptp(profile[below]) > 0.1


def test_the_cloud_lies_above_its_base_and_is_absent_where_nothing_condenses(model, columns):
    _, found = columns
    per_gas = found.cloud_depth[0] / found.pressure  # optical depth per mass of gas
    log_p = np.log10(found.pressure)
    assert abs(log_p[per_gas.argmax()] - found.cloud_base[0]) < 0.6  # two layers
    assert per_gas[log_p < found.cloud_base[0] - 2].max() < 1e-3 * per_gas.max()
    hot = np.array(T_DWARF, float)
    hot[:5] = [1500, 2000, 2500, 3000, 3500]
    clear = atmospheres(model, hot)
    assert np.isnan(clear.cloud_base[0])
    assert clear.cloud_depth.sum() < 1e-3 * found.cloud_depth[0].sum()


def test_layers_together_give_the_whole_flux(model):
    """Summed over layers the contributions are the emergent flux: a second way to it, with another source function."""
    import jax

    from kappaflow.physics.emission import TO_MJY
    from kappaflow.physics.structure import contribution

    theta = np.array(T_DWARF)
    field, lists = np.zeros((7, 10), np.float32), np.zeros(7, np.int32)
    given = np.asarray(jax.jit(contribution)(theta.astype(np.float32), field, lists, model.tables))
    whole = given.sum(axis=0) * TO_MJY * theta[INDEX["R"]] ** 2
    assert np.abs(np.log(whole / model(theta))).max() < 0.06
    share = contributions(model, theta)
    np.testing.assert_allclose(share.sum(axis=0), 1, rtol=1e-5)
    assert (share >= 0).all()


def test_light_comes_from_where_the_temperature_is_the_brightness_temperature(model, columns):
    """Eddington and Barbier: the median depth of a pixel's light has about the pixel's brightness temperature."""
    theta, found = columns
    share = contributions(model, theta[0])
    deep = [np.interp(0.5, np.cumsum(one)[:-1], found.temperature[0]) for one in share.T]
    nu = 1e4 / model.wavelength
    from kappaflow.physics.emission import TO_MJY

    flux = model(theta[0]) / TO_MJY / theta[0, INDEX["R"]] ** 2
    grid = np.linspace(200, 3000, 2801)
    black = np.asarray(planck(nu, grid))
    bright = np.array([np.interp(f, black[:, i], grid) for i, f in enumerate(flux)])
    assert np.median(np.abs(np.array(deep) / bright - 1)) < 0.1


def test_a_fog_high_up_hides_what_is_below(model):
    theta = np.array(T_DWARF, float)
    theta[:5] = [300, 500, 900, 1300, 1700]
    thick = theta.copy()
    thick[INDEX["f_sed"]], thick[INDEX["log_kzz"]], thick[INDEX["M_H"]] = 0.5, 11, 1.0
    depth = [np.average(np.arange(31), weights=contributions(model, t).mean(axis=1)) for t in (theta, thick)]
    assert depth[1] < depth[0] - 1


def blackbody(temperature, radius=1.0, missing=()):
    """A blackbody sphere at 10 pc, on the detector's pixels."""
    wave = pixel_grid(2).mean(axis=0)
    nu = 1e4 / wave
    surface = np.asarray(planck(nu, np.array([temperature])))[0] / C  # erg s-1 cm-2 Hz-1
    flux = surface * (radius * R_JUP / (10 * PARSEC)) ** 2 * 1e26
    mask = np.ones(wave.size, bool)
    mask[list(missing)] = False
    return Spectrum(wave, flux, flux / 50, mask, {"scale_known": True})


def test_the_window_of_a_blackbody_has_the_light_that_planck_gives_it():
    """Quadrature over wavenumber, gap included, against the trapezium over pixels."""
    nu = np.linspace(1e4 / 5.27, 1e4 / 2.87, 20001)
    inside = np.trapezoid(np.asarray(planck(nu, np.array([900.0])))[0], nu) * 4 * np.pi * R_JUP**2 / L_SUN
    for missing in ((), range(300, 340)):
        spectrum = blackbody(900.0, missing=missing)
        found = window_luminosity(spectrum, spectrum.flux if missing else None)
        assert found.nrs1 + found.nrs2 == pytest.approx(inside, rel=0.01)
    unscaled = Spectrum(spectrum.wavelength, spectrum.flux, spectrum.error, spectrum.mask, {"scale_known": False})
    assert window_luminosity(unscaled) is None


class Given:
    """What `derive` asks of a retrieval."""

    def __init__(self, draws, spectrum):
        self.draws, self.spectrum, self.envelope, self.settings = draws, spectrum, None, RetrievalSettings()


def test_mass_and_temperatures_follow_from_gravity_radius_and_light():
    draws = np.tile(np.array(T_DWARF, float), (4000, 1))
    draws[:, INDEX["log_g"]] = np.log10(2479)  # Jupiter's equatorial gravity, cm s-2, with its rotation left out
    draws[:, INDEX["sigma_cal"]] = 0.0
    found = derive(Given(draws, blackbody(900.0)), None)
    assert set(found) == {"mass", "log_L_window", "T_window", "T_eff"}
    assert found["mass"][0] == pytest.approx(1.0, rel=2e-3)
    light = 10 ** found["log_L_window"] * L_SUN
    np.testing.assert_allclose(found["T_window"], (light / (4 * np.pi * R_JUP**2 * SIGMA_SB)) ** 0.25, rtol=1e-6)
    assert (found["T_window"] <= found["T_eff"]).all()
    ratio = np.log(found["T_eff"] / found["T_window"])
    assert np.median(ratio) == pytest.approx(-SHARE[0] / 4, abs=0.02)
    assert ratio.std() == pytest.approx(SHARE[1] / 4, rel=0.1)


def test_without_a_distance_there_is_no_mass():
    draws = np.tile(np.array(T_DWARF, float), (100, 1))
    assert derive(Given(draws, blackbody(900.0).noted(scale_known=False)), None) == {}


def test_an_uncertain_distance_moves_light_and_mass_but_no_temperature():
    draws = np.tile(np.array(T_DWARF, float), (500, 1))
    draws[:, INDEX["sigma_cal"]] = 0.0
    stretch = 1 + 0.1 * np.random.default_rng(0).standard_normal(500)
    wide = draws.copy()
    wide[:, INDEX["R"]] *= stretch
    near, far = derive(Given(draws, blackbody(900.0)), None), derive(Given(wide, blackbody(900.0)), None, stretch)
    np.testing.assert_allclose(far["T_eff"], near["T_eff"], rtol=1e-6)
    np.testing.assert_allclose(far["mass"], near["mass"] * stretch**2)
    assert far["log_L_window"].std() > 5 * near["log_L_window"].std()


def test_the_gas_at_one_bar_is_that_of_the_column(model, columns):
    theta, found = columns
    derived = derive(Given(theta, blackbody(900.0)), columns_of(model, theta))
    i = int(np.argmin(np.abs(np.log10(found.pressure))))
    ratio = found.log_vmr[:, GASES.index("CO"), i] - found.log_vmr[:, GASES.index("CH4"), i]
    assert np.median(np.abs(derived["log_CO_CH4"] - ratio)) < 0.3  # a neighbouring layer's
    assert 0.99 < derived["C_O_gas"][0] / theta[0, INDEX["C_O"]] < 1.15
    assert columns_of(MODEL, theta) is None


@pytest.fixture(scope="module")
def inside(model, columns):
    theta, found = columns
    near = theta[:1] + 0.02 * np.abs(theta[:1]) * np.random.default_rng(1).standard_normal((30, theta.shape[1]))
    near = np.clip(near, model.parameters.low, model.parameters.high)
    return interior(model, near, atmospheres(model, near))


def test_bands_are_ordered_and_the_light_is_where_half_of_it_is_above(inside):
    assert (np.diff(inside.temperature, axis=0) >= 0).all()
    assert all((np.diff(band, axis=0) >= 0).all() for band in inside.log_vmr.values())
    assert set(inside.log_vmr) == {"H2O", "CH4", "CO", "CO2", "NH3", "H2S", "PH3"}
    share, probed = inside.probed_by(np.ones(inside.wavelength.size))
    above = share[np.log10(inside.pressure) < probed[2]].sum()
    assert above == pytest.approx(0.5, abs=share.max())
    assert (np.diff(inside.probed, axis=0) >= 0).all()


def test_figures_of_an_atmosphere_show_every_gas_and_every_level(inside):
    bands = plots.Bands(
        inside.pressure, inside.temperature, inside.log_vmr, inside.cloud_depth, inside.quench, inside.cloud_base, 0.0
    )
    figure = plots.atmosphere(bands, inside.probed_by(np.ones(inside.wavelength.size)), title="x")
    left, middle, right = figure.axes
    assert [text.get_text() for text in middle.texts] == [
        f"{name} freeze{'' if ',' in name else 's'}"
        for name in sorted(inside.quench, key=lambda n: inside.quench[n][2])
    ]
    assert len(middle.get_legend().get_texts()) == len(inside.log_vmr)
    assert left.get_ylim()[0] > left.get_ylim()[1]
    assert "light comes from" in [text.get_text() for text in left.get_legend().get_texts()]
    whole = plots.contribution(inside.wavelength, inside.pressure, inside.light[:-1], inside.probed)
    assert len(whole.axes) == 2


def test_the_representative_draw_is_one_of_the_draws():
    draws = np.random.default_rng(0).standard_normal((200, 5))
    chosen = representative(draws)
    assert (draws == chosen).all(axis=1).any()
    assert np.abs(chosen).max() < 1.5


def test_networks_are_an_axis_and_no_chains(networks, tmp_path):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # arviz announces its next version once a day
        import arviz as az

    posterior, control = posteriors(networks)
    settings = RetrievalSettings(draws=300, predicted=100, amortized=True)
    found = retrieve_spectrum(observed()[1], posterior, control=control, model=MODEL, distance=10.0, settings=settings)
    from dataclasses import replace

    found = replace(found, derived=derive(found, None))
    found.save(tmp_path / "one")
    data = az.from_netcdf(tmp_path / "one" / "posterior.nc")
    assert dict(data.posterior.sizes) == {"chain": 1, "draw": 300}
    assert dict(data.networks.sizes) == {"network": 2, "sample": 150}
    assert data.control["C_O"].dims == ("network", "sample")
    np.testing.assert_allclose(data.networks["C_O"].values.ravel(), data.posterior["C_O"].values.ravel())
    assert data.posterior["mass"].attrs["units"] == "M_Jup"
    assert "lower limit" in data.posterior["T_window"].attrs["derived"]
    summary = json.loads((tmp_path / "one" / "summary.json").read_text())
    mass = summary["derived"]["mass"]
    assert mass["q16"] < mass["q50"] < mass["q84"]
    assert mass["q50"] == pytest.approx(float(np.median(data.posterior["mass"])), rel=0.02)
    assert "mass," in (tmp_path / "one" / "summary.csv").read_text()
    page = (tmp_path / "one" / "report.html").read_text()
    assert "mass (M_Jup)" in page
    assert "is taken to leave in the window" in page.replace("\n", " ")
