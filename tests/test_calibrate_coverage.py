"""Coverage by rank: closed forms, few draws, ties, intervals that cover, and clear errors."""

import json

import numpy as np
import pytest
from calibration_toy import ARMS, boxed, covered_share, gaussian
from scipy.stats import binomtest

import kappaflow as kf
from kappaflow.calibrate import check_draws, highest_density_coverage, sample_quantiles, summarize, wilson
from kappaflow.calibrate.interval_coverage import binomial_p_value, inside_by_rank
from kappaflow.errors import UserError

LEVELS = (0.5, 0.68, 0.9, 0.95)


@pytest.mark.parametrize("arm", ARMS)
def test_coverage_of_a_gaussian_is_its_closed_form(arm):
    stretch, shift = ARMS[arm]
    n = 4000
    truth, draws, *_ = gaussian(n, 199, 2, stretch=stretch, shift=shift, seed=1)
    report = kf.coverage(truth, draws, LEVELS)
    expected = covered_share(LEVELS, stretch, shift)[:, None]
    error = np.sqrt(expected * (1 - expected) / n)
    assert np.all(np.abs(report.coverage - expected) < 4 * error)
    assert (report.p_value.min() * report.p_value.size < 1e-3) == (arm != "exact")


@pytest.mark.parametrize("count", [39, 50, 200, 333])
def test_coverage_by_rank_has_no_bias_at_any_number_of_draws(count):
    """Averaged over the ranks of an exact posterior, which are uniform on 0..s, the share inside is the level."""
    below, levels = np.arange(count + 1), np.array(LEVELS)
    inside = inside_by_rank(below, np.zeros_like(below), count, levels)
    np.testing.assert_allclose(inside.mean(axis=1), levels, rtol=1e-12)


def test_the_weibull_rule_covers_what_it_says_and_the_linear_rule_reads_low():
    """At 199 draws a = 0.05 lies on the 10th draw: exactly 0.9; linear interpolation covers 0.9 * 198/200."""
    ordered = np.arange(1.0, 200.0)  # the k-th of 199 draws, its own rank
    lower, upper = sample_quantiles(ordered, np.array([0.05, 0.95]))
    assert (lower, upper) == (10.0, 190.0)
    assert (upper - lower) / 200 == pytest.approx(0.9, abs=1e-12)
    linear = np.quantile(ordered, [0.05, 0.95])
    assert np.diff(linear)[0] / 200 == pytest.approx(0.9 * 198 / 200)
    np.testing.assert_allclose([lower, upper], np.quantile(ordered, [0.05, 0.95], method="weibull"))


def test_quantiles_agree_with_numpys_weibull_rule_and_stop_at_the_last_draw():
    ordered = np.sort(np.random.default_rng(0).normal(size=(7, 23)), axis=1)
    at = np.linspace(0.0, 1.0, 41)
    np.testing.assert_allclose(sample_quantiles(ordered, at), np.quantile(ordered, at, axis=1, method="weibull").T)


def test_coverage_does_not_change_under_a_monotone_change_of_parameter():
    truth, draws, *_ = gaussian(300, 99, 2, seed=2)
    np.testing.assert_array_equal(
        kf.coverage(truth, draws).coverage, kf.coverage(np.exp(truth), np.exp(draws)).coverage
    )


def test_single_precision_gives_the_same_coverage():
    truth, draws, *_ = gaussian(300, 99, 2, seed=3)
    single = kf.coverage(truth.astype(np.float32), draws.astype(np.float32))
    np.testing.assert_allclose(single.coverage, kf.coverage(truth, draws).coverage, atol=1e-12)


def test_the_draws_handed_in_are_left_as_they_were():
    truth, draws, *_ = gaussian(20, 99, 1, seed=4)
    before = draws.copy()
    kf.coverage(truth, draws)
    np.testing.assert_array_equal(draws, before)


