"""`--config FILE`: a set is made again from the config.json it wrote, and a file of options is checked like them."""

import json

import pytest

from kappaflow.simulation.directory import shard_path


def written(tmp_path, content, name="options.json"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_set_is_made_again_to_the_byte_from_its_own_config(command, tmp_path):
    words = ["--toy", "--n", 200, "--seed", 7, "--amplitude", "0:2.5", "--pin", "CH4=base", "--broadening", "1.3,-0.15"]
    words += ["--broadening", "1,0", "--perturb", "smooth", "--sequence", "sobol", "--workers", 0]
    assert command("simulate", *words, "--out", tmp_path / "a")[0] == 0
    code, _, error = command(
        "simulate", "--config", tmp_path / "a" / "config.json", "--workers", 0, "--out", tmp_path / "b"
    )
    assert (code, error) == (0, "")
    for name in ("config.json", shard_path(tmp_path, 0).name, shard_path(tmp_path, 1).name):
        assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()


def test_widths_of_the_field_that_no_option_holds_come_along(command, tmp_path):
    command("simulate", "--toy", "--n", 1, "--workers", 0, "--out", tmp_path / "a")
    path = tmp_path / "a" / "config.json"
    stated = json.loads(path.read_text(encoding="utf-8"))
    stated["config"]["sigma"] = [["H2O", [0.5, 0.1, 0.1, 0.1, 0.1]]]
    other = written(tmp_path, stated)
    code, _, error = command("simulate", "--config", other, "--workers", 0, "--out", tmp_path / "b")
    assert (code, error) == (0, "")
    made = json.loads((tmp_path / "b" / "config.json").read_text(encoding="utf-8"))
    assert made["config"]["sigma"] == stated["config"]["sigma"]


def test_what_is_given_beside_the_file_wins(command, tmp_path):
    path = written(tmp_path, {"toy": True, "n": 1, "seed": 3, "perturb": "none", "workers": 0})
    assert command("simulate", "--config", path, "--seed", 9, "--out", tmp_path / "a")[0] == 0
    made = json.loads((tmp_path / "a" / "config.json").read_text(encoding="utf-8"))
    assert made["seed"] == 9
    assert made["config"]["perturb"] == "none"


def test_another_opacity_table_has_to_be_named(command, tmp_path):
    stated = {
        "schema": "kappaflow-shards/3",
        "config": {"preset": "tiny", "model": "forward"},
        "seed": 0,
        "spectra": 128,
    }
    path = written(tmp_path, {**stated, "opacity": {"digest": "0123456789abcdef"}})
    code, _, error = command("simulate", "--config", path, "--out", tmp_path / "out")
    assert code == 2
    assert "made with opacity table 0123456789abcdef" in error
    assert "--opacity" in error


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"amplitud": 2}, "'amplitud' is no option of simulate"),
        ({"n": "many"}, "--n"),
        ({"sigma": []}, "'sigma' is no option of simulate"),
        ([1, 2], "expected a mapping"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_wrong_with_the_file_is_said(command, tmp_path, content, said):
    code, _, error = command("simulate", "--config", written(tmp_path, content), "--out", tmp_path / "out")
    assert code == 2
    assert said in error
    assert not (tmp_path / "out").exists()
    assert command("simulate", "--config", tmp_path / "nowhere.json", "--out", tmp_path / "out")[0] == 2


def test_training_takes_its_data_from_a_sets_config(command, tmp_path, monkeypatch):
    command("simulate", "--toy", "--n", 1, "--workers", 0, "--out", tmp_path / "set")
    seen = []
    monkeypatch.setattr("kappaflow.simulation.Shards", lambda data, masks: seen.append((data, masks)) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        command("train", "--config", tmp_path / "set" / "config.json", "--out", tmp_path / "net")
    options = written(tmp_path, {"data": str(tmp_path / "set"), "masks": True, "out": str(tmp_path / "net")})
    with pytest.raises(ZeroDivisionError):
        command("train", "--config", options)
    assert seen == [(tmp_path / "set", False), (tmp_path / "set", True)]
