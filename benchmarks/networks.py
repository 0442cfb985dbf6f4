"""Networks on held-out spectra: single, pooled, on clean data, with bad pixels.

    python benchmarks/networks.py NAME=FOLDER[,FOLDER...] ... --perturbed DIR [--clean DIR] [--n 2048]
                                  [--start 0] [--json]

A FOLDER is a run of `kappaflow train`; several behind one name are pooled. A row is one ensemble on one set: coverage
of C/O at four levels and the mean over all parameters at 0.90; 90 % width and interval score of C/O over the prior's
width; nats gained over the prior; how much smaller the interval score is than the first ensemble's. --start skips
spectra: those that a choice was made on, say.
"""

import argparse
import json

from kappaflow.build.tables.networks import held_out, refuse_seen
from kappaflow.evaluate.scoring import score
from kappaflow.inference import Posterior


def measure(posteriors, observed, draws):
    """Name -> set -> row."""
    return {
        name: {where: score(posterior, seen, draws=draws) for where, seen in observed.items()}
        for name, posterior in posteriors.items()
    }


def markdown(rows):
    levels = list(next(iter(next(iter(rows.values())).values()))["coverage"])
    head = ["networks", "held-out spectra", *(f"C/O at {level}" for level in levels), "all at 0.90", "90 % width"]
    head += ["interval score", "nats", "score gained"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    first = next(iter(rows.values()))
    for name, sets in rows.items():
        for where, row in sets.items():
            cells = [*row["coverage"].values(), row["overall"]["0.90"], row["width"], row["interval_score"]]
            gain = 1 - row["interval_score"] / first[where]["interval_score"]
            told = [*(f"{c:.3f}" for c in cells), f"{row['nats_from_prior']:.2f}", f"{gain:.0%}"]
            lines.append(f"| {name} | {where} | " + " | ".join(told) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+", metavar="NAME=FOLDER[,FOLDER...]")
    parser.add_argument("--perturbed", required=True)
    parser.add_argument("--clean")
    parser.add_argument("--n", type=int, default=2048)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--draws", type=int, default=399)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    ensembles = {name: folders.split(",") for name, _, folders in (word.partition("=") for word in given.networks)}
    posteriors = {name: Posterior.load(*folders) for name, folders in ensembles.items()}
    sets = [path for path in (given.perturbed, given.clean) if path]
    for posterior in posteriors.values():
        refuse_seen(posterior, *sets)
    rows = measure(posteriors, held_out(*sets, n=given.n, start=given.start), given.draws)
    print(json.dumps(rows) if given.json else markdown(rows))


if __name__ == "__main__":
    main()
