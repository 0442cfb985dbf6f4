"""What a start costs, before and after the prepared tables are on disk: time, and memory that workers do not share.

    python benchmarks/startup.py [--preset laptop] [--repeats 3] [--no-retrieve] [--refined] [--json]

Each number is a process of its own; "off" prepares the tables in every process (KAPPAFLOW_CACHE=off), "cold" prepares
and keeps them, "warm" finds them. The cache is a temporary folder: the user's own is left alone. Times are the best of
`--repeats` (of one for "off" and "cold"), so that what else the machine does counts least; of a whole command the
processor seconds stand below, for a machine that is shared. `retrieve` is that of the networks alone; `--refined` times
the default one, too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path

LOAD = """
import json, sys, time
start = time.perf_counter()
from kappaflow.model import ForwardModel
imported = time.perf_counter()
ForwardModel.load(sys.argv[1])
print(json.dumps([imported - start, time.perf_counter() - imported]))
"""

# Holds the model and has computed a chunk of spectra; tells its unshared memory when asked, all others holding theirs.
WORKER = """
import sys
import numpy as np
from kappaflow.model import ForwardModel
from kappaflow.parameters import bounds
model = ForwardModel.load(sys.argv[1])
low, high = bounds()
model(np.random.default_rng(0).uniform(low, high, (64, low.size)))
print("ready", flush=True)
sys.stdin.readline()
sizes = dict(line.split(":") for line in open("/proc/self/smaps_rollup").read().splitlines()[1:])
print(sum(int(sizes[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) / 1e6, flush=True)
sys.stdin.readline()
"""

COMMAND = "from kappaflow.cli import main; main()"


def seconds(arguments, cache, repeats=1):
    """Best wall time and best processor time of `python ARGUMENTS`."""
    times = []
    for _ in range(repeats):
        start, before = time.perf_counter(), os.times()
        run(arguments, cache)
        wall, after = time.perf_counter() - start, os.times()
        spent = (after.children_user - before.children_user) + (after.children_system - before.children_system)
        times.append((wall, spent))
    return [min(column) for column in zip(*times, strict=True)]


def command_rows(what, arguments, caches, repeats):
    """Return two rows of a command, wall and processor seconds, with a column per cache."""
    columns = [seconds(arguments, cache, n) for cache, n in zip(caches, repeats, strict=True)]
    wall, processor = zip(*columns, strict=True)
    return [(what, "s", *wall), ("  its processor time", "s", *processor)]


def run(arguments, cache):
    environment = os.environ | {"KAPPAFLOW_CACHE": cache}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{arguments}: {done.stderr}")
    return done.stdout


def load(preset, cache, repeats=1):
    """Seconds of the imports and of `ForwardModel.load`, each the best."""
    runs = [json.loads(run(["-c", LOAD, preset], cache)) for _ in range(repeats)]
    return [min(column) for column in zip(*runs, strict=True)]


def unshared(preset, cache, workers=2):
    """GB that a worker has to itself while `workers` hold the model: the mean."""
    command = [sys.executable, "-c", WORKER, preset]
    environment = os.environ | {"KAPPAFLOW_CACHE": cache, "OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    held = [subprocess.Popen(command, env=environment, **pipes) for _ in range(workers)]

    def ask(process):
        process.stdin.write("\n")
        process.stdin.flush()
        return process.stdout.readline()

    for process in held:
        if process.stdout.readline() != "ready\n":
            raise SystemExit("a worker died")
    sizes = [float(ask(process)) for process in held]
    for process in held:
        process.communicate("\n")
    return sum(sizes) / workers


def measure(given, folder):
    """Rows (what, unit, off, cold, warm); None where a column does not apply."""
    on = str(folder / "cache")
    retrieve = ["-c", COMMAND, "retrieve", str(resources.files("kappaflow.data") / "wolf1130c.ecsv")]
    rows = [
        ("import kappaflow", "s", seconds(["-c", "import kappaflow"], on, given.repeats)[0], None, None),
        ("kappaflow --help", "s", seconds(["-c", COMMAND, "--help"], on, given.repeats)[0], None, None),
    ]
    off, cold, warm = load(given.preset, "off"), load(given.preset, on), load(given.preset, on, given.repeats)
    rows.append(("imports of the forward model", "s", off[0], cold[0], warm[0]))
    rows.append((f"ForwardModel.load({given.preset!r})", "s", off[1], cold[1], warm[1]))
    kinds = {"retrieve --amortized": ["--amortized"], **({"retrieve": []} if given.refined else {})}
    for what, options in kinds.items() if given.retrieve else ():
        # The second run in a fresh folder finds the arrays and what the first compiled.
        places = ("off", str(folder / what), str(folder / what))
        asked = [*retrieve, *options, "--out", str(folder / "out")]
        rows += command_rows(f"kappaflow {what}, example", asked, places, (1, 1, given.repeats))
    if Path("/proc/self/smaps_rollup").exists():
        memory = [unshared(given.preset, cache) for cache in ("off", on)]
        rows.append(("unshared memory per worker, two at once", "GB", memory[0], None, memory[1]))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="laptop")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-retrieve", dest="retrieve", action="store_false")
    parser.add_argument("--refined", action="store_true", help="time the default retrieval, too")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(given, Path(folder))
    if given.json:
        columns = ("what", "unit", "off", "cold", "warm")
        print(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=2))
        return
    print(f"{'':43}{'off':>9}{'cold':>9}{'warm':>9}")
    for what, unit, *values in rows:
        print(f"{what:40} {unit:2}" + "".join(f"{'-' if v is None else f'{v:.2f}':>9}" for v in values))


if __name__ == "__main__":
    main()
