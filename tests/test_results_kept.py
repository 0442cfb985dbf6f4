"""A finished result is replaced by a finished one only, and the report lists what is in the folder."""

import csv
import json
import os
import subprocess
import sys

import pytest
from retrieval_toy import observed, write_text

from kappaflow.storage import folder_written_whole


def names(out):
    return [s["name"] for s in json.loads((out / "summary.json").read_text(encoding="utf-8"))]


def bytes_of(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


@pytest.mark.usefixtures("empty_figures")
def test_a_second_run_adds_to_the_report_and_a_failed_one_leaves_everything(run, tmp_path):
    out = tmp_path / "out"
    a, b = (write_text(tmp_path / f"{name}.txt", observed(seed=seed)[1]) for name, seed in (("a", 1), ("b", 2)))
    assert run(a, control=False).exit_code == 0
    assert run(b, control=False).exit_code == 0
    assert names(out) == ["b", "a"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "All objects" in page
    before = {path: bytes_of(path) for path in (out, out / "a", out / "b")}
    a.write_text("wave,flux\n1,2\n", encoding="utf-8")
    failed = run(a, control=False)
    assert failed.exit_code == 2
    assert "no column for error" in failed.stderr
    assert {path: bytes_of(path) for path in before} == before
    again = run(a, b, control=False)  # one of two fails: its old result stays, and the page says so
    assert again.exit_code == 2
    assert bytes_of(out / "a") == before[out / "a"]
    assert "A later attempt failed and left this result as it was: a.txt: no column for error" in (
        out / "report.html"
    ).read_text(encoding="utf-8")
    with (out / "summary.csv").open(encoding="utf-8") as stream:
        rows = {row["name"]: row for row in csv.DictReader(stream)}
    assert rows["a"]["verdict"] != "error"
    assert "no column for error" in rows["a"]["error"]
    assert rows["b"]["error"] == ""


@pytest.mark.usefixtures("empty_figures")
def test_how_each_was_made_stands_with_each_where_it_differs(run, tmp_path, monkeypatch):
    for name in ("a", "b"):
        path = write_text(tmp_path / f"{name}.txt", observed(seed=ord(name))[1])
        monkeypatch.setattr(sys, "argv", ["kappaflow", "retrieve", f"{name}.txt"])
        assert run(path, control=False).exit_code == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for name in ("a", "b"):
        assert f"<dd>kappaflow retrieve {name}.txt</dd>" in page
    assert "How this was made" not in page


def test_a_folder_is_replaced_whole_and_what_others_put_there_is_kept(tmp_path):
    target = tmp_path / "object"
    for i in range(2):
        with folder_written_whole(target) as part:
            (part / "summary.json").write_text(json.dumps({"files": ["summary.json", "old.png"]}), encoding="utf-8")
            (part / ("old.png" if i == 0 else "new.png")).write_text("ours", encoding="utf-8")
        (target / "notes.txt").write_text("mine", encoding="utf-8")
    assert {p.name for p in target.iterdir()} == {"summary.json", "new.png", "notes.txt"}
    assert {p.name for p in tmp_path.iterdir()} == {"object"}


def test_a_folder_that_is_not_ours_loses_nothing(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.tex").write_text("years", encoding="utf-8")
    with folder_written_whole(tmp_path / "data") as part:
        (part / "summary.json").write_text("{}", encoding="utf-8")
    assert (tmp_path / "data" / "thesis.tex").read_text(encoding="utf-8") == "years"


def test_a_body_that_fails_leaves_the_old_folder(tmp_path):
    with folder_written_whole(tmp_path / "x") as part:
        (part / "a").write_text("good", encoding="utf-8")

    def broken():
        with folder_written_whole(tmp_path / "x") as part:
            (part / "a").write_text("half", encoding="utf-8")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert (tmp_path / "x" / "a").read_text(encoding="utf-8") == "good"
    assert {p.name for p in tmp_path.iterdir()} == {"x"}


def test_a_run_killed_between_the_renames_loses_nothing(tmp_path):
    """The process dies after the old folder was moved away; the next run finds it again."""
    code = (
        "import os, pathlib, sys\nfrom kappaflow.storage import folder_written_whole\n"
        "real = pathlib.Path.replace\n"
        "def once(self, target):\n    real(self, target)\n    os._exit(9)\n"
        "pathlib.Path.replace = once\n"
        "with folder_written_whole(sys.argv[1]) as part:\n    (part / 'a').write_text('new')\n"
    )
    target = tmp_path / "x"
    target.mkdir()
    (target / "a").write_text("good", encoding="utf-8")
    died = subprocess.run([sys.executable, "-c", code, str(target)], check=False, env=os.environ)
    assert died.returncode == 9
    assert not target.exists()

    def broken():
        with folder_written_whole(target):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert (target / "a").read_text(encoding="utf-8") == "good"
