"""Where the recipe's gain comes from: each piece against its removal, at equal time, on the same shards.

    python benchmarks/ablation.py --data DIR --test DIR --out DIR [--minutes 10] [--spectra 25000] [--only ARM ...]
                                  [--n 2048] [--draws 399] [--json]

Arms: the whole `kappaflow` recipe, again from another seed (what training noise does), on half the simulations, trained
without masks; one for each row of `kappaflow.inference.VARIANTS`; and the `paper` recipe, which had no masks either.
Each trains for --minutes in its own folder of --out and is scored on --test, a directory of shards that no arm trained
on, whole and with masks drawn: coverage of C/O at four levels, 90 % width and interval score over the prior width,
overall coverage, nats gained over the prior. Killed, it goes on where it was: a finished arm is not run again. Two
processes with other --only may share --out: the tables, ablation.json and ablation.md, hold every arm finished there.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from kappaflow.build.tables.networks import held_out
from kappaflow.evaluate.scoring import score
from kappaflow.inference import VARIANTS, Posterior, Recipe, Trainer, plan_run, variant
from kappaflow.storage import written_whole

RESULT = "score.json"
SETS = ("perturbed", "perturbed, masked")  # of `held_out`


@dataclass(frozen=True)
class Arm:
    """What one network of the table is trained with."""

    recipe: Recipe
    share: float = 1.0  # of the simulations
    masks: bool = True
    seed: int = 0


def arms(whole, paper):
    """Name -> arm."""
    table = {
        "kappaflow": Arm(whole),
        "kappaflow, another seed": Arm(whole, seed=1),
        "half the simulations": Arm(whole, share=0.5),
        "no masks in training": Arm(whole, masks=False),
    }
    table |= {name: Arm(variant(whole, name)) for name in VARIANTS}
    return table | {"paper": Arm(paper, masks=False)}


def folder_of(name, given):
    return Path(given.out) / name.replace(", ", " ").replace(" ", "-")


def run_arm(name, arm, batches, observed, given):
    """Train (or go on), score, and leave the result in the arm's folder."""
    folder = folder_of(name, given)
    if (folder / RESULT).exists():
        return
    run = plan_run(batches, arm.recipe, seed=arm.seed, minutes=given.minutes)
    checkpoint = Trainer(run, batches, folder).fit(resume=True)
    posterior = Posterior([checkpoint])
    row = {where: score(posterior, seen, draws=given.draws) for where, seen in observed.items()}
    row |= {key: checkpoint.metrics[key] for key in ("validation", "spectra", "seconds", "epochs", "threads")}
    row |= {"n_train": batches.card.n_train, "seed": arm.seed}
    with written_whole(folder / RESULT) as part:
        part.write_text(json.dumps(row, indent=1))


def finished(table, given):
    """Rows of the arms that have been run into this folder, by whichever process."""
    files = {name: folder_of(name, given) / RESULT for name in table}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}


def markdown(rows):
    head = ["arm", "C/O at .50/.68/.90/.95", "all at .90", "90 % width", "interval score", "all parameters", "nats"]
    head += ["masked: C/O at .90", "interval score", "epochs"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, row in rows.items():
        whole, masked = (row[where] for where in SETS)
        cells = [" ".join(f"{c:.3f}".lstrip("0") for c in whole["coverage"].values())]
        told = (whole["overall"]["0.90"], whole["width"], whole["interval_score"], whole["interval_score_overall"])
        cells += [f"{c:.3f}".lstrip("0") for c in told]
        cells += [f"{whole['nats_from_prior']:.2f}", f"{masked['coverage']['0.90']:.3f}".lstrip("0")]
        cells += [f"{masked['interval_score']:.3f}".lstrip("0"), f"{row['epochs']}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def ablate(table, batches_of, observed, given):
    """Run the arms one after another, writing the tables after each."""
    for name, arm in table.items():
        if given.only and name not in given.only:
            continue
        run_arm(name, arm, batches_of(arm), observed, given)
        rows = finished(table, given)
        for file, text in (("ablation.json", json.dumps(rows, indent=1)), ("ablation.md", markdown(rows))):
            with written_whole(Path(given.out) / file) as part:
                part.write_text(text)
    return finished(table, given)


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--spectra", type=int, default=None, help="training spectra; all unless given")
    parser.add_argument("--only", nargs="*", default=(), help="arms to run; all unless given")
    parser.add_argument("--n", type=int, default=2048)
    parser.add_argument("--draws", type=int, default=399)
    parser.add_argument("--json", action="store_true")
    return parser


def main():
    from kappaflow.inference import recipe
    from kappaflow.presets import preset
    from kappaflow.simulation import Shards

    parser = options()
    given = parser.parse_args()
    card = Shards(given.data).card
    if card.seed == Shards(given.test).card.seed:
        parser.error(f"{given.test}: drawn from the seed of {given.data}; simulate it with another")
    table = arms(*(recipe(name, preset(card.preset).network) for name in ("kappaflow", "paper")))
    if unknown := set(given.only) - set(table):
        parser.error(f"--only {min(unknown)}: no such arm; there are {'; '.join(table)}")

    def batches_of(arm):
        return Shards(given.data, masks=arm.masks, limit=int(arm.share * (given.spectra or card.n_train)))

    observed = held_out(given.test, n=given.n)
    rows = ablate(table, batches_of, {where: observed[where] for where in SETS}, given)
    print(json.dumps(rows) if given.json else markdown(rows))


if __name__ == "__main__":
    main()
