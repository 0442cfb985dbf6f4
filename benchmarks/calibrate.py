"""The whole calibration suite at full size: seconds and peak memory, and its judges against plain rivals.

    python benchmarks/calibrate.py --json
    python benchmarks/calibrate.py --objects 512 --draws 400

The whole suite: a verdict of the raw draws (coverage, PIT, TARP three times, scores, breakdowns), recalibration and
conformal intervals fitted on one half and judged on the other, and a paired comparison, all with 1,000 bootstraps.
`seconds` is wall time, `cpu_seconds` that of all threads: on a busy machine the first is the larger.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np

from kappaflow.calibrate import (
    JudgeSettings,
    check_draws,
    fit_conformal,
    fit_pit_map,
    judge,
    judge_intervals,
    paired,
    resamples,
    split_half,
    summarize,
)
from kappaflow.calibrate.interval_coverage import inside_by_interval


def toy(objects, draws, parameters, seed=0):
    """Exact posteriors of widths from 2 % of the prior to all of it, in single precision."""
    rng = np.random.default_rng(seed)
    width = np.geomspace(0.02, 0.3, parameters).astype(np.float32)
    centre = rng.uniform(0.0, 1.0, (objects, parameters)).astype(np.float32)
    truth = centre + width * rng.standard_normal((objects, parameters), dtype=np.float32)
    sample = rng.standard_normal((objects, draws, parameters), dtype=np.float32)
    sample *= width
    sample += centre[:, None]
    low, high = np.full(parameters, -2.0), np.full(parameters, 3.0)
    return check_draws(truth, sample, prior=(low, high)), rng.uniform(10, 200, objects)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=2048)
    parser.add_argument("--draws", type=int, default=1200)
    parser.add_argument("--parameters", type=int, default=15)
    parser.add_argument("--bootstraps", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    draws, snr = toy(options.objects, options.draws, options.parameters)
    settings = JudgeSettings(bootstraps=options.bootstraps)
    stages = {}
    wall, cpu = time.perf_counter(), time.process_time()

    def lap(name, begun=[wall]):  # noqa: B006 (one clock for all laps)
        now = time.perf_counter()
        stages[name] = round(now - begun[0], 2)
        begun[0] = now

    verdict = judge(draws, settings, covariates={"SNR": snr})
    lap("verdict")
    fit, test = split_half(options.objects)
    calibration, held = summarize(draws.objects(fit)), draws.objects(test)
    recalibrated = summarize(fit_pit_map(calibration).apply(held))
    margins = fit_conformal(calibration)
    conformal = judge_intervals(margins.apply(summarize(held)), settings, fitted_on=len(fit))
    lap("corrections")
    counts = resamples(len(verdict.summary.truth), options.bootstraps)
    other = margins.apply(verdict.summary)
    inside = inside_by_interval(other.truth, other.lower, other.upper)
    paired((verdict.summary, verdict.inside), (other, inside), counts)
    lap("paired")
    result = {
        "objects": options.objects,
        "draws": options.draws,
        "parameters": options.parameters,
        "bootstraps": options.bootstraps,
        "seconds": round(time.perf_counter() - wall, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),  # kB on Linux
        "stages": stages,
        "calibrated": verdict.calibrated,
        "recalibrated_width_ratio": round(float(np.mean(recalibrated.width) / np.mean(verdict.summary.width)), 3),
        "conformal_coverage_at_0.9": round(float(conformal.coverage.overall[2]), 3),
    }
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:>28s}  {value}")


if __name__ == "__main__":
    main()
