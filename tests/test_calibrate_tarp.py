"""TARP: a null that holds, arms told apart, no bias hidden by units, a bootstrap that varies."""

import numpy as np
import pytest
from calibration_toy import ARMS, boxed, gaussian
from scipy.stats import kstest

from kappaflow.calibrate import check_draws, pit_report, resamples, summarize, tarp
from kappaflow.errors import UserError


def judged(n=600, s=120, p=4, *, references="local", counts=200, **arm):
    truth, draws, *_ = gaussian(n, s, p, **arm)
    prior = (np.full(p, -8.0), np.full(p, 8.0))
    return tarp(check_draws(truth, draws, prior=prior), references=references, resampled=resamples(n, counts), count=20)


@pytest.mark.parametrize("arm", ARMS)
def test_local_references_tell_the_arms_apart_with_their_sign(arm):
    stretch, shift = ARMS[arm]
    report = judged(stretch=stretch, shift=shift, seed=1)
    if arm == "exact":
        assert report.p_value > 0.01
        assert report.deviation < 1.5 * report.null_deviation
        inside = (report.ecp >= report.null_band[0]) & (report.ecp <= report.null_band[1])
        assert inside.mean() > 0.8
        return
    assert report.p_value < 0.01
    assert report.deviation_interval[0] > report.null_deviation
    low, high = report.mean_deviation_interval
    assert (low > 0) if arm == "too wide" else (high < 0)


@pytest.mark.parametrize("arm", ["exact", "too wide", "too narrow"])
def test_prior_references_tell_the_arms_of_dispersion_apart(arm):
    report = judged(stretch=ARMS[arm][0], references="prior", seed=2)
    assert (report.p_value < 0.01) == (arm != "exact")


@pytest.mark.parametrize("references", ["local", "prior"])
def test_p_values_of_exact_posteriors_are_uniform_over_repetitions(references):
    """Even with few objects and draws, and references shared by all comparisons of an object."""
    values = []
    for seed in range(120):
        toy = boxed(30, 25, [0.1, 0.3, 2.0], seed=seed)
        counts = resamples(30, 99, seed=seed)
        values.append(tarp(toy, references=references, resampled=counts, count=10, seed=seed).p_value)
    assert kstest(values, "uniform").pvalue > 1e-3
    assert np.mean(np.array(values) < 0.05) < 0.125


def test_a_displaced_parameter_in_small_units_is_found_beside_one_in_large_units():
    """C/O beside a temperature: without standardization the distance is the temperature's alone."""
    truth, draws, *_ = gaussian(800, 99, 2, shift=[1.0, 0.0], seed=3)
    scale = np.array([0.1, 500.0])
    counts = resamples(800, 200)
    scaled = tarp(check_draws(truth * scale, draws * scale), resampled=counts, count=20)
    plain = tarp(check_draws(truth, draws), resampled=counts, count=20)
    assert scaled.p_value < 0.01
    assert scaled.deviation == pytest.approx(plain.deviation, abs=1e-9)


def test_a_shift_that_inflation_absorbs_hides_from_distances_and_not_from_the_pit():
    """t ~ N(0, 1) judged by N(1, sqrt 2): the distance of truth and draw is as that of two draws, nearly."""
    truth, draws, *_ = gaussian(800, 99, 1, stretch=np.sqrt(2), shift=1.0, seed=4)
    hidden = tarp(check_draws(truth, draws), resampled=resamples(800, 200), count=20)
    open_ = tarp(check_draws(*gaussian(800, 99, 1, shift=1.0, seed=4)[:2]), resampled=resamples(800, 200), count=20)
    assert hidden.deviation < 0.4 * open_.deviation
    assert pit_report(summarize(check_draws(truth, draws), [0.5])).ks_p_value[0] < 1e-6


def test_bootstrap_replicates_are_not_copies_of_one_another():
    counts = resamples(500, 300, seed=5)
    assert len(np.unique(counts, axis=0)) == 300
    np.testing.assert_array_equal(counts.sum(axis=1), 500)
    np.testing.assert_array_equal(counts[:50], resamples(500, 50, seed=5))
    assert not np.array_equal(counts, resamples(500, 300, seed=6))
    report = judged(seed=5)
    assert report.deviation_interval[1] > report.deviation_interval[0] > 0


def test_the_bootstrap_interval_of_the_mean_deviation_covers_over_repetitions():
    """Of an exact posterior the mean deviation is zero: 95 % of the intervals hold it."""
    held = 0
    for seed in range(80):
        truth, draws, *_ = gaussian(50, 29, 2, seed=seed)
        report = tarp(check_draws(truth, draws), resampled=resamples(50, 200, seed=seed), count=4, seed=seed)
        held += report.mean_deviation_interval[0] <= 0 <= report.mean_deviation_interval[1]
    assert held / 80 > 0.87


def test_an_object_has_the_same_curve_in_any_company():
    truth, draws, *_ = gaussian(40, 60, 3, seed=6)
    counts = np.ones((1, 40), dtype=np.int32)
    whole = tarp(check_draws(truth, draws, prior=([-9] * 3, [9] * 3)), references="prior", resampled=counts)
    again = tarp(check_draws(truth, draws, prior=([-9] * 3, [9] * 3)), references="prior", resampled=counts)
    np.testing.assert_array_equal(whole.ecp, again.ecp)
    alone = [
        tarp(
            check_draws(truth[:k], draws[:k], prior=([-9] * 3, [9] * 3)),
            references="prior",
            resampled=np.ones((1, k), dtype=np.int32),
        ).ecp
        * k
        for k in (39, 40)
    ]
    last = alone[1] - alone[0]
    assert np.all((last > -1e-9) & (last < 1 + 1e-9))
    np.testing.assert_allclose(alone[1] / 40, whole.ecp)


def test_a_subset_of_parameters_is_judged_alone():
    truth, draws, *_ = gaussian(400, 99, 3, shift=[0, 0, 2.0], seed=7)
    checked, counts = check_draws(truth, draws, names=["a", "b", "c"]), resamples(400, 200)
    sound = tarp(checked, parameters=np.array([True, True, False]), resampled=counts, count=10)
    assert sound.parameters == ("a", "b")
    assert sound.p_value > 0.01
    assert tarp(checked, resampled=counts, count=10).p_value < 0.01


def test_a_constant_parameter_is_left_out_and_only_constants_are_refused():
    truth, draws, *_ = gaussian(50, 60, 2)
    truth[:, 0], draws[..., 0] = 1.0, 1.0
    assert tarp(check_draws(truth, draws), resampled=resamples(50, 100), count=5).parameters == ("theta1",)
    with pytest.raises(UserError, match="constant"):
        tarp(check_draws(truth[:, :1], draws[..., :1]))


def test_a_discrete_posterior_with_ties_passes():
    rng = np.random.default_rng(8)
    toy = check_draws(rng.integers(0, 3, (500, 3)), rng.integers(0, 3, (500, 60, 3)))
    assert tarp(toy, resampled=resamples(500, 200), count=10).p_value > 0.01


def test_one_object_has_a_p_value_and_no_bootstrap_interval():
    report = judged(n=1).to_dict()
    assert 0 < report["p_value"] <= 1
    assert report["deviation_interval"] == [None, None]


def test_references_that_do_not_exist_are_refused():
    truth, draws, *_ = gaussian(5, 60)
    with pytest.raises(UserError, match='expected "local" or "prior"'):
        tarp(check_draws(truth, draws), references="corner")
    with pytest.raises(UserError, match="need the prior"):
        tarp(check_draws(truth, draws), references="prior")
