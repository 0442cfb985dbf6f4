"""The prepared arrays on disk: found again only for exactly what made them, and never in anyone's way."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import kappaflow
from kappaflow.cli import app
from kappaflow.errors import UserError
from kappaflow.model import ForwardModel, cache
from kappaflow.model.arrays import PreparedArrays, on_device
from kappaflow.model.cache import CODE, cached, prepared_key
from kappaflow.physics.temperature import Hermite
from kappaflow.presets import preset
from kappaflow.tables.opacity import OPACITY

TINY = preset("tiny")
ROOT = Path(kappaflow.__file__).parent


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KAPPAFLOW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def prepared(seed=0):
    rng = np.random.default_rng(seed)
    arrays = {
        "value": rng.random((100, 5), np.float32),
        "tangent": rng.random((100, 5), np.float32),
        "odd": np.arange(3, dtype=np.int32),
        "scalar": np.array(2.5, np.float32),
    }
    return PreparedArrays(
        arrays, {"H2O": ("base", "exomol"), "CO": ("base",)}, {"sizes": {"layers": 2}, "opacity": "x"}
    )


def never():
    raise AssertionError("made again")


def assert_same(a, b):
    assert (a.names, a.meta, list(a.names)) == (b.names, b.meta, list(b.names))
    assert a.arrays.keys() == b.arrays.keys()
    for name, array in a.arrays.items():
        assert array.dtype == b.arrays[name].dtype
        np.testing.assert_array_equal(array, b.arrays[name])


def test_a_set_is_made_once_and_comes_back_the_same():
    assert_same(cached("k", prepared), prepared())
    assert_same(cached("k", never), prepared())


def test_jax_takes_a_mapped_array_without_a_copy():
    cached("k", prepared)
    found = cached("k", never)
    table = on_device(Hermite, found.arrays)
    assert table.value.unsafe_buffer_pointer() == found.arrays["value"].ctypes.data
    assert not found.arrays["value"].flags.writeable


def flip(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b"",
        lambda b: b"something else",
        lambda b: b"\x00" * len(b),
        lambda b: b[: len(b) // 2],
        lambda b: b + b"\x00" * 64,
        lambda b: b.replace(b"exomol", b"hitemp"),
        lambda b: flip(b, len(b) - 2000),
        lambda b: b.replace(b"kappaflow-prepared/1", b"kappaflow-prepared/0"),
    ],
    ids=["empty", "text", "zeros", "half", "longer", "other names", "one bit", "other schema"],
)
def test_a_damaged_file_is_made_again_in_silence(folder, damage, capfd):
    cached("k", prepared)
    file = folder / "k.prepared"
    whole = file.read_bytes()
    assert damage(whole) != whole
    file.write_bytes(damage(whole))
    made = []
    assert_same(cached("k", lambda: made.append(1) or prepared()), prepared())
    assert made == [1]
    assert file.read_bytes() == whole
    assert capfd.readouterr() == ("", "")


def test_a_file_under_another_name_is_not_taken(folder):
    cached("k", prepared)
    shutil.copy(folder / "k.prepared", folder / "l.prepared")
    assert_same(cached("l", lambda: prepared(1)), prepared(1))


def test_no_folder_to_write_means_no_cache(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("KAPPAFLOW_CACHE", str(tmp_path / "file" / "cache"))
    assert_same(cached("k", prepared), prepared())
    assert_same(cached("k", lambda: prepared(1)), prepared(1))


def test_a_full_disk_means_no_cache_and_leaves_nothing(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "fsync", full)
    assert_same(cached("k", prepared), prepared())
    assert not list(folder.glob("*.prepared*.part"))
    assert not (folder / "k.prepared").exists()


def test_the_cache_can_be_off(monkeypatch, tmp_path):
    monkeypatch.setenv("KAPPAFLOW_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    assert_same(cached("k", prepared), prepared())
    assert_same(cached("k", lambda: prepared(1)), prepared(1))
    assert not list(tmp_path.iterdir())


TWO = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_model_cache import assert_same, prepared
from kappaflow.model.cache import cached
def make():
    with Path(sys.argv[2]).open("a") as log:
        log.write("made\\n")
    time.sleep(1)
    return prepared()
print("ready", flush=True)
sys.stdin.readline()
assert_same(cached("k", make), prepared())
"""


def test_two_processes_at_once_make_one_set(tmp_path):
    command = [sys.executable, "-c", TWO, str(Path(__file__).parent), str(tmp_path / "log")]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.communicate("go\n")
        assert process.returncode == 0
    assert (tmp_path / "log").read_text() == "made\n"