def test_wilson_agrees_with_scipy():
    for hits, n in [(0, 1), (1, 1), (0, 20), (385, 450), (2048, 2048)]:
        exact = binomtest(hits, n).proportion_ci(method="wilson")
        np.testing.assert_allclose(wilson(hits, n), (exact.low, exact.high), atol=1e-12)


@pytest.mark.parametrize(("n", "level"), [(60, 0.9), (500, 0.5), (500, 0.95)])
def test_wilson_intervals_cover_as_they_say_over_1000_repetitions(n, level):
    hits = np.random.default_rng(5).binomial(n, level, size=1000)
    low, high = wilson(hits, n)
    assert 0.93 < np.mean((low <= level) & (level <= high)) < 0.975


def test_the_binomial_p_value_is_exact_for_one_object():
    np.testing.assert_allclose(binomial_p_value(np.array([0.0, 1.0]), 1, np.array(0.95)), [0.1, 1.0], atol=1e-12)


def test_the_overall_interval_knows_that_parameters_are_correlated():
    """Five copies of one parameter say no more than one: the interval is as wide as its own, not sqrt(5) narrower."""
    truth, draws, *_ = gaussian(800, 99, 1, seed=6)
    one = kf.coverage(truth, draws)
    five = kf.coverage(np.repeat(truth, 5, axis=1), np.repeat(draws, 5, axis=2))
    np.testing.assert_allclose(five.overall_interval, one.overall_interval, atol=1e-12)
    wilson_width = (one.wilson_high - one.wilson_low)[:, 0]
    np.testing.assert_allclose(np.diff(five.overall_interval, axis=0)[0], wilson_width, rtol=0.15)


def test_widths_over_the_prior_find_the_informative_parameters():
    """A parameter with noise ten times its prior keeps the prior: 90 % of it, and is not informative."""
    toy = boxed(600, 199, [0.05, 10.0], seed=7)
    report = kf.coverage(toy.truth, toy.draws, prior=(toy.low, toy.high), names=toy.names)
    at = list(report.levels).index(0.9)
    assert report.informative.tolist() == [True, False]
    assert report.width_over_prior[at, 1] == pytest.approx(0.9, abs=0.01)
    assert report.width_over_prior_own[at, 1] == pytest.approx(1.0, abs=0.01)
    assert report.width_over_prior[at, 0] == pytest.approx(2 * 1.6449 * 0.05, rel=0.03)
    np.testing.assert_allclose(report.informative_mean, report.coverage[:, 0])


def test_without_a_prior_what_needs_one_is_none():
    truth, draws, *_ = gaussian(50, 99, 2)
    report = kf.coverage(truth, draws).to_dict()
    assert report["width_over_prior"] is None
    assert report["informative_mean"] is None


def test_the_report_is_plain_data_and_prints():
    truth, draws, *_ = gaussian(50, 99, 2)
    report = kf.coverage(truth, draws, names=["C_O", "M_H"])
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["names"] == ["C_O", "M_H"]
    assert "C_O" in str(report)


@pytest.mark.parametrize("arm", ["exact", "too wide", "too narrow"])
def test_highest_density_coverage_tells_the_arms_apart(arm):
    stretch, _ = ARMS[arm]
    truth, draws, centre, deviation = gaussian(2000, 199, 3, stretch=stretch, seed=8)
    log_prob = -0.5 * (((truth - centre) / deviation) ** 2).sum(axis=-1)
    log_prob_draws = -0.5 * (((draws - centre[:, None]) / deviation[:, None]) ** 2).sum(axis=-1)
    report = highest_density_coverage(log_prob, log_prob_draws, [0.5, 0.9])
    gap = np.array(report["coverage"]) - [0.5, 0.9]
    limit = 4 * np.sqrt(np.array([0.25, 0.09]) / 2000)
    assert {"exact": np.all(np.abs(gap) < limit), "too wide": np.all(gap > limit), "too narrow": np.all(gap < -limit)}[
        arm
    ]


