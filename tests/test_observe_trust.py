"""Every line of the trust card has three arms: what is right passes, what is off warns or fails."""

import json

import numpy as np
import pytest

from kappaflow.errors import UserError
from kappaflow.parameters import INDEX, bounds
from kappaflow.retrieval.predictive import posterior_predictive, predictive_check, structure_check
from kappaflow.retrieval.replicates import Replicates, intraclass
from kappaflow.retrieval.trust import (
    Check,
    coverage_check,
    edge_check,
    familiarity_check,
    line_list_share,
    seed_check,
    snr_check,
    worst,
)
from kappaflow.spectra import Box

RNG = np.random.default_rng


@pytest.mark.parametrize(
    ("snr", "verdict"),
    [
        (10, "pass"),
        (60, "pass"),
        (200, "pass"),
        (9, "warn"),
        (230, "warn"),
        (5, "fail"),
        (400, "fail"),
        (np.nan, "fail"),
    ],
)
def test_snr_inside_near_and_outside_the_trained_range(snr, verdict):
    check = snr_check(snr)
    assert check.verdict == verdict
    if verdict != "pass":
        assert ("above" if snr > 100 else "below") in check.sentence


@pytest.mark.parametrize(("good", "verdict"), [(90, "pass"), (40, "pass"), (34, "warn"), (10, "fail"), (0, "fail")])
def test_covered_fraction_much_some_little(good, verdict):
    check = coverage_check(np.arange(100) < good)
    assert (check.value, check.verdict) == (good / 100, verdict)


@pytest.mark.parametrize(("p", "verdict"), [([0.4, 0.06, 0.01], "pass"), ([0.02], "warn"), ([0.001, 0.3, 0.0], "fail")])
def test_the_embedding_distance_is_graded_by_the_networks_median(p, verdict):
    check = familiarity_check(p)
    assert (check.value, check.verdict) == (np.median(p), verdict)


def test_seeds_agree_differ_disagree_or_are_alone():
    rng = RNG(1)

    def members(*centres):
        return [rng.normal(c, 0.1, 4000) for c in centres]

    assert seed_check(members(0.5, 0.5, 0.5)).verdict == "pass"
    assert "agree" not in seed_check(members(0.45, 0.54)).sentence  # medians a half-width apart are no agreement
    assert seed_check(members(0.5, 0.63, 0.5)).verdict == "warn"
    assert seed_check(members(0.4, 0.9, 0.5)).verdict == "fail"
    alone = seed_check(members(0.5))
    assert alone.verdict == "warn"
    assert "One network" in alone.sentence
    assert alone.as_dict()["value"] is None


def draws(n=5000, **shapes):
    low, high = bounds()
    unit = RNG(2).random((n, len(low)))
    for name, (a, b) in shapes.items():
        unit[:, INDEX[name]] = RNG(3).beta(a, b, n)
    return low + unit * (high - low)


def test_the_prior_itself_and_a_narrow_posterior_inside_do_not_pile_up():
    assert edge_check(draws(), Box()).verdict == "pass"
    assert edge_check(draws(C_O=(40, 60), M_H=(5, 5)), Box()).verdict == "pass"


@pytest.mark.parametrize(
    ("shape", "verdict"),
    [({"C_O": (1, 30)}, "fail"), ({"C_O": (60, 1)}, "fail"), ({"C_O": (1, 4)}, "warn"), ({"v_sin_i": (1, 30)}, "warn")],
)
def test_a_pile_up_of_c_to_o_fails_and_of_another_parameter_warns(shape, verdict):
    check = edge_check(draws(**shape), Box())
    assert check.verdict == verdict
    assert next(iter(shape)) in check.sentence


def test_the_share_of_line_lists_is_right_and_its_interval_holds_the_truth():
    """Variances 1 and 1 + 3: three quarters of the variance is line lists, and the bar is twice as wide."""
    rng = RNG(4)
    held = 0
    for _ in range(30):
        check = line_list_share(rng.normal(0, 1, 1000), rng.normal(0, 2, 1000), rng, n=200)
        held += check.interval[0] < 0.75 < check.interval[1]
        assert check.verdict == "pass"
        assert check.value == pytest.approx(0.75, abs=0.09)
    assert 24 <= held <= 30
    assert "times the control's" in check.sentence


def test_no_difference_is_no_share_and_a_wider_control_is_suspicious():
    rng = RNG(5)
    none = line_list_share(rng.normal(0, 1, 4000), rng.normal(0, 1, 4000), rng)
    assert none.verdict == "pass"
    assert none.interval[0] < 0 < none.interval[1]
    assert line_list_share(rng.normal(0, 2, 4000), rng.normal(0, 1, 4000), rng).verdict == "warn"
    assert line_list_share(rng.normal(0, 0.1, 4000), rng.normal(9, 1, 4000), rng).verdict == "fail"


def test_what_seeds_disagree_by_is_not_counted_as_line_lists():
    rng = RNG(6)
    apart = rng.normal(0, 2, (3, 2000)) + [[-3], [0], [3]]
    check = line_list_share(rng.normal(0, 1, 6000), apart, rng)
    assert check.value == pytest.approx(0.75, abs=0.05)
    assert check.interval[0] < check.value < check.interval[1]


