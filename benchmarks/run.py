"""Every benchmark that fits on two cores, one after another: `make bench`.

    python benchmarks/run.py [NAME ...]

Each prints what its own page of the docs quotes. One that misses its limit exits with 1; the run goes on and says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
DATA = Path(os.environ.get("KAPPAFLOW_DATA", HERE.parents[1] / "shared" / "data"))

# name -> arguments; those that read the line data are left out where it is absent.
BENCHMARKS = {
    "voigt": ["--json"],
    "opacity": ["--json"],
    "chemistry": ["--json"],
    "elfowl": [*map(str, sorted((DATA / "models").glob("*.nc"))), "--json"],
    "transfer": ["--json"],
    "forward": ["--json"],
    "sampling": ["--json"],
    "prior": ["--json"],
    "simulate": ["--json"],
    "sampler": ["--json"],
    "training": ["--json"],
    "calibrate": ["--json"],
    "serve": ["--json"],
}
NEEDS_DATA = {"voigt", "opacity", "elfowl", "sampling"}


def main():
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [n for n in names if n not in BENCHMARKS]
    if unknown:
        sys.exit(f"benchmarks: no {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    failed = []
    for name in names:
        if name in NEEDS_DATA and not DATA.is_dir():
            print(f"== {name}: skipped, no line data in KAPPAFLOW_DATA or ../shared/data", flush=True)
            continue
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, str(HERE / f"{name}.py"), *BENCHMARKS[name]], check=False).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"benchmarks that missed their limit or failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
