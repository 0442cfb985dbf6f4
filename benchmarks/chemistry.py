"""Chemistry table against live FastChem at random prior points, and the cost of the lookup.

    python benchmarks/chemistry.py [--points 2000] [--seed 0] [--box] [--json]

Points are drawn as the model meets them: parameters from the prior, a layer at random, the temperature of the profile
there. `--box` draws T uniformly from 150-3500 K instead, whatever the pressure.
"""

import argparse
import json
import time

import jax
import jax.numpy as jnp
import numpy as np

from kappaflow.build.sources.fastchem import Solver, find_data
from kappaflow.model.arrays import on_device
from kappaflow.model.prepare import hermite, prepare_chemistry
from kappaflow.parameters import INDEX, SPECIES, bounds
from kappaflow.physics.composition import EquilibriumTable, equilibrium, quenched_composition
from kappaflow.physics.temperature import Hermite, profile
from kappaflow.tables.chemistry import load_chemistry

LAYERS = 60
MATTERS = -8.0  # log10 VMR


def prior_points(rng, n, box):
    """Parameters (n, 15), the layers' log10 P, the chosen layer and the temperature of every layer (n, layer)."""
    low, high = bounds()
    theta = rng.uniform(low, high, (n, low.size))
    edges = np.linspace(-5.0, 3.0, LAYERS + 1)
    log_pressure = 0.5 * (edges[1:] + edges[:-1])
    if box:
        temperature = rng.uniform(150.0, 3500.0, (n, LAYERS))
    else:
        at = on_device(Hermite, hermite(log_pressure))
        knots = jnp.asarray(theta[:, INDEX["T1"] : INDEX["T5"] + 1])
        temperature = np.asarray(jax.vmap(lambda k: profile(k, at))(knots), float)
    return theta, log_pressure, rng.integers(0, LAYERS, n), temperature


def live(theta, log_pressure, layer, temperature):
    """log10 VMR (n, species) straight from FastChem with its default settings."""
    data = find_data()
    rows = []
    for i, row in enumerate(theta):
        solver = Solver(data, row[INDEX["C_O"]], row[INDEX["M_H"]], sweeps=400)
        rows.append(solver.log_vmr(temperature[i, layer[i], None], 10.0 ** log_pressure[layer[i], None])[0])
    return np.array(rows)


def lookup_time(table, theta, ln_pressure, temperature):
    """Milliseconds per spectrum: lookup and quenching, batches of 128."""
    columns = [INDEX[n] for n in ("C_O", "M_H", "log_kzz", "log_g")]
    step = jax.jit(jax.vmap(lambda T, p: quenched_composition(table, T, ln_pressure, (p[0], p[1], p[2], p[3]))))
    T, p = jnp.asarray(temperature[:128], jnp.float32), jnp.asarray(theta[:128, columns], jnp.float32)
    jax.block_until_ready(step(T, p))
    times = []
    for _ in range(10):
        start = time.perf_counter()
        jax.block_until_ready(step(T, p))
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times)) / len(T)


def measure(points, seed, box):
    rng = np.random.default_rng(seed)
    theta, log_pressure, layer, temperature = prior_points(rng, points, box)
    packaged = load_chemistry()
    table = on_device(EquilibriumTable, prepare_chemistry(packaged, log_pressure))
    single = jax.jit(lambda T, co, mh: equilibrium(table, T, co, mh)[0])
    guess = np.stack(
        [
            np.asarray(single(jnp.asarray(temperature[i], jnp.float32), row[INDEX["C_O"]], row[INDEX["M_H"]]))[
                :, layer[i]
            ]
            for i, row in enumerate(theta)
        ]
    ) / np.log(10.0)
    truth = live(theta, log_pressure, layer, temperature)
    error = np.abs(guess - truth)
    result = {
        "points": points,
        "seed": seed,
        "draws": "box" if box else "prior",
        "digest": packaged.digest,
        "species": {},
    }
    for s, name in enumerate((*SPECIES, "H2", "He")):
        matters = truth[:, s] > MATTERS
        e = error[matters, s]
        worst = np.flatnonzero(matters)[e.argmax()]
        result["species"][name] = {
            "n": int(matters.sum()),
            "p95_dex": round(float(np.quantile(e, 0.95)), 5),
            "worst_dex": round(float(e.max()), 5),
            "worst_at": {
                "T": round(float(temperature[worst, layer[worst]]), 1),
                "log_P": round(float(log_pressure[layer[worst]]), 3),
                "C_O": round(float(theta[worst, INDEX["C_O"]]), 5),
                "M_H": round(float(theta[worst, INDEX["M_H"]]), 3),
            },
        }
    result["lookup_ms_per_spectrum"] = round(
        lookup_time(table, theta, jnp.asarray(log_pressure * np.log(10.0), jnp.float32), temperature), 4
    )
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--box", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(options.points, options.seed, options.box)
    if options.json:
        print(json.dumps(result))
        return
    print(f"{result['points']} {result['draws']} points, seed {result['seed']}, VMR > 1e{MATTERS:.0f}")
    for name, row in result["species"].items():
        print(f"{name:>4}: n {row['n']:5d}  95th percentile {row['p95_dex']:.4f} dex  worst {row['worst_dex']:.4f} dex")
    print(f"lookup and quenching: {result['lookup_ms_per_spectrum']} ms per spectrum")


if __name__ == "__main__":
    main()
