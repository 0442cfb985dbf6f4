"""Jobs of `kappaflow serve`: kept on disk, run one after the other, found again after a restart."""

import asyncio
import json
import sys
from dataclasses import replace

import pytest

from kappaflow.errors import UserError
from kappaflow.progress import listened_to, progress
from kappaflow.serve.child_process import Child, ChildEnded, ChildLate
from kappaflow.serve.job_queue import JobQueue
from kappaflow.serve.job_record import Asked, Job, JobObject, Upload
from kappaflow.serve.job_request import asked_of, objects_of
from kappaflow.serve.job_shelf import JobShelf
from kappaflow.serve.running import command_of
from kappaflow.serve.serve_settings import Limits

ROW = {"name": "a", "title": "a", "verdict": "pass", "C_O_q50": 0.5}
CHILD = """
import json, os, sys, time
from kappaflow.errors import UserError
from kappaflow.serve.answering import answer_requests
def handle(request, tell):
    if "warm" in request:
        return {}
    what = json.load(open(request["folder"] + "/job.json"))["objects"][0]["title"]
    tell({"steps": [{"what": what, "done": 1, "total": 2, "note": ""}]})
    print("noise on standard output")
    if what == "slow":
        time.sleep(600)
    if what == "crash":
        os._exit(7)
    if what == "wrong":
        raise UserError("wrong: not a spectrum")
    if what == "bug":
        raise KeyError("bug")
    return {"rows": [{"title": what, "verdict": "error" if what == "none" else "pass", "error": "no result"}]}
answer_requests(handle)
"""


def worker(tmp_path):
    child = Child("unused", [], tmp_path / "log.txt")
    child.command = (sys.executable, "-c", CHILD)
    return child


def drafted(shelf, title):
    return replace(shelf.new(), objects=(JobObject(title, ("upload-0",)),))


async def finished(shelf, job, seconds=600.0):
    async with asyncio.timeout(seconds):
        while shelf[job.id].state in ("queued", "running"):
            await asyncio.sleep(0.02)
    return shelf[job.id]


def run_queue(shelf, tmp_path, body):
    """Run `body(queue)` while the queue runs."""

    async def whole():
        child = worker(tmp_path)
        queue = JobQueue(shelf, child)
        task = asyncio.create_task(queue.run())
        try:
            return await body(queue)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await child.stop()

    return asyncio.run(whole())


def test_jobs_run_in_order_and_each_ends_as_it_should(tmp_path):
    shelf = JobShelf(tmp_path / "served", Limits())

    async def body(queue):
        jobs = [queue.add(drafted(shelf, title)) for title in ("good", "wrong", "bug", "crash", "none", "good")]
        assert [queue.ahead(job) for job in jobs[:3]] == [0, 1, 2]
        return [await finished(shelf, job) for job in jobs]

    good, wrong, bug, crash, none, again = run_queue(shelf, tmp_path, body)
    assert [job.state for job in (good, wrong, bug, crash, none, again)] == ["done", *["failed"] * 4, "done"]
    assert good.outcomes[0]["title"] == "good"
    assert wrong.error == "wrong: not a spectrum"
    assert "KeyError" in bug.error
    assert "code 7" in crash.error
    assert none.error == "no result"
    assert good.finished <= wrong.started
    log = (tmp_path / "log.txt").read_text()
    assert "noise" in log
    assert "Traceback" in log  # of the bug, for whoever looks after the server


def test_a_job_over_its_time_is_ended_and_the_next_one_runs(tmp_path):
    shelf = JobShelf(tmp_path / "served", Limits(job_seconds=3.0))

    async def body(queue):
        slow, good = (queue.add(drafted(shelf, title)) for title in ("slow", "good"))
        return await finished(shelf, slow), await finished(shelf, good)

    slow, good = run_queue(shelf, tmp_path, body)
    assert slow.state == "failed"
    assert "longer than 0.05 minutes" in slow.error
    assert good.state == "done"


def test_waiting_and_running_jobs_are_cancelled(tmp_path):
    shelf = JobShelf(tmp_path / "served", Limits(waiting=2))

    async def body(queue):
        running = queue.add(drafted(shelf, "slow"))
        async with asyncio.timeout(600):
            while not queue.progress:
                await asyncio.sleep(0.02)
        assert queue.progress["steps"][0]["what"] == "slow"
        first, second = (queue.add(drafted(shelf, title)) for title in ("good", "slow"))
        with pytest.raises(UserError, match="2 jobs are waiting"):
            queue.add(drafted(shelf, "good"))
        assert (await queue.cancel(second)).state == "cancelled"
        assert (await queue.cancel(shelf[running.id])).state == "cancelled"
        return await finished(shelf, first)

    assert run_queue(shelf, tmp_path, body).state == "done"


