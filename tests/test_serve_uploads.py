"""Uploads to `kappaflow serve`: what is read is shown, what is hostile is a line of text, and nothing gets out."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from hostile_uploads import (
    NAMES,
    all_nan,
    good_fits,
    good_text,
    gzip_bomb,
    hostile,
    huge_header,
    npz_of_objects,
    pickled,
)
from starlette.testclient import TestClient

from kappaflow.serve.job_shelf import JobShelf
from kappaflow.serve.serve_settings import Limits, ServeSettings
from kappaflow.serve.serving import app_of
from kappaflow.serve.uploading import TooLarge, receive

LARGEST = 3_000_000
CHANGE = {"X-Kappaflow": "1"}
_written: list | None = None


def _listen(event, arguments):
    """Note every file that this process, which is the server's, opens for writing, makes, moves or removes."""
    if _written is None:
        return
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        _written.append(arguments[0])
    elif event in ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link"):
        _written.append(arguments[0])


sys.addaudithook(_listen)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def client(root):
    settings = ServeSettings(limits=Limits(file_bytes=LARGEST, read_seconds=600.0))
    app = app_of(root / "served", settings)
    app.state.desk.queue.warm = lambda: None  # no networks here
    with TestClient(app, base_url="http://127.0.0.1", headers=CHANGE) as made:
        yield made


@pytest.fixture
def job(client):
    return client.post("/api/jobs").json()["id"]


def send(client, job, name, body):
    return client.post(f"/api/jobs/{job}/files?name={quote(name, errors='surrogatepass')}", content=body)


def test_a_spectrum_is_shown_as_it_was_read_before_anything_runs(client, job):
    found = send(client, job, "x1d.fits", good_fits()).json()
    assert found["error"] is None
    seen = found["as_read"]
    assert seen["target"] == "made up"
    assert seen["facts"]["flux"] == "Jy"
    assert seen["facts"]["rows"].startswith("1,534 read")
    assert "0.0015 um" in seen["facts"]["resolution"]
    assert seen["facts"]["wavelengths"].startswith("um")
    curve = seen["curve"]
    assert len(curve["median"]) == len(curve["masked"]) == 480
    assert curve["median"][0] is None  # the file begins at 2.9 um
    assert max(v for v in curve["high"] if v is not None) == pytest.approx(1.3, rel=1e-2)  # mJy


def test_the_example_is_there_with_its_own_distance(client, job):
    seen = client.post(f"/api/jobs/{job}/example").json()["as_read"]
    assert seen["target"] == "Wolf 1130C"
    assert seen["distance"] == pytest.approx(16.6, abs=0.1)
    assert "outliers" in seen["facts"]["rows"]
    assert max(seen["curve"]["masked"]) > 0


def test_what_a_file_does_not_say_is_asked_for_in_the_words_of_the_page_and_read_again(client, job):
    bare = good_text().replace(b"# wave(um) flux(mJy) err(mJy)\n", b"wave,flux,err\n").replace(b" ", b",")
    found = send(client, job, "wolf.csv", bare).json()
    assert found["as_read"] is None
    assert found["error"].startswith("wolf.csv: ")
    assert "“flux unit”" in found["error"]
    assert "--" not in found["error"]
    again = client.post(
        f"/api/jobs/{job}/files/{found['key']}/read", json={"hints": {"flux_unit": "mJy", "mask": "4.2:4.4"}}
    )
    assert again.json()["error"] is None
    assert "masked" in again.json()["as_read"]["facts"]["rows"]
    kept = client.get(f"/api/jobs/{job}").json()["uploads"][0]
    assert kept["hints"] == {"flux_unit": "mJy", "mask": ["4.2:4.4"]}
    wrong = client.post(f"/api/jobs/{job}/files/{found['key']}/read", json={"hints": {"path": "/etc/passwd"}})
    assert wrong.status_code == 400
    refused = client.post(
        f"/api/jobs/{job}/run", json={"objects": [{"title": "x", "uploads": [found["key"]], "distance": -5}]}
    )
    assert refused.status_code == 400
    assert "x: distance: -5 pc; expected between" in refused.json()["error"]


