"""The verdict whole: an exact posterior passes as often as promised, every spoiled one fails, for the right reason."""

import json
from dataclasses import replace

import numpy as np
import pytest
from calibration_toy import ARMS, boxed

from kappaflow.calibrate import (
    JudgeSettings,
    breakdown,
    check_draws,
    comparison_table,
    fit_conformal,
    judge,
    judge_intervals,
    paired,
    parameter_rows,
    resamples,
    summarize,
)
from kappaflow.calibrate.interval_coverage import inside_by_rank
from kappaflow.calibrate.quintiles import quantile_bins
from kappaflow.calibrate.verdict import STAGES
from kappaflow.errors import UserError

QUICK = JudgeSettings(bootstraps=150, references=8)
NOISE = [0.03, 0.08, 3.0]


@pytest.fixture(scope="module")
def verdicts():
    return {
        arm: judge(
            boxed(800, 99, NOISE, stretch=stretch, shift=shift, seed=1), QUICK, covariates={"SNR": np.arange(800)}
        )
        for arm, (stretch, shift) in ARMS.items()
    }


@pytest.mark.parametrize("arm", ARMS)
def test_the_exact_arm_passes_and_every_other_fails(verdicts, arm):
    assert verdicts[arm].calibrated == (arm == "exact"), verdicts[arm].checks
    names = [check["check"] for check in verdicts[arm].checks]
    assert names == ["coverage", "PIT", "TARP (all)", "TARP (informative)"]
    if arm != "exact":
        assert not any(check["passed"] for check in verdicts[arm].checks if check["check"] != "TARP (all)")


def test_the_reading_says_what_is_wrong_with_which_parameter(verdicts):
    assert set(verdicts["exact"].readings.values()) == {"sound"}
    assert verdicts["too wide"].readings["q0"] == "covers too much"
    assert verdicts["too narrow"].readings["q0"] == "covers too little"
    assert "sits too high" in verdicts["displaced"].readings["q1"]
    assert verdicts["too narrow"].readings["q2"] == "sound"  # the prior itself, whatever the stretch


def test_an_exact_posterior_fails_no_oftener_than_the_significance_says():
    failed = [
        not judge(
            boxed(40, 59, [0.1, 0.4], seed=seed), JudgeSettings(bootstraps=100, references=4, seed=seed)
        ).calibrated
        for seed in range(60)
    ]
    assert np.mean(failed) <= 0.15  # 0.05 promised


def test_the_informative_set_leaves_the_prior_out(verdicts):
    verdict = verdicts["exact"]
    assert verdict.tarp["informative"].parameters == ("q0", "q1")
    assert verdict.tarp["all"].parameters == ("q0", "q1", "q2")


def test_a_verdict_is_plain_data(verdicts):
    content = json.loads(json.dumps(verdicts["exact"].to_dict(), allow_nan=False))
    assert content["calibrated"] is True
    assert set(content["tarp"]) == {"all", "informative", "all, prior references"}
    assert {"SNR", "true q0", "median q2"} <= set(content["breakdown"])
    assert content["draws_outside_prior"] == [0, 0, 0]


def test_the_same_seed_gives_the_same_verdict():
    toy = boxed(60, 59, [0.1, 0.4])
    first, again = (judge(toy, JudgeSettings(bootstraps=100, references=5, seed=3)).to_dict() for _ in range(2))
    assert first == again


def test_every_stage_is_told():
    told = []
    judge(boxed(20, 59, [0.1]), JudgeSettings(bootstraps=100, references=5), advance=lambda: told.append(1))
    assert len(told) == STAGES


def test_constant_draws_are_judged_without_a_joint_test():
    truth = np.full((30, 2), 0.5)
    verdict = judge(check_draws(truth, np.full((30, 59, 2), 0.5)), JudgeSettings(bootstraps=100))
    assert verdict.tarp == {}
    assert verdict.pit.tied.tolist() == [1.0, 1.0]


def test_one_object_is_judged_and_undefined_numbers_are_null():
    content = judge(boxed(1, 59, [0.1]), JudgeSettings(bootstraps=100, references=5)).to_dict()
    assert content["pit"]["chi2_p_value"] == [None]
    assert content["scores"]["crps_interval"] == [[None], [None]]
    json.dumps(content, allow_nan=False)


def test_quintiles_hold_equal_shares_and_ties_stay_together():
    values = np.random.default_rng(0).permutation(100).astype(float)
    assert np.bincount(quantile_bins(values)).tolist() == [20] * 5
    assert np.unique(values[quantile_bins(values) == 0]).max() == 19
    assert set(quantile_bins(np.full(10, 3.0))) == {0}
    assert np.bincount(quantile_bins(np.repeat([0.0, 1.0], [90, 10]))).tolist() == [90, 10]


def test_a_breakdown_finds_the_quintile_that_fails():
    toy = boxed(1000, 99, [0.05], seed=2)
    draws = toy.draws.copy()
    snr = np.arange(1000.0)
    draws[:200] = 0.5 * (draws[:200] + draws[:200].mean(axis=1, keepdims=True))  # half as wide, in the first fifth
    summary = summarize(check_draws(toy.truth, draws, prior=(toy.low, toy.high)), [0.9])
    inside = inside_by_rank(summary.below, summary.ties, summary.count, summary.levels)
    table = breakdown(summary, inside, snr)
    share, high = np.array(table["coverage"])[:, 0], np.array(table["wilson_high"])[:, 0]
    assert high[0] < 0.75
    assert np.all(share[1:] > 0.82)
    assert table["width_over_prior"][0][0] == pytest.approx(0.5 * table["width_over_prior"][1][0], rel=0.15)
    with pytest.raises(UserError, match=r"level 0.5 was not computed; there are 0.9"):
        breakdown(summary, inside, snr, level=0.5)


