"""The best fit: exact derivatives, simulated spectra that come back, the files it leaves."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_tables import chemistry_table, opacity_table
from typer.testing import CliRunner

import kappaflow as kf
from kappaflow.cli import app
from kappaflow.cli.fit_command import parsed_lists
from kappaflow.errors import UserError
from kappaflow.model import ForwardModel
from kappaflow.model.prepare import prepare, prepare_cia
from kappaflow.observe.spectrum import Spectrum
from kappaflow.parameters import COEFFICIENTS, INDEX, SPECIES
from kappaflow.physics.emission import spectra
from kappaflow.physics.sensitivity import sensitivities
from kappaflow.presets import preset
from kappaflow.refinement import FitSettings
from kappaflow.refinement.residuals import band_residuals, smooth_and_fine
from kappaflow.report.fit_files import write_fit
from kappaflow.simulation.noise import gain
from kappaflow.simulation.opacity_draws import coefficient_sigma, sigma_table
from kappaflow.tables.cia import load_cia

THETA = np.array([350.0, 550.0, 950.0, 1500.0, 2400.0, 0.55, 0.1, 7.0, 4.7, 1.1, 3.0, 2.0, 12.0, 8.0, 0.02])
SIZES = preset("tiny").model_copy(update={"stride": 1})


@pytest.fixture(scope="module")
def model():
    chemistry = chemistry_table(SIZES.layers)
    return ForwardModel.of(prepare(opacity_table(), chemistry, prepare_cia(load_cia()), SIZES, (1.0, 0.0)))


def observed(model, seed, snr=60.0, theta=THETA):
    """Return a spectrum with field, gains and noise drawn from `seed`, at 10 pc, and its coefficients."""
    rng = np.random.default_rng(seed)
    field = rng.standard_normal(len(SPECIES) * COEFFICIENTS) * coefficient_sigma(sigma_table()).ravel()
    clean = model(theta, field) * gain(theta[None], rng.standard_normal((1, 2)), model.wavelength)[0]
    error = np.full(clean.size, np.median(clean) / snr)
    noisy = clean + error * rng.standard_normal(clean.size)
    return Spectrum(model.wavelength, noisy, error, np.ones(clean.size, bool)), field


@pytest.fixture(scope="module")
def best(model):
    spectrum, _ = observed(model, 0)
    settings = FitSettings(starts=4, screened=32)
    return kf.fit(spectrum, distance=10.0, lists={}, model=model, posterior=None, settings=settings)


def test_all_derivatives_are_those_of_forward_mode_and_of_differences(model):
    field = jnp.asarray(0.1 * np.random.default_rng(0).standard_normal((len(SPECIES), COEFFICIENTS)), jnp.float32)
    theta, lists = jnp.asarray(THETA, jnp.float32), jnp.array([1, 0, 1, 0, 0, 0])
    made = jax.jit(sensitivities)(theta[None], field[None], lists, model.tables)
    found = jax.tree.map(lambda a: a[0], made)

    def one(t, c):
        return spectra(t[None], c[None], lists, model.tables)[0]

    of_theta, of_field = jax.jit(jax.jacfwd(one, argnums=(0, 1)))(theta, field)
    np.testing.assert_allclose(found.flux, jax.jit(one)(theta, field), rtol=1e-5)
    for row, expected in zip(found.theta, of_theta.T, strict=True):
        np.testing.assert_allclose(row, expected, atol=2e-4 * float(jnp.abs(expected).max()))
    np.testing.assert_allclose(found.field, jnp.moveaxis(of_field, 0, -1), atol=1e-4 * float(jnp.abs(of_field).max()))
    for name, step in (("T3", 15.0), ("C_O", 0.02), ("log_g", 0.05), ("R", 0.02), ("v_r", 5.0)):
        shift = np.zeros(THETA.size)
        shift[INDEX[name]] = step
        ends = model(np.stack([THETA + shift, THETA - shift]), np.asarray(field), [1, 0, 1, 0, 0, 0])
        difference = (ends[0].astype(float) - ends[1]) / (2 * step)
        np.testing.assert_allclose(found.theta[INDEX[name]], difference, atol=0.02 * np.abs(difference).max())


def test_a_simulated_spectrum_comes_back_to_its_noise(best, model):
    """With k of 200 pixels taken by the fit chi2/n is between 1 - 70/n and 1, give or take its scatter."""
    n = best.n
    assert 1 - 70 / n - 4 * np.sqrt(2 / n) < best.chi2 / n < 1 + 4 * np.sqrt(2 / n)
    assert best.f < 0.01
    assert best.mode.climb.converged
    assert best.flux.shape == best.spectrum.wavelength.shape
    assert abs(best.theta[INDEX["T4"]] - 1500) < 5 * best.errors[INDEX["T4"]] + 1


def test_errors_without_the_field_are_smaller_and_never_beyond_the_prior(best, model):
    spectrum, _ = observed(model, 0)
    settings = FitSettings(field=False, starts=4, screened=32)
    fixed = kf.fit(spectrum, distance=10.0, lists={}, model=model, posterior=None, settings=settings)
    assert not fixed.field.any()
    assert fixed.chi2 > best.chi2
    i = INDEX["log_g"]
    assert fixed.errors[i] / max(fixed.f, 0.005) < best.errors[i] / 0.005
    widths = np.array([p.width for p in kf.PARAMETERS])
    assert (best.errors < 0.41 * widths).all()  # width x normal density at 0


def test_without_a_distance_the_scale_is_free_and_the_radius_is_at_its_prior(model):
    spectrum, _ = observed(model, 0)
    faint = Spectrum(spectrum.wavelength, spectrum.flux / 7, spectrum.error / 7, spectrum.mask)
    settings = FitSettings(starts=4, screened=32)
    found = kf.fit(faint, lists={}, model=model, posterior=None, settings=settings)
    r = kf.PARAMETERS[INDEX["R"]]
    assert found.theta[INDEX["R"]] == pytest.approx((r.low + r.high) / 2, abs=0.01)
    assert found.errors[INDEX["R"]] > 0.25 * r.width
    assert found.chi2 / found.n < 1 + 4 * np.sqrt(2 / found.n)
    radius = found.theta[INDEX["R"]] * np.sqrt(7 * found.scale)  # what the scale would be as a radius
    assert radius == pytest.approx(1.1, rel=0.5)


def test_structure_that_no_model_has_is_found_as_f(model):
    spectrum, _ = observed(model, 3, snr=150)
    rough = spectrum.flux * (1 + 0.05 * np.random.default_rng(5).standard_normal(len(spectrum)))
    settings = FitSettings(starts=4, screened=32)
    found = kf.fit(
        Spectrum(spectrum.wavelength, rough, spectrum.error, spectrum.mask),
        distance=10.0,
        lists={},
        model=model,
        posterior=None,
        settings=settings,
    )
    assert 0.03 < found.f < 0.06  # a fit of many coefficients takes part of it
    assert found.chi2 / found.n > 3
    assert 0.8 < found.reduced_chi2 < 1.2


def test_the_line_lists_that_made_a_spectrum_have_the_highest_evidence(model):
    theta = THETA
    rng = np.random.default_rng(8)
    clean = model(theta, None, {"CH4": "alternative"})
    error = np.full(clean.size, np.median(clean) / 100)
    noisy = clean + error * rng.standard_normal(clean.size)
    spectrum = Spectrum(model.wavelength, noisy, error, np.ones(clean.size, bool))
    found = kf.fit(spectrum, distance=10.0, model=model, posterior=None, settings=FitSettings(starts=4, screened=32))
    assert found.lists == {"H2O": "base", "CH4": "alternative"}
    assert len(found.modes) == 4
    assert found.weights[0] > 0.9
    assert found.weights.sum() == pytest.approx(1)


def test_a_fit_leaves_its_numbers_a_spectrum_that_can_be_read_back_and_a_figure(best, tmp_path):
    written = write_fit(best, tmp_path / "a", "a")
    read = json.loads((tmp_path / "a" / "fit.json").read_text())
    assert read == json.loads(json.dumps(written))
    assert read["chi2_over_n"] == pytest.approx(best.chi2 / best.n)
    assert read["parameters"]["C_O"]["laplace_error"] == pytest.approx(best.errors[INDEX["C_O"]])
    again = kf.read_spectrum(tmp_path / "a" / "fit.ecsv")
    good = best.spectrum.mask
    np.testing.assert_array_equal(again.mask, good)
    np.testing.assert_allclose(again.flux[good], best.spectrum.flux[good], rtol=1e-6)
    assert (tmp_path / "a" / "fit.png").stat().st_size > 20_000
    assert (tmp_path / "a" / "fit.pdf").exists()


def test_smooth_and_fine_parts_are_told_apart_and_white_noise_is_called_white():
    rng = np.random.default_rng(0)
    wavelength = np.linspace(2.87, 5.27, 1800)
    flux, error = np.full(1800, 10.0), np.full(1800, 0.2)
    wave = 0.5 * np.sin(wavelength * 2 * np.pi / 0.2)
    rows = band_residuals(wavelength, wave + error * rng.standard_normal(1800), error, np.ones(1800, bool), flux)
    for row in rows:
        assert row.smooth == pytest.approx(0.05 / np.sqrt(2), rel=0.35)
        assert row.fine == pytest.approx(row.fine_noise, rel=0.35)
        assert abs(row.lag_one) < 0.35
    correlated = np.convolve(rng.standard_normal(1802), np.ones(3) / np.sqrt(3), mode="valid") * 0.2
    rows = band_residuals(wavelength, correlated, error, np.ones(1800, bool), flux)
    assert np.median([row.lag_one for row in rows]) > 0.45
    smooth, fine = smooth_and_fine(wave, wavelength < 4.0)
    assert np.isnan(smooth[wavelength >= 4.0]).all()
    np.testing.assert_allclose((smooth + fine)[wavelength < 4.0], wave[wavelength < 4.0])


def test_lists_of_the_command_line_are_pairs():
    assert parsed_lists(["CH4=exomol,H2O=base"]) == {"CH4": "exomol", "H2O": "base"}
    assert parsed_lists(None) is None
    with pytest.raises(UserError, match="expected SPECIES=LIST, as CH4=exomol"):
        parsed_lists(["CH4"])
    result = CliRunner().invoke(app, ["fit", "--help"])
    assert result.exit_code == 0
    assert "best" in result.output
