"""Who is right? Network, refined posterior, NUTS with the opacity field integrated out and NUTS with it sampled.

    python benchmarks/reference.py --data SET [--n 10 | --rows 3,7,9] --out DIR [--spectra DIR] [--only TEXT]
        [--methods network refined marginal sampled] [--chains 2] [--warmup 150] [--samples 250] [--figure NAME]

SET is a simulated set of the networks' preset and parameters, from a seed that none of them was trained on; without
--rows, `n` of its spectra that are far from each other in T4, C/O and SNR. --spectra adds real ones (as sky.py reads
them), --only those with TEXT in their name. Everything is kept in DIR/OBJECT/METHOD, one JSON file and the draws per
method: what is there is not done again, and NUTS goes on where it was killed. Prints Markdown tables, of what is there,
for docs/reference.md. `--table` computes nothing.

C2ST: share of draws that a small network (scikit-learn's, two layers, five folds) assigns to the right one of two
methods; 0.5 where they are the same. Copies of a draw stay in one fold.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import kappaflow as kf
from kappaflow.inference import Posterior
from kappaflow.model.forward import ForwardModel
from kappaflow.observe.resampling import on_pixels
from kappaflow.parameters import INDEX
from kappaflow.plots import INK, PALETTE, save_figure, style
from kappaflow.refinement import ReferenceSettings, Running
from kappaflow.refinement.simulated import model_of, parsed_rows, simulated
from kappaflow.report.reference_files import write_reference
from kappaflow.simulation import Shards
from kappaflow.storage import written_whole

METHODS = ("network", "refined", "marginal", "sampled")
LEVELS = (0.05, 0.16, 0.5, 0.84, 0.95)
C_O, KEPT = INDEX["C_O"], 1000  # draws that C2ST sees


def spread_rows(data, n):
    """Places of `n` spectra far from each other in T4, C/O and SNR: each the farthest from those before."""
    shards = Shards(data)
    x = np.column_stack([shards.theta[:, INDEX["T4"]], shards.theta[:, C_O], np.log(shards.snr)])
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    chosen = [int(np.argmin((x**2).sum(axis=1)))]
    # Not the corners of the box: only what is within 1.3 standard deviations in each.
    allowed = (np.abs(x) < 1.3).all(axis=1)
    while len(chosen) < n:
        distance = np.min([((x - x[i]) ** 2).sum(axis=1) for i in chosen], axis=0)
        chosen.append(int(np.argmax(np.where(allowed, distance, -1))))
    return tuple(chosen)


def objects(given, model):
    """Name, spectrum, distance and truth of every object."""
    if given.data:
        rows = parsed_rows(given.rows) if given.rows else spread_rows(given.data, given.n)
        for one in simulated(given.data, rows, seed=given.seed):
            yield f"simulated {one.row}", one.spectrum, None, one.truth()
    if given.spectra:
        from sky import objects as real

        for name, spectrum, distance in real(given.spectra, given.only):
            yield name, spectrum, distance, None


def drawn(method, spectrum, distance, tools, folder, given):
    """Draws (n, D) of one method and what it says of itself."""
    posterior, model = tools
    if method == "network":
        return posterior.sample(on_pixels(spectrum, model.wavelength, distance), n=2000, seed=given.seed), {}
    if method == "refined":
        found = kf.refine(spectrum, distance=distance, posterior=posterior, model=model)
        return found.draws, found.summary()
    settings = ReferenceSettings(
        opacity=method, chains=given.chains, warmup=given.warmup, samples=given.samples, depth=given.depth,
        seed=given.seed,
    )  # fmt: skip
    found = kf.reference(
        spectrum, distance=distance, posterior=posterior, model=model, settings=settings, running=Running(folder)
    )
    told = write_reference(found, folder, folder.parent.name)
    return found.draws, {key: told[key] for key in ("converged", "shortcomings", "combinations", "forces")} | {
        "seconds": told["chain_seconds"]
    }


def run(given):
    posterior = Posterior.load()
    card = posterior.members[0].card
    model = model_of(given.data) if given.data else ForwardModel.load(card.preset, parameters=card.parameters)
    for name, spectrum, distance, truth in objects(given, model):
        for method in given.methods:
            folder = given.out / name.replace(" ", "-") / method
            if (folder / "result.json").exists():
                continue
            wall, cpu = time.monotonic(), time.process_time()
            draws, told = drawn(method, spectrum, distance, (posterior, model), folder, given)
            result = {
                "name": name,
                "method": method,
                "truth": None if truth is None else truth["theta"],
                "lists": None if truth is None else truth["lists"],
                "snr": spectrum.snr,
                "quantiles": np.quantile(draws, LEVELS, axis=0, method="weibull").tolist(),
                "wall_seconds": time.monotonic() - wall,  # of the last run, where it was killed in between
                "cpu_seconds": time.process_time() - cpu,
                "told": told,
            }
            with written_whole(folder / "draws.npz") as part, part.open("wb") as stream:
                np.savez(stream, draws=draws.astype(np.float32))
            with written_whole(folder / "result.json") as part:
                part.write_text(json.dumps(result, indent=1))
            print(f"{name} {method}: {result['cpu_seconds']:.0f} s of processors", flush=True)


def c2st(one, two, seed=0):
    """Accuracy of a classifier between two samples (n, D): 0.5 where they are the same."""
    from sklearn.model_selection import GroupKFold, cross_val_score
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(seed)
    n = min(len(one), len(two), KEPT)
    x = np.concatenate([rng.permutation(one)[:n], rng.permutation(two)[:n]])
    label = np.repeat([0, 1], n)
    groups = np.unique(x, axis=0, return_inverse=True)[1].ravel()
    network = MLPClassifier((64, 64), alpha=1e-2, early_stopping=True, max_iter=300, random_state=seed)
    folds = GroupKFold(5)
    return float(cross_val_score(make_pipeline(StandardScaler(), network), x, label, groups=groups, cv=folds).mean())


def gathered(out):
    """Every object's results and draws, by method."""
    found = {}
    for path in sorted(Path(out).glob("*/*/result.json")):
        result = json.loads(path.read_text())
        with np.load(path.with_name("draws.npz")) as file:
            result["draws"] = file["draws"]
        found.setdefault(result["name"], {})[result["method"]] = result
    return found


