"""Corrections after the fact: they restore coverage on average, leave the calibrated alone, and stay frozen."""

import numpy as np
import pytest
from calibration_toy import ARMS, boxed, gaussian

from kappaflow.calibrate import (
    JudgeSettings,
    breakdown,
    check_draws,
    coverage,
    fit_conformal,
    fit_pit_map,
    judge,
    judge_intervals,
    pit_report,
    resamples,
    sample_quantiles,
    split_half,
    summarize,
)
from kappaflow.calibrate.interval_coverage import coverage_report, inside_by_interval, inside_by_rank
from kappaflow.errors import UserError

LEVELS = np.array([0.5, 0.68, 0.9, 0.95])


def halves(arm, n=4000, s=399, p=2, seed=1):
    stretch, shift = ARMS[arm]
    toy = check_draws(*gaussian(n, s, p, stretch=stretch, shift=shift, seed=seed)[:2])
    fit, test = split_half(n, seed=seed)
    return toy.objects(fit), toy.objects(test)


@pytest.mark.parametrize("arm", ARMS)
def test_the_pit_map_restores_coverage_on_objects_it_never_saw(arm):
    calibration, test = halves(arm)
    pit_map = fit_pit_map(calibration)
    moved = pit_map.apply(test)
    restored = coverage(moved.truth, moved.draws, LEVELS)
    within = ~pit_map.saturated(LEVELS, 399)
    gap = restored.coverage - LEVELS[:, None]
    assert within[:3].all()
    assert np.all(np.abs(gap[within]) < 0.035)
    assert np.all(gap[~within] < 0)  # ends that stay at the last draw cover less than they should
    assert (~within).any() == (arm == "too narrow")


def test_the_pit_map_leaves_a_calibrated_posterior_alone():
    calibration, test = halves("exact")
    moved = fit_pit_map(calibration).apply(test)
    spread = test.draws.std(axis=1, keepdims=True)
    assert np.median(np.abs(moved.draws - test.draws) / spread) < 0.05
    before, after = (summarize(d, LEVELS).width.mean(axis=(1, 2)) for d in (test, moved))
    np.testing.assert_allclose(after / before, 1.0, atol=0.06)


def test_recalibrated_quantiles_are_the_posteriors_own_at_the_inverse_of_r():
    """The level-p quantile becomes the sample quantile at R^-1(p), R the PIT's empirical CDF."""
    calibration, test = halves("too narrow", n=600, s=199, p=1)
    pit_map = fit_pit_map(calibration)
    probability = np.array([0.1, 0.25, 0.5, 0.9])  # whole ranks of 199 draws
    expected = sample_quantiles(np.sort(test.draws[..., 0], axis=1), pit_map.inverse(probability)[:, 0])
    found = sample_quantiles(np.sort(pit_map.apply(test).draws[..., 0], axis=1), probability)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    share = np.mean(pit_map.pit[:, 0] <= pit_map.inverse(np.array([0.3]))[0, 0])
    assert share == pytest.approx(0.3, abs=0.005)


def test_recalibrated_draws_keep_their_order_and_their_dependence():
    calibration, test = halves("too narrow", n=300, s=99)
    moved = fit_pit_map(calibration).apply(test)
    order = np.argsort(test.draws, axis=1)
    assert np.all(np.diff(np.take_along_axis(moved.draws, order, axis=1), axis=1) >= 0)


def test_a_map_that_asks_for_tails_beyond_the_draws_says_so():
    calibration, _ = halves("too narrow", s=39)
    sound, _ = halves("exact", s=399)
    assert fit_pit_map(calibration).saturated(np.array([0.9]), 39).all()
    assert not fit_pit_map(sound).saturated(np.array([0.9]), 399).any()


@pytest.mark.parametrize("arm", ARMS)
def test_conformal_intervals_cover_at_least_their_level_and_little_more(arm):
    calibration, test = halves(arm)
    fixed = fit_conformal(calibration, LEVELS).apply(summarize(test, LEVELS))
    share = inside_by_interval(fixed.truth, fixed.lower, fixed.upper).mean(axis=1)
    np.testing.assert_allclose(share, LEVELS[:, None] * np.ones(2), atol=0.035)
    assert np.all(fixed.upper >= fixed.lower)


def test_conformal_coverage_holds_on_average_over_repetitions_with_few_objects():
    """Its promise is for finite numbers: 30 calibration objects, a posterior half as wide as it should be."""
    share = []
    for seed in range(300):
        toy = check_draws(*gaussian(60, 39, 1, stretch=0.5, seed=seed)[:2])
        fixed = fit_conformal(toy.objects(np.arange(30)), [0.8]).apply(summarize(toy.objects(np.arange(30, 60)), [0.8]))
        share.append(inside_by_interval(fixed.truth, fixed.lower, fixed.upper).mean())
    assert 0.80 - 0.01 < np.mean(share) < 0.85


