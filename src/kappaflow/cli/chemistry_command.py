"""`kappaflow chemistry`: build the equilibrium table, and say what is in one."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from kappaflow.cli.command_line import CommandLine

__all__ = ["chemistry"]

chemistry = CommandLine(no_args_is_help=True, help="Equilibrium chemistry: the packaged table and how it is made.")


def _summary(path: Path | None) -> dict[str, Any]:
    from kappaflow.parameters import GASES
    from kappaflow.tables.chemistry import load_chemistry

    table = load_chemistry(path)
    return {
        "file": "packaged" if path is None else str(path),
        "digest": table.digest,
        "species": list(GASES),
        "nodes": {
            "C/O": table.co.size,
            "[M/H]": table.mh.size,
            "P": table.log_pressure.size,
            "T": table.temperature.size,
        },
        **table.meta,
    }


def _show(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    for key, value in summary.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in value.items())
        elif isinstance(value, list):
            value = "; ".join(str(v) for v in value)
        print(f"{key}: {value}")


@chemistry.command()
def build(
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("chemistry.h5"),
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Run FastChem over (T, P, C/O, [M/H]) and write the table: minutes on two cores, resumed if killed.

    Needs pyfastchem and the data that exogibbs carries: python -m pip install pyfastchem, then
    python -m pip install --no-deps exogibbs.

    Example: kappaflow chemistry build --out src/kappaflow/data/chemistry.h5
    """
    from kappaflow.build.tables.chemistry_table import build_chemistry

    build_chemistry(out, workers=workers)
    _show(_summary(out), as_json)


@chemistry.command()
def info(
    file: Annotated[Path | None, typer.Argument(help="A chemistry table; the packaged one if left out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say what a table holds: provenance, citations, validity, digest.

    Example: kappaflow chemistry info --json
    """
    _show(_summary(file), as_json)
