"""What every command promises: nothing silently dropped, nothing heavy before a mistake is told, one line each."""

import builtins
import errno
import os
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.main import get_command

from kappaflow.cli import app, command_line
from kappaflow.cli.command_line import CheckedCommand, one_line
from kappaflow.errors import UserError


def commands(group, path=()):
    for name, found in group.commands.items():
        if hasattr(found, "commands"):
            yield from commands(found, (*path, name))
        else:
            yield (*path, name), found


EVERY = dict(commands(get_command(app)))
SINGLE = [
    (path, option)
    for path, found in EVERY.items()
    for option in found.params
    if option.param_type_name == "option" and not option.multiple
]


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_command_is_a_checked_one(path):
    assert isinstance(EVERY[path], CheckedCommand)


@pytest.mark.parametrize(("path", "option"), SINGLE, ids=lambda x: " ".join(x) if isinstance(x, tuple) else x.name)
def test_an_option_given_twice_is_refused_by_name(command, path, option):
    name = max(option.opts, key=len)
    words = [name] if option.is_flag else [name, *["1"] * option.nargs]
    code, out, error = command(*path, *words, *words)
    assert code == 2
    assert out == ""
    assert error.startswith(f"kappaflow: {name}: given 2 times")
    assert error.count("\n") == 1


def test_an_option_that_may_be_repeated_still_may(command, tmp_path):
    code, _, error = command("simulate", "--toy", "--n", 1, "--pin", "CH4=base", "--pin", "H2O=base", "--out", tmp_path)
    assert (code, error) == (0, "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["retrieve", "x.txt", "--distance", "near"], "'--distance'"),
        (["retrieve", "x.txt", "--distanc", "5"], "--distanc"),
        (["calibrate"], "'--out'"),
        (["retriev"], "'retrieve'"),
        (["opacity", "biuld"], "'biuld'"),
        (["demo", "--n", "0"], "--n"),
    ],
    ids=lambda x: x[0] if isinstance(x, list) else "",
)
def test_what_the_parser_refuses_is_one_line_that_names_the_help(command, words, told):
    code, out, error = command(*words)
    assert (code, out) == (2, "")
    assert error.startswith("kappaflow: ")
    assert error.count("\n") == 1
    assert told in error
    assert "--help`" in error


def test_a_missing_extra_leaves_no_folder_behind(command, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    code, _, error = command("simulate", "--n", 128, "--scheduler", "tcp://127.0.0.1:1", "--out", tmp_path / "new")
    assert code == 2
    assert error == "kappaflow: distributed is not installed; run pip install 'kappaflow[cluster]'\n"
    assert not (tmp_path / "new").exists()


def test_two_distances_are_told_of_the_table_that_holds_them(command):
    code, _, error = command("retrieve", "a.txt", "b.txt", "--distance", 6.3, "--distance", 10.7)
    assert code == 2
    assert "--targets" in error


@pytest.mark.parametrize("name", ["retrieve", "simulate", "calibrate", "fit", "demo"])
def test_an_out_that_cannot_be_written_is_refused_before_anything_is_loaded(command, tmp_path, monkeypatch, name):
    def never(*_, **__):
        raise AssertionError("loaded before --out was looked at")

    monkeypatch.setattr("kappaflow.model.forward.ForwardModel.load", never)
    monkeypatch.setattr("kappaflow.inference.posterior.Posterior.load", never)
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    files = {"retrieve": ["x.txt"], "fit": ["x.txt"]}.get(name, [])
    code, _, error = command(name, *files, "--out", tmp_path / "file" / "deep" / "out")
    assert code == 2
    assert "--out" in error
    assert "is a file; expected a folder" in error
    assert (tmp_path / "file").read_text(encoding="utf-8") == "in the way"


def test_a_file_where_a_folder_is_expected_is_refused_at_once_and_the_reverse(command, tmp_path):
    (tmp_path / "there").write_text("mine")
    code, _, error = command("retrieve", tmp_path / "x.fits", "--out", tmp_path / "there")
    assert (code, "expected a folder" in error) == (2, True)
    code, _, error = command("chemistry", "build", "--out", tmp_path)
    assert (code, "expected a file" in error) == (2, True)
    assert (tmp_path / "there").read_text() == "mine"


def test_the_disk_itself_is_asked(monkeypatch, tmp_path):
    def full(**_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(command_line.tempfile, "TemporaryFile", full)
    with pytest.raises(UserError, match="Read-only file system"):
        command_line.refuse_unwritable(tmp_path / "new", "--out")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_one_line(command, monkeypatch, tmp_path):
    monkeypatch.setattr(command_line.importlib.util, "find_spec", lambda name: None)
    code, _, error = command("train", "--data", tmp_path, "--out", tmp_path, "--tensorboard")
    assert code == 2
    assert error == "kappaflow: tensorboard is not installed; run pip install 'kappaflow[dev]'\n"


def test_a_module_missed_later_is_one_line_too_unless_it_is_our_own_mistake():
    assert "kappaflow[build]" in one_line(ModuleNotFoundError("No module named 'numba.core'", name="numba.core"))
    assert one_line(ModuleNotFoundError("No module named 'kapaflow'", name="kapaflow")) is None
    assert one_line(builtins.ZeroDivisionError()) is None
    assert "No space left" in one_line(OSError(errno.ENOSPC, "No space left on device", "shard.h5"))
    assert one_line(OSError(errno.ECONNRESET, "reset")) is None


INTERRUPTED = {  # command -> where Ctrl-C arrives, its options, whether --resume is the remedy
    "simulate": ("kappaflow.simulation.run.simulate_directory", ["--toy", "--n", 1], True),
    "train": ("kappaflow.simulation.Shards", ["--data", "shards"], True),
    "calibrate": ("kappaflow.evaluate.judging.judge_sources", ["--draws", "draws.npz"], False),
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupted_command_says_how_to_go_on(command, monkeypatch, tmp_path, name):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    where, words, resumable = INTERRUPTED[name]
    monkeypatch.setattr(where, stopped)
    code, _, error = command(name, *words, "--out", tmp_path / "out")
    assert code == 130
    assert error == f"kappaflow: interrupted{'; the same command with --resume goes on' if resumable else ''}\n"


def test_the_version_is_told_by_script_and_by_module():
    told = subprocess.run([sys.executable, "-m", "kappaflow", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout == f"kappaflow {version('kappaflow')}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_offered_completion(shell):
    """The shell is named, as typer's own tests do: what runs the tests may be none that it knows."""
    words = [sys.executable, "-m", "kappaflow", "--show-completion", shell]
    env = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    told = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert told.returncode == 0
    assert "complet" in told.stdout.lower()


def test_a_half_typed_line_is_completed():
    env = {"_KAPPAFLOW_COMPLETE": "complete_bash", "COMP_WORDS": "kappaflow retr", "COMP_CWORD": "1"}
    code = "from kappaflow.cli import app; app(prog_name='kappaflow')"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **env}
    )
    assert told.stdout.split() == ["retrieve"]
