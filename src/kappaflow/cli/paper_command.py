"""`kappaflow paper`: every table and figure of the paper from one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kappaflow.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kappaflow.experiments.item import Item

__all__ = ["paper"]

HELP = """Re-run the paper: simulate, train, judge, and put ours beside the paper's.

ITEM is any of coverage, scaling, ensemble, sbc, recalibration, amplitude, heldout, ablation, masks, broadening,
informative, priors, real, latency; all of them by default. Writes into --out, for each: ITEM.json (everything),
ITEM.md, ITEM.png; and results.md, the page of all. Every step (spectra, networks, draws) is kept in --cache,
checked when it is found again, and shared: a network trained for one item serves the next, and what was killed goes on
where it was.

Example, first how long it will take here: [bold]kappaflow paper --preset laptop --plan[/bold]
the main table alone: [bold]kappaflow paper coverage --preset laptop[/bold]
everything, with real spectra: [bold]kappaflow paper all --preset laptop --spectra jwst --out results[/bold]
at the paper's own scale, on a cluster: [bold]kappaflow paper all --preset paper --scheduler tcp://10.0.0.1:8786[/bold]
"""


def paper(
    items: Annotated[list[str] | None, typer.Argument(metavar="[ITEM...]", help="Items; all by default.")] = None,
    preset: Annotated[str, typer.Option(help="tiny, laptop or paper.")] = "laptop",
    parameters: Annotated[str, typer.Option(help="Set of parameters: paper or full.")] = "paper",
    out: Annotated[Path, typer.Option(help="Folder for tables and figures.")] = Path("paper"),
    cache: Annotated[Path | None, typer.Option(help="Folder for spectra, networks and draws (OUT/cache).")] = None,
    page: Annotated[Path | None, typer.Option(help="File for the page of all items (OUT/results.md).")] = None,
    spectra: Annotated[Path | None, typer.Option(help="Folder of real spectra, for real and masks.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be made, and how long it takes.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes (default: one per core).")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler whose workers see --out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Run the command (see `HELP`)."""
    from kappaflow.experiments.item import items_named
    from kappaflow.experiments.reproduce import Destination, plan_steps, reproduce
    from kappaflow.experiments.sizes import sizes_of
    from kappaflow.experiments.study import Study

    chosen = items_named(items or [])
    sizes_of(preset)
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: a file; expected a folder, made if absent")
    study = Study(preset, parameters, _files(spectra))
    study.config({})
    folder = (cache or out / "cache").resolve()  # workers elsewhere have other working folders
    place = Destination(out, folder, page or out / "results.md", scheduler, workers)
    if plan:
        _print_plan(plan_steps(chosen, study, place), as_json)
        return
    result = reproduce(chosen, study, place)
    if as_json:
        print(json.dumps(result))
    else:
        _print_items(chosen, out, result)


def _files(folder: Path | None) -> tuple[str, ...]:
    if folder is None:
        return ()
    if not folder.is_dir():
        raise UserError(
            f"--spectra {folder}: no such folder; expected one with spectra as `kappaflow retrieve` reads them"
        )
    files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    if not files:
        raise UserError(f"--spectra {folder}: empty; expected spectra as `kappaflow retrieve` reads them")
    return tuple(str(p.resolve()) for p in files)


def _print_plan(plan: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(plan))
        return
    from kappaflow.experiments.results_page import duration

    for step in plan["steps"]:
        print(f"{duration(step['seconds']):>8s}  {step['kind']:8s} {step['name']}")
    for name, seconds in plan["items"].items():
        print(f"{duration(seconds):>8s}  item     {name}")
    rates = plan["rates"]
    trained = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates["trained"].items())
    print(
        f"per second and process, {rates['workers']} at once: {rates['simulated']:.0f} spectra simulated; trained: "
        f"{trained}; {rates['drawn']:,.0f} draws"
    )
    print(f"{duration(plan['total'])} in all, if nothing else runs here" if plan["steps"] else "nothing to make")


def _print_items(items: Sequence[Item], out: Path, result: dict[str, Any]) -> None:
    from rich.console import Console

    from kappaflow.experiments.cells import print_tables

    console = Console()
    for item in items:
        content = json.loads((out / f"{item.name}.json").read_text(encoding="utf-8"))
        console.rule(content["title"], align="left")
        print_tables(content["tables"], console)
        for one in content["claims"]:
            mark = "[green]met[/green]" if one["met"] else "[red]not met[/red]"
            console.print(f"  {mark}  {one['claim']}: {one['ours']:.3f}, wanted {one['target']}", soft_wrap=True)
        for note in content["notes"]:
            console.print(f"  {note}", style="dim", markup=False, soft_wrap=True)
        console.print(f"  {content['command']}", style="dim", markup=False, soft_wrap=True)
    made = ", ".join(f"{count} {kind}" for kind, count in result["made"].items() if count)
    print(f"{result['page']}: all items ({made or 'nothing'} made now)")
