"""Scores against closed forms, proper (exact is best), and bootstrap intervals that cover as they say."""

import numpy as np
import pytest
from calibration_toy import ARMS, gaussian
from scipy.special import ndtri
from scipy.stats import norm

from kappaflow.calibrate import (
    bootstrap_mean,
    bootstrap_median,
    check_draws,
    interval_score,
    percentile_interval,
    resamples,
    score_report,
    summarize,
)
from kappaflow.errors import UserError


def scored(arm, n=3000, **options):
    stretch, shift = ARMS[arm]
    truth, draws, centre, deviation = gaussian(n, 199, 2, stretch=stretch, shift=shift, seed=1)
    log_prob = norm.logpdf(truth, centre, deviation).sum(axis=1)
    summary = summarize(check_draws(truth, draws), [0.5, 0.9])
    return score_report(summary, resamples(n, 200), log_prob=log_prob, **options), summary, deviation


@pytest.mark.parametrize("arm", ["too wide", "too narrow", "displaced"])
def test_every_score_prefers_the_exact_posterior(arm):
    exact, spoiled = scored("exact")[0], scored(arm)[0]
    assert np.all(exact.interval_score < spoiled.interval_score)
    assert np.all(exact.crps < spoiled.crps)
    assert exact.nll_interval[1] < spoiled.nll_interval[0]


def test_scores_of_an_exact_gaussian_are_their_closed_forms():
    """CRPS sigma/sqrt(pi); interval score 2 sigma phi(z) 2/a; NLL the entropy, each averaged over objects."""
    report, _, deviation = scored("exact")
    sigma = deviation.mean(axis=0)
    np.testing.assert_allclose(report.crps, sigma / np.sqrt(np.pi), rtol=0.04)
    tail = np.array([0.5, 0.1])
    expected = 4 / tail * norm.pdf(ndtri(1 - tail / 2))
    np.testing.assert_allclose(report.interval_score, expected[:, None] * sigma, rtol=0.04)
    entropy = (0.5 * np.log(2 * np.pi * np.e) + np.log(deviation)).sum(axis=1).mean()
    assert report.nll_interval[0] - 0.05 < entropy < report.nll_interval[1] + 0.05


def test_crps_of_each_object_is_the_gaussian_closed_form():
    """With 20,000 draws: sigma (z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi))."""
    truth, draws, centre, deviation = gaussian(40, 20000, 1, seed=2)
    crps = summarize(check_draws(truth, draws), [0.9]).crps
    z = (truth - centre) / deviation
    closed = deviation * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(crps, closed, atol=0.02)


def test_crps_from_few_draws_is_unbiased():
    """The fair estimate: averaged over many posteriors, 5 draws say what 500 do."""
    few = summarize(check_draws(*gaussian(20000, 5, 1, seed=3)[:2]), [0.5]).crps.mean()
    many = summarize(check_draws(*gaussian(20000, 100, 1, seed=3)[:2]), [0.5]).crps.mean()
    assert few == pytest.approx(many, rel=0.02)


def test_the_interval_score_charges_a_miss_by_its_distance():
    score = interval_score(np.array([[3.0]]), np.array([[[0.0]]]), np.array([[[2.0]]]), np.array([0.9]))
    assert score.item() == pytest.approx(2.0 + 20.0 * 1.0)


@pytest.mark.parametrize("values", ["normal", "exponential"])
def test_bootstrap_intervals_of_mean_and_median_cover_as_they_say_over_1000_repetitions(values):
    rng = np.random.default_rng(4)
    n, repetitions = 150, 1000
    sample = rng.standard_normal((n, repetitions)) if values == "normal" else rng.exponential(size=(n, repetitions))
    mean, median = (0.0, 0.0) if values == "normal" else (1.0, np.log(2.0))
    counts = resamples(n, 400)
    for replicates, truth in ((bootstrap_mean(sample, counts), mean), (bootstrap_median(sample, counts), median)):
        low, high = percentile_interval(replicates)
        assert 0.915 < np.mean((low <= truth) & (truth <= high)) < 0.975


def test_bootstrap_medians_are_those_of_the_resampled_values():
    values = np.random.default_rng(5).normal(size=(8, 3))
    counts = resamples(8, 20)
    expected = [np.median(np.repeat(values, row, axis=0), axis=0) for row in counts]
    np.testing.assert_allclose(bootstrap_median(values, counts), expected)
    np.testing.assert_allclose(
        bootstrap_mean(values, counts), [np.repeat(values, row, axis=0).mean(axis=0) for row in counts]
    )


def test_log_densities_that_cannot_be_averaged_are_refused():
    _, summary, _ = scored("exact", 50)
    counts = resamples(50, 100)
    with pytest.raises(UserError, match=r"expected \(50,\)"):
        score_report(summary, counts, log_prob=np.zeros(49))
    with pytest.raises(UserError, match="1 of 50 values are not finite"):
        score_report(summary, counts, log_prob=np.append(np.zeros(49), -np.inf))