def test_ties_of_a_discrete_posterior_leave_the_coverage_nominal():
    """Truth and draws uniform on {0, 1, 2}: closed intervals would always cover; shares of rank cells do not."""
    rng = np.random.default_rng(9)
    truth, draws = rng.integers(0, 3, (4000, 1)), rng.integers(0, 3, (4000, 99, 1))
    report = kf.coverage(truth, draws, [0.5, 0.9])
    np.testing.assert_allclose(report.coverage[:, 0], [0.5, 0.9], atol=0.02)


def test_a_constant_column_equal_to_its_truth_covers_nominally_with_no_width():
    truth, draws, *_ = gaussian(30, 99, 2)
    truth[:, 1], draws[..., 1] = 0.5, 0.5
    report = kf.coverage(truth, draws)
    np.testing.assert_allclose(report.coverage[:, 1], report.levels)
    assert np.all(report.width[:, 1] == 0.0)


def test_one_object_has_a_wilson_interval_and_no_bootstrap_interval():
    truth, draws, *_ = gaussian(1, 99, 2)
    report = kf.coverage(truth, draws).to_dict()
    assert report["wilson_low"][0][0] < report["wilson_high"][0][0]
    assert report["overall_interval"] == [[None] * 4] * 2


def spoiled(what):
    truth, draws, *_ = gaussian(10, 99, 2)
    if what == "nan":
        draws[3, 7, 1] = np.nan
    if what == "infinite truth":
        truth[4, 0] = np.inf
    if what == "transposed":
        draws = draws.transpose(1, 0, 2)
    if what == "objects":
        truth = truth[:-1]
    if what == "flat":
        truth = truth[:, 0]
    if what == "one draw":
        draws = draws[:, :1]
    if what == "text":
        draws = draws.astype(str)
        draws[0, 0, 0] = "x"
    return truth, draws


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("nan", "draws: 1 NaN or infinite values of theta1, the first in object 3"),
        ("infinite truth", "truth: 1 NaN or infinite values of theta0, the first in object 4"),
        ("transposed", r"draws: shape \(99, 10, 2\); expected"),
        ("objects", r"draws: shape \(10, 99, 2\); expected \(n, s, p\) = \(9, s, 2\)"),
        ("flat", r"truth: shape \(10,\); expected \(n, p\)"),
        ("one draw", "draws: 1 draws per object"),
        ("text", "draws: not an array of numbers"),
    ],
)
def test_bad_arrays_are_refused_with_one_clear_line(what, message):
    with pytest.raises(UserError, match=message):
        kf.coverage(*spoiled(what))


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([0.9, 1.0], "strictly between 0 and 1"),
        ([], "strictly between"),
        ([0.9, 0.9], "repeats"),
        ([0.999], "1999 or ask for a lower level"),
    ],
)
def test_levels_that_cannot_be_are_refused(levels, message):
    truth, draws, *_ = gaussian(5, 99)
    with pytest.raises(UserError, match=message):
        kf.coverage(truth, draws, levels)


def test_a_truth_outside_its_prior_is_refused_and_a_leaking_draw_is_counted():
    toy = boxed(50, 99, [0.1, 0.2])
    truth, draws = toy.truth.copy(), toy.draws.copy()
    draws[:, :10, 1] = 1.5
    np.testing.assert_allclose(check_draws(truth, draws, prior=(toy.low, toy.high)).outside_prior(), [0.0, 10 / 99])
    truth[7, 1] = 1.2
    with pytest.raises(UserError, match=r"theta1 = 1.2 is outside its prior \[0, 1\] \(1 of 50 objects\)"):
        check_draws(truth, draws, prior=(toy.low, toy.high))
    assert summarize(check_draws(truth, draws)).count == 99


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (([0, 0], [1, 0]), r"theta1 has bounds \[0, 0\]"),
        (([0], [1]), r"shape \(1,\)"),
        ("ab", "pair"),
        (3, "pair"),
    ],
)
def test_a_prior_that_is_none_is_refused(prior, message):
    truth, draws = np.zeros((3, 2)), np.zeros((3, 50, 2))
    with pytest.raises(UserError, match=message):
        check_draws(truth, draws, prior=prior)