def interval(result):
    quantiles = np.array(result["quantiles"])[:, C_O]
    return quantiles[1], quantiles[3]


def table(found):
    lines = ["| object | SNR | true C/O | " + " | ".join(METHODS) + " | C2ST to sampled: network, refined, marginal |"]
    lines.append("|---" * (4 + len(METHODS)) + "|")
    off = {m: [] for m in METHODS[:-1]}
    for name, by in found.items():
        first = next(iter(by.values()))
        truth = "" if first["truth"] is None else f"{first['truth'][C_O]:.2f}"
        cells = []
        for m in METHODS:
            if m not in by:
                cells.append("not run")
                continue
            low, high = interval(by[m])
            doubt = "" if by[m]["told"].get("converged", True) else ", not converged"
            cells.append(f"{low:.3f}-{high:.3f} ({by[m]['cpu_seconds']:.0f} s{doubt})")
        tests = []
        for m in METHODS[:-1]:
            if m in by and "sampled" in by:
                tests.append(f"{c2st(by[m]['draws'], by['sampled']['draws']):.2f}")
                (a, b), (low, high) = interval(by[m]), interval(by["sampled"])
                off[m] += [abs(a - low) / (high - low), abs(b - high) / (high - low)]
            else:
                tests.append("-")
        lines.append(f"| {name} | {first['snr']:.0f} | {truth} | {' | '.join(cells)} | {', '.join(tests)} |")
    lines.append("")
    for m, values in off.items():
        if values:
            size = f"median {np.median(values):.2f}, largest {max(values):.2f}"
            lines.append(f"C/O edges, {m} against sampled: {size} of its width.")
    return "\n".join(lines)


def figure(found):
    from matplotlib.figure import Figure

    with style():
        made = Figure(figsize=(7, 0.6 + 0.55 * len(found)), layout="constrained")
        axes = made.subplots()
        for row, by in enumerate(found.values()):
            for i, m in enumerate(METHODS):
                if m not in by:
                    continue
                q, y = np.array(by[m]["quantiles"])[:, C_O], -row + 0.27 - 0.18 * i
                axes.plot(q[[0, 4]], [y, y], color=PALETTE[i], lw=1)
                axes.plot(q[[1, 3]], [y, y], color=PALETTE[i], lw=4, label=m if row == 0 else None)
            truth = next(iter(by.values()))["truth"]
            if truth is not None:
                label = "truth" if row == 0 else None
                axes.plot([truth[C_O]] * 2, [-row - 0.38, -row + 0.38], color=INK, lw=1.2, label=label)
        axes.set_yticks(-np.arange(len(found)), list(found))
        axes.set_ylim(0.5 - len(found), 0.5)
        axes.set_xlabel("C/O: 68 % (thick) and 90 % intervals")
        made.legend(loc="outside upper center", ncols=5)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows")
    parser.add_argument("--n", type=int, default=10)
    parser.add_argument("--spectra", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=150)
    parser.add_argument("--samples", type=int, default=250)
    parser.add_argument("--depth", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--table", action="store_true", help="only of what is there")
    given = parser.parse_args()
    if not given.table:
        if not (given.data or given.spectra):
            parser.error("give --data SET, --spectra DIR or both")
        run(given)
    found = gathered(given.out)
    if found:
        print(table(found))
        if given.figure:
            save_figure(figure(found), given.figure)


if __name__ == "__main__":
    main()
