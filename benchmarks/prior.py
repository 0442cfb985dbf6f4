"""No failures: perturbed draws of the whole prior, every pixel finite and positive; single against double precision.

python benchmarks/prior.py [--n 100000] [--preset tiny] [--double 1000] [--parameters paper|full] [--json]
"""

from __future__ import annotations

import argparse
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np

from kappaflow.model.forward import ForwardModel
from kappaflow.physics.emission import spectra

WIDE = 0.4  # standard deviation of every coefficient: wider than the widest of the paper's amplitudes


def draws(n, seed, parameters):
    """Uniform draws; the first are corners of the prior."""
    low, high = parameters.low, parameters.high
    rng = np.random.default_rng(seed)
    theta = rng.uniform(low, high, (n, low.size))
    corners = rng.permutation(list(itertools.product((0, 1), repeat=low.size)))[: n // 10]
    theta[: len(corners)] = np.where(corners, high, low)
    return theta, rng.normal(0, WIDE, (n, len(parameters.species), parameters.coefficients))


def failures(model, n):
    bad = clamped = 0
    faintest, brightest = np.inf, 0.0
    choices = np.array(list(itertools.product(*(range(len(v)) for v in model.names.values()))))
    for first in range(0, n, 2048):
        theta, field = draws(min(2048, n - first), first, model.parameters)
        flux = model(theta, field, lists=choices[(first // 2048) % len(choices)])
        bad += int((~(np.isfinite(flux) & (flux > 0)).all(axis=1)).sum())
        clamped += int((model.clamped(theta).sum(axis=1) > 0).sum())
        faintest, brightest = min(faintest, float(flux.min())), max(brightest, float(flux.max()))
    return {"draws": n, "failures": bad, "with_clamped_layers": clamped, "flux_range_mjy": [faintest, brightest]}


def precision(model, n):
    """Largest and rms relative difference of single from double precision on the same tables."""
    theta, field = draws(n, 99, model.parameters)
    single = model(theta, field)
    with jax.enable_x64(True):
        tables = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64) if a.dtype.kind == "f" else a, model.tables)
        run = jax.jit(spectra)
        parts = [slice(i, i + 50) for i in range(0, n, 50)]
        lists = jnp.zeros(len(model.names), jnp.int32)
        double = np.concatenate([run(jnp.asarray(theta[p]), jnp.asarray(field[p]), lists, tables) for p in parts])
    ratio = single / double - 1
    return {"draws": n, "largest": float(np.abs(ratio).max()), "rms": float(np.sqrt((ratio**2).mean()))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument(
        "--double", type=int, default=1000, help="draws compared with double precision (multiple of 50)"
    )
    parser.add_argument("--parameters", default="paper", choices=["paper", "full"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    model = ForwardModel.load(options.preset, parameters=options.parameters)
    result = {"preset": options.preset, "prior": failures(model, options.n)}
    if options.double:
        result["single_against_double"] = precision(model, options.double)
    print(json.dumps(result) if options.json else "\n".join(f"{k}: {v}" for k, v in result.items()))
    raise SystemExit(1 if result["prior"]["failures"] else 0)


if __name__ == "__main__":
    main()
