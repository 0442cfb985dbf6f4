"""`kappaflow calibrate`: files of draws in, a verdict out; bad input is one line and exit code 2."""

import csv
import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from calibration_toy import boxed

from kappaflow.calibrate import coverage
from kappaflow.cli import main
from kappaflow.errors import UserError
from kappaflow.evaluate.draws_file import Method, read_method, write_method

QUICK = ["--bootstraps", "100", "--references", "5"]


def run(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["kappaflow", "calibrate", *map(str, args)])
    with pytest.raises(SystemExit) as stop:
        main()
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


def each(option, *values):
    return [word for value in values for word in (option, value)]


def method(name="exact", n=120, **arm):
    toy = boxed(n, 79, [0.05, 3.0], seed=1, **arm)
    rng = np.random.default_rng(2)
    extra = {"log_prob": rng.normal(size=n), "log_prob_draws": rng.normal(size=(n, 79))}
    return Method(name, replace(toy, names=("C_O", "R")), {"SNR": rng.uniform(10, 200, n)}, **extra)


@pytest.fixture
def files(tmp_path):
    paths = tmp_path / "exact.npz", tmp_path / "narrow.h5"
    for path, stretch in zip(paths, (1.0, 0.5), strict=True):
        write_method(path, method(path.stem, stretch=stretch))
    return paths


