"""What do all derivatives of a spectrum cost? The backward walk against forward mode, differences and plain spectra.

    python benchmarks/derivatives.py [--preset laptop] [--repeats 5] [--json]

Processor seconds (least of the repeats) of each, and the ratio to as many plain spectra in one batch as there are
parameters and coefficients. Exits with 1 where the backward walk costs more than that batch.
"""

import argparse
import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from kappaflow.model.forward import ForwardModel
from kappaflow.parameters import COEFFICIENTS, PARAMETERS, SPECIES
from kappaflow.physics.emission import spectra
from kappaflow.physics.sensitivity import sensitivities

THETA = (300, 500, 900, 1500, 2500, 0.55, 0.1, 8, 5, 1, 3, 2, 3, 5, 0.02)


def forward_mode(theta, field, lists, tables):
    def one(t, c):
        return spectra(t[None], c[None], lists, tables)[0]

    return jax.jacfwd(one, argnums=(0, 1))(theta[0], field[0])


def measure(preset, repeats):
    tables = ForwardModel.load(preset).tables
    directions = len(PARAMETERS) - 1 + len(SPECIES) * COEFFICIENTS  # the gain's width is none of the spectrum
    lists = jnp.zeros(len(SPECIES), jnp.int32)

    def batch(n):
        return jnp.tile(jnp.array(THETA, jnp.float32), (n, 1)), jnp.zeros((n, len(SPECIES), COEFFICIENTS), jnp.float32)

    arms = {
        f"{directions} spectra": (spectra, directions, 1),
        "backward walk": (sensitivities, 1, 1),
        "backward walk, each of four": (sensitivities, 4, 4),
        "forward mode": (forward_mode, 1, 1),
        f"central differences, {2 * directions} spectra": (spectra, 2 * directions, 1),
    }
    compiled = {name: (jax.jit(function), *batch(n), share) for name, (function, n, share) in arms.items()}
    seconds = dict.fromkeys(arms, np.inf)
    for i in range(repeats + 1):
        for name, (function, theta, field, share) in compiled.items():
            began = time.process_time()
            jax.block_until_ready(function(theta, field, lists, tables))
            if i:  # the first compiles
                seconds[name] = min(seconds[name], (time.process_time() - began) / share)
    first = next(iter(seconds.values()))
    return {name: {"processor seconds": s, "ratio": s / first} for name, s in seconds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="laptop")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.preset, given.repeats)
    lines = [f"{k:38} {v['processor seconds']:8.3f} s  {v['ratio']:.2f}" for k, v in found.items()]
    print(json.dumps(found) if given.json else "\n".join(lines))
    sys.exit(int(found["backward walk"]["ratio"] > 1))


if __name__ == "__main__":
    main()
