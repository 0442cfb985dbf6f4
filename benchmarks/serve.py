"""The page of `kappaflow serve`: how soon it answers, and what a retrieval there costs beside the command line.

    python benchmarks/serve.py [--repeats 3] [--no-retrieve] [--warm] [--json]

Each server is a process of its own, on a temporary folder; its first answer is that to the first request it ever gets.
The retrieval is that of the packaged spectrum, from the click to the finished job, by a server whose worker has loaded
nothing yet, and by `kappaflow retrieve` in a process of its own; they take turns, so that what else the machine does
counts for both; processor seconds, of all processes, count little of it. Limits: 200 ms for the first answer, 1.1 times
the command line for the retrieval.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from urllib.request import Request, urlopen

FIRST, SLOWER = 0.2, 1.1
METHOD = "amortized"  # the quick one: what the page adds shows most
COMMAND = [sys.executable, "-c", "from kappaflow.cli import main; main()"]


@contextmanager
def server(folder):
    """Lend the address of a new server, and the seconds from its start until it listened."""
    start = time.perf_counter()
    words = ["serve", "--out", str(folder), "--port", "0"]
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().strip()
        yield address, time.perf_counter() - start
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def ask(address, path="", method="GET", body=None):
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(address + path, data, {"X-Kappaflow": "1"}, method=method)) as answer:
        return answer.read()


def first_answer(folder):
    with server(folder) as (address, listening):
        start = time.perf_counter()
        page = ask(address)
        seconds = time.perf_counter() - start
        return {"listening": listening, "first answer": seconds, "bytes": len(page)}


def on_the_page(folder):
    """Seconds from the click to the finished job, the worker cold."""
    with server(folder) as (address, _):
        job = json.loads(ask(address, "api/jobs", "POST"))["id"]
        found = json.loads(ask(address, f"api/jobs/{job}/example", "POST", {}))
        start = time.perf_counter()
        objects = [{"title": "Wolf 1130C", "uploads": [found["key"]], "distance": 16.6}]
        ask(address, f"api/jobs/{job}/run", "POST", {"objects": objects, "asked": {"method": METHOD}})
        while (state := json.loads(ask(address, f"api/jobs/{job}")))["state"] in ("queued", "running"):
            time.sleep(0.05)
        if state["state"] != "done":
            raise SystemExit(f"serve: {state['error']}")
        return time.perf_counter() - start


def processor():
    """Processor seconds of all processes that have ended, theirs included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(run, folder):
    """Wall and processor seconds."""
    before = processor()
    return run(folder), processor() - before


def on_the_command_line(folder):
    with resources.as_file(resources.files("kappaflow.data") / "wolf1130c.ecsv") as path:
        start = time.perf_counter()
        words = ["retrieve", str(path), "--distance", "16.6", "--amortized", "--out", str(folder)]
        subprocess.run([*COMMAND, *words], check=True, capture_output=True)
        return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-retrieve", action="store_true")
    parser.add_argument("--warm", action="store_true", help="the cache of prepared tables is filled already")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.environ.setdefault("KAPPAFLOW_CACHE", str(root / "cache"))
        answers = [first_answer(root / f"first-{k}") for k in range(arguments.repeats)]
        found = {key: min(answer[key] for answer in answers) for key in answers[0]}
        found["worst first answer"] = max(answer["first answer"] for answer in answers)
        if not arguments.no_retrieve:
            if not arguments.warm:
                on_the_command_line(root / "warm")  # prepared tables and compiled programs, for both
            runs = {"page": on_the_page, "command line": on_the_command_line}
            times = [
                {name: timed(run, root / f"{name}-{k}") for name, run in runs.items()} for k in range(arguments.repeats)
            ]
            for name in runs:
                found[name], found[f"{name}, processor"] = (min(time[name][i] for time in times) for i in (0, 1))
            found["ratio"] = found["page"] / found["command line"]
            found["ratio, processor"] = found["page, processor"] / found["command line, processor"]
    print(json.dumps(found) if arguments.json else "\n".join(f"{key}: {value:.3g}" for key, value in found.items()))
    if found["worst first answer"] > FIRST or found.get("ratio", 0) > SLOWER:
        sys.exit(1)


if __name__ == "__main__":
    main()
