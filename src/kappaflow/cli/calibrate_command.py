"""`kappaflow calibrate`: draws of any posterior, or networks on held-out shards, become a verdict."""

import json
from pathlib import Path
from typing import Annotated

import typer

from kappaflow.errors import UserError
from kappaflow.parameters import DRAWS

__all__ = ["calibrate"]

HELP = """Judge whether a posterior is calibrated: coverage, PIT, TARP, scores, breakdowns, comparisons.

Networks on held-out spectra, several pooled as one ensemble (simulate the set with another seed than the training's):
[bold]kappaflow simulate --out test --n 2048 --seed 1[/bold]
[bold]kappaflow calibrate --data test --model seed0 --model seed1 --model seed2 --out verdict[/bold]

Any other posterior, from files of draws; several files are several methods in one table:
[bold]kappaflow calibrate --draws control.npz --draws marginalized.npz --pair marginalized control --out verdict[/bold]

A file of draws is .npz or HDF5 with truth (n, p), draws (n, s, p) and, if known, names (p), low and high (p) of the
uniform prior, log_prob (n), log_prob_draws (n, s) and covariates/NAME (n). For example
numpy.savez("control.npz", truth=truth, draws=draws, names=["C_O", "M_H"], low=[0.1, -1], high=[1.5, 1.5]).
Also read: sbi's arrays, numpy.savez("npe.npz", thetas=thetas, posterior_samples=samples) with samples (s, n, p);
ArviZ's .nc with a group `truth` beside `posterior`; .csv with columns object, parameter, value, truth, or object,
NAME..., true_NAME...; a folder of `kappaflow retrieve`, its truths in a table:
[bold]kappaflow calibrate --draws retrieved --truth truth.csv --out verdict[/bold]

Writes into --out: verdict.html (all on one page), verdict.json (everything), parameters.csv, methods.csv, and figures
as PNG and PDF. The exit code is 0 whatever the verdict; with --strict it is 1 where a check of any method failed:
[bold]kappaflow calibrate --draws npe.npz --out verdict --strict && echo calibrated[/bold]
"""


def calibrate(
    out: Annotated[Path, typer.Option(help="Folder for the verdict.")],
    draws: Annotated[
        list[Path] | None, typer.Option(help="File (or folder) of draws, one method each. Repeatable.")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="CSV: object and parameters, the truths of draws without them.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Held-out set made by `kappaflow simulate`.")] = None,
    model: Annotated[list[Path] | None, typer.Option(help="Trained network; several are pooled. Repeatable.")] = None,
    n: Annotated[int | None, typer.Option(min=1, help="Objects of --data (default: all).")] = None,
    samples: Annotated[int, typer.Option(min=2, help="Draws per object from the networks.")] = DRAWS,
    masks: Annotated[bool, typer.Option("--masks", help="Observe --data with bad-pixel masks.")] = False,
    save_draws: Annotated[Path | None, typer.Option(help="Keep the networks' draws: a file for --draws.")] = None,
    parameter: Annotated[str | None, typer.Option(help="Shown in tables (default: C_O, or the first).")] = None,
    levels: Annotated[str, typer.Option(help="Nominal levels.")] = "0.5,0.68,0.9,0.95",
    recalibrate: Annotated[
        bool, typer.Option("--recalibrate", help="Fit PIT maps and conformal margins on one half, judge on the other.")
    ] = False,
    pair: Annotated[tuple[str, str] | None, typer.Option(help="Two methods: bootstrap A - B, paired.")] = None,
    bootstraps: Annotated[int, typer.Option(help="Replicates of every bootstrap and null band.")] = 1000,
    references: Annotated[int, typer.Option(help="TARP references per object.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Of noise, draws, splits and bootstraps.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 where a check failed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print verdict.json instead of tables.")] = False,
) -> None:
    """Run the command (see `HELP`)."""
    if not draws and not model:
        raise UserError("nothing to judge: give --draws FILE ... or --data DIR --model NETWORK ...")
    if (data is None) != (not model):
        raise UserError("--data and --model belong together: the held-out set and the networks judged on it")
    if save_draws is not None and (not model or save_draws.suffix not in (".npz", ".h5", ".hdf5")):
        raise UserError("--save-draws: needs --data and --model, and a file ending in .npz, .h5 or .hdf5")
    if truth is not None and not draws:
        raise UserError("--truth: belongs to --draws; networks on --data have theirs")
    from kappaflow.calibrate import JudgeSettings
    from kappaflow.evaluate.draws_file import DrawsFile
    from kappaflow.evaluate.foreign_draws import read_truth
    from kappaflow.evaluate.judging import judge_sources
    from kappaflow.evaluate.network_draws import HeldOut

    settings = JudgeSettings(_levels(levels), bootstraps, references, seed)
    networks = [HeldOut(model, data, n, samples, masks, save_draws)] if model and data else []
    known = None if truth is None else read_truth(truth)
    sources = [*(DrawsFile(path, known) for path in draws or ()), *networks]
    content = judge_sources(sources, out, settings, parameter=parameter, pair=pair, recalibrate=recalibrate)
    if as_json:
        print(json.dumps(content, allow_nan=False))
    else:
        from kappaflow.cli.calibrate_tables import print_verdict

        print_verdict(content)
        print(f"{out / 'verdict.html'}: everything on a page, beside verdict.json, CSV tables and figures")
    if strict and not all(verdict["calibrated"] for verdict in content["methods"].values()):
        raise typer.Exit(1)


def _levels(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise UserError(f"--levels {text}: expected probabilities separated by commas, such as 0.5,0.9") from None
