"""`kappaflow calibrate`: draws of any posterior, or networks on held-out shards, become a verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from kappaflow.errors import UserError

if TYPE_CHECKING:
    from kappaflow.calibrate import JudgeSettings, Verdict
    from kappaflow.evaluate.draws_file import Method

__all__ = ["register"]

HELP = """Judge whether a posterior is calibrated: coverage, PIT, TARP, scores, breakdowns, comparisons.

Networks on held-out spectra, several pooled as one ensemble (simulate the set with another seed than the training's):
[bold]kappaflow simulate --out test --n 2048 --seed 1[/bold]
[bold]kappaflow calibrate --data test --model seed0 seed1 seed2 --out verdict[/bold]

Any other posterior, from files of draws; several files are several methods in one table:
[bold]kappaflow calibrate --draws control.npz marginalized.npz --pair marginalized control --out verdict[/bold]

A file of draws is .npz or HDF5 with truth (n, p), draws (n, s, p) and, if known, names (p), low and high (p) of the
uniform prior, log_prob (n), log_prob_draws (n, s) and covariates/NAME (n). For example
numpy.savez("control.npz", truth=truth, draws=draws, names=["C_O", "M_H"], low=[0.1, -1], high=[1.5, 1.5]).

Writes into --out: verdict.json (everything), parameters.csv, methods.csv, and figures as PNG and PDF.
"""


class _SeveralValues(TyperCommand):
    """A command whose --draws and --model take several values each: `--model A B` means `--model A --model B`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before every further value, then parse as usual."""
        return super().parse_args(ctx, repeat_options(args, ("--draws", "--model")))


def repeat_options(args: Sequence[str], options: Sequence[str]) -> list[str]:
    """Write `--o A B` as `--o A --o B`.

    Examples
    --------
    >>> repeat_options(["--model", "a", "b", "--out", "c"], ["--model"])
    ['--model', 'a', '--model', 'b', '--out', 'c']
    """
    result: list[str] = []
    current, taken = None, False
    for arg in [*args, "--"]:
        if arg.startswith("-"):
            if current is not None and not taken:
                result.append(current)  # without a value: the parser says so
            current, taken = (arg, False) if arg in options else (None, False)
            result += [] if current else [arg]
        elif current is not None:
            result += [current, arg]
            taken = True
        else:
            result.append(arg)
    return result[:-1]


def calibrate(
    out: Annotated[Path, typer.Option(help="Folder for the verdict.")],
    draws: Annotated[list[Path] | None, typer.Option(help="Files of draws, one a method: A.npz B.h5 ...")] = None,
    data: Annotated[Path | None, typer.Option(help="Held-out set made by `kappaflow simulate`.")] = None,
    model: Annotated[list[Path] | None, typer.Option(help="Networks, pooled into one ensemble: A B ...")] = None,
    n: Annotated[int | None, typer.Option(min=1, help="Objects of --data (default: all).")] = None,
    samples: Annotated[int, typer.Option(min=2, help="Draws an object from the networks.")] = 1200,
    masks: Annotated[bool, typer.Option("--masks", help="Observe --data with bad-pixel masks.")] = False,
    save_draws: Annotated[Path | None, typer.Option(help="Keep the networks' draws: a file for --draws.")] = None,
    parameter: Annotated[str | None, typer.Option(help="Shown in tables (default: C_O, or the first).")] = None,
    levels: Annotated[str, typer.Option(help="Nominal levels.")] = "0.5,0.68,0.9,0.95",
    recalibrate: Annotated[
        bool, typer.Option("--recalibrate", help="Fit PIT maps and conformal margins on one half, judge on the other.")
    ] = False,
    pair: Annotated[tuple[str, str] | None, typer.Option(help="Two methods: bootstrap A - B, paired.")] = None,
    bootstraps: Annotated[int, typer.Option(help="Replicates of every bootstrap and null band.")] = 1000,
    references: Annotated[int, typer.Option(help="TARP references an object.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Of noise, draws, splits and bootstraps.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print verdict.json instead of tables.")] = False,
) -> None:
    """Run the command (see `HELP`)."""
    if not draws and not model:
        raise UserError("nothing to judge: give --draws FILE ... or --data DIR --model NETWORK ...")
    if (data is None) != (not model):
        raise UserError("--data and --model belong together: the held-out set and the networks judged on it")
    if save_draws is not None and (not model or save_draws.suffix not in (".npz", ".h5", ".hdf5")):
        raise UserError("--save-draws: needs --data and --model, and a file ending in .npz, .h5 or .hdf5")
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: a file; expected a folder, made if absent")
    names = [path.stem for path in draws or []] + ([_ensemble_name(model)] if model else [])
    _check_names(names, pair, recalibrate)
    from kappaflow.calibrate import JudgeSettings

    settings = JudgeSettings(_levels(levels), bootstraps, references, seed)
    loaders = [("file", path) for path in draws or []]
    plan: dict[str, Any] = {"data": data, "n": n, "samples": samples, "masks": masks, "save": save_draws}
    loaders += [("networks", model)] if model else []
    content, verdicts = _judge_all(loaders, plan, settings, recalibrate)
    focus = _focus(verdicts, parameter)
    _finish(content, verdicts, focus, pair)
    _write(out, content, verdicts, focus)
    _show(content, out, as_json)


def _ensemble_name(models: Sequence[Path]) -> str:
    return models[0].stem if len(models) == 1 else f"ensemble of {len(models)}"


def _check_names(names: list[str], pair: tuple[str, str] | None, recalibrate: bool) -> None:
    """Refuse two methods of one name and a pair that will not exist, before the long part."""
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UserError(f"two methods are called {min(twice)!r}; rename a file: its name is the method's")
    corrected = [f"{name} {kind}" for name in names for kind in ("recalibrated", "conformal")] if recalibrate else []
    for name in pair or ():
        if name not in [*names, *corrected]:
            raise UserError(f"--pair {name}: no such method; there are {', '.join([*names, *corrected])}")


def _levels(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise UserError(f"--levels {text}: expected probabilities separated by commas, such as 0.5,0.9") from None


def _judge_all(
    loaders: Sequence[tuple[str, Any]], plan: dict[str, Any], settings: JudgeSettings, recalibrate: bool
) -> tuple[dict[str, Any], dict[str, Verdict]]:
    """Load and judge one method after the other, so that only one set of draws is in memory."""
    from dataclasses import asdict

    from kappaflow.calibrate.plain import plain
    from kappaflow.calibrate.verdict import STAGES
    from kappaflow.evaluate.draws_file import read_method
    from kappaflow.progress import progress

    content: dict[str, Any] = {"schema": "kappaflow-verdict-1", "settings": plain(asdict(settings))}
    content |= {"recalibrate": recalibrate, "inputs": {}, "highest_density": {}, "corrections": {}}
    verdicts: dict[str, Verdict] = {}
    with progress("judging", len(loaders) * STAGES * (2 if recalibrate else 1), unit="stages") as advance:
        for kind, source in loaders:
            method = read_method(source) if kind == "file" else _network_draws(source, plan, settings.seed)
            content["inputs"][method.name] = {"origin": method.origin, "digest": method.digest()}
            verdicts |= _judge_method(method, settings, recalibrate, (advance, content))
    return content, verdicts


def _judge_method(
    method: Method, settings: JudgeSettings, recalibrate: bool, report: tuple[Any, Any]
) -> dict[str, Verdict]:
    """Judge one method; with `recalibrate` its test half raw, recalibrated and conformal."""
    from kappaflow.calibrate import (
        fit_conformal,
        fit_pit_map,
        highest_density_coverage,
        judge,
        judge_intervals,
        split_half,
        summarize,
    )

    advance, content = report
    name, held = method.name, None
    if recalibrate:
        fit, test = split_half(len(method.draws.truth), seed=settings.seed)
        held, method = method.draws.objects(fit), method.objects(test)
    seen = method.covariates
    verdicts = {name: judge(method.draws, settings, covariates=seen, log_prob=method.log_prob, advance=advance)}
    if method.log_prob is not None and method.log_prob_draws is not None:
        content["highest_density"][name] = highest_density_coverage(
            method.log_prob, method.log_prob_draws, settings.levels
        )
    if held is not None:
        calibration = summarize(held, settings.levels)
        pit_map, margins = fit_pit_map(calibration, seed=settings.seed), fit_conformal(calibration)
        m, moved, fixed = len(held.truth), pit_map.apply(method.draws), margins.apply(verdicts[name].summary)
        verdicts[f"{name} recalibrated"] = judge(moved, settings, covariates=seen, fitted_on=m, advance=advance)
        verdicts[f"{name} conformal"] = judge_intervals(fixed, settings, covariates=seen, fitted_on=m)
        content["corrections"][name] = {
            "calibration_objects": m,
            "test_objects": len(method.draws.truth),
            "saturated": pit_map.saturated(margins.levels, calibration.count).tolist(),
            "conformal_margin": margins.margin.tolist(),
        }
    return verdicts


def _network_draws(models: Sequence[Path], plan: dict[str, Any], seed: int) -> Method:
    """Draws of the pooled networks for the held-out set, observed once from `seed`."""
    import numpy as np

    from kappaflow.calibrate import check_draws
    from kappaflow.evaluate.draws_file import Method, write_method
    from kappaflow.inference import Posterior
    from kappaflow.progress import progress
    from kappaflow.simulation import Shards

    posterior = Posterior.load(*models)
    shards = Shards(plan["data"], masks=plan["masks"])
    if shards.wavelength.shape != posterior.wavelength.shape:
        raise UserError(
            f"{plan['data']}: {len(shards.wavelength)} pixels, the networks {len(posterior.wavelength)}; simulate the "
            "held-out set with the preset the networks were trained on"
        )
    posterior.refuse_training_seed(shards.card.seed, plan["data"])
    seen = shards.evaluation(plan["n"], seed)
    box, chunk, total = posterior.box, 128, len(seen.truth)
    draws = np.empty((total, plan["samples"], len(box.names)), dtype=np.float32)
    log_prob = np.empty(total)
    with progress("drawing", total, unit="spectra") as advance:
        for start in range(0, total, chunk):
            rows = slice(start, min(start + chunk, total))
            arrays, known = (seen.flux[rows], seen.error[rows], seen.mask[rows]), seen.scale_known[rows]
            # The address of a draw is (seed, member, row of the batch): another seed for every batch.
            draws[rows] = posterior.sample_batch(*arrays, n=plan["samples"], seed=seed + start, scale_known=known)
            log_prob[rows] = posterior.log_prob_batch(seen.truth[rows], *arrays, scale_known=known)
            advance(rows.stop - rows.start)
    low, high = np.asarray(box.low, dtype=float), np.asarray(box.high, dtype=float)
    method = Method(
        _ensemble_name(models),
        check_draws(seen.truth, draws, prior=(low, high), names=box.names),
        {"SNR": np.asarray(seen.snr, dtype=float)},
        log_prob,
        origin=f"{', '.join(map(str, models))} on {plan['data']}",
    )
    if plan["save"] is not None:
        write_method(plan["save"], method)
    return method


def _focus(verdicts: dict[str, Verdict], parameter: str | None) -> str:
    names = next(iter(verdicts.values())).coverage.names
    return parameter if parameter is not None else "C_O" if "C_O" in names else names[0]


def _finish(content: dict[str, Any], verdicts: dict[str, Verdict], focus: str, pair: tuple[str, str] | None) -> None:
    """Add the comparison table, the pair and the verdicts themselves to the content of verdict.json."""
    from kappaflow.calibrate import comparison_table, paired, resamples

    content["comparison"] = comparison_table(verdicts, focus)
    if pair is not None:
        first, second = (verdicts[name] for name in pair)
        settings = content["settings"]
        counts = resamples(len(first.summary.truth), settings["bootstraps"], seed=settings["seed"])
        found = paired((first.summary, first.inside), (second.summary, second.inside), counts)
        content["pair"] = {"first": pair[0], "second": pair[1]} | found
    content["methods"] = {name: verdict.to_dict() for name, verdict in verdicts.items()}


def _write(out: Path, content: dict[str, Any], verdicts: dict[str, Verdict], focus: str) -> None:
    """Write every file whole, verdict.json last: where it is, the rest is."""
    import csv

    from kappaflow.calibrate import parameter_rows
    from kappaflow.parameters import PARAMETERS
    from kappaflow.plots import save_figure
    from kappaflow.plots import verdict_figures as figures
    from kappaflow.storage import written_whole

    (out / "verdict.json").unlink(missing_ok=True)  # never the old verdict beside new figures
    methods, labels = content["methods"], {p.name: p.label for p in PARAMETERS}
    rows = [row for name, verdict in verdicts.items() for row in parameter_rows(name, verdict)]
    for name, table in (("parameters.csv", rows), ("methods.csv", content["comparison"]["rows"])):
        with written_whole(out / name) as part, part.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, fieldnames=list(table[0]))
            writer.writeheader()
            writer.writerows(table)
    for name, verdict in methods.items():
        if verdict["pit"] is not None:
            figure = figures.pit_histograms(verdict, title=name, labels=labels)
            save_figure(figure, out / f"pit-{_file_name(name)}")
    if any(verdict["tarp"] for verdict in methods.values()):
        save_figure(figures.tarp_curves({k: v for k, v in methods.items() if v["tarp"]}), out / "tarp")
    save_figure(figures.coverage_against_nominal(methods, focus, labels=labels), out / "coverage")
    save_figure(figures.width_against_coverage(methods, focus, labels=labels), out / "width-coverage")
    with written_whole(out / "verdict.json") as part:
        part.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)


def _show(content: dict[str, Any], out: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps(content, allow_nan=False))
        return
    from kappaflow.cli.calibrate_tables import print_verdict

    print_verdict(content)
    print(f"{out / 'verdict.json'}: everything, beside CSV tables and figures")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("calibrate", help=HELP, cls=_SeveralValues)(calibrate)