def test_a_full_disk_fails_a_job_and_not_the_queue(tmp_path, monkeypatch):
    shelf = JobShelf(tmp_path / "served", Limits())
    save = shelf.save

    def full(job):
        if job.state == "running" and job.objects[0].title == "large":
            raise OSError(28, "No space left on device")
        return save(job)

    async def body(queue):
        jobs = [queue.add(drafted(shelf, title)) for title in ("large", "good")]
        return [await finished(shelf, job) for job in jobs]

    monkeypatch.setattr(shelf, "save", full)
    large, good = run_queue(shelf, tmp_path, body)
    assert (large.state, good.state) == ("failed", "done")
    assert "No space left" in large.error


def test_a_running_job_can_be_cancelled_while_the_worker_still_loads(tmp_path):
    shelf = JobShelf(tmp_path / "served", Limits())

    async def body(queue):
        queue.warm()
        job = queue.add(drafted(shelf, "slow"))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(600):
            return await queue.cancel(shelf[job.id])

    assert run_queue(shelf, tmp_path, body).state == "cancelled"


def test_jobs_survive_a_restart_and_what_ran_runs_again(tmp_path):
    shelf = JobShelf(tmp_path / "served", Limits())

    async def interrupted(queue):
        running, waiting = (queue.add(drafted(shelf, title)) for title in ("slow", "good"))
        async with asyncio.timeout(600):
            while not queue.progress:
                await asyncio.sleep(0.02)
        return running.id, waiting.id

    running, waiting = run_queue(shelf, tmp_path, interrupted)
    assert shelf[running].state == "running"  # as a power cut would leave it
    again = JobShelf(tmp_path / "served", Limits())
    assert [again[i].state for i in (running, waiting)] == ["queued", "queued"]
    again.save(replace(again[running], objects=(JobObject("good", ("upload-0",)),)))

    async def rest(queue):
        return await finished(again, again[running]), await finished(again, again[waiting])

    assert [job.state for job in run_queue(again, tmp_path, rest)] == ["done", "done"]
    assert again[running].attempts == 2


def test_a_job_that_ends_the_server_three_times_is_not_tried_again(tmp_path):
    shelf = JobShelf(tmp_path, Limits())
    job = shelf.save(replace(shelf.new(), state="running", attempts=3))
    assert "not tried again" in JobShelf(tmp_path, Limits())[job.id].error


def test_old_drafts_and_foreign_folders(tmp_path):
    shelf = JobShelf(tmp_path, Limits(drafts=2))
    old = shelf.save(replace(shelf.new(), created="2020-01-01T00:00:00Z"))
    new = shelf.new()
    with pytest.raises(UserError, match="2 uploads wait"):
        shelf.new()
    (tmp_path / "mine").mkdir()
    for name, text in (("mine", "[1]"), (new.id, None)):
        if text:
            (tmp_path / name / "job.json").write_text(text)
    again = JobShelf(tmp_path, Limits())
    assert [job.id for job in again] == [new.id]
    assert not (tmp_path / old.id).exists()
    assert (tmp_path / "mine" / "job.json").exists()
    with pytest.raises(LookupError):
        again["../mine"]


def test_a_job_is_the_same_after_a_way_over_the_disk(tmp_path):
    shelf = JobShelf(tmp_path, Limits())
    upload = Upload("upload-1", "x1d.fits", 5, {"mask": ["4:5"]}, {"facts": {"a": "b"}})
    job = replace(shelf.new(), uploads=(upload,), objects=(JobObject("a", ("upload-1",), 5.7, 0.1),), outcomes=(ROW,))
    shelf.save(job)
    assert JobShelf(tmp_path, Limits())[job.id] == job
    assert job.with_upload(replace(upload, size=6)).uploads[0].size == 6
    assert len(job.with_upload(replace(upload, key="upload-2")).uploads) == 2


def test_the_folder_has_a_limit(tmp_path):
    shelf = JobShelf(tmp_path, Limits(folder_bytes=10_000))
    shelf.charge(9_000)
    with pytest.raises(UserError, match="remove results"):
        shelf.charge(2_000)


def a_job(**read):
    seen = {"facts": {}}
    return Job(
        "x", "now", uploads=(Upload("u1", "a.fits", 1, as_read=seen), Upload("u2", "b.fits", 1, as_read=seen, **read))
    )


