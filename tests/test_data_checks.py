"""Clipped flux is noticed and honest flux is not accused; how much was learned is said."""

import numpy as np
import pytest
from x1d_files import NRS1, NRS2

from kappaflow.observe import Spectrum
from kappaflow.parameters import bounds
from kappaflow.retrieval.data_checks import brightness_check, faint_check, learned_check
from kappaflow.spectra import Box

WAVE = np.concatenate([NRS1, NRS2])


def faint(seed=0, snr=1.0, error=1.0):
    """A spectrum whose first detector has SNR `snr` and true errors of one, stated as `error`."""
    rng = np.random.default_rng(seed)
    level = np.where(WAVE < 3.7, snr, 50.0)
    return level + rng.standard_normal(WAVE.size), np.full(WAVE.size, float(error))


def check(flux, error, keep=None):
    keep = np.ones(WAVE.size, bool) if keep is None else keep
    return faint_check(Spectrum(WAVE[keep], flux[keep], error[keep], np.ones(keep.sum(), bool)))


@pytest.mark.parametrize("snr", [0.0, 0.3, 1.0, 2.0])
def test_flux_clipped_at_zero_is_noticed_at_any_faintness(snr):
    flux, error = faint(snr=snr)
    clipped = check(np.maximum(flux, 0), error)
    assert clipped.verdict == "warn"
    assert "unclipped" in clipped.sentence


def test_rows_left_out_for_being_negative_are_noticed():
    flux, error = faint()
    assert check(flux, error, keep=flux > 0).verdict == "warn"


@pytest.mark.parametrize("error", [0.5, 1.0, 3.0])
def test_honest_noise_is_never_accused_even_with_wrong_errors(error):
    for seed in range(20):
        found = check(*faint(seed, snr=[0.0, 0.5, 1.0, 2.0][seed % 4], error=error))
        assert found.verdict == "pass"


def test_a_bright_spectrum_has_nothing_to_clip():
    assert "faint enough" in check(*faint(snr=80.0)).sentence


def test_how_much_was_learned_is_the_width_over_the_priors():
    box, rng = Box(), np.random.default_rng(1)
    low, high = bounds()
    prior = low + (high - low) * rng.random((20_000, len(low)))
    nothing = learned_check(prior, box)
    assert (nothing.verdict, round(nothing.value, 1)) == ("warn", 1.0)
    assert "limit" in nothing.sentence
    assert "0 of 15" in nothing.sentence
    narrow = prior.copy()
    narrow[:, box.names.index("C_O")] = 0.5 + 0.3 * rng.random(20_000)
    much = learned_check(narrow, box)
    assert much.verdict == "pass"
    assert much.value == pytest.approx(0.3 / 1.4, rel=0.02)
    assert "1 of 15" in much.sentence


@pytest.mark.parametrize(
    ("factor", "verdict", "said"),
    [
        (1, "pass", "as bright"),
        (1e3, "fail", "brighter than all"),
        (1e-3, "warn", "fainter"),
        (1e-7, "fail", "fainter"),
    ],
)
def test_a_flux_that_no_simulation_has_is_told_as_a_wrong_unit_or_distance(factor, verdict, said):
    """A T dwarf, median 0.5 mJy at 10 pc, against the packaged training set's scale; Jy read as mJy is a thousand."""
    flux = np.full(WAVE.size, 0.5 * factor)
    spectrum = Spectrum(WAVE, flux, 0.02 * flux, np.ones(WAVE.size, bool), {"scale_known": True})
    found = brightness_check(spectrum, 1.78, 1.93)
    assert found.verdict == verdict
    assert said in found.sentence
    assert ("flux unit" in found.sentence) == (verdict != "pass")
    assert brightness_check(spectrum.noted(scale_known=False), 1.78, 1.93) is None
