"""The ablation script on a toy: every arm runs, is scored, and a killed table goes on where it was."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from inference_toy import batches, exact, small, spectra

from kappaflow.inference import VARIANTS
from kappaflow.spectra import Spectra

FILE = Path(__file__).parents[1] / "benchmarks" / "ablation.py"


@pytest.fixture(scope="module")
def ablation():
    spec = importlib.util.spec_from_file_location("ablation", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def observed():
    theta, flux = spectra(100, 9)
    noisy = flux + np.random.default_rng(0).normal(size=flux.shape)
    return Spectra(noisy, np.ones_like(flux), np.ones(flux.shape, bool), np.ones(100, bool), theta)


def test_the_table_has_an_arm_for_every_piece(ablation):
    table = ablation.arms(small(), small("paper"))
    assert len(table) == len(VARIANTS) + 5
    assert len({ablation.folder_of(name, SimpleNamespace(out="")) for name in table}) == len(table)
    assert len({(arm.recipe.digest, arm.share, arm.masks, arm.seed) for arm in table.values()}) == len(table)


@pytest.mark.usefixtures("one_thread")
def test_arms_are_trained_scored_and_not_run_twice(ablation, observed, tmp_path):
    table = ablation.arms(small(), small("paper"))

    def run(*only):
        words = ["--data", "-", "--test", "-", "--out", str(tmp_path), "--minutes", "0.02", "--draws", "50"]
        given = ablation.options().parse_args([*words, "--only", *only])
        return ablation.ablate(table, lambda arm: batches(600), dict.fromkeys(ablation.SETS, observed), given)

    run("no EMA")
    before = (tmp_path / "no-EMA" / "network.safetensors").stat().st_mtime_ns
    rows = run("kappaflow", "no EMA")
    assert (tmp_path / "no-EMA" / "network.safetensors").stat().st_mtime_ns == before
    assert list(rows) == ["kappaflow", "no EMA"]
    assert list(run("paper")) == ["kappaflow", "no EMA", "paper"]  # what others have finished is in the table
    assert set(rows["kappaflow"]) > set(ablation.SETS)
    text = (tmp_path / "ablation.md").read_text()
    assert text.count("\n") == 5
    assert f"{rows['kappaflow'][ablation.SETS[0]]['nats_from_prior']:.2f}" in text


class Exact:
    """The exact posterior of the toy (uncut by the box), too wide or too narrow by a factor."""

    names, box = ("a", "b"), batches(50).card.box

    def __init__(self, factor):
        self.factor = factor

    def sample_spectra(self, spectra, n, seed):
        flux, rng = spectra.flux, np.random.default_rng(seed)
        means, (_, covariance) = np.stack([exact(f)[0] for f in flux]), exact(flux[0])
        noise = rng.multivariate_normal(np.zeros(2), covariance, size=(len(flux), n))
        return means[:, None] + self.factor * noise

    def log_prob_spectra(self, theta, spectra):
        return np.zeros(len(theta))


def test_scores_tell_an_exact_posterior_from_a_wide_and_a_narrow_one(ablation):
    theta, flux = spectra(2000, 9)
    theta, flux = theta * 0.5, 10 + (flux - 10) * 0.5  # away from the walls, where the cut does not matter
    noisy = flux + np.random.default_rng(0).normal(size=flux.shape)
    many = Spectra(noisy, np.ones_like(flux), np.ones(flux.shape, bool), np.ones(2000, bool), theta)
    right, wide, narrow = (ablation.score(Exact(f), many) for f in (1.0, 2.0, 0.5))
    assert right["coverage"]["0.90"] == pytest.approx(0.90, abs=0.025)
    assert wide["coverage"]["0.90"] > 0.95
    assert narrow["coverage"]["0.90"] < 0.7
    assert right["interval_score"] < min(wide["interval_score"], narrow["interval_score"])