def test_coverage_given_the_truth_need_not_be_nominal_though_the_posterior_is_exact():
    """Why breakdowns by truth mislead: with much noise the posterior leans to the middle, and the edges are missed."""
    toy = boxed(6000, 99, [0.4], seed=3)
    summary = summarize(toy, [0.5])
    inside = inside_by_rank(summary.below, summary.ties, summary.count, summary.levels)
    by_truth = np.array(breakdown(summary, inside, summary.truth[:, 0], level=0.5)["coverage"])[:, 0]
    by_median = np.array(breakdown(summary, inside, summary.median[:, 0], level=0.5)["coverage"])[:, 0]
    assert by_truth[0] < 0.35 < 0.65 < by_truth[2]
    np.testing.assert_allclose(by_median, 0.5, atol=0.06)


def test_paired_differences_cover_zero_for_equals_and_not_for_rivals(verdicts):
    counts = resamples(800, 300)
    pick = {arm: (v.summary, v.inside) for arm, v in verdicts.items()}
    same = paired(pick["exact"], pick["exact"], counts)
    assert np.all(np.array(same["coverage"]) == 0)
    rival = paired(pick["too narrow"], pick["too wide"], counts)
    assert np.all(np.array(rival["coverage_interval"])[1, :, 0] < 0)
    assert np.all(np.array(rival["width_interval"])[1, :, 0] < 0)
    assert rival["over_prior"] is True
    np.testing.assert_allclose(
        np.array(rival["coverage"]),
        verdicts["too narrow"].coverage.coverage - verdicts["too wide"].coverage.coverage,
    )


def test_pairing_is_sharper_than_two_separate_intervals(verdicts):
    """The same objects, nearly the same posteriors: the difference is known far better than either."""
    verdict = verdicts["exact"]
    toy = boxed(800, 99, NOISE, seed=1)
    near = summarize(replace(toy, draws=toy.draws * 1.001))
    inside = inside_by_rank(near.below, near.ties, near.count, near.levels)
    pair = paired((near, inside), (verdict.summary, verdict.inside), resamples(800, 300))
    separate = verdict.coverage.wilson_high - verdict.coverage.wilson_low
    assert np.all(np.diff(pair["coverage_interval"], axis=0)[0] < 0.6 * separate)


def test_methods_on_other_objects_cannot_be_paired(verdicts):
    other = summarize(boxed(800, 99, NOISE, seed=9))
    inside = verdicts["exact"].inside
    first = (verdicts["exact"].summary, verdicts["exact"].inside)
    counts = resamples(800, 100)
    with pytest.raises(UserError, match="same objects in the same order"):
        paired(first, (other, inside), counts)
    with pytest.raises(UserError, match="different priors"):
        paired(first, (replace(first[0], low=None, high=None), inside), counts)
    with pytest.raises(UserError, match="parameters q0, q1, q2 against a, b, c"):
        paired(first, (replace(first[0], names=("a", "b", "c")), inside), counts)


def test_the_comparison_table_has_a_column_a_method_and_none_where_a_number_does_not_exist(verdicts):
    toy = boxed(800, 99, NOISE, seed=1)
    margin = fit_conformal(boxed(400, 99, NOISE, seed=5))
    conformal = judge_intervals(margin.apply(summarize(toy)), QUICK)
    table = comparison_table(verdicts | {"conformal": conformal}, "q0")
    assert table["methods"] == [*ARMS, "conformal"]
    rows = {row["quantity"]: row for row in table["rows"]}
    assert rows["coverage at 0.9"]["too narrow"] < rows["coverage at 0.9"]["exact"]
    assert rows["PIT chi2"]["conformal"] is None
    assert rows["width/prior at 0.9"]["too wide"] > rows["width/prior at 0.9"]["exact"]
    with pytest.raises(UserError, match="'C_O' is not among q0, q1, q2"):
        comparison_table(verdicts, "C_O")
    flat = parameter_rows("conformal", conformal)
    assert [row["parameter"] for row in flat] == ["q0", "q1", "q2"]
    assert flat[0]["pit_chi2"] is None


@pytest.mark.parametrize(
    ("covariate", "message"),
    [(np.zeros(3), r"covariate SNR: shape \(3,\)"), (["a"] * 20, "covariate SNR: not numbers")],
)
def test_covariates_that_do_not_fit_are_refused(covariate, message):
    with pytest.raises(UserError, match=message):
        judge(boxed(20, 59, [0.1]), covariates={"SNR": covariate})


def test_too_few_bootstraps_are_refused():
    with pytest.raises(UserError, match="at least 100"):
        JudgeSettings(bootstraps=10)


@pytest.mark.parametrize("seed", [0, 21, 22])
def test_what_a_check_counts_and_what_it_decides_agree(seed):
    """Between the levels of one family and of all (seeds 21, 22) nothing passes with what it calls a fail."""
    draws = boxed(250, 200, [0.1, 0.2], shift=[0.12, 0.0], seed=seed)
    verdict = judge(draws, JudgeSettings(bootstraps=100, references=2))
    pit = next(check for check in verdict.checks if check["check"] == "PIT")
    assert (pit["threshold"] <= pit["p_value"] < 0.05) == (seed > 0)
    assert pit["passed"]
    assert pit["finding"].startswith("0 of 2 parameters fail")
    if verdict.calibrated:
        assert set(verdict.readings.values()) == {"sound"}