def test_the_sets_used_longest_ago_go_first(folder, monkeypatch):
    for age, key in enumerate("abc"):
        cached(key, prepared)
        os.utime(folder / f"{key}.prepared", (1000 + age, 1000 + age))
    size = (folder / "a.prepared").stat().st_size
    cached("a", never)  # used again: now the newest
    monkeypatch.setattr(cache, "LIMIT", 2.5 * size)
    cached("d", prepared)
    assert {p.stem for p in folder.glob("*.prepared")} == {"a", "d"}


def test_the_key_changes_with_everything_that_decides_the_arrays(tmp_path, monkeypatch):
    edited = tmp_path / "edited.h5"
    shutil.copy(OPACITY.path(), edited)
    same = prepared_key(edited, TINY, (1.0, 0.0), "borysow")
    assert same == prepared_key(None, TINY, (1.0, 0.0), "borysow")  # a copy is the same table
    with edited.open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        byte = file.read(1)
        file.seek(-100, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
    keys = [
        same,
        prepared_key(edited, TINY, (1.0, 0.0), "borysow"),
        *(
            prepared_key(None, TINY.model_copy(update={size: 2}), (1.0, 0.0), "borysow")
            for size in ("stride", "layers", "pixel_bin")
        ),
        prepared_key(None, TINY, (1.1, 0.0), "borysow"),
        prepared_key(None, TINY, (1.0, 0.1), "borysow"),
        prepared_key(None, TINY, (1.0, 0.0), "petitradtrans"),
        prepared_key(None, TINY, (1.0, 0.0), "borysow", "full"),
    ]
    monkeypatch.setattr(cache.np, "__version__", "0")
    keys.append(prepared_key(None, TINY, (1.0, 0.0), "borysow"))
    assert len(set(keys)) == len(keys)
    assert prepared_key(None, preset("tiny").model_copy(update={"spectra": 7}), (1.0, 0.0), "borysow") == keys[-1]


def test_the_key_knows_every_module_that_the_preparation_imports():
    """But physics/, of which only the names of fields count, and what decides no number."""
    harmless = {"errors.py", "storage.py", "presets.py"}
    seen, todo = set(), ["model/prepare.py"]
    while todo:
        here = todo.pop()
        if here in seen or here in harmless or here.startswith("physics/"):
            continue
        seen.add(here)
        for node in ast.walk(ast.parse((ROOT / here).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kappaflow."):
                todo.append(node.module.removeprefix("kappaflow.").replace(".", "/") + ".py")
    assert seen == set(CODE)


def test_a_model_from_the_cache_gives_the_same_bits(folder, monkeypatch):
    theta = [300, 500, 900, 1500, 2500, 0.55, 0, 8, 5, 1, 3, 2, 0, 5, 0]
    made = ForwardModel.load("tiny")
    found = ForwardModel.load("tiny")
    assert len(list(folder.glob("*.prepared"))) == 1
    monkeypatch.setenv("KAPPAFLOW_CACHE", "off")
    without = ForwardModel.load("tiny")
    assert made.digest == found.digest == without.digest
    assert made.names == found.names == without.names
    np.testing.assert_array_equal(made(theta), without(theta))
    np.testing.assert_array_equal(found(theta), without(theta))


def test_a_mistake_is_told_with_and_without_a_cache(folder):
    with pytest.raises(UserError, match="no such opacity table"):
        ForwardModel.load("tiny", opacity="nowhere.h5")
    with pytest.raises(UserError, match="no family"):
        ForwardModel.load("tiny", cia="nobody")
    assert not list(folder.glob("*.prepared"))


def test_the_command_line_tells_and_clears(folder):
    cached("k", prepared)
    (folder / "foreign.prepared").write_text("something else")
    told = json.loads(CliRunner().invoke(app, ["cache", "info", "--json"]).stdout)
    assert told["folder"] == str(folder)
    assert {entry["key"] for entry in told["sets"]} == {"k", "foreign"}
    said = CliRunner().invoke(app, ["cache", "info"]).stdout
    assert "2 sets" in said
    assert "layers 2" in said
    freed = json.loads(CliRunner().invoke(app, ["cache", "clear", "--json"]).stdout)["freed_bytes"]
    assert freed == sum(entry["bytes"] for entry in told["sets"])
    assert not list(folder.glob("*.prepared"))
    assert "0 sets" in CliRunner().invoke(app, ["cache", "info"]).stdout
