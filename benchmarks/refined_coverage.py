"""Coverage of refined posteriors on simulated spectra with perturbed opacities, beside a fixed-opacity retrieval's.

    python benchmarks/refined_coverage.py --data SET --out DIR [--n 256] [--start 0] [--arms refined fixed]
        [--record FILE.json] [--model NETWORK ...] [--figure NAME] [--table]

SET is a set of `kappaflow simulate --parameters full`, observed by its own noise model, from a seed that no network was
trained on; its spectra are taken in turn from its shards, which have different line lists. One file of draws and one of
numbers per spectrum and arm in DIR: what is there, or in FILE.json, is not done again; FILE.json gets the numbers of
all at the end (docs/records/refined-coverage.json: those of the docs, to be gone on with). Prints Markdown tables of
what is there, for docs/reference.md. `--table` computes nothing.

Widths are compared with the limit: the posterior linearized at the truth, with the true line lists (`refined`) or the
base lists as they are (`fixed`). Nats over the prior: ln of the normal density with the draws' moments in probit
coordinates at the truth, over the prior's there; of the limit, half the ln determinant of the marginal information.
All parameters but sigma_cal count.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from scipy.special import ndtr, ndtri

import kappaflow as kf
from kappaflow.calibrate import wilson
from kappaflow.inference import Posterior
from kappaflow.parameters import INDEX
from kappaflow.plots import INK, PALETTE, QUIET, save_figure, style
from kappaflow.refinement import FitSettings, RefineSettings
from kappaflow.refinement.posing import posed
from kappaflow.refinement.simulated import model_of, simulated
from kappaflow.simulation import Shards
from kappaflow.simulation.prior import SHARD_SIZE
from kappaflow.storage import compiled_folder, written_whole

ARMS = {"refined": "marginal", "fixed": "fixed"}
LEVELS = (0.5, 0.68, 0.9, 0.95)
C_O = INDEX["C_O"]
TAILS = (16, 84)


def in_turn(count):
    """Places of a set of `count`: the first of every shard, the second of every shard, and so on."""
    return np.arange(count).reshape(-1, SHARD_SIZE).T.ravel().tolist()


def probit(box, theta):
    return ndtri(np.clip(box.to_unit(theta), 1e-6, 1 - 1e-6))


def true_z(coordinates, one, field):
    """Coordinates of the truth, gains at 0."""
    z = np.zeros(coordinates.size)
    u = probit(coordinates.box, one.theta)
    z[coordinates.places["theta"]] = u[coordinates.free]
    if coordinates.structure:
        z[coordinates.places["structure"]] = u[coordinates.box.names.index("log_f")]
    if field:
        varied = coordinates.varied
        z[coordinates.places["field"]] = (one.field / np.where(coordinates.sigma > 0, coordinates.sigma, 1))[varied]
    return z


def limit(one, model, arm):
    """68 % width of C/O and nats of the posterior linearized at the truth."""
    field = arm == "refined"
    lists = one.lists if field else {}
    settings = FitSettings(field=field)
    problem = posed(one.spectrum, distance=None, lists=lists, model=model, posterior=None, settings=settings)
    joint = problem.joints[0][1]
    c = joint.coordinates
    z = true_z(c, one, field)
    (here,) = joint.expand(z[None], settle=False)
    covariance = np.linalg.inv(here.information)
    names = [c.box.names[i] for i in c.free]
    i = names.index("C_O")
    edges = ndtr(z[i] + np.sqrt(covariance[i, i]) * np.array([-1, 1])) * c.box.widths[C_O]
    kept = [*(k for k, name in enumerate(names) if name != "sigma_cal"), c.places["structure"].start]
    return float(edges[1] - edges[0]), -0.5 * float(np.linalg.slogdet(covariance[np.ix_(kept, kept)])[1])


def nats(box, draws, truth):
    """Ln density of the truth by the draws' moments in probit coordinates, over the prior's."""
    kept = [i for i, name in enumerate(box.names) if name != "sigma_cal"]
    u, at = probit(box, draws)[:, kept], probit(box, truth)[kept]
    off, covariance = at - u.mean(axis=0), np.cov(u.T)
    ln = -0.5 * off @ np.linalg.solve(covariance, off) - 0.5 * np.linalg.slogdet(covariance)[1]
    return float(ln + 0.5 * at @ at)


def result_of(one, arm, tools, seed):
    posterior, model = tools
    began, cpu = time.monotonic(), time.process_time()
    settings = replace(RefineSettings(opacity=ARMS[arm]), seed=seed)
    found = kf.refine(one.spectrum, posterior=posterior, model=model, settings=settings)
    width, most = limit(one, model, arm)
    draws, box = found.draws, posterior.box
    low, high = np.percentile(draws, TAILS, axis=0, method="weibull")
    told = found.summary()
    return draws, {
        "row": one.row,
        "arm": arm,
        "snr": one.spectrum.snr,
        "truth": one.theta.tolist(),
        "lists": dict(one.lists),
        "pit": ((draws < one.theta).mean(axis=0)).tolist(),
        "width": (high - low).tolist(),
        "limit_width": width,
        "nats": nats(box, draws, one.theta),
        "limit_nats": most,
        "share_of_true_lists": sum(c["weight"] for c in told["combinations"] if c["lists"] == dict(one.lists)),
        "refined": told,
        "wall_seconds": time.monotonic() - began,
        "cpu_seconds": time.process_time() - cpu,
    }


def run(given):
    folder = compiled_folder()
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
    posterior, model = Posterior.load(*given.model), model_of(given.data)
    rows = in_turn(len(Shards(given.data)))[given.start : given.start + given.n]
    known = {(r["arm"], r["row"]) for r in recorded(given.record)}
    for one in simulated(given.data, rows, seed=given.seed):
        for arm in given.arms:
            path = given.out / f"{arm}-{one.row:06d}.json"
            if path.exists() or (arm, one.row) in known:
                continue
            draws, result = result_of(one, arm, (posterior, model), given.seed)
            with written_whole(path.with_suffix(".npz")) as part, part.open("wb") as stream:
                np.savez(stream, draws=draws.astype(np.float32), truth=one.theta)
            with written_whole(path) as part:
                part.write_text(json.dumps(result))
            print(f"{path.name}: {result['cpu_seconds']:.0f} s of processors", flush=True)


def recorded(path):
    return json.loads(path.read_text()) if path is not None and path.exists() else []


def short(value):
    """Four digits of every number."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: short(item) for key, item in value.items()}
    return [short(item) for item in value] if isinstance(value, list) else value


