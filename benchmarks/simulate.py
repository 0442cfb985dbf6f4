"""What a simulation costs beyond its physics, how fast batches come back, and that nothing is ever discarded.

    python benchmarks/simulate.py --json
    python benchmarks/simulate.py --preset laptop --shards 4 --spectra 50000

- `end_to_end`: drawing, simulating, checking, encoding and writing shards against the forward model called on the same
  arrays, turn by turn in one process, so that a busy machine slows both; the first of each pair alternates.
- `reading`: spectra per second at 900 pixels with noise, masks and gain, all threads; `cpu_per_core` is what one free
  core would give, whatever else the machine does.
- `stored`: --spectra spectra of the preset tiny, simulated and stored by one process a processor; how many were
  discarded, and the Kolmogorov-Smirnov p-value of the stored C/O against its uniform prior.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy import stats

from kappaflow.parameters import INDEX, PARAMETERS
from kappaflow.simulation import Shards, make_config, simulate_directory
from kappaflow.simulation.config import load_model, plan_shards
from kappaflow.simulation.directory import Claims
from kappaflow.simulation.opacity_draws import coefficient_sigma, draw_field, sigma_table
from kappaflow.simulation.prior import SHARD_SIZE, draw_prior
from kappaflow.simulation.run import ShardJob, fill
from kappaflow.simulation.toy import ToyModel


def end_to_end(preset, shards, folder):
    """Seconds of bare calls and of whole shards, interleaved."""
    recipe = make_config(preset=preset)
    model = load_model(recipe)
    plan = plan_shards(recipe, 0, model)
    inputs, scale = [], coefficient_sigma(sigma_table())
    for i in range(shards):
        lists = dict(plan.combinations[plan.combination(i)])
        inputs.append((draw_prior("uniform", 0, i)[0], draw_field(scale, np.ones(SHARD_SIZE), 0, i), lists))
    model(inputs[0][0], field=inputs[0][1], lists=inputs[0][2])  # compiles
    claims = Claims(folder)
    spent = {"bare": 0.0, "whole": 0.0}

    def bare(i):
        model(inputs[i][0], field=inputs[i][1], lists=inputs[i][2])

    def whole(i):
        fill(folder, ShardJob(plan), model, [i], claims, lambda steps: None)

    for i in range(shards):
        turns = [("bare", bare), ("whole", whole)]
        for name, turn in turns if i % 2 else turns[::-1]:
            start = time.perf_counter()
            turn(i)
            spent[name] += time.perf_counter() - start
    claims.close()
    count = shards * SHARD_SIZE
    return {
        "preset": preset,
        "spectra": count,
        "bare_per_second": count / spent["bare"],
        "whole_per_second": count / spent["whole"],
        "whole_over_bare": spent["bare"] / spent["whole"],
    }


def reading(pixels, batches, folder, masks):
    """Spectra per second of `Shards.train`, by the wall clock and for each second of one core."""
    simulate_directory(
        folder, make_config(model="toy"), 100 * SHARD_SIZE, load=lambda recipe: ToyModel(pixels), resume=True
    )
    shards = Shards(folder, masks=masks)
    shards.train(0, 0, 128)
    wall, cpu = time.perf_counter(), time.process_time()
    count = sum(len(shards.train(0, i, 128)) for i in range(batches))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"pixels": pixels, "masks": masks, "per_second": count / wall, "cpu_per_core": count / cpu}


def stored(spectra, folder):
    """Simulate and store, then count what is missing and test the C/O that was stored."""
    result = simulate_directory(folder, make_config(preset="tiny"), spectra)
    shards = Shards(folder, verify=True)
    asked = result["shards"] * SHARD_SIZE
    finite = sum(int((np.isfinite(f) & (f > 0)).all(axis=1).sum()) for f in shards._flux)
    column, co = shards.theta[:spectra, INDEX["C_O"]], PARAMETERS[INDEX["C_O"]]
    return {
        "spectra": asked,
        "discarded": asked - finite,
        "co_ks_p": float(stats.kstest((column - co.low) / co.width, "uniform").pvalue),
        "per_second_with_start": result["spectra_per_second"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="laptop")
    parser.add_argument("--shards", type=int, default=4, help="of the end-to-end comparison")
    parser.add_argument("--spectra", type=int, default=50_000, help="of the count of discarded ones")
    parser.add_argument("--batches", type=int, default=150, help="of 128 spectra, in the reading test")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "whole").mkdir()
        report = {
            "reading": [reading(900, options.batches, folder / "toy", masks) for masks in (True, False)],
            "end_to_end": end_to_end(options.preset, options.shards, folder / "whole"),
            "stored": stored(options.spectra, folder / "stored"),
        }
    if options.json:
        print(json.dumps(report, indent=1))
        return
    for part in (*report["reading"], report["end_to_end"], report["stored"]):
        print("  ".join(f"{k} {v:,.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in part.items()))


if __name__ == "__main__":
    main()
