"""`kappaflow paper all --preset tiny`: structure, the sign of the effect, a kill in the middle, a second run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext

import pytest
from folders import ROOT

from kappaflow.experiments.item import items
from kappaflow.experiments.results_page import item_page, read_contents, results_page

DOCS = ROOT / "docs"
LOST = ("perturbed, test", "small control 0", "small marginalized 0")


def words(out, *more):
    return [sys.executable, "-m", "kappaflow", "paper", *more, "--preset", "tiny", "--out", str(out)]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The whole paper at the tiny preset, from the command line."""
    folder = tmp_path_factory.mktemp("whole") / "tiny"
    done = subprocess.run(words(folder, "all"), capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert "marginalized ensemble" in done.stdout
    return folder


def content(out, name):
    return json.loads((out / f"{name}.json").read_text(encoding="utf-8"))


def row(out, name, title, label):
    """Cells of one row of one table, by column."""
    found = next(t for t in content(out, name)["tables"] if t["title"].startswith(title))
    cells = next(r["cells"] for r in found["rows"] if r["label"] == label)
    return dict(zip(found["columns"], cells, strict=True))


def test_every_item_has_its_numbers_tables_and_figure(out):
    for name in items():
        told = content(out, name)
        assert told["command"].startswith(f"kappaflow paper {name} --preset tiny --parameters paper")
        assert all(table["rows"] for table in told["tables"]), name
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (out / f"{name}.md").read_text(encoding="utf-8") == item_page(told)


def test_the_papers_numbers_and_binomial_errors_stand_beside_ours(out):
    cell = row(out, "coverage", "C/O on 256 perturbed", "0.90")["control"]
    assert cell["paper"] == 0.433
    assert cell["error"] == pytest.approx((cell["value"] * (1 - cell["value"]) / 256) ** 0.5)
    assert row(out, "amplitude", "C/O at 0.90", "marginalized ensemble")["× 2.14"]["paper"] == 0.75
    assert row(out, "priors", "Spread", "CH4: exomol / base")["const"]["paper"] == 0.226


def test_fixed_opacities_cover_too_little_and_randomized_ones_do_not(out):
    means = {m: row(out, "informative", "Mean", m)["informative parameters"] for m in ("control", "marginalized")}
    control, marginalized = (one["value"] for one in means.values())
    assert control < marginalized - means["control"]["error"]
    pooled = row(out, "coverage", "C/O on 256 perturbed", "all parameters at 0.90")
    assert pooled["control ensemble"]["value"] < pooled["marginalized ensemble"]["value"]


def test_the_page_is_a_function_of_the_json(out):
    page = (out / "results.md").read_text(encoding="utf-8")
    assert page == results_page(read_contents(out), out)
    assert [one["item"] for one in read_contents(out)] == list(items())
    for name in items():
        assert f"]({name}.png)" in page


@pytest.mark.skipif(not (DOCS / "results").is_dir(), reason="no results are committed")
def test_the_committed_page_is_what_its_json_says():
    page = results_page(read_contents(DOCS / "results"), DOCS / "results", "results/")
    assert (DOCS / "results.md").read_text(encoding="utf-8") == page


def test_a_second_run_makes_and_computes_nothing_and_a_lost_figure_comes_back(out, command):
    before = {p.name: p.stat().st_mtime_ns for p in (out / "cache").iterdir()}
    figure = (out / "scaling.png").read_bytes()
    (out / "scaling.png").unlink()
    code, told, _ = command("paper", "all", "--preset", "tiny", "--out", out, "--json")
    told = json.loads(told)
    assert code == 0
    assert told["made"] == {"data": 0, "network": 0, "draws": 0}
    assert told["computed"] == []
    assert (out / "scaling.png").read_bytes() == figure
    after = {p.name: p.stat().st_mtime_ns for p in (out / "cache").iterdir()}
    assert {k: v for k, v in after.items() if k != ".lock"} == {k: v for k, v in before.items() if k != ".lock"}
    code, told, _ = command("paper", "all", "--preset", "tiny", "--out", out, "--plan")
    assert (code, told.splitlines()[-1]) == (0, "nothing to make")


def test_a_run_killed_again_and_again_ends_with_the_same_numbers(out, tmp_path):
    """From what the whole run left, without the test set, the networks of few spectra and every draw."""
    folder = tmp_path / out.name  # of the same name: the command is part of the JSON
    shutil.copytree(out / "cache", folder / "cache")
    for marker in (folder / "cache").glob("*.json"):
        told = json.loads(marker.read_text(encoding="utf-8"))
        if told.get("kind") == "draws" or told.get("name") in LOST:
            marker.unlink()
            shutil.rmtree(marker.with_suffix("")) if told["name"] in LOST else marker.with_suffix(".npz").unlink()
    left = len(list((folder / "cache").glob("*.json")))
    command = words(folder, "scaling", "--workers", "1")
    for finished in (1, 3):  # markers to wait for before the kill
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        end = time.monotonic() + 300
        while len(list((folder / "cache").glob("*.json"))) < left + finished and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)  # the parent alone: its worker has to notice
        process.wait()
        assert not (folder / "scaling.json").exists()
        _wait_for_the_end_of(process.pid)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)["made"]
    assert made["data"] == 0
    assert 0 < made["network"] + made["draws"] < 6
    for name in ("scaling.json", "scaling.md", "scaling.png"):
        assert (folder / name).read_bytes() == (out / name).read_bytes()


def _wait_for_the_end_of(session):
    """Wait until no process of a killed run's session is left."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("workers outlived their parent")


class Here:
    """A worker in this process: the others are started by the whole paper, above."""

    count = 1

    def __init__(self):
        self.tasks = []

    def submit(self, task):
        self.tasks.append(task)
        return len(self.tasks)

    def events(self):
        yield len(self.tasks), "done", self.tasks[-1](lambda share: None)


@pytest.mark.usefixtures("one_thread")
def test_a_plan_names_every_step_and_how_long_it_takes(command, tmp_path, monkeypatch):
    monkeypatch.setattr("kappaflow.experiments.rates.LONG", 0.3)
    monkeypatch.setattr("kappaflow.experiments.reproduce.chosen_workers", lambda *_: nullcontext(Here()))
    code, told, _ = command("paper", "scaling", "--preset", "tiny", "--out", tmp_path / "plan", "--plan", "--json")
    plan = json.loads(told)
    assert code == 0
    kinds = [step["kind"] for step in plan["steps"]]
    assert {kind: kinds.count(kind) for kind in kinds} == {"data": 3, "network": 4, "draws": 4}
    assert all(step["seconds"] > 0 for step in plan["steps"])
    assert max(s["seconds"] for s in plan["steps"]) < plan["total"] < sum(s["seconds"] for s in plan["steps"]) + 60
    assert not (tmp_path / "plan" / "scaling.json").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("coverge",), "paper: no item 'coverge'; expected all, or any of coverage, scaling"),
        (("all", "--preset", "huge"), "--preset huge: unknown; expected one of tiny, laptop, paper"),
        (("real", "--spectra", "nowhere"), "--spectra nowhere: no such folder"),
        (("all", "--parameters", "mine"), "mine"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(command, tmp_path, arguments, line):
    code, told, error = command("paper", *arguments, "--out", tmp_path)
    assert (code, told) == (2, "")
    assert line in error
    assert len(error.splitlines()) == 1