def test_another_resolution_is_refused_before_anything_runs(client, job):
    lines = good_text().decode().splitlines()
    found = send(client, job, "prism.txt", "\n".join(lines[:1] + lines[1::8]).encode()).json()
    assert found["as_read"] is None
    assert "PRISM" in found["error"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_text_and_never_a_path(client, job, root, name):
    before = sorted(root.rglob("*"))
    answer = send(client, job, name, b"not a spectrum")
    assert answer.status_code == 201
    found = answer.json()
    assert found["name"]
    assert not set("/\\\x00\r\n\u202e") & set(found["name"])
    assert len(found["name"]) <= 120
    folder = root / "served" / job
    assert set(root.rglob("*")) - set(before) == {folder / "uploads" / found["key"]}
    assert found["key"].startswith("upload-")
    client.delete(f"/api/jobs/{job}/files/{found['key']}")
    assert not (folder / "uploads" / found["key"]).exists()


def test_what_would_run_or_burst_is_a_line_of_text(client, job, root):
    evil = root / "evil"
    bodies = [
        pickled(evil),
        npz_of_objects(evil),
        gzip_bomb(40),
        huge_header(30_000),
        all_nan(),
        good_fits()[:4000],
        b"\x00" * 5000,
    ]
    for body in bodies:
        found = send(client, job, "a.fits", body).json()
        assert found["as_read"] is None
        assert found["error"].startswith("a.fits")
        assert "\n" not in found["error"]
        assert "Error:" not in found["error"]
    assert not evil.exists()


def test_an_upload_over_the_limit_is_refused_by_its_header_or_while_it_streams(client, job, root):
    def unannounced():
        for _ in range(31):
            yield bytes(100_000)

    for body in (bytes(LARGEST + 1), unannounced()):
        answer = client.post(f"/api/jobs/{job}/files?name=big.fits", content=body)
        assert answer.status_code == 413
        assert "over 3 MB" in answer.json()["error"]
    for promised in ("-1", "1e3", "9" * 400):
        assert (
            client.post(f"/api/jobs/{job}/files", content=b"x", headers={"Content-Length": promised}).status_code == 413
        )
    assert list((root / "served" / job / "uploads").iterdir()) == []
    assert send(client, job, "empty", b"").status_code == 400
    assert client.post(f"/api/jobs/{job}/run", content=bytes(2_000_000)).status_code == 413


def test_an_upload_that_stalls_or_breaks_off_leaves_nothing(tmp_path):
    shelf = JobShelf(tmp_path / "served", Limits(stall_seconds=0.1, file_bytes=1000))

    async def stalls():
        yield b"x"
        await asyncio.sleep(60)

    async def breaks():
        yield b"x"
        raise ConnectionError("gone")

    async def grows():
        for _ in range(11):
            yield bytes(100)

    for stream, error in ((stalls(), "no data"), (breaks(), "gone"), (grows(), "over 0.001 MB")):
        with pytest.raises(Exception, match=error) as caught:
            asyncio.run(receive(stream, tmp_path, shelf))
        assert (caught.type is TooLarge) == (error == "over 0.001 MB")
    assert [path.name for path in tmp_path.iterdir()] == ["served"]
    shelf.charge(shelf.limits.folder_bytes)  # nothing of them is still counted


@pytest.mark.parametrize(
    "path", ["report.html", "../job.json", "..%2fjob.json", "%2e%2e/%2e%2e/log.txt", "//etc/passwd", "everything.zip"]
)
def test_a_job_without_results_gives_none_and_no_other_file(client, job, path):
    assert client.get(f"/jobs/{job}/{path}").status_code == 404


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"[" * 100_000, b'{"objects": [{}]}', b'{"objects": 5, "asked": 7}', b"\xff"]
)
def test_a_request_that_makes_no_sense_is_a_line_of_text(client, job, body):
    for path in ("run", "files/upload-0/read"):
        answer = client.post(f"/api/jobs/{job}/{path}", content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]
    assert client.post("/api/jobs/nowhere/run", content=body).status_code == 404
    assert client.put(f"/api/jobs/{job}", content=body).status_code == 405


def survive(client, root, kinds, **options):
    """Send hostile uploads in one job; returns how many were read."""
    global _written
    job = client.post("/api/jobs").json()["id"]
    folder, evil = root / "served" / job, root / "evil"
    before = set(root.rglob("*"))
    _written, read = [], 0
    try:
        for k in kinds:
            name, body, good = hostile(k, evil, **options)
            answer = send(client, job, name, body)
            assert answer.status_code in (201, 400, 413), (k, answer.text)
            found = answer.json()
            told = found["error"]
            assert (told is None) == (found.get("as_read") is not None), (k, told)
            if good:
                assert told is None, (k, told)
            if told is not None:
                assert "\n" not in told, (k, told)
                assert len(told) < 700, (k, told)
                assert "Traceback" not in told, (k, told)
            read += told is None
    finally:
        written, _written = _written, None
    inside = [Path(str(path)).resolve() for path in written if not isinstance(path, int)]
    assert all(path.is_relative_to(folder.resolve()) for path in inside), inside
    assert any(path.parent.name == "uploads" for path in inside)  # the watcher watches
    new = set(root.rglob("*")) - before
    assert {path.parent for path in new} <= {folder, folder / "uploads", folder / "curves"}
    assert all(path.name.startswith("upload-") or path.name in ("job.json", "curves") for path in new)
    assert not evil.exists()
    assert "Traceback" not in (root / "served" / "log.txt").read_text()
    return read


def test_hostile_uploads_leave_no_traceback_and_no_file_outside_their_folder(client, root):
    assert survive(client, root, range(60)) >= 9


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 250))
def test_two_thousand_hostile_uploads(client, root, first):
    read = survive(client, root, range(first, first + 20), bomb=700)  # bursts beyond what is ever unpacked
    for start, end in ((20, 135), (135, 250)):  # a job takes 200 files
        read += survive(client, root, range(first + start, first + end))
    assert read >= 35


def test_fifty_uploads_at_once_are_all_kept_and_read(client, job, root):
    def one(k):
        return send(client, job, f"spectrum-{k}.txt", good_text() + f"# {k}\n".encode()).json()

    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(one, range(50)))
    assert [one["error"] for one in found] == [None] * 50
    kept = client.get(f"/api/jobs/{job}").json()["uploads"]
    assert sorted(one["name"] for one in kept) == sorted(f"spectrum-{k}.txt" for k in range(50))
    for one in kept:
        text = (root / "served" / job / "uploads" / one["key"]).read_bytes()
        assert text.endswith(f"# {one['name'].split('-')[1].split('.')[0]}\n".encode())
    assert JobShelf(root / "served", Limits())[job].uploads[0].name in {f"spectrum-{k}.txt" for k in range(50)}
