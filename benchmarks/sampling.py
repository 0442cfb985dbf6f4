"""Sampling noise of the modelling grid: fluxes at R = 2700 from every n-th point against the grid eight times finer.

    python benchmarks/sampling.py [--draws 32] [--json]

Unbinned pixels: the line-spread function has R = 1930-3668. The packaged table has 20,000 points, so that a grid eight
times finer exists for 1,250 (10,000) and 2,500 (20,000) only; 5,000 and 10,000 are compared with 20,000, of which they
are a part, which hides some of their noise. Finer grids need a table built with more points.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from kappaflow.config import preset
from kappaflow.forward import ForwardModel
from kappaflow.parameters import bounds
from kappaflow.tables.opacity import load_opacity


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    low, high = bounds()
    theta = np.random.default_rng(5).uniform(low, high, (options.draws, low.size))
    table = load_opacity()
    flux = {}
    for stride in (1, 2, 4, 8, 16):
        sizes = preset("paper").model_copy(update={"stride": stride, "pixel_bin": 1})
        flux[20_000 // stride] = ForwardModel.load(sizes, opacity=table)(theta)
    result = {}
    for coarse, fine in ((1250, 10_000), (2500, 20_000), (5000, 20_000), (10_000, 20_000)):
        ln_ratio = np.log(flux[coarse] / flux[fine])
        each = np.sqrt((ln_ratio**2).mean(axis=1))
        result[f"{coarse} against {fine}"] = {
            "rms": float(np.sqrt((ln_ratio**2).mean())),
            "median_spectrum": float(np.median(each)),
            "bias": float(np.median(ln_ratio)),
        }
    print(json.dumps(result) if options.json else "\n".join(f"{k}: {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
