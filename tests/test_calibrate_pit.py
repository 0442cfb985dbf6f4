"""PIT and simulation-based calibration: uniform when exact, shaped as theory says when not, and sbi's ranks."""

import numpy as np
import pytest
from calibration_toy import ARMS, gaussian
from scipy.stats import kstest

from kappaflow.calibrate import check_draws, pit_report, randomized_pit, summarize


def report(truth, draws, **options):
    return pit_report(summarize(check_draws(truth, draws), [0.5]), **options)


@pytest.mark.parametrize("arm", ARMS)
def test_the_pit_is_uniform_for_the_exact_arm_only(arm):
    stretch, shift = ARMS[arm]
    truth, draws, *_ = gaussian(2000, 199, 2, stretch=stretch, shift=shift, seed=1)
    pit = report(truth, draws)
    if arm == "exact":
        assert pit.chi2_p_value.min() > 1e-3
        assert pit.ks_p_bonferroni.min() > 1e-3
        return
    assert pit.chi2_p_value.max() < 1e-6
    assert pit.ks_p_bonferroni.max() < 1e-6
    ends = pit.histogram[:, [0, -1]].sum(axis=1) / (2 * 2000 / 20)
    if arm == "too narrow":
        assert np.all(ends > 1.5)  # U-shaped
    if arm == "too wide":
        assert np.all(ends < 0.6)  # humped
    if arm == "displaced":
        assert np.all(pit.rank_mean < 0.5 - 5 * pit.rank_mean_error)  # the posterior sits above its truths


def test_chi2_is_fair_when_its_bins_do_not_divide_the_ranks():
    """With 29 draws the 30 ranks fall unevenly into 20 bins; the place at random in the cell repairs it."""
    truth, draws, *_ = gaussian(4000, 29, 4, seed=2)
    assert report(truth, draws).chi2_p_value.min() > 1e-3
    plain = (draws < truth[:, None]).sum(axis=1)[:, 0] / 29
    lumpy = np.histogram(plain, bins=20, range=(0, 1))[0]
    assert ((lumpy - 200) ** 2 / 200).sum() > 300  # what the ranks themselves would have said


def test_p_values_of_exact_posteriors_are_uniform_over_repetitions():
    chi2, ks = [], []
    for seed in range(150):
        truth, draws, *_ = gaussian(200, 39, 2, seed=seed)
        pit = report(truth, draws, seed=seed)
        chi2.append(pit.chi2_p_value[0])
        ks.append(pit.ks_p_value[1])
    assert kstest(chi2, "uniform").pvalue > 1e-3
    assert kstest(ks, "uniform").pvalue > 1e-3


def test_the_pooled_p_value_knows_that_parameters_are_correlated():
    """Six copies of a parameter multiply the pooled chi2 by six; the p-value must stay what one copy's is."""
    rejected, inflated = 0, 0
    for seed in range(100):
        truth, draws, *_ = gaussian(400, 39, 1, seed=seed)
        pit = pit_report(summarize(check_draws(np.repeat(truth, 6, 1), np.repeat(draws, 6, 2)), [0.5]), seed=seed)
        rejected += pit.pooled["p_value"] < 0.05
        inflated += pit.pooled["chi2"] > 30.1  # the 5 % point of chi2 with 19 degrees of freedom
    assert rejected <= 12  # 5 expected
    assert inflated > 50


@pytest.mark.parametrize("arm", ["too wide", "too narrow", "displaced"])
def test_the_pooled_p_value_rejects_the_spoiled_arms(arm):
    stretch, shift = ARMS[arm]
    truth, draws, *_ = gaussian(600, 99, 3, stretch=stretch, shift=shift)
    assert report(truth, draws).pooled["p_value"] < 1e-6


def test_the_pit_of_a_discrete_posterior_is_uniform():
    rng = np.random.default_rng(3)
    pit = report(rng.integers(0, 4, (2000, 1)), rng.integers(0, 4, (2000, 49, 1)))
    assert pit.ks_p_value[0] > 1e-3
    assert pit.tied[0] == pytest.approx(0.25, abs=0.02)


def test_few_objects_have_no_chi2_p_value_and_one_has_no_error_of_its_mean():
    truth, draws, *_ = gaussian(1, 99, 2)
    pit = report(truth, draws).to_dict()
    assert pit["chi2_p_value"] == [None, None]
    assert pit["rank_mean_error"] == [None, None]
    assert pit["pooled"]["p_value"] is None
    assert 0 <= pit["ks_p_value"][0] <= 1


def test_the_same_seed_gives_the_same_pit_and_another_another():
    truth, draws, *_ = gaussian(50, 39)
    summary = summarize(check_draws(truth, draws), [0.5])
    same = [randomized_pit(summary.below, summary.ties, 39, seed=k) for k in (1, 1, 2)]
    np.testing.assert_array_equal(same[0], same[1])
    assert not np.array_equal(same[0], same[2])