def test_two_files_give_one_verdict_with_tables_and_figures(files, tmp_path, monkeypatch, capsys):
    out = tmp_path / "verdict"
    code, shown, _ = run(
        monkeypatch,
        capsys,
        *each("--draws", *files),
        "--pair",
        "narrow",
        "exact",
        "--recalibrate",
        "--out",
        out,
        *QUICK,
    )
    assert code == 0
    content = json.loads((out / "verdict.json").read_text())
    kinds = ["", " recalibrated", " conformal"]
    assert list(content["methods"]) == [f"{name}{kind}" for name in ("exact", "narrow") for kind in kinds]
    assert content["methods"]["exact"]["calibrated"] is True
    assert content["methods"]["narrow"]["calibrated"] is False
    assert content["pair"]["first"] == "narrow"
    assert np.array(content["pair"]["coverage_interval"])[1, 2, 0] < 0
    assert content["corrections"]["exact"]["calibration_objects"] == 60
    assert set(content["highest_density"]) == {"exact", "narrow"}
    assert "SNR" in content["methods"]["exact"]["breakdown"]
    assert "not calibrated" in shown
    assert "covers too little" in shown
    with (out / "parameters.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["parameter"] for row in rows[:2]] == ["C_O", "R"]
    assert float(rows[0]["coverage_0.9"]) == pytest.approx(content["methods"]["exact"]["coverage"]["coverage"][2][0])
    figures = {path.name for path in out.glob("*.p[nd][gf]")}
    stems = [
        "pit-exact",
        "pit-narrow",
        "pit-exact-recalibrated",
        "pit-narrow-recalibrated",
        "tarp",
        "coverage",
        "pit-ecdf",
    ]
    assert figures == {f"{stem}.{kind}" for stem in [*stems, "width-coverage"] for kind in ("png", "pdf")}
    assert (out / "tarp.png").read_bytes()[:4] == b"\x89PNG"
    assert (out / "tarp.pdf").read_bytes()[:5] == b"%PDF-"
    assert not list(out.glob("*.part"))


def test_json_prints_the_verdict_itself_and_the_same_twice(files, tmp_path, monkeypatch, capsys):
    args = ["--draws", files[0], "--json", *QUICK]
    texts = [run(monkeypatch, capsys, *args, "--out", tmp_path / name)[1] for name in ("a", "b")]
    assert texts[0] == texts[1]
    content = json.loads(texts[0])
    assert content == json.loads((tmp_path / "a" / "verdict.json").read_text())
    assert content["comparison"]["parameter"] == "C_O"
    pictures = [(tmp_path / name / "tarp.pdf").read_bytes() for name in ("a", "b")]
    assert pictures[0] == pictures[1]


def test_both_formats_hold_the_same(tmp_path):
    made = method()
    for name in ("a.npz", "a.h5"):
        write_method(tmp_path / name, made)
        read = read_method(tmp_path / name)
        np.testing.assert_array_equal(read.draws.draws, made.draws.draws)
        assert read.draws.names == ("C_O", "R")
        np.testing.assert_array_equal(read.draws.high, made.draws.high)
        np.testing.assert_array_equal(read.covariates["SNR"], made.covariates["SNR"])
        np.testing.assert_array_equal(read.log_prob_draws, made.log_prob_draws)
        assert read.digest() == made.digest()


def test_a_file_written_with_numpys_savez_is_read(tmp_path):
    toy = boxed(5, 60, [0.1])
    np.savez(tmp_path / "a.npz", truth=toy.truth, draws=toy.draws, names=["x"], **{"covariates/SNR": np.ones(5)})
    assert list(read_method(tmp_path / "a.npz").covariates) == ["SNR"]


class Explosive:
    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


def write_bad(path, what):
    good = {"truth": np.zeros((4, 2)), "draws": np.random.default_rng(0).random((4, 60, 2))}
    if what == "pickle in npz":
        np.savez(path, truth=good["truth"], draws=np.array([Explosive()], dtype=object))
    elif what == "plain pickle":
        path.write_bytes(pickle.dumps(Explosive()))
    elif what == "nan":
        good["draws"][1, 2, 0] = np.nan
        np.savez(path, **good)
    elif what == "misspelt":
        np.savez(path, **good, lows=np.zeros(2))
    elif what == "no draws":
        np.savez(path, truth=good["truth"])
    elif what == "half a prior":
        np.savez(path, **good, low=np.zeros(2))
    elif what == "covariate":
        np.savez(path, **good, **{"covariates/SNR": np.ones(3)})
    elif what == "cut short":
        np.savez(path, **good)
        path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("pickle in npz", "unreadable"),
        ("plain pickle", "not an .npz archive"),
        ("nan", "draws: 1 NaN or infinite values of theta0, the first in object 1"),
        ("misspelt", "unknown entry 'lows'"),
        ("no draws", "no entry 'draws'; it has truth"),
        ("half a prior", "only one of the prior's bounds"),
        ("covariate", "covariate SNR: shape (3,)"),
        ("cut short", "not an .npz archive"),
        ("absent", "no such file"),
    ],
)
def test_a_bad_file_is_one_line_and_exit_code_2(what, message, tmp_path, monkeypatch, capsys):
    path = tmp_path / "bad.npz"
    write_bad(path, what)
    code, _, err = run(monkeypatch, capsys, "--draws", path, "--out", tmp_path / "out", *QUICK)
    assert code == 2
    assert len(err.strip().splitlines()) == 1
    assert "bad.npz" in err
    assert message in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "nothing to judge"),
        (["--data", "somewhere"], "nothing to judge"),
        (["--draws", "a.npz", "--data", "somewhere"], "belong together"),
        (["--draws", "a.npz", "--draws", "x/a.npz"], "two methods are called 'a'"),
        (["--draws", "a.npz", "--pair", "a", "b"], "--pair b: no such method; there are a"),
        (["--draws", "a.npz", "--levels", "0.9;0.5"], "--levels 0.9;0.5"),
        (["--draws", "a.npz", "--bootstraps", "5"], "at least 100"),
        (["--draws", "a.npz", "--save-draws", "b.npz"], "--save-draws"),
        (["--draws", "a.txt"], "no such file"),
        (["--data", "nowhere", "--model", "b"], "b"),
    ],
)
def test_impossible_requests_are_one_line_and_exit_code_2(args, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(monkeypatch, capsys, *args, "--out", tmp_path / "out")
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_an_unknown_ending_and_an_out_that_is_a_file_are_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.txt").write_text("1 2 3")
    with pytest.raises(UserError, match="unknown ending '.txt'"):
        read_method(tmp_path / "a.txt")
    code, _, err = run(monkeypatch, capsys, "--draws", tmp_path / "b.npz", "--out", tmp_path / "a.txt")
    assert code == 2
    assert "expected a folder" in err


def test_an_interrupted_run_leaves_no_verdict_and_nothing_half_written(files, tmp_path, monkeypatch, capsys):
    from kappaflow.plots import verdict_figures as calibration

    out = tmp_path / "out"
    assert run(monkeypatch, capsys, "--draws", files[0], "--out", out, *QUICK)[0] == 0

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration, "tarp_curves", stopped)
    code, _, _ = run(monkeypatch, capsys, "--draws", files[0], "--out", out, *QUICK)
    assert code != 0
    assert not (out / "verdict.json").exists()
    assert not list(out.glob("*.part"))