P = 400
WAVE = np.linspace(0, 1, P)
MODES = np.array([np.cos(np.pi * k * WAVE) for k in range(1, 6)])
NOISE = np.full(P, 0.05)


def predicted(rng, n=300, opacity=0.2, statistical=0.01):
    base = 1 + 0.5 * np.sin(12 * WAVE)
    return base * np.exp(rng.normal(0, opacity, (n, 5)) @ MODES) + rng.normal(0, statistical, (n, 1))


def observed(rng, opacity=0.2, noise=1.0, statistical=0.01):
    return predicted(rng, 1, opacity, statistical)[0] + noise * NOISE * rng.normal(size=P)


def test_the_posterior_predictive_p_value_is_uniform_when_the_model_is_right():
    rng = RNG(6)
    mask = np.arange(P) % 7 > 0
    p = [posterior_predictive(observed(rng), NOISE, mask, predicted(rng), rng).p_value for _ in range(120)]
    assert np.abs(np.sort(p) - (np.arange(120) + 0.5) / 120).max() < 1.63 / np.sqrt(120)  # Kolmogorov-Smirnov, 1 %


def test_a_misfit_that_no_opacity_explains_fails_and_one_that_they_explain_passes():
    rng = RNG(7)
    mask = np.ones(P, bool)
    spike = observed(rng) + 0.5 * (np.abs(WAVE - 0.6) < 0.02)  # an absorber that the model leaves out
    assert predictive_check(posterior_predictive(spike, NOISE, mask, predicted(rng), rng)).verdict == "fail"
    shifted = observed(rng, opacity=0.3)
    envelope = posterior_predictive(shifted, NOISE, mask, predicted(rng, opacity=0.3), rng)
    fixed = posterior_predictive(shifted, NOISE, mask, predicted(rng, opacity=0.0), rng)
    check = predictive_check(envelope, fixed)
    assert check.verdict == "pass"
    assert fixed.p_value < 0.01
    assert "with fixed opacities it would not" in check.sentence


def placed(flux, rng, error=NOISE):
    wave = 3.0 + 2 * WAVE
    return posterior_predictive(flux, error, np.ones(P, bool), predicted(rng), rng, wavelength=wave)


def test_a_local_misfit_is_placed_and_the_remedy_is_to_mask_it():
    rng = RNG(13)
    found = placed(observed(rng) + 0.6 * (np.abs(WAVE - 0.65) < 0.02), rng)  # at 4.3 um
    check = predictive_check(found)
    assert check.verdict == "fail"
    assert found.misfit.band == (4.2, 4.4)
    assert "--mask 4.2:4.4" in check.sentence
    assert "outside" not in check.sentence  # single pixels may all lie in a broad band: no contradiction


def test_a_misfit_everywhere_asks_for_larger_errors_and_says_how_large():
    """White structure of 10 % of the flux, untold: f comes out near 0.1, whatever the smooth modes take."""
    rng = RNG(14)
    flux = observed(rng, noise=0.2)
    found = placed(flux * (1 + 0.1 * rng.standard_normal(P)), rng, error=0.2 * NOISE)
    check = predictive_check(found)
    assert check.verdict == "fail"
    assert found.misfit.share < 0.4
    assert found.misfit.f == pytest.approx(0.1, rel=0.25)
    assert "spread over the spectrum" in check.sentence
    assert "more than your errors of 1" in check.sentence
    assert structure_check(found).verdict == "warn"
    assert f"fits to {100 * found.misfit.f:.2g} %" in structure_check(found).sentence


def test_structure_that_the_posterior_knows_is_no_misfit_and_is_graded():
    """The same white structure of 10 %, with draws that have it: the shape passes, and f stands on the card."""
    rng = RNG(16)
    flux, error = observed(rng, noise=0.2) * (1 + 0.1 * rng.standard_normal(P)), 0.2 * NOISE
    f = np.exp(rng.normal(np.log(0.1), 0.2, 300))
    found = posterior_predictive(flux, error, np.ones(P, bool), Replicates(predicted(rng), f), rng)
    assert predictive_check(found).verdict == "pass"
    assert structure_check(found).value == pytest.approx(0.1, rel=0.25)
    assert structure_check(found).verdict == "warn"
    wave = flux * (1 + 0.2 * np.sin(60 * WAVE))  # f is known, and no excuse for a wave
    assert posterior_predictive(wave, error, np.ones(P, bool), Replicates(predicted(rng), f), rng).p_value < 0.01


def test_p_values_with_structure_unknown_are_uniform():
    rng = RNG(17)
    found = []
    for _ in range(60):
        f = 10 ** rng.uniform(-2.5, -1, 201)
        flux = predicted(rng, 201)
        sigma = np.hypot(NOISE, f[0] * flux[0])
        data = flux[0] + sigma * rng.standard_normal(P)
        found.append(posterior_predictive(data, NOISE, np.ones(P, bool), Replicates(flux[1:], f[1:]), rng).p_value)
    assert np.abs(np.sort(found) - (np.arange(60) + 0.5) / 60).max() < 1.63 / np.sqrt(60)