def test_what_is_asked_for_is_checked():
    job = a_job()
    (one,) = objects_of(
        job, [{"title": " Wolf 1130/C ", "uploads": ["u1", "u2"], "distance": "16.6", "distance_error": ""}]
    )
    assert one == JobObject("Wolf 1130∕C", ("u1", "u2"), 16.6, None)
    assert objects_of(job, [{"title": "=cmd()", "uploads": ["u1"]}])[0].title == "cmd()"
    for wrong, told in (
        ([], "nothing to retrieve"),
        ("x", "nothing to retrieve"),
        ([{"title": "a"}], "without files"),
        ([{"title": "a", "uploads": "u1"}], "without files"),
        ([{"title": "a", "uploads": ["../u1"]}], "no such file"),
        ([{"title": "a", "uploads": ["u1"]}, {"title": "A", "uploads": ["u2"]}], "name them apart"),
        ([{"title": "a", "uploads": ["u1"]}, {"title": "b", "uploads": ["u1"]}], "two objects"),
        ([{"title": "a", "uploads": ["u1"], "distance": "far"}], "expected a number"),
        ([{"title": "a", "uploads": ["u1"], "distance": [1]}], "expected a number"),
    ):
        with pytest.raises(UserError, match=told):
            objects_of(job, wrong)
    with pytest.raises(UserError, match="read alike"):
        objects_of(a_job(hints={"flux_unit": "Jy"}), [{"title": "a", "uploads": ["u1", "u2"]}])
    for wrong in (
        {"method": "guess"},
        {"draws": 1},
        {"draws": "many"},
        {"seed": -1},
        {"path": "x"},
        [],
        {"draws": True},
    ):
        with pytest.raises(UserError):
            asked_of(wrong)
    assert asked_of(None) == Asked()


def test_the_command_of_a_job_can_be_given_by_hand():
    words = command_of(
        replace(a_job(), asked=Asked("amortized", draws=500)), {"mask": ["4.2:4.4"], "flux_unit": "W/m2/um"}
    )
    for expected in (
        "kappaflow retrieve --targets targets.csv",
        "--mask 4.2:4.4",
        "--flux-unit W/m2/um",
        "--amortized",
        "--draws 500",
    ):
        assert expected in words


def test_a_child_is_started_again_after_it_was_late_or_ended(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()

    async def asked():
        child = worker(tmp_path)
        found = []
        for title, expected in (("slow", ChildLate), ("good", None), ("crash", ChildEnded), ("good", None)):
            (folder / "job.json").write_text(json.dumps({"objects": [{"title": title}]}))
            try:
                await child.ask({"folder": str(folder)}, 2.0 if title == "slow" else 600.0)
                found.append(None)
            except (ChildLate, ChildEnded) as error:
                found.append(type(error))
            assert found[-1] is expected
        await child.stop()
        assert not child.alive

    asyncio.run(asked())


def test_a_child_ends_when_its_server_is_killed(tmp_path):
    server = f"""
import asyncio, sys
from kappaflow.serve.child_process import Child
from pathlib import Path
async def main():
    child = Child("unused", [], Path({str(tmp_path / "log.txt")!r}))
    child.command = (sys.executable, "-c", {CHILD!r})
    await child.ask({{"warm": True}}, 60)
    print(child._process.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    import subprocess
    import time
    from pathlib import Path

    process = subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    if not Path("/proc").is_dir():
        pytest.skip("no /proc to see processes in")
    for _ in range(500):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or ") Z " in state.read_text():
            return
        time.sleep(0.02)
    pytest.fail("the child goes on for nobody")


def test_bars_are_heard_from_outside_with_those_inside_them():
    heard = []
    with listened_to(lambda steps: heard.append([(step.what, step.done, step.total) for step in steps])):
        with progress("outer", 2) as outer:
            with progress("inner", 5) as inner:
                inner(3)
            outer()
    with progress("unheard", 1) as advance:
        advance()
    assert heard == [
        [("outer", 0, 2)],
        [("outer", 0, 2), ("inner", 0, 5)],
        [("outer", 0, 2), ("inner", 3, 5)],
        [("outer", 1, 2)],
    ]


def test_what_loads_networks_can_be_sent_to_the_processes_of_a_large_job():
    import pickle
    from functools import partial

    from kappaflow.serve.serve_settings import NetworkChoice
    from kappaflow.serve.worker_process import retriever_for

    load = partial(partial(retriever_for, NetworkChoice(("m0",))), Asked(draws=300))
    again = pickle.loads(pickle.dumps(load))
    assert (again.func, again.args) == (load.func, load.args)