def test_conformal_intervals_stay_inside_the_prior():
    toy = boxed(800, 99, [0.3], stretch=0.3, seed=2)
    fixed = fit_conformal(toy.objects(np.arange(400)), [0.9]).apply(summarize(toy.objects(np.arange(400, 800)), [0.9]))
    assert fixed.lower.min() >= 0
    assert fixed.upper.max() <= 1


def test_a_frozen_marginal_map_cannot_repair_a_fault_that_differs_between_objects():
    """Half the posteriors are half as wide as they should be: their mean is repaired, neither half is."""
    n, s = 4000, 399
    rng = np.random.default_rng(3)
    stretch = np.repeat([0.5, 1.0], n // 2)
    toy = check_draws(rng.normal(size=(n, 1)), stretch[:, None, None] * rng.normal(size=(n, s, 1)))
    fit, test = split_half(n, seed=3)
    summary = summarize(fit_pit_map(toy.objects(fit)).apply(toy.objects(test)), [0.9])
    inside = inside_by_rank(summary.below, summary.ties, s, summary.levels)
    parts = breakdown(summary, inside, stretch[test], bins=2)
    assert inside.mean() == pytest.approx(0.9, abs=0.03)
    narrow, sound = np.array(parts["coverage"])[:, 0]
    assert narrow == pytest.approx(0.81, abs=0.04)
    assert sound == pytest.approx(0.99, abs=0.02)


def test_the_halves_are_disjoint_complete_and_addressed_by_the_seed():
    fit, test = split_half(101, seed=4, share=0.25)
    assert len(fit) == 25
    assert sorted([*fit, *test]) == list(range(101))
    np.testing.assert_array_equal(fit, split_half(101, seed=4, share=0.25)[0])
    assert not np.array_equal(fit, split_half(101, seed=5, share=0.25)[0])


def test_too_few_calibration_objects_are_refused():
    toy = check_draws(*gaussian(12, 99, 1)[:2])
    with pytest.raises(UserError, match="12 calibration objects cannot give level 0.95; expected at least 19"):
        fit_conformal(toy, [0.9, 0.95])
    with pytest.raises(UserError, match="at least 2"):
        fit_pit_map(toy.objects(np.arange(1)))
    with pytest.raises(UserError, match="leave a side empty"):
        split_half(1)


def test_a_map_is_refused_on_other_parameters():
    toy = check_draws(*gaussian(30, 99, 1)[:2], names=["a"])
    other = check_draws(*gaussian(30, 99, 1)[:2], names=["b"])
    with pytest.raises(UserError, match="fitted on a, not on b"):
        fit_pit_map(toy).apply(other)
    with pytest.raises(UserError, match="other parameters or levels"):
        fit_conformal(toy, [0.5]).apply(summarize(other, [0.5]))


def test_the_tests_allow_for_the_chance_of_the_objects_a_correction_was_fitted_on():
    """Exact posteriors, recalibrated on few objects: judged as if the map were known they fail far too often."""
    counts, levels = resamples(180, 10), np.array([0.5, 0.9])
    failed = {"map": 0, "margin": 0, "ignored": 0}
    for seed in range(100):
        toy = check_draws(*gaussian(240, 59, 1, seed=seed)[:2])
        fit, test = split_half(240, seed=seed, share=0.25)
        moved = summarize(fit_pit_map(toy.objects(fit)).apply(toy.objects(test)), levels)
        inside = inside_by_rank(moved.below, moved.ties, moved.count, levels)
        covered = coverage_report(moved, inside, counts, fitted_on=60)
        failed["map"] += min(2 * covered.p_value.min(), pit_report(moved, fitted_on=60).ks_p_value[0]) < 0.025
        failed["ignored"] += pit_report(moved).ks_p_value[0] < 0.025
        fixed = fit_conformal(toy.objects(fit), levels).apply(summarize(toy.objects(test), levels))
        inside = inside_by_interval(fixed.truth, fixed.lower, fixed.upper)
        failed["margin"] += 2 * coverage_report(fixed, inside, counts, fitted_on=60).p_value.min() < 0.05
    assert failed["map"] <= 12  # of 100; 5 promised
    assert failed["margin"] <= 12
    assert failed["ignored"] > 25


def test_a_verdict_on_recalibrated_draws_reports_tarp_and_does_not_test_it():
    calibration, test = halves("too narrow", n=120, s=59)
    moved = fit_pit_map(calibration).apply(test)
    verdict = judge(moved, JudgeSettings(bootstraps=100, references=2), fitted_on=60)
    assert [check["check"] for check in verdict.checks] == ["coverage", "PIT"]
    assert "all" in verdict.tarp
    fixed = fit_conformal(calibration).apply(summarize(test))
    assert [check["check"] for check in judge_intervals(fixed, fitted_on=60).checks] == ["coverage"]
