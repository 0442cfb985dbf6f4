"""Against an earlier version: what a spectrum costs, and how spectra moved.

    git worktree add --detach EARLIER 6d7b2f1
    python benchmarks/earlier.py EARLIER/src [--draws 64] [--batch 128] [--rounds 5] [--json]

Two processes, one per version, each with its own packaged tables (laptop preset: 20,000 points, 60 layers, R = 1930 to
3670), take turns. Cost: processor time of `--batch` draws, set `full` with perturbed opacities and temperature slopes
here, the fifteen parameters and 54 coefficients there; the least of `--rounds`. Spectra of `--draws` draws of `paper`,
base lists, no field: ln ratio to the earlier version's, first with its opacity table and CO2 quenched with CO (nothing
else has changed), then with CO2's own clock, then with today's table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import jax
import numpy as np

from kappaflow.model.forward import ForwardModel
from kappaflow.parameters import parameter_set
from kappaflow.physics.composition import CO, CO2, H2O

# Runs in the earlier version, which may have no name in common with this one but `kappaflow.ForwardModel`.
THERE = """
import sys, time
import numpy as np
import kappaflow as kf
model = kf.ForwardModel.load("laptop")
for line in sys.stdin:
    given, out = line.split()
    draws = np.load(given)
    start = time.process_time()
    flux = model(draws["theta"], draws["field"])
    spent = time.process_time() - start
    np.save(out, flux)
    print(spent, flush=True)
"""


class Earlier:
    """The forward model of the version whose packages are in `source`, in a process of its own."""

    def __init__(self, source, folder):
        self.given, self.out = folder / "draws.npz", folder / "flux.npy"
        command = [sys.executable, "-c", THERE]
        environment = os.environ | {"PYTHONPATH": str(source.resolve())}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __call__(self, theta, field):
        """Spectra (n, p), and the processor seconds that they took."""
        np.savez(self.given, theta=theta, field=field)
        print(self.given, self.out, file=self.process.stdin, flush=True)
        spent = float(self.process.stdout.readline())
        return np.load(self.out), spent

    def close(self):
        """Let the process end."""
        self.process.stdin.close()
        self.process.wait()


def drawn(chosen, n, seed, spread):
    rng = np.random.default_rng(seed)
    theta = rng.uniform(chosen.low, chosen.high, (n, len(chosen.names)))
    return theta, spread * rng.standard_normal((n, len(chosen.species) * chosen.coefficients))


def cost(earlier, batch, rounds):
    """Least processor milliseconds per spectrum of each version, and their ratio."""
    model = ForwardModel.load("laptop", parameters="full")
    ours, theirs = (drawn(parameter_set(name), batch, 0, 0.15) for name in ("full", "paper"))
    model(*ours), earlier(*theirs)  # compiles
    here, there = [], []
    for _ in range(rounds):
        start = time.process_time()
        model(*ours)
        here.append(1e3 * (time.process_time() - start) / batch)
        there.append(1e3 * earlier(*theirs)[1] / batch)
    ratio = min(here) / min(there)
    return {"core ms, full": here, "core ms, earlier": there, "ratio of the least": ratio}


def together(ln_vmr, _):
    """Stand in for `water_gas`: CO2 stays where it froze with CO and H2O."""
    return ln_vmr[H2O], ln_vmr[CO], ln_vmr[CO2]


def moved(earlier, source, draws):
    """Per step: rms over a spectrum (median, 95th percentile, worst of the draws) and median of ln(flux ratio)."""
    theta, field = drawn(parameter_set("paper"), draws, 1, 0.0)
    table = source / "kappaflow" / "data" / "opacity.h5"
    with mock.patch("kappaflow.physics.composition.water_gas", together):
        jax.clear_caches()
        same = ForwardModel.load("laptop", opacity=table)(theta, field)
    jax.clear_caches()
    clock = ForwardModel.load("laptop", opacity=table)(theta, field)
    now = ForwardModel.load("laptop")(theta, field)
    before, _ = earlier(theta, field)
    steps = {"nothing else": (same, before), "CO2's own clock": (clock, same), "the table": (now, clock)}
    return {name: changed(*pair) for name, pair in (steps | {"all": (now, before)}).items()}


def changed(new, old):
    ln = np.log(new.astype(float) / old)
    rms = np.sqrt((ln**2).mean(axis=1))
    quantiles = dict(zip(("median", "p95", "worst"), np.quantile(rms, (0.5, 0.95, 1.0)).tolist(), strict=True))
    return {"rms": quantiles, "median ln ratio": float(np.median(ln)), "largest": float(np.abs(ln).max())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the earlier version's src")
    parser.add_argument("--draws", type=int, default=64)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        earlier = Earlier(given.source, Path(folder))
        result = {"moved": moved(earlier, given.source, given.draws)}
        result["cost"] = cost(earlier, given.batch, given.rounds)
        earlier.close()
    print(json.dumps(result, indent=None if given.json else 2))


if __name__ == "__main__":
    main()
