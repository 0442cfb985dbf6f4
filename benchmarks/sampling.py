"""Sampling noise of the modelling grid: flux at R = 2700 from a grid against one eight times finer.

    python benchmarks/sampling.py [--layers 24] [--json]

The two Sonora Elf Owl atmospheres, base lists summed line by line at 160,000 points. Every 8th of them is the packaged
grid, every 16th the paper's; each is compared with the grid eight times finer of which it is a part.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from unittest import mock

import elfowl
import numpy as np
import opacity

from kappaflow.build.tables.opacity_table import GRID
from kappaflow.tables.opacity import load_opacity

FINEST = 160_000


def spectrum(path, layers, nu, exact):
    """Flux at R = 2700 on the points `nu`, from line-by-line cross sections at them."""
    table = load_opacity()
    thin = dataclasses.replace(table, nu=nu)
    nodes = table.temperature.size

    def line_by_line(self, species, name, log_pressure):
        rows = np.stack([exact[species][round(float(p), 9)] for p in log_pressure])
        return np.broadcast_to(rows[:, None], (rows.shape[0], nodes, rows.shape[1]))

    pressure, profile, gravity, *_ = elfowl.read(path)
    with (
        mock.patch.object(elfowl, "load_opacity", return_value=thin),
        mock.patch.object(type(table), "ln_sigma", line_by_line),
    ):
        _, flux, _ = elfowl.ours(pressure, profile, gravity, layers)
    centres = np.exp(np.arange(np.log(2.87), np.log(5.27), 0.5 / elfowl.POWER))
    return elfowl.smooth(1e4 / nu[::-1], flux[::-1], centres)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    fine = dataclasses.replace(GRID, points=FINEST)
    for path in sorted((opacity.DATA / "models").glob("*.nc")):
        pressure, profile, *_ = elfowl.read(path)
        with mock.patch.object(opacity, "GRID", fine):
            exact = opacity.exact_tables(pressure, profile, options.layers)
        flux = {}
        for stride in (1, 2, 4, 8, 16, 32):
            part = {s: {p: row[::stride] for p, row in rows.items()} for s, rows in exact.items()}
            flux[FINEST // stride] = spectrum(path, options.layers, fine.nu[::stride], part)
        numbers = {"file": path.name}
        for points in (5_000, 10_000, 20_000):
            ln_ratio = np.log(flux[points] / flux[8 * points])
            numbers[f"rms at {points}"] = round(float(np.sqrt((ln_ratio**2).mean())), 4)
            numbers[f"median at {points}"] = round(float(np.median(ln_ratio)), 4)
        print(json.dumps(numbers) if options.json else "\n  ".join(f"{k}: {v}" for k, v in numbers.items()))


if __name__ == "__main__":
    main()
