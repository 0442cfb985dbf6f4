"""Our cross sections against ExoJAX's direct sum (OpaDirect, double precision) on the same lines, no wing cut.

    python benchmarks/voigt.py [--json]

Each code reads the same 160-character file with its own reader, takes its own partition function, and sums its own
Voigt profiles; one isotopologue, air half-widths. The HITEMP sample comes with ExoJAX; the HITRAN2012 files are used
where the data folder is there (KAPPAFLOW_DATA, or ../shared/data). What counts is the largest relative difference where
the cross section exceeds 1e-4 of its maximum: at most 1 %. ExoJAX takes TIPS-2017 and we what hitran-api has by default
(now TIPS-2025), so the difference is also given with ExoJAX's partition function in both.
"""

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import warnings
from importlib import resources
from pathlib import Path

import numpy as np

from kappaflow.build.lines.hitran import partition_ratio, read_hitran
from kappaflow.build.lines.voigt import cross_section

POINTS = ((300.0, 1.0), (800.0, 1e-2), (1500.0, 10.0))  # K, bar
MATTERS = 1e-4  # of the maximum
LIMIT = 0.01
DATA = Path(os.environ.get("KAPPAFLOW_DATA", Path(__file__).parents[2] / "shared/data"))


@contextlib.contextmanager
def double_precision():
    """ExoJAX's sums in double precision, and JAX left as it was."""
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def exojax_cross_sections(path, species, window, grid, points):
    """Cross sections (point, nu) [cm2/molecule] by ExoJAX alone, Q(296 K)/Q(T) (point,), and the number of lines."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        from exojax.database.hitemp.api import MdbHitemp
        from exojax.opacity.lpf.api import OpaDirect

        copy = shutil.copy(path, folder)  # RADIS leaves its cache beside the file
        with double_precision():
            mdb = MdbHitemp(str(Path(folder) / species), list(window), isotope=1, parfile=copy, gpu_transfer=True)
            opacity = OpaDirect(mdb, grid)
            ratio = np.array([1 / float(mdb.qr_interp(1, t, 296.0)) for t, _ in points])
            return np.stack([np.asarray(opacity.xsvector(t, p)) for t, p in points]), ratio, len(mdb.nu_lines)


def our_cross_sections(path, species, window, grid, points):
    """Likewise by kappaflow."""
    lines = read_hitran(path, species)
    lines = lines.where((lines.isotope == 1) & (lines.nu > window[0]) & (lines.nu < window[1]))
    return np.stack([cross_section(lines, grid, t, p) for t, p in points]), len(lines)


def compare(path, species, window, *, size=4000, points=POINTS):
    """Rows of (T, P, largest relative difference where the cross section matters)."""
    grid = np.geomspace(window[0] + 2.0, window[1] - 2.0, size)
    theirs, ratio, n_theirs = exojax_cross_sections(path, species, window, grid, points)
    ours, n_ours = our_cross_sections(path, species, window, grid, points)
    if n_ours != n_theirs:
        raise AssertionError(f"{path}: {n_ours} lines read by us, {n_theirs} by ExoJAX")
    rows = []
    for (temperature, pressure), a, b, q in zip(points, ours, theirs, ratio, strict=True):
        matters = b > MATTERS * b.max()
        difference = np.abs(a / b - 1)[matters]
        same = np.abs(a / b * q / partition_ratio(species, 1, temperature) - 1)[matters]
        rows.append(
            {
                "T [K]": temperature,
                "P [bar]": pressure,
                "largest": float(difference.max()),
                "largest, same partition function": float(same.max()),
                "points": int(matters.sum()),
            }
        )
    return {"species": species, "file": Path(path).name, "window [cm-1]": list(window), "lines": n_ours, "rows": rows}


def sample():
    """Find the CO file that ExoJAX installs for its own tests."""
    return Path(str(resources.files("exojax"))) / "data/testdata/CO/05_HITEMP_SAMPLE.par"


def cases():
    yield sample(), "CO", (4250.0, 4330.0)
    folder = DATA / "linelists/hitran2012"
    for name, species, window in (
        ("05_hit12.par", "CO", (2050.0, 2200.0)),
        ("01_hit12_1750-3650.par", "H2O", (2550.0, 2650.0)),
        ("06_hit12_1750-3650.par", "CH4", (3015.0, 3030.0)),
    ):
        if (folder / name).exists():
            yield folder / name, species, window


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    options = parser.parse_args()
    results = [compare(*case) for case in cases()]
    worst = max(row["largest"] for result in results for row in result["rows"])
    if options.json:
        print(json.dumps({"limit": LIMIT, "worst": worst, "cases": results}, indent=2))
    else:
        for result in results:
            low, high = result["window [cm-1]"]
            print(f"{result['species']}, {result['file']}, {low:g}-{high:g} cm-1, {result['lines']} lines")
            for row in result["rows"]:
                print(
                    f"  {row['T [K]']:6g} K {row['P [bar]']:6g} bar: {row['largest']:.1e} at {row['points']} points, "
                    f"{row['largest, same partition function']:.1e} with the same partition function"
                )
        print(f"worst {worst:.2e}, limit {LIMIT:g}: {'pass' if worst <= LIMIT else 'FAIL'}")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
