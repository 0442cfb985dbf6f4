"""`kappaflow simulate` as a user types it."""

import json
from functools import partial

import numpy as np
import pytest

from kappaflow.simulation import Shards
from kappaflow.simulation.directory import shard_path


@pytest.fixture
def simulate(command):
    return partial(command, "simulate")


def test_help_shows_a_worked_example(simulate):
    code, out, _ = simulate("--help")
    assert code == 0
    assert "kappaflow simulate --out train --n 100000" in " ".join(out.split())


def test_a_set_is_made_verified_and_read(simulate, tmp_path):
    out = tmp_path / "set"
    words = ("--out", out, "--n", 300, "--toy", "--perturb", "smooth", "--amplitude", 2)
    code, printed, _ = simulate(*words, "--json")
    assert code == 0
    result = json.loads(printed)
    assert (result["spectra"], result["made"], result["discarded"]) == (384, 3, 0)
    assert simulate(*words)[1].count("nothing to do")
    code, printed, _ = simulate("--check", out, "--json")
    assert code == 0
    assert json.loads(printed) == {"shards": 3, "good": 3, "missing": [], "damaged": {}}
    shards = Shards(out)
    assert len(shards) == 384
    assert shards.config["config"]["amplitude"] == 2
    assert not shards.combination.any()


def test_check_names_what_is_wrong_and_resume_mends_it(simulate, tmp_path):
    simulate("--out", tmp_path, "--n", 384, "--toy")
    good = shard_path(tmp_path, 2).read_bytes()
    shard_path(tmp_path, 0).unlink()
    shard_path(tmp_path, 2).write_bytes(good[:-5])
    code, printed, error = simulate("--check", tmp_path)
    assert code == 2
    assert "shard-000000.h5: missing" in printed
    assert "shard-000002.h5: truncated" in printed
    assert error.count("\n") == 1
    assert simulate("--out", tmp_path, "--n", 384, "--toy")[0] == 2
    assert simulate("--out", tmp_path, "--n", 384, "--toy", "--resume")[0] == 0
    assert simulate("--check", tmp_path)[0] == 0
    assert shard_path(tmp_path, 2).read_bytes() == good


def test_lists_broadening_and_prior_reach_the_recipe(simulate, tmp_path):
    words = ("--axes", "H2O,CH4,CO", "--pin", "CO=air", "--exclude", "CH4=exomol", "--broadening", "1.30,-0.15")
    assert simulate("--out", tmp_path, "--n", 512, "--toy", "--sequence", "sobol", "--seed", 7, *words)[0] == 0
    shards = Shards(tmp_path)
    used = {tuple(shards.combinations[i].values()) for i in set(shards.combination)}
    assert used == {("base", "base", "air"), ("exomol", "base", "air")}
    assert shards.config["config"]["broadening"] == [[1.3, -0.15]]
    assert shards.config["config"]["sequence"] == "sobol"
    assert shards.config["seed"] == 7


def test_masks_of_the_user_are_kept_beside_the_shards(simulate, tmp_path):
    folder, out = tmp_path / "masks", tmp_path / "set"
    folder.mkdir()
    wavelength = np.linspace(2.87, 5.27, 1000)
    np.savetxt(folder / "a.txt", np.column_stack([wavelength, wavelength > 4]))
    code, printed, _ = simulate("--out", out, "--n", 1024, "--toy", "--masks", folder, "--json")
    assert code == 0
    assert json.loads(printed)["masks"] == 1
    batch = Shards(out, masks=True).evaluation()
    blue = Shards(out).wavelength < 3.95
    mine = ~batch.mask[:, blue].any(axis=1) & batch.mask[:, Shards(out).wavelength > 4.05].all(axis=1)
    assert mine.mean() > 0.1
    assert simulate("--check", out)[0] == 0
    assert simulate("--out", out, "--n", 1024, "--toy")[0] == 0  # the masks are no part of the config


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--n", "10"), "--out"),
        (("--out", "x", "--n", "0"), "at least 1"),
        (("--out", "x", "--pin", "CH4"), "SPECIES=LIST"),
        (("--out", "x", "--pin", "CH4=hitemp"), "base, exomol"),
        (("--out", "x", "--exclude", "TiO=base"), "H2O, CH4"),
        (("--out", "x", "--broadening", "1.3"), "1.30,-0.15"),
        (("--out", "x", "--perturb", "some"), "both, smooth"),
        (("--out", "x", "--preset", "giant"), "tiny, laptop, paper"),
        (("--out", "x", "--masks", "nowhere"), "no such folder"),
        (("--out", "x", "--workers", "-1"), "--workers"),
        (("--out", "x", "--seed", "-3"), "seed"),
        (("--check", "nowhere"), "config.json"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(simulate, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, _, error = simulate("--toy", *words)
    assert code == 2
    assert message in error
    assert error.startswith("kappaflow: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "x").exists()
