"""Against sbi's diagnostics: the same ranks, expected coverage and TARP where those are right, and where they are not.

sbi is a development dependency; these tests skip where it is absent.
"""

import warnings

import numpy as np
import pytest
from calibration_toy import gaussian
from scipy.stats import kstest

from kappaflow.calibrate import check_draws, highest_density_coverage, pit_report, resamples, summarize, tarp
from kappaflow.calibrate.random_points import tarp_ranks

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies' own deprecations
    torch = pytest.importorskip("torch")
    sbc = pytest.importorskip("sbi.diagnostics.sbc")
    theirs = pytest.importorskip("sbi.diagnostics.tarp")


@pytest.fixture(scope="module")
def toy():
    return gaussian(300, 120, 2, stretch=0.8, seed=1)


def tensors(truth, draws):
    return torch.tensor(truth), torch.tensor(draws.transpose(1, 0, 2).copy())


def test_ranks_are_those_of_sbi(toy):
    truth, draws, *_ = toy
    t, d = tensors(truth, draws)
    ranks = sbc._run_sbc(t, torch.zeros(len(t), 1), d, "marginals", show_progress_bar=False).numpy()
    np.testing.assert_array_equal(ranks, summarize(check_draws(truth, draws)).below)


def test_kolmogorov_smirnov_p_values_are_near_sbis(toy):
    """sbi tests the lumped ranks r/s against the continuous uniform; ours are spread over their cells of 1/(s + 1)."""
    truth, draws, *_ = gaussian(300, 1200, 2, seed=2)
    summary = summarize(check_draws(truth, draws))
    p_theirs = sbc.check_uniformity_frequentist(torch.tensor(summary.below), 1200).numpy()
    np.testing.assert_allclose(pit_report(summary).ks_p_value, p_theirs, atol=0.03)


def test_few_draws_make_sbis_p_values_too_small_and_leave_ours_uniform():
    """With 9 draws and 2,000 objects the ten lumps alone are rejected; an exact posterior must not be."""
    truth, draws, *_ = gaussian(2000, 9, 1, seed=3)
    summary = summarize(check_draws(truth, draws), [0.5])
    assert sbc.check_uniformity_frequentist(torch.tensor(summary.below), 9)[0] < 1e-6
    assert pit_report(summary).ks_p_value[0] > 0.01


def test_expected_coverage_of_highest_density_regions_is_sbis(toy):
    truth, draws, centre, deviation = toy
    t, d = tensors(truth, draws)

    def log_prob(theta, x):
        return -0.5 * (((theta - x[:2]) / x[2:]) ** 2).sum(dim=-1)

    x = torch.tensor(np.concatenate([centre, deviation], axis=1))
    ranks = sbc._run_sbc(t, x, d, log_prob, show_progress_bar=False).numpy()[:, 0]  # draws less dense than the truth
    ours = highest_density_coverage(
        -0.5 * (((truth - centre) / deviation) ** 2).sum(axis=-1),
        -0.5 * (((draws - centre[:, None]) / deviation[:, None]) ** 2).sum(axis=-1),
        [0.5, 0.9],
    )
    # The truth's rank cell, counted from the dense end, begins at the draws denser than it: 120 less sbi's rank.
    for level, share in zip((0.5, 0.9), ours["coverage"], strict=True):
        assert share == pytest.approx(np.clip(level * 121 - (120 - ranks), 0, 1).mean(), abs=1e-12)
        assert share == pytest.approx(np.mean(ranks / 120 > 1 - level), abs=0.02)  # as sbi reads it, lumps and all


def test_tarp_with_the_same_references_is_sbis(toy):
    truth, draws, *_ = toy
    t, d = tensors(truth, draws)
    references = torch.tensor(np.random.default_rng(4).uniform(-3, 3, truth.shape))
    ecp, alpha = theirs._run_tarp(d, t, references, num_bins=47)  # edges between the lumps
    found = [tarp_ranks(*each) for each in zip(truth, draws, references.numpy()[:, None], strict=True)]
    share = np.array([below[0] for below, _ in found]) / 120
    counted = [np.mean(share < edge) for edge in alpha.numpy()[1:-1]]
    np.testing.assert_allclose(ecp.numpy()[1:-1], counted, atol=1e-6)


def test_the_ks_test_of_sbis_tarp_passes_a_posterior_that_is_plainly_wrong():
    """It compares the curve's ordinates with its abscissae as if they were samples: n drops out, power with it."""
    truth, draws, *_ = gaussian(1000, 120, 2, stretch=1.3, seed=5)
    t, d = tensors(truth, draws)
    references = torch.tensor(np.random.default_rng(6).uniform(-3, 3, truth.shape))
    _, p_theirs = theirs.check_tarp(*theirs._run_tarp(d, t, references, num_bins=30))
    ours = tarp(check_draws(truth, draws), resampled=resamples(1000, 200), count=10)
    assert p_theirs > 0.3
    assert ours.p_value < 0.01
    share = np.array([tarp_ranks(*each)[0][0] for each in zip(truth, draws, references.numpy()[:, None], strict=True)])
    assert kstest((share + 0.5) / 121, "uniform").pvalue < 1e-3  # the values themselves tell


def test_references_that_ignore_the_units_hide_what_standardized_ones_find():
    """sbi's `_run_tarp` leaves units alone by default: a C/O displaced by its own error bar vanishes beside 500 K."""
    truth, draws, *_ = gaussian(800, 120, 2, shift=[1.5, 0.0], seed=7)
    truth, draws = truth * [0.1, 500.0], draws * [0.1, 500.0]
    t, d = tensors(truth, draws)
    rng = np.random.default_rng(8)
    references = torch.tensor(rng.uniform(truth.min(axis=0), truth.max(axis=0), truth.shape))
    ecp, alpha = theirs._run_tarp(d, t, references, num_bins=50)
    hidden = float((ecp - alpha).abs().max())
    ours = tarp(check_draws(truth, draws), resampled=resamples(800, 200), count=10)
    assert hidden < 0.06  # what 800 objects give an exact posterior with one reference each
    assert ours.deviation > 0.1
    assert ours.p_value < 0.01


def test_sbi_drops_what_we_refuse():
    """A NaN among the draws makes sbi count it as not below; here it is an error that names the object."""
    truth, draws, *_ = gaussian(5, 60, 1, seed=9)
    draws[2, :30] = np.nan
    t, d = tensors(truth, draws)
    ranks = sbc._run_sbc(t, torch.zeros(5, 1), d, "marginals", show_progress_bar=False)
    assert torch.isfinite(ranks).all()
    with pytest.raises(ValueError, match="30 NaN or infinite values of theta0, the first in object 2"):
        check_draws(truth, draws)
