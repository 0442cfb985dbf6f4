"""Where the recipe's gain comes from: each piece against its removal, at equal time, on the same shards.

    python benchmarks/ablation.py --data DIR --test DIR --out DIR [--minutes 10] [--spectra 25000] [--half]
                                  [--only ARM ...] [--masks] [--n 2048] [--draws 400] [--json]

Arms: the whole `kappaflow` recipe, one for each row of `kappaflow.inference.VARIANTS`, the `paper` recipe, and
with --half the whole recipe on half the simulations. Each trains for --minutes in its own folder of --out and is scored
on --test, a directory of shards that no arm trained on: coverage of C/O at four levels, 90 % width and interval score
over the prior width, overall coverage, mean log density. Killed, it goes on where it was: a finished arm is not run
again. Writes ablation.json and ablation.md into --out.
"""

import argparse
import json
import time
from pathlib import Path

from kappaflow.calibrate import LEVELS
from kappaflow.experiments import score
from kappaflow.inference import VARIANTS, Posterior, Trainer, plan_run, variant
from kappaflow.storage import written_whole

RESULT = "score.json"


def arms(whole, paper, only, half):
    """Name -> recipe and share of the simulations."""
    table = {"kappaflow": (whole, 1.0)}
    table |= {name: (variant(whole, name), 1.0) for name in VARIANTS}
    table["paper"] = (paper, 1.0)
    if half:
        table["half the simulations"] = (whole, 0.5)
    return {k: v for k, v in table.items() if not only or k in only}


def run_arm(recipe, batches, folder, observed, given):
    """Train (or go on), score, and leave the result in the folder."""
    if (folder / RESULT).exists():
        return json.loads((folder / RESULT).read_text())
    run = plan_run(batches, recipe, seed=given.seed, minutes=given.minutes)
    start = time.perf_counter()
    checkpoint = Trainer(run, batches, folder).fit(resume=True)
    row = score(Posterior([checkpoint]), observed, draws=given.draws)
    row |= {"validation": checkpoint.metrics["validation"], "spectra": checkpoint.metrics["spectra"]}
    row |= {
        "seconds": checkpoint.metrics["seconds"],
        "n_train": batches.card.n_train,
        "epochs": checkpoint.metrics["epochs"],
    }
    row["wall"] = round(time.perf_counter() - start, 1)
    with written_whole(folder / RESULT) as part:
        part.write_text(json.dumps(row, indent=1))
    return row


def markdown(rows):
    head = [*(f"coverage at {level:.2f}" for level in LEVELS), "overall at 0.90", "90 % width", "interval score"]
    head += ["interval score, all", "validation loss", "epochs", "seconds"]
    lines = ["| arm | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for name, r in rows.items():
        cells = [f"{v:.3f}" for v in (*r["coverage"].values(), r["overall"]["0.90"], r["width"], r["interval_score"])]
        cells += [
            f"{r['interval_score_overall']:.3f}",
            f"{r['validation']:.3f}",
            f"{r['epochs']}",
            f"{r['seconds']:.0f}",
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def ablate(table, batches_of, observed, given):
    """Run the arms one after another, writing the tables after each."""
    rows = {}
    for name, (recipe, share) in table.items():
        rows[name] = run_arm(recipe, batches_of(share), Path(given.out) / name.replace(" ", "-"), observed, given)
        for file, text in (("ablation.json", json.dumps(rows, indent=1)), ("ablation.md", markdown(rows))):
            with written_whole(Path(given.out) / file) as part:
                part.write_text(text)
    return rows


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--spectra", type=int, default=None, help="training spectra; all unless given")
    parser.add_argument("--half", action="store_true", help="another arm on half of them")
    parser.add_argument("--only", nargs="*", default=(), help="arms to run; all unless given")
    parser.add_argument("--masks", action="store_true")
    parser.add_argument("--n", type=int, default=2048)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    return parser


def main():
    from kappaflow.cli.train import open_batches, recipe_for
    from kappaflow.simulate import Shards

    given = options().parse_args()

    def batches_of(share):
        whole = given.spectra or open_batches(given.data).card.n_train
        return open_batches(given.data, masks=given.masks, limit=int(share * whole))

    test = Shards(given.test, masks=given.masks, seed=1)
    observed = test.evaluation(min(given.n, len(test)))
    name = batches_of(1.0).card.preset
    table = arms(recipe_for("kappaflow", name), recipe_for("paper", name), given.only, given.half)
    rows = ablate(table, batches_of, observed, given)
    print(json.dumps(rows) if given.json else markdown(rows))


if __name__ == "__main__":
    main()
