"""A specialist's own line list, from a cross-section file to a retrieval, by the commands alone."""

import json
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest
from synthetic_tables import opacity_table
from typer.testing import CliRunner

from kappaflow.cli import app
from kappaflow.errors import UserError
from kappaflow.inference import Checkpoint, Posterior
from kappaflow.observe.example import example_path
from kappaflow.tables.opacity import load_opacity, save_opacity

NU = np.geomspace(1840.0, 3560.0, 3000)
PRESSURE = np.geomspace(1e-5, 100.0, 5)
TEMPERATURE = np.array([100.0, 300.0, 700.0, 1500.0, 3400.0])


def kappaflow(*words):
    """Run a command; what it prints, or the user's mistake that it ends with."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def taurex_file(path):
    """Cross sections of water in the layout of ExoMolOP and TauREx: bands that hotter gas fills in."""
    p, t = np.log(PRESSURE)[:, None, None], TEMPERATURE[None, :, None]
    bands = np.sin(NU / 40.0) + 2 * np.sin(NU / 211.0)
    with h5py.File(path, "w") as file:
        file["DOI"], file["Date_ID"] = np.array([b"10.1093/mnras/sty1877"]), np.array([b"ExoMolOP-v1_2020-01-01"])
        file["mol_name"], file["key_iso_ll"] = np.array([b"H2O"]), np.array([b"1H2-16O__POKAZATEL"])
        file["mol_mass"] = np.array([18.010565])
        file["p"], file["t"], file["bin_edges"] = PRESSURE, TEMPERATURE, NU
        file["xsecarr"] = np.exp(-48 + 0.05 * p + bands * 700 / (300 + t))
        file["p"].attrs["units"], file["t"].attrs["units"] = "bar", "kelvin"
        file["xsecarr"].attrs["units"] = "cm^2/molecule"
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`mine.h5` (a small table with one more water list), and a network trained on spectra made with it."""
    here = tmp_path_factory.mktemp("own")
    save_opacity(opacity_table(points=20_000), here / "small.h5")
    source = taurex_file(here / "H2O.R15000.TauREx.h5")
    build = ["opacity", "build", "--source", source, "--species", "H2O", "--name", "mine"]
    kappaflow(*build, "--into", here / "small.h5", "--out", here / "mine.h5")
    kappaflow("opacity", "compare", f"{here}/mine.h5:H2O/base", f"{here}/mine.h5:H2O/mine", "--out", here / "spread")
    spread = here / "spread" / "compare-H2O-base-mine.json"
    simulate = ["simulate", "--preset", "tiny", "--opacity", here / "mine.h5", "--prior", spread, "--workers", "0"]
    kappaflow(*simulate, "--out", here / "train", "--n", "256")
    kappaflow(*simulate, "--out", here / "test", "--n", "128", "--seed", "1")
    kappaflow("train", "--data", here / "train", "--out", here / "network", "--epochs", "1", "--threads", "1")
    return here


def test_the_network_records_table_lists_and_measured_spread(folder):
    card, table = Checkpoint.load(folder / "network").card.opacity, load_opacity(folder / "mine.h5")
    measured = json.loads((folder / "spread" / "compare-H2O-base-mine.json").read_text())["sigma"]
    assert card.digest == table.digest
    assert tuple(card.lists["H2O"]) == ("base", "alternative", "mine")
    assert card.sigma[0] == pytest.approx([measured["const"], *measured["modes"]])
    chosen = {(c["H2O"], c["CH4"]) for c in card.combinations}
    assert chosen == {(h, c) for h in ("base", "mine") for c in ("base", "alternative")}


@pytest.mark.usefixtures("empty_figures")
def test_it_is_judged_on_spectra_of_the_same_table_and_on_no_other(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("kappaflow.report.verdict_page.write_verdict_page", lambda *_: None)
    judge = ["calibrate", "--model", folder / "network", "--samples", "60", "--bootstraps", "100", "--references", "5"]
    kappaflow(*judge, "--data", folder / "test", "--out", tmp_path / "verdict")
    found = json.loads((tmp_path / "verdict" / "verdict.json").read_text())["methods"]["network"]
    assert found["coverage"]["objects"] == 128
    small = ["simulate", "--preset", "tiny", "--opacity", folder / "small.h5", "--workers", "0", "--seed", "2"]
    kappaflow(*small, "--out", tmp_path / "other", "--n", "128")
    with pytest.raises(UserError, match="made with opacity table") as refused:
        kappaflow(*judge, "--data", tmp_path / "other", "--out", tmp_path / "verdict")
    for table in ("mine.h5", "small.h5"):
        assert load_opacity(folder / table).digest in str(refused.value)
    assert "H2O base+alternative+mine" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("empty_figures")
def test_a_retrieval_uses_the_table_given_and_refuses_another_or_none(folder, tmp_path):
    with example_path() as example:
        command = [
            "retrieve",
            example,
            "--model",
            folder / "network",
            "--draws",
            "300",
            "--out",
            tmp_path / "out",
            "--amortized",
        ]
        shutil.copy(folder / "mine.h5", tmp_path / "renamed.h5")  # a name is nothing, the digest decides
        kappaflow(*command, "--opacity", tmp_path / "renamed.h5")
        for wrong in ([], ["--opacity", folder / "small.h5"]):
            with pytest.raises(UserError, match="--opacity") as refused:
                kappaflow(*command, *wrong)
            there = load_opacity(folder / "small.h5" if wrong else None).digest
            for digest in (load_opacity(folder / "mine.h5").digest, there):
                assert digest in str(refused.value)
            assert "H2O base+alternative+mine" in str(refused.value)
            assert "\n" not in str(refused.value)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())[0]
    assert load_opacity(folder / "mine.h5").digest in summary["provenance"]["opacity table"]
    predictive = next(check for check in summary["trust"] if check["name"] == "posterior predictive")
    assert predictive["value"] is not None  # computed, with the table that was given


@pytest.mark.parametrize("content", [None, b"no table", b"\x89HDF\r\n\x1a\n"])
def test_what_is_no_table_is_one_line(folder, tmp_path, content):
    path = tmp_path / "x.h5"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"x\.h5: (no such file|not a table)"):
        kappaflow("retrieve", "x1d.fits", "--model", folder / "network", "--opacity", path)


def test_networks_of_different_tables_are_not_pooled(folder):
    mine = Checkpoint.load(folder / "network")
    packaged = replace(mine, card=replace(mine.card, opacity=None))  # as of the first release: the packaged table
    with pytest.raises(UserError, match="only networks of the same opacities can be pooled"):
        Posterior([mine, packaged])
    with pytest.raises(UserError, match="--control: made with opacity table"):
        kappaflow("retrieve", "x1d.fits", "--control", folder / "network")
