"""The simultaneous band of the PIT's distribution: it holds what it says, and shows what is wrong."""

import numpy as np
import pytest
from calibration_toy import boxed

from kappaflow.calibrate import pit_report, summarize
from kappaflow.calibrate.ecdf_band import band_probability, ecdf, simultaneous_band


def simulated(n, repeats, points, seed=0):
    """Shares (repeats, points) of n uniform values at or below 1/K, ..., 1."""
    steps = np.random.default_rng(seed).multinomial(n, np.full(points, 1 / points), size=repeats)
    return np.cumsum(steps, axis=1) / n


@pytest.mark.parametrize(
    ("n", "level", "points"), [(30, 0.95, 100), (250, 0.95, 100), (2048, 0.9, 50), (500, 0.99, 100)]
)
def test_the_band_holds_whole_curves_of_uniform_values_as_often_as_it_says(n, level, points):
    low, high = simultaneous_band(n, level, points)
    repeats = 20_000
    curves = simulated(n, repeats, points)
    inside = ((curves >= low - 1e-12) & (curves <= high + 1e-12)).all(axis=1).mean()
    error = np.sqrt(level * (1 - level) / repeats)
    computed = band_probability(n, np.rint(low * n).astype(int), np.rint(high * n).astype(int))
    assert inside == pytest.approx(computed, abs=4 * error)
    assert level <= computed < level + 0.02  # counts are whole: a little more than asked for, when there are few


def test_each_point_alone_would_let_far_more_curves_out():
    """The pointwise 95 % band, which such figures are often drawn with, is left by most exact posteriors."""
    from scipy.stats import binom

    z = np.arange(1, 101) / 100
    low, high = (binom.ppf(q, 250, z).astype(int) for q in (0.025, 0.975))
    assert band_probability(250, low, high) < 0.6


def test_two_points_are_a_binomial():
    from scipy.stats import binom

    expected = binom.cdf(7, 10, 0.5) - binom.cdf(2, 10, 0.5)
    assert band_probability(10, np.array([3, 10]), np.array([7, 10])) == pytest.approx(expected, rel=1e-12)
    assert band_probability(10, np.array([3, 3]), np.array([7, 9])) == 0.0


def test_the_curve_is_the_share_at_or_below():
    z, share = ecdf(np.array([[0.1], [0.2], [0.9]]), points=10)
    assert share[0, [0, 1, 7, 8, 9]].tolist() == pytest.approx([1 / 3, 2 / 3, 2 / 3, 1, 1])
    assert z[-1] == 1


@pytest.mark.parametrize(
    ("arm", "left"), [({}, False), ({"stretch": 1.4}, True), ({"stretch": 0.7}, True), ({"shift": 0.5}, True)]
)
def test_an_exact_posterior_stays_and_a_wide_a_narrow_and_a_displaced_one_leave(arm, left):
    report = pit_report(summarize(boxed(800, 199, [0.05, 0.1], seed=3, **arm)))
    assert report.leaves_band.any() == left
    plain = report.to_dict()
    assert np.array(plain["ecdf"]).shape == (2, 100)
    assert plain["ecdf_high"][49] > 0.5 > plain["ecdf_low"][49]


def test_a_pit_that_was_fitted_on_others_has_a_wider_band():
    summary = summarize(boxed(400, 199, [0.05], seed=3))
    known, fitted = (pit_report(summary, fitted_on=m) for m in (None, 400))
    assert (fitted.ecdf_high - fitted.ecdf_low)[50] == pytest.approx(
        np.sqrt(2) * (known.ecdf_high - known.ecdf_low)[50], rel=0.1
    )
