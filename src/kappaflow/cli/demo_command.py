"""`kappaflow demo`, the first minute: whether the error bars hold, and what a real JWST spectrum says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kappaflow.errors import UserError

if TYPE_CHECKING:
    from kappaflow.report.page import Section

__all__ = ["demo"]

SEED = 1_130  # of the spectra, that no packaged network was trained on
KINDS = ("control", "marginalized")
SPECTRA = "spectra"  # the folder of the simulated set, kept so that a second run is quick


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything written.")] = Path("kappaflow-demo"),
    n: Annotated[int, typer.Option(min=128, help="Simulated spectra.")] = 384,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Show in a minute what kappaflow is for.

    Simulates spectra with randomized opacities that no network has seen, asks the packaged networks for C/O, told that
    line lists are right (control) and that they are as wrong as they are (marginalized), and counts how often their
    intervals hold the truth. Then retrieves the packaged JWST/NIRSpec spectrum of Wolf 1130C and writes report.html.

    Example: kappaflow demo --out kappaflow-demo
    """
    from kappaflow.cli.retrieve_command import say_outcome
    from kappaflow.evaluate.scoring import score_fresh
    from kappaflow.observe.example import example_path
    from kappaflow.observe.targets import Target
    from kappaflow.retrieval.parallel import CatalogueRun, retrieve_many
    from kappaflow.retrieval.result import Failed, RetrievalSettings
    from kappaflow.retrieval.retriever import Retriever

    retriever = Retriever.load(settings=RetrievalSettings(amortized=True))
    networks = {"control": retriever.posterior.at(0), "marginalized": retriever.posterior}
    _say(as_json, f"1. {n} spectra with perturbed opacities, seen by networks that were never shown them")
    rows = score_fresh(networks, out / SPECTRA, n, seed=SEED)
    if not as_json:
        _print(rows)
    _say(as_json, "2. A real spectrum: Wolf 1130C, JWST/NIRSpec G395H (Burgasser et al. 2025)")
    with example_path() as path:
        target = Target("wolf1130c", (path,))
        (found,), report = retrieve_many(lambda: retriever, [target], out, CatalogueRun(first=[_section(rows, n)]), {})
    if isinstance(found, Failed):
        raise UserError(f"demo: {found.error}")
    if as_json:
        print(json.dumps({"coverage": rows, "wolf1130c": found.row(), "report": str(report)}))
    else:
        say_outcome(found)
        print(report)


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        print(text, flush=True)


def _cells(kind: str, row: dict[str, Any]) -> list[str]:
    return [
        kind,
        *(f"{c:.2f}" for c in row["coverage"].values()),
        f"{row['width']:.2f}",
        f"{row['interval_score']:.2f}",
    ]


def _header(rows: dict[str, Any]) -> list[str]:
    return ["networks", *(f"at {level}" for level in rows["control"]["coverage"]), "width", "score"]


def _print(rows: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="share of truths inside the C/O interval", title_justify="left")
    for i, name in enumerate(_header(rows)):
        table.add_column(name, justify="left" if i == 0 else "right", no_wrap=True)
    for kind, row in rows.items():
        table.add_row(*_cells(kind, row))
    Console().print(table)
    print("   A 90 % interval should hold 90 % of the truths. Its width and score are relative to the prior's width.")


def _section(rows: dict[str, Any], n: int) -> Section:
    from kappaflow.report.page import Section, Table

    control, marginalized = (rows[kind]["coverage"]["0.90"] for kind in KINDS)
    table = Table(
        _header(rows),
        [_cells(kind, row) for kind, row in rows.items()],
        "Share of truths inside the C/O interval of each level; width and interval score at 0.90, over the prior.",
        frozenset({1}),
    )
    return Section(
        "Do the error bars hold?",
        f"{marginalized:.0%} instead of {control:.0%}",
        "of the true C/O lie inside the 90 % interval once the line lists are in it",
        tables=[table],
        notes=[f"{n} simulated spectra with randomized opacities that no network was trained on."],
    )
