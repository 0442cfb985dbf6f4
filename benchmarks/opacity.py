"""The packaged table against the line-by-line sum it stands for, as flux of two Sonora Elf Owl atmospheres.

    python benchmarks/opacity.py [--json] [--layers 40] [--broadening SCALE SHIFT]

Both spectra come from the same layers and the same transfer; the only difference is the table: sampling in (P, T),
factorization, 16 bits: below 1 % rms at R = 2700. With `--broadening 1.30 -0.15` the line-by-line sum has every width
scaled and every exponent shifted, and the table is read at the pressure that stands for it: below 2 %.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
from pathlib import Path
from unittest import mock

import elfowl
import numpy as np

from kappaflow.build.tables.line_lists import PACKAGED_LISTS
from kappaflow.build.tables.opacity_table import FLOOR, GRID
from kappaflow.tables.opacity import OpacityTable, load_opacity

DATA = Path(os.environ.get("KAPPAFLOW_DATA", Path(__file__).parents[2] / "shared" / "data"))


def layer_centres(pressure, profile, layers):
    edges = np.linspace(np.log10(pressure[0]), np.log10(pressure[-1]), layers + 1)
    centre = 0.5 * (edges[1:] + edges[:-1])
    return centre, np.interp(centre, np.log10(pressure), profile["temperature"])


def broadened(source, scale, shift):
    """Scale every half-width of a list and shift every exponent."""
    wider = lambda lines: dataclasses.replace(lines, gamma=lines.gamma * scale, n=lines.n + shift)  # noqa: E731
    dense = tuple(dataclasses.replace(d, lines=wider(d.lines)) for d in source.dense)
    return dataclasses.replace(source, lines=wider(source.lines), dense=dense)


def exact_tables(pressure, profile, layers, broadening=(1.0, 0.0)):
    """Evaluate ln sigma (layer, nu) of every base list, line by line at the layers' own (P, T)."""
    centre, temperature = layer_centres(pressure, profile, layers)
    low, high = GRID.temperatures[[0, -1]]
    out = {}
    for recipe in (r for r in PACKAGED_LISTS if r.name == "base"):
        source = broadened(recipe.maker.assemble(DATA, GRID.temperatures), *broadening)
        rows = [
            source.cross_section(GRID.nu, float(np.clip(t, low, high)), float(10**p))
            for p, t in zip(centre, temperature, strict=True)
        ]
        out[recipe.species] = dict(zip(centre.round(9).tolist(), np.log(np.asarray(rows) + FLOOR), strict=True))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--broadening", type=float, nargs=2, default=(1.0, 0.0), metavar=("SCALE", "SHIFT"))
    options = parser.parse_args()
    broadening = tuple(options.broadening)
    centres = np.exp(np.arange(np.log(2.87), np.log(5.27), 0.5 / elfowl.POWER))
    nodes = load_opacity().temperature.size
    for path in sorted((DATA / "models").glob("*.nc")):
        pressure, profile, gravity, *_ = elfowl.read(path)
        read_wider = functools.partialmethod(OpacityTable.ln_sigma, broadening=broadening)
        with mock.patch.object(OpacityTable, "ln_sigma", read_wider):
            nu, packaged, _ = elfowl.ours(pressure, profile, gravity, options.layers)
        exact = exact_tables(pressure, profile, options.layers, broadening)

        def line_by_line(self, species, name, log_pressure, exact=exact):
            rows = np.stack([exact[species][round(float(p), 9)] for p in log_pressure])
            return np.repeat(rows[:, None], nodes, axis=1)  # the temperature weights sum to one

        with mock.patch.object(OpacityTable, "ln_sigma", line_by_line):
            _, direct, _ = elfowl.ours(pressure, profile, gravity, options.layers)
        ratio = np.log(
            elfowl.smooth(1e4 / nu[::-1], packaged[::-1], centres)
            / elfowl.smooth(1e4 / nu[::-1], direct[::-1], centres)
        )
        numbers = {"file": path.name, "rms": float(np.sqrt((ratio**2).mean())), "worst": float(np.abs(ratio).max())}
        print(
            json.dumps(numbers)
            if options.json
            else f"{path.name}: rms {numbers['rms']:.4f}, worst {numbers['worst']:.4f}"
        )


if __name__ == "__main__":
    main()
