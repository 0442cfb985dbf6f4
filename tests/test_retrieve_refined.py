"""The refined posterior as what `retrieve` gives: by default, beside the networks, and never unconverged."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from refined_toy import QUICK, ListedToy, ToyPredictor
from retrieval_toy import observed, posteriors, write_text
from scipy.special import ndtri

import kappaflow as kf
from kappaflow.observe.distances import as_distance
from kappaflow.parameters import INDEX
from kappaflow.retrieval.distance_error import with_distance_error
from kappaflow.retrieval.exactness import Exactness, refined_both, refinement_check, share_check
from kappaflow.retrieval.pipeline import retrieve_spectrum

CO, R = INDEX["C_O"], INDEX["R"]
SETTINGS = kf.RetrievalSettings(draws=300, predicted=100)
RNG = np.random.default_rng


@pytest.fixture(scope="module")
def exact(networks):
    """A toy spectrum refined, opacities marginalized and fixed, and its true parameters."""
    truth, spectrum = observed(seed=12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kappaflow.refinement.posing.ListedModel", ToyPredictor)
        found = refined_both(spectrum, posteriors(networks)[0], ListedToy(), 10.0, replace(QUICK, draws=300))
    assert isinstance(found, Exactness), found
    return found, truth


@pytest.fixture
def known(exact, monkeypatch):
    """Retrievals whose refinement is this one."""

    def put(found):
        monkeypatch.setattr("kappaflow.retrieval.pipeline.refined_both", lambda *_: found)

    put(exact[0])
    return put


def unconverged(found):
    marginal = replace(found.marginal, sampled=tuple(replace(s, r_hat=1.7) for s in found.marginal.sampled))
    return Exactness(marginal, "not tried")


def retrieved(networks, **settings):
    posterior, spectrum = posteriors(networks)[0], observed(seed=12)[1]
    how = replace(SETTINGS, **settings)
    return retrieve_spectrum(spectrum, posterior, model=ListedToy(), distance=10.0, settings=how)


def test_both_refinements_converge_and_hold_the_truth(exact):
    found, truth = exact
    assert found.converged, found.marginal.sentence
    assert found.one_list is not None, found.fixed.sentence
    low, high = np.quantile(found.marginal.draws[:, CO], [0.005, 0.995])
    assert low < truth[CO] < high


def test_draws_are_the_refined_ones_and_the_networks_stay_beside_them(networks, exact, known):
    result = retrieved(networks)
    assert result.source == "refined"
    np.testing.assert_array_equal(result.draws, exact[0].marginal.draws)
    assert result.network_draws.shape == (300, 15)
    data = result.datasets()
    np.testing.assert_array_equal(data["posterior"]["C_O"].values.ravel(), result.draws[:, CO])
    assert data["networks"]["C_O"].shape == (2, 150)
    assert data["one_list"]["C_O"].shape == (1, 300)
    checks = {check.name: check for check in result.checks}
    assert {"refinement", "line-list share"} < checks.keys()
    assert result.envelope is not None
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))
    assert summary["refinement"]["converged"]
    assert {"ess", "pareto_k", "r_hat", "combinations"} < summary["refinement"].keys()
    assert sum(row["weight"] for row in summary["refinement"]["combinations"]) == pytest.approx(1)
    assert list(summary["c_to_o"]) == ["refined", "one line list", "networks"]


def test_an_unconverged_refinement_is_no_result_and_a_sentence_says_why(networks, exact, known):
    known(unconverged(exact[0]))
    result = retrieved(networks)
    alone = retrieved(networks, amortized=True)
    assert result.source == alone.source == "networks"
    np.testing.assert_array_equal(result.draws, alone.draws)
    assert alone.refined is None
    check = next(check for check in result.checks if check.name == "refinement")
    assert check.verdict == "warn"
    assert "R-hat 1.70" in check.sentence
    assert "the interval is the networks'" in check.sentence
    assert "line-list share" not in {check.name for check in result.checks}
    assert list(result.c_to_o()) == ["networks"]
    assert set(result.datasets()) == {"posterior", "observed_data", "constant_data", "networks"}
    assert not result.summary()["refinement"]["converged"]


def test_what_cannot_be_refined_says_so(networks, known):
    known("no tables here")
    result = retrieved(networks)
    assert result.source == "networks"
    assert result.refined is None
    check = next(check for check in result.checks if check.name == "refinement")
    assert (check.verdict, "no tables here" in check.sentence) == ("warn", True)


def test_the_command_refines_unless_told_not_to(run, known, tmp_path):
    path = write_text(tmp_path / "one.txt", observed(seed=12)[1])
    done = run(path, "--distance", "10", control=False, refine=True)
    assert done.exit_code == 0, done.output
    assert ", refined, SNR" in done.stdout
    assert "  networks: " in done.stdout
    assert "  one line list: " in done.stdout
    folder, page = tmp_path / "out" / "one", (tmp_path / "out" / "report.html").read_text()
    summary = json.loads((folder / "summary.json").read_text())
    assert sorted(summary["files"]) == sorted({p.name for p in folder.iterdir()} | {"report.html"})
    with (folder / "summary.csv").open() as stream:
        row = {r["parameter"]: r for r in csv.DictReader(stream)}["C_O"]
    assert float(row["q50"]) == pytest.approx(summary["c_to_o"]["refined"][2])
    assert float(row["network_q50"]) == pytest.approx(summary["c_to_o"]["networks"][2])
    assert "refined: exact draws of the likelihood" in page
    assert "with one line list" in page
    done = run(path, "--distance", "10", control=False)
    assert done.exit_code == 0, done.output
    assert ", networks alone, SNR" in done.stdout
    alone = json.loads((folder / "summary.json").read_text())
    assert alone["refinement"] is None
    assert alone["source"] == "networks"
    assert {check["name"] for check in alone["trust"]}.isdisjoint({"refinement", "line-list share"})
    assert "not refined by the likelihood" in (tmp_path / "out" / "report.html").read_text()


def test_an_unconverged_refinement_is_told_on_the_page(run, exact, known, tmp_path):
    known(unconverged(exact[0]))
    done = run(write_text(tmp_path / "one.txt", observed(seed=12)[1]), control=False, refine=True)
    assert done.exit_code == 0, done.output
    assert ", networks alone, SNR" in done.stdout
    page = (tmp_path / "out" / "report.html").read_text()
    assert "the refinement is no result" in page
    assert "groups of draws disagree (R-hat 1.70)" in page


def test_the_distance_error_widens_refined_radii_and_nothing_else(networks, known):
    result = retrieved(networks)
    wide = with_distance_error(result, as_distance((10.0, 2.0)))
    for a, b in ((result.draws, wide.draws), (result.one_list_draws, wide.one_list_draws)):
        others = np.arange(a.shape[1]) != R
        np.testing.assert_array_equal(a[:, others], b[:, others])
        assert np.std(b[:, R] / a[:, R]) == pytest.approx(0.2, rel=0.2)
    assert np.std(wide.network_draws[:, R] / result.network_draws[:, R]) == pytest.approx(0.2, rel=0.2)
    np.testing.assert_array_equal(result.envelope.median, wide.envelope.median)


def with_c_to_o(found, mean, sigma, seed):
    draws = found.draws.copy()
    draws[:, CO] = mean + sigma * RNG(seed).permutation(ndtri((np.arange(len(draws)) + 0.5) / len(draws)))
    return replace(found, draws=draws)


@pytest.mark.parametrize(("narrow", "share"), [(0.01, 0.97), (0.06, 0.0), (0.042, 0.5)])
def test_the_share_compares_variances_of_fixed_and_marginalized(exact, narrow, share):
    found, _ = exact
    pair = Exactness(with_c_to_o(found.marginal, 0.6, 0.06, 1), with_c_to_o(found.fixed, 0.6, narrow, 2))
    check = share_check(pair, RNG(0))
    assert check.value == pytest.approx(share, abs=0.02)
    assert check.interval[0] < share < check.interval[1]
    assert check.sentence.count(".") >= 1
    assert len(check.sentence) < 200
    if share > 0.9:
        assert "±0.01 with one line list, ±0.06 in truth" in check.sentence
    aside = Exactness(pair.marginal, with_c_to_o(found.fixed, 0.9, 0.01, 3))
    assert "one alone would say 0.90" in share_check(aside, RNG(0)).sentence


def test_no_share_is_given_where_one_of_the_two_has_not_converged(exact):
    found, _ = exact
    stuck = replace(found.fixed, sampled=tuple(replace(s, r_hat=1.7) for s in found.fixed.sampled))
    check = share_check(Exactness(found.marginal, stuck), RNG(0))
    assert check.verdict == "warn"
    assert check.shown == ""
    assert "with fixed opacities: groups of draws disagree" in check.sentence


@pytest.mark.parametrize(("network", "verdict"), [(0.65, "pass"), (1.1, "warn")])
def test_network_and_likelihood_agree_or_one_sentence_says_that_they_do_not(exact, network, verdict):
    found, _ = exact
    ours = Exactness(with_c_to_o(found.marginal, 0.6, 0.06, 1), found.fixed)
    draws = np.repeat(RNG(0).normal(network, 0.15, (1000, 1)), 15, axis=1)
    check = refinement_check(ours, draws)
    assert check.verdict == verdict
    assert ("disagree" in check.sentence) == (verdict == "warn")
    assert len(check.sentence) < 200
