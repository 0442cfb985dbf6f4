"""Who may talk to `kappaflow serve`, under which name, and what a browser is allowed to do with the answers."""

import re

import pytest
from starlette.testclient import TestClient

from kappaflow.errors import UserError
from kappaflow.serve.guard import TOKEN, is_our_name
from kappaflow.serve.job_record import checked_hints, folder_names, plain_name
from kappaflow.serve.result_files import result_file
from kappaflow.serve.serve_settings import Limits, ServeSettings
from kappaflow.serve.serving import app_of
from kappaflow.serve.web_page import page, page_policy

OURS = "http://127.0.0.1:8765"
CHANGE = {"X-Kappaflow": "1"}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    app = app_of(tmp_path_factory.mktemp("served"), ServeSettings(names=("lab.example",)))
    with TestClient(app, base_url=OURS, raise_server_exceptions=False) as made:
        yield made


def test_the_page_needs_nothing_from_elsewhere_and_its_policy_lets_only_itself_run(client):
    answer = client.get("/")
    assert answer.status_code == 200
    text = answer.text
    assert not re.findall(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", text)
    assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg", "", text)  # a name, not an address
    policy = answer.headers["content-security-policy"]
    assert policy == page_policy()
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert not re.findall(r"\son\w+\s*=|\sstyle\s*=|javascript:", page().decode().split("<script>")[0])
    for name in ("innerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert name not in text


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8765", "", "a:b:c", "127.0.0.1@evil"]
)
def test_a_name_that_is_not_ours_is_refused_as_in_dns_rebinding(client, host):
    answer = client.get("/api/state", headers={"Host": host})
    assert answer.status_code == 421
    assert "jobs" not in answer.json()


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "[::1]:8765", "192.168.0.7", "lab.example:8765"])
def test_an_address_localhost_and_names_given_are_ours(client, host):
    assert client.get("/api/state", headers={"Host": host}).status_code == 200


def test_another_page_of_the_same_browser_can_neither_change_nor_read(client):
    before = client.get("/api/state").json()
    for headers in (
        {},  # what a form or a simple fetch can send
        {"Content-Type": "text/plain"},
        CHANGE | {"Origin": "http://evil.example"},
        CHANGE | {"Origin": "null"},
        CHANGE | {"Origin": "http://127.0.0.1:9999"},
        CHANGE | {"Sec-Fetch-Site": "cross-site"},
        CHANGE | {"Sec-Fetch-Site": "same-site"},
    ):
        assert client.post("/api/jobs", headers=headers).status_code == 403
    assert (
        client.get("/api/state", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}).status_code
        == 403
    )
    assert client.options("/api/jobs", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get("/api/state").json() == before
    ours = CHANGE | {"Origin": OURS, "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/jobs", headers=ours).status_code == 201


def test_every_answer_has_the_headers_that_keep_it_to_itself(client):
    for path in ("/", "/api/state", "/nowhere", "/api/jobs/x", "/jobs/x/report.html"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert headers["cache-control"] == "no-store"


def test_a_server_that_others_can_reach_wants_its_token_once(tmp_path):
    app = app_of(tmp_path, ServeSettings(host="0.0.0.0"), token="s3cret")
    with TestClient(app, base_url=OURS) as made:
        assert made.get("/").status_code == 401
        assert made.get("/?token=wrong").status_code == 401
        assert made.get("/", headers={"Cookie": f"{TOKEN}=wrong"}).status_code == 401
        first = made.get("/?token=s3cret")
        assert first.status_code == 200
        assert "HttpOnly; SameSite=Lax" in first.headers["set-cookie"]
        assert made.get("/api/state").status_code == 200


def test_what_keeps_a_server_from_starting_is_one_line(command, tmp_path, monkeypatch):
    import importlib.util
    import socket

    from filelock import FileLock

    with FileLock(tmp_path / ".lock"):
        code, _, err = command("serve", "--out", tmp_path, "--port", 0)
    assert (code, err.count("\n")) == (2, 1)
    assert "another kappaflow serve uses it" in err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = command("serve", "--out", tmp_path, "--port", taken.getsockname()[1])
    assert (code, err.count("\n")) == (2, 1)
    assert "choose another --port" in err
    code, _, err = command("serve", "--out", tmp_path, "--largest", -1)
    assert (code, err.count("\n")) == (2, 1)
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "uvicorn" else found(name, *rest)
    )
    code, _, err = command("serve", "--out", tmp_path)
    assert (code, err) == (2, "kappaflow: uvicorn is not installed; run pip install 'kappaflow[web]'\n")


def test_the_server_imports_neither_torch_nor_jax_nor_astropy():
    import subprocess
    import sys

    heavy = "{'torch', 'jax', 'astropy', 'scipy', 'matplotlib'}"
    script = f"import sys, kappaflow.serve.serving; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_loopback_is_local():
    assert ServeSettings().is_local
    assert ServeSettings(host="::1").is_local
    assert not ServeSettings(host="0.0.0.0").is_local
    assert not ServeSettings(host="lab.example").is_local
    with pytest.raises(UserError, match="--port 70000"):
        ServeSettings(port=70000)
    with pytest.raises(UserError, match="expected above 0"):
        Limits(job_seconds=-1)


def test_a_clients_name_is_text_without_path_control_or_direction():
    assert plain_name("a/b\\c.fits") == "c.fits"
    assert plain_name("..", "spectrum") == "spectrum"
    assert plain_name("x\r\n\u202e\ud800y") == "xy"
    assert len(plain_name("x" * 9999)) == 120
    assert folder_names(["../../etc", "CON", "a b", "A_b", ""]) == ["etc", "CON", "a_b", "A_b-2", "object"]
    assert is_our_name("LOCALHOST:1")


def test_results_are_found_in_a_listing_and_never_by_a_path(tmp_path):
    (tmp_path / "secret.csv").write_text("x")
    result = tmp_path / "result"
    (result / "a").mkdir(parents=True)
    (result / "report.html").write_text("ours")
    (result / "a" / "summary.csv").write_text("ours")
    (result / "a" / "run.sh").write_text("no kind of ours")
    (result / "link.csv").symlink_to(tmp_path / "secret.csv")
    assert result_file(result, "report.html")[0] == result / "report.html"
    assert result_file(result, "a/summary.csv")[1].startswith("text/csv")
    absent = [
        "../secret.csv",
        "a/../report.html",
        "/etc/passwd",
        "a",
        "",
        "a/run.sh",
        "link.csv",
        "report.html/",
        "./report.html",
    ]
    for asked in [*absent, str(tmp_path / "secret.csv"), "a\\summary.csv", "%2e%2e/secret.csv", "report.html\x00"]:
        with pytest.raises(LookupError):
            result_file(result, asked)


@pytest.mark.parametrize(
    "hints",
    [
        [],
        {"path": "x"},
        {"flux_unit": 5},
        {"mask": [1]},
        {"mask": ["x"] * 51},
        {"detector_offset": "nan"},
        {"detector_offset": True},
    ],
)
def test_how_to_read_a_file_is_plain_text_and_numbers(hints):
    with pytest.raises(UserError):
        checked_hints(hints)


def test_hints_that_are_empty_are_left_out_and_ranges_are_split():
    assert checked_hints({"flux_unit": " mJy ", "medium": "", "mask": "4.2:4.4, 5:5.1"}) == {
        "flux_unit": "mJy",
        "mask": ["4.2:4.4", "5:5.1"],
    }