def test_a_hdf5_file_of_other_things_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["flux"] = np.ones(3)
    with pytest.raises(UserError, match="unknown entry 'flux'"):
        read_method(tmp_path / "a.h5")
    (tmp_path / "b.h5").write_bytes(b"not HDF5")
    with pytest.raises(UserError, match="unreadable"):
        read_method(tmp_path / "b.h5")


def test_networks_on_held_out_shards_are_drawn_from_judged_and_their_draws_kept(tmp_path, monkeypatch, capsys):
    """Two tiny networks, pooled; the file of draws that is kept gives the same coverage as the networks did."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kappaflow.plots.save_figure", lambda *_: None)  # drawn in the tests above
    monkeypatch.setattr("kappaflow.report.verdict_page.write_verdict_page", lambda *_: None)

    def command(*args):
        monkeypatch.setattr(sys, "argv", ["kappaflow", *args])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 0, capsys.readouterr().err

    for name, seed, n in (("train", "0", "256"), ("test", "1", "128")):
        command("simulate", "--out", name, "--n", n, "--toy", "--seed", seed, "--preset", "tiny")
    for seed in "01":
        command("train", "--data", "train", "--out", f"net{seed}", "--epochs", "1", "--seed", seed)
    networks = [
        "--data",
        "test",
        *each("--model", "net0", "net1"),
        "--samples",
        "60",
        "--n",
        "100",
        "--save-draws",
        "kept.npz",
    ]
    code, _, err = run(monkeypatch, capsys, *networks, "--out", "v", "--levels", "0.5,0.9", *QUICK)
    assert code == 0, err
    found = json.loads((tmp_path / "v" / "verdict.json").read_text())["methods"]["ensemble of 2"]
    assert found["coverage"]["objects"] == 100
    assert found["scores"]["nll"] is not None
    assert "SNR" in found["breakdown"]
    assert found["draws_outside_prior"] == [0] * 15
    kept = read_method(tmp_path / "kept.npz")
    again = coverage(kept.draws.truth, kept.draws.draws, [0.5, 0.9])
    np.testing.assert_allclose(again.coverage, found["coverage"]["coverage"])
    assert len(np.unique(kept.draws.draws[:, 0, 5])) == 100  # no object got another's random numbers
    code, _, err = run(monkeypatch, capsys, "--data", "train", "--model", "net0", "--out", "w", *QUICK)
    assert code == 2
    assert "another --seed" in err  # nobody is judged on what it was trained on


def test_the_worked_example_of_the_docs_runs_as_printed(tmp_path, monkeypatch):
    """Its code, on fewer objects, leaves the four files that the command below it judges."""
    text = (Path(__file__).parents[1] / "docs" / "calibration.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    assert "size=(2048, 4)" in code
    monkeypatch.chdir(tmp_path)
    exec(code.replace("2048", "40"), {})
    command = next(line for line in text.splitlines() if line.startswith("kappaflow calibrate --draws exact.npz"))
    named = [word for word in command.split() if word.endswith(".npz")]
    assert command.count("--draws") == 4
    assert [read_method(tmp_path / name).draws.draws.shape for name in named] == [(40, 400, 4)] * 4