def test_the_p_value_states_its_error_and_where_it_is_only_a_bound():
    flux, seeds = observed(RNG(18)) + 0.1 * np.sin(30 * WAVE), range(8)
    cloud = predicted(RNG(19), 400)
    found = [posterior_predictive(flux, NOISE, np.ones(P, bool), cloud, RNG(seed)) for seed in seeds]
    p = [one.p_value for one in found]
    assert 0.0 < np.mean(p) < 0.5
    assert np.std(p) < 2 * found[0].p_error  # what another seed changes is within it
    assert "±" in found[0].p_words
    wrong = posterior_predictive(5 * flux, NOISE, np.ones(P, bool), cloud, RNG(0))
    assert wrong.at_most
    assert 1 / 2001 <= wrong.p_value <= 1 / 400
    assert "at most" in predictive_check(wrong).sentence


def test_replicates_of_one_spectrum_count_for_fewer():
    rng = RNG(20)
    alike = rng.normal(size=(1, 500)) + 0.1 * rng.normal(size=(5, 500))
    assert intraclass(alike) == pytest.approx(0.99, abs=0.01)
    assert intraclass(rng.normal(size=(5, 500))) < 0.1


def test_without_a_misfit_nothing_is_placed():
    rng = RNG(15)
    found = placed(observed(rng), rng)
    assert found.misfit.f < 0.02
    assert predictive_check(found).verdict == "pass"
    assert structure_check(found).verdict == "pass"
    assert "fits to your errors" in structure_check(found).sentence


def test_a_band_wider_than_the_spectrum_is_no_pass():
    rng = RNG(12)
    broad = posterior_predictive(observed(rng), NOISE, np.ones(P, bool), predicted(rng, opacity=1.5), rng)
    check = predictive_check(broad)
    assert broad.p_value > 0.05
    assert check.verdict == "warn"
    assert "agreement means little" in check.sentence


def test_errors_quoted_too_small_are_caught():
    rng = RNG(8)
    result = posterior_predictive(observed(rng, noise=2.0), NOISE, np.ones(P, bool), predicted(rng), rng)
    assert result.p_value < 0.01
    assert result.chi2 > 2


def test_the_band_holds_nine_tenths_of_the_pixels_and_masked_ones_have_none():
    rng = RNG(9)
    mask = WAVE < 0.8
    shares = [posterior_predictive(observed(rng), NOISE, mask, predicted(rng), rng).outside for _ in range(30)]
    assert np.mean(shares) == pytest.approx(0.10, abs=0.04)
    result = posterior_predictive(observed(rng), NOISE, mask, predicted(rng), rng)
    assert np.isnan(result.low[~mask]).all()
    assert (result.high[mask] > result.low[mask]).all()


def test_too_few_spectra_or_pixels_are_refused():
    rng = RNG(10)
    with pytest.raises(UserError, match="at least 40"):
        posterior_predictive(observed(rng), NOISE, np.ones(P, bool), predicted(rng, 10), rng)
    with pytest.raises(UserError, match="at least 10"):
        posterior_predictive(observed(rng), NOISE, WAVE < 0.01, predicted(rng), rng)


def test_the_worst_verdict_is_the_cards_and_the_card_is_plain_data():
    checks = [Check("a", 1.0, "pass", "A."), Check("b", float("nan"), "warn", "B.", (0.0, 1.0))]
    assert worst(checks) == "warn"
    assert worst([*checks, Check("c", 0.0, "fail", "C.")]) == "fail"
    assert json.loads(json.dumps([c.as_dict() for c in checks]))[1]["value"] is None


def test_every_warning_and_failure_says_what_to_do():
    rng = RNG(16)
    apart = [rng.normal(c, 0.1, 500) for c in (0.3, 0.9)]
    told = [
        (snr_check(5), "add exposures"),
        (snr_check(9), "add exposures"),
        (snr_check(900), "errors' unit"),
        (coverage_check(np.arange(10) < 3), "--merge"),
        (coverage_check(np.arange(10) < 1), "--merge"),
        (familiarity_check([0.02]), "residuals"),
        (familiarity_check([0.001]), "kappaflow fit"),
        (seed_check(apart), "--model"),
        (edge_check(draws(C_O=(1, 30)), Box()), "quote a limit"),
        (edge_check(draws(v_sin_i=(1, 30)), Box()), "quote limits"),
        (line_list_share(rng.normal(0, 0.1, 500), rng.normal(9, 1, 500), rng), "quote neither"),
    ]
    for check, action in told:
        assert check.verdict != "pass"
        assert action in check.sentence, check.sentence


def test_every_sentence_is_one_sentence():
    rng = RNG(11)
    checks = [
        snr_check(5),
        coverage_check(np.ones(4)),
        edge_check(draws(C_O=(1, 30)), Box()),
        seed_check([rng.normal(size=50)] * 2),
        line_list_share(rng.normal(size=500), rng.normal(size=500), rng),
    ]
    for check in checks:
        assert check.sentence.endswith(".")
        assert "\n" not in check.sentence
        assert len(check.sentence) < 200
