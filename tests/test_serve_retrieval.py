"""A job of `kappaflow serve` from the upload to the zip: the same numbers as on the command line."""

import csv
import io
import json
import re
import time
import zipfile

import pytest
from retrieval_toy import fine_text
from starlette.testclient import TestClient

from kappaflow.serve.serve_settings import Limits, NetworkChoice, ServeSettings
from kappaflow.serve.serving import app_of

CHANGE = {"X-Kappaflow": "1"}
PATIENT = Limits(read_seconds=600.0)
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def served(tmp_path_factory, networks):
    """A server with the made-up networks, and a job that it has run: three uploads, two objects, one to fail."""
    root = tmp_path_factory.mktemp("served")
    choice = NetworkChoice(tuple(str(networks / name) for name in ("m0", "m1")), (str(networks / "c0"),))
    with TestClient(
        app_of(root, ServeSettings(networks=choice, limits=PATIENT)), base_url="http://127.0.0.1", headers=CHANGE
    ) as client:
        job = client.post("/api/jobs").json()["id"]
        keys = []
        for seed, name in ((11, "first.txt"), (12, f"{EVIL}.txt"), (13, "third.txt")):
            found = client.post(f"/api/jobs/{job}/files", params={"name": name}, content=fine_text(seed)).json()
            assert found["error"] is None
            keys.append(found["key"])
        objects = [
            {"title": "One", "uploads": [keys[0]], "distance": "10.7", "distance_error": 0.2},
            {"title": EVIL, "uploads": [keys[1]]},
        ]
        asked = {"objects": objects, "asked": {"method": "amortized", "draws": 300, "seed": 3}}
        assert client.post(f"/api/jobs/{job}/run", json=asked).status_code == 202
        assert client.post(f"/api/jobs/{job}/run", json=asked).status_code == 400  # once is enough
        stop = time.monotonic() + 900
        while (state := client.get(f"/api/jobs/{job}").json())["state"] in ("queued", "running"):
            assert time.monotonic() < stop, state
            time.sleep(0.1)
        yield client, root, state


def test_a_job_gives_a_row_per_object_a_report_and_everything_in_a_zip(served):
    client, root, job = served
    assert job["error"] is None
    assert job["state"] == "done"
    first, second = job["outcomes"]
    assert (first["title"], first["name"]) == ("One", "One")
    assert second["name"] == "script_alert_1_script"
    report = client.get(f"/jobs/{job['id']}/report.html")
    assert report.status_code == 200
    assert EVIL not in report.text
    assert "&lt;script&gt;alert(1)" in report.text
    policy = report.headers["content-security-policy"]
    assert "sandbox" in policy
    assert "allow-same-origin" not in policy  # whatever ran there could ask nothing of the server
    allowed = re.search(r"script-src ([^;\"]*)", report.text.split("</head>")[0])
    assert allowed is not None
    assert re.fullmatch(r"'sha256-[\w+/=]+'", allowed[1].strip())  # the one script that sorts the table of two objects
    assert "first.txt" in report.text
    archive = zipfile.ZipFile(io.BytesIO(client.get(f"/jobs/{job['id']}/everything.zip").content))
    names = archive.namelist()
    for name in ("report.html", "One/posterior.nc", "One/summary.json", "inputs/first.txt", "targets.csv"):
        assert f"kappaflow/{name}" in names
    assert not any(name.startswith("/") or ".." in name for name in names)
    assert "kappaflow/inputs/third.txt" not in names  # it was not asked for
    rows = list(csv.DictReader(io.StringIO(archive.read("kappaflow/targets.csv").decode())))
    assert rows[0] == {"file": "inputs/first.txt", "name": "One", "distance": "10.7", "distance_error": "0.2"}
    assert client.get(f"/jobs/{job['id']}/One/spectrum.png").content[:4] == b"\x89PNG"


def test_the_numbers_are_those_of_the_command_line(served, command, networks, tmp_path):
    client, _, job = served
    data = client.get(f"/jobs/{job['id']}/everything.zip").content
    zipfile.ZipFile(io.BytesIO(data)).extractall(tmp_path)
    summary = json.loads((tmp_path / "kappaflow" / "One" / "summary.json").read_text())
    words = summary["provenance"]["command"].split()
    assert words[:2] == ["kappaflow", "retrieve"]
    words = [str(tmp_path / "kappaflow" / "targets.csv") if word == "targets.csv" else word for word in words[1:]]
    models = ["--model", networks / "m0", "--model", networks / "m1", "--control", networks / "c0"]
    code, _, _ = command(*words, *models, "--out", tmp_path / "again")
    assert code == 0
    again = json.loads((tmp_path / "again" / "One" / "summary.json").read_text())
    # There one by one, here in one batch: single precision adds up in another order.
    for name, values in summary["parameters"].items():
        assert again["parameters"][name] == {
            key: value if isinstance(value, str) else pytest.approx(value, rel=1e-4) for key, value in values.items()
        }
    assert [(c["name"], c["verdict"]) for c in again["trust"]] == [(c["name"], c["verdict"]) for c in summary["trust"]]


def test_results_are_there_after_a_restart_and_gone_when_removed(served):
    client, root, job = served
    with TestClient(app_of(root, ServeSettings()), base_url="http://127.0.0.1", headers=CHANGE) as again:
        listed = again.get("/api/state").json()["jobs"]
        assert [one["id"] for one in listed] == [job["id"]]
        assert again.get(f"/jobs/{job['id']}/report.html").status_code == 200
        assert again.delete(f"/api/jobs/{job['id']}").status_code == 200
        assert again.get(f"/api/jobs/{job['id']}").status_code == 404
    assert not (root / job["id"]).exists()
