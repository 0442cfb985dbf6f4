"""How long a catalogue takes: real spectra, noised again, through `kappaflow retrieve --targets`.

    python benchmarks/catalogue.py --data DIR --n 94 --out catalogue [--options=--amortized]

DIR (or DIR/spectra) holds the seven G395H spectra. Each is copied with fresh noise of half its own error added (and the
error grown by as much), so that every copy is another spectrum; the command runs as a user would run it, and prints its
lines. Wall and processor time are told at the end, and per object.
"""

import argparse
import csv
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import kappaflow as kf

DISTANCES = {  # pc: the results files of the spectra; 2MASS J0415-0935 and Wolf 1130C from the literature
    "CWISEP_J193518": 14.42,
    "WISEA_J082507": 6.55,
    "WISE_J014656": 19.35,
    "WISE_J053516": 14.56,
    "WISE_J154151": 5.8,
    "seda_2M0415": 5.71,
    "ucdmcmc_JWST": 16.6,
}


def noised(folder: Path, n: int, out: Path) -> Path:
    """Write `n` noised copies as text and a table of targets; return the table."""
    paths = sorted(p for p in folder.iterdir() if p.name.startswith(tuple(DISTANCES)) and "_results" not in p.name)
    read = {p: kf.read_spectrum(p, **({"flux_unit": "erg/s/cm2/um"} if p.suffix == ".csv" else {})) for p in paths}
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for i in range(n):
        path = paths[i % len(paths)]
        spectrum = read[path]
        rng = np.random.default_rng([2026, i])
        good = spectrum.mask
        error = np.sqrt(1.25) * spectrum.error[good]
        flux = spectrum.flux[good] + 0.5 * spectrum.error[good] * rng.standard_normal(good.sum())
        name = f"{path.name[:14].rstrip('.')}-{i // len(paths) + 1:02d}"
        text = "\n".join(
            f"{w:.8f} {f:.8e} {e:.8e}" for w, f, e in zip(spectrum.wavelength[good], flux, error, strict=True)
        )
        (out / f"{name}.txt").write_text("# wave(um) flux(mJy) err(mJy)\n" + text + "\n", encoding="utf-8")
        distance = next(pc for start, pc in DISTANCES.items() if path.name.startswith(start))
        rows.append({"file": f"{name}.txt", "name": name, "distance": distance})
    with (out / "targets.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ["file", "name", "distance"])
        writer.writeheader()
        writer.writerows(rows)
    return out / "targets.csv"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--n", type=int, default=94)
    parser.add_argument("--out", type=Path, default=Path("catalogue"))
    parser.add_argument("--options", default="", help="more options of `kappaflow retrieve`")
    asked = parser.parse_args()
    inside = asked.data / "spectra"
    table = noised(inside if inside.is_dir() else asked.data, asked.n, asked.out / "spectra")
    words = ["-m", "kappaflow", "retrieve", "--targets", str(table), "--out", str(asked.out / "result")]
    began, before = time.monotonic(), os.times()
    done = subprocess.run([sys.executable, *words, *shlex.split(asked.options)], check=False)
    took, after = time.monotonic() - began, os.times()
    worked = after.children_user + after.children_system - before.children_user - before.children_system
    load = os.getloadavg()[1] if hasattr(os, "getloadavg") else float("nan")
    print(
        f"{asked.n} spectra: {took:.0f} s wall, {worked:.0f} s of processor time ({worked / asked.n:.1f} per object), "
        f"exit code {done.returncode}; load of the machine over five minutes {load:.1f} on {os.cpu_count()} cores"
    )