def gathered(out, record):
    """Results of both places by arm; `record` then holds all."""
    results = {(r["arm"], r["row"]): r for r in recorded(record)}
    for path in sorted(Path(out).glob("*-*.json")):
        result = short(json.loads(path.read_text()))
        results[result["arm"], result["row"]] = result
    results = [results[key] for key in sorted(results)]
    if record is not None and results:
        with written_whole(record) as part:
            part.write_text("[\n" + ",\n".join(json.dumps(r) for r in results) + "\n]\n")
    return {arm: found for arm in ARMS if (found := [r for r in results if r["arm"] == arm])}


def covered(results, level, place=C_O):
    """Hits of the central interval at `level`, and how many there are."""
    pit = np.array([r["pit"][place] for r in results])
    return int((np.abs(pit - 0.5) <= level / 2).sum()), pit.size


def table(found):
    lines = [
        "| C/O | spectra (converged) | " + " | ".join(f"{x:.2f}" for x in LEVELS) + " | mean over parameters at 0.68"
    ]
    lines[0] += " | 68 % width, median | over the limit, median | nats, median (limit) | processor s, median |"
    lines.append("|---" * (7 + len(LEVELS)) + "|")
    for arm, results in found.items():
        cells = []
        for level in LEVELS:
            hits, n = covered(results, level)
            low, high = wilson(hits, n)
            cells.append(f"{hits / n:.3f} ({float(low):.2f}-{float(high):.2f})")
        everything = np.mean([covered(results, 0.68, i)[0] / len(results) for i in range(len(results[0]["pit"]))])
        widths = np.array([r["width"][C_O] for r in results])
        over = widths / [r["limit_width"] for r in results]
        converged = sum(r["refined"]["converged"] for r in results)
        lines.append(
            f"| {arm} | {len(results)} ({converged}) | {' | '.join(cells)} | {everything:.3f} "
            f"| {np.median(widths):.3f} | {np.median(over):.2f} | {np.median([r['nats'] for r in results]):.1f} "
            f"({np.median([r['limit_nats'] for r in results]):.1f}) "
            f"| {np.median([r['cpu_seconds'] for r in results]):.0f} |"
        )
    return "\n".join(lines)


def figure(found):
    from matplotlib.figure import Figure

    levels = np.linspace(0.02, 0.98, 49)
    with style():
        made = Figure(figsize=(4.6, 4.6), layout="constrained")
        axes = made.subplots()
        axes.plot([0, 1], [0, 1], color=QUIET, lw=1)
        for i, (arm, results) in enumerate(found.items()):
            counts = np.array([covered(results, x) for x in levels])
            low, high = wilson(counts[:, 0], counts[:, 1])
            label = "refined, opacities marginalized" if arm == "refined" else "base line lists, fixed"
            axes.fill_between(levels, low, high, color=PALETTE[i], alpha=0.2, lw=0)
            axes.plot(levels, counts[:, 0] / counts[:, 1], color=PALETTE[i], label=f"{label} (n = {len(results)})")
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="nominal", ylabel="share of C/O intervals that hold the truth")
        axes.set_aspect("equal")
        axes.legend(loc="upper left", labelcolor=INK)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--n", type=int, default=256)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--arms", nargs="*", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--model", nargs="*", default=[], help="networks that propose; the packaged ones unless given")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--table", action="store_true", help="only of what is there")
    given = parser.parse_args()
    if not given.table:
        if given.data is None:
            parser.error("give --data SET")
        run(given)
    found = gathered(given.out, given.record)
    if found:
        print(table(found))
        if given.figure:
            save_figure(figure(found), given.figure)


if __name__ == "__main__":
    main()
