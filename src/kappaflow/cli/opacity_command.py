"""`kappaflow opacity`: build line lists, say what a table holds, put two lists side by side."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kappaflow.cli.command_line import CommandLine
from kappaflow.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from kappaflow.tables.opacity import OpacityTable

__all__ = ["opacity"]

opacity = CommandLine(
    no_args_is_help=True, help="Molecular opacities: the packaged lists, others, and how they differ."
)


def _summary(table: OpacityTable, file: str) -> dict[str, Any]:
    lists = {
        species: {name: {"rank": entry.basis.shape[0], **entry.meta} for name, entry in names.items()}
        for species, names in table.lists.items()
    }
    return {
        "file": file,
        "digest": table.digest,
        **table.meta,
        "grid": {
            "points": table.nu.size,
            "wavenumber [cm-1]": [float(table.nu[0]), float(table.nu[-1])],
            "temperatures [K]": [round(float(t), 1) for t in table.temperature],
            "log10 pressures [bar]": [round(float(p), 2) for p in table.log_pressure],
        },
        "lists": lists,
    }


def _show(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    grid = summary["grid"]
    low, high = grid["wavenumber [cm-1]"]
    temperatures, pressures = grid["temperatures [K]"], grid["log10 pressures [bar]"]
    print(f"{summary['file']}: digest {summary['digest']}, made by {summary.get('made by', 'unknown')}")
    print(f"  {grid['points']:,} points, {low:g}-{high:g} cm-1, equal in log wavenumber")
    print(
        f"  {len(temperatures)} temperatures, {temperatures[0]:g}-{temperatures[-1]:g} K; {summary.get('outside', '')}"
    )
    print(f"  {len(pressures)} pressures, log10(P/bar) {pressures[0]:g} to {pressures[-1]:g}")
    print(f"  not for {summary.get('not for', '')}")
    table = Table("species", "list", "made of", "cite", "rms error of ln sigma", box=None)
    for species, names in summary["lists"].items():
        for name, meta in names.items():
            row = (meta.get("provenance", ""), meta.get("citation", ""), str(meta.get("rms error of ln sigma", "")))
            table.add_row(species, name, *row)
    Console().print(table)


def _data_folder(data: Path | None) -> Path:
    if data is None:
        found = os.environ.get("KAPPAFLOW_DATA")
        if found is None:
            raise UserError("opacity build: which data folder? Give --data DIR or set KAPPAFLOW_DATA")
        data = Path(found)
    return data


@opacity.command()
def build(
    source: Annotated[str, typer.Option(help="packaged, exojax, or a cross-section file (HDF5).")] = "packaged",
    data: Annotated[
        Path | None, typer.Option(help="Folder of line data; default: $KAPPAFLOW_DATA, or .database for exojax.")
    ] = None,
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("opacity.h5"),
    species: Annotated[str | None, typer.Option(help="For exojax and files: the molecule.")] = None,
    database: Annotated[str | None, typer.Option(help="For exojax: ExoMol/POKAZATEL, HITEMP, HITRAN.")] = None,
    name: Annotated[str | None, typer.Option(help="For exojax and files: what to call the list.")] = None,
    into: Annotated[Path | None, typer.Option(help="Table to add the list to; default: the packaged.")] = None,
    clamp: Annotated[bool, typer.Option(help="Beyond the temperatures of a list or file, use its nearest.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: all cores.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Build cross sections: minutes on two cores, resumed if killed.

    The packaged lists and the CIA table, again, bit for bit (cia.h5 is written beside --out):
      kappaflow opacity build --data ../shared/data --out opacity.h5
    A list of your own beside the packaged ones, from ExoJAX (needs a network connection the first time) or from a file:
      kappaflow opacity build --source exojax --species H2O --database ExoMol/POKAZATEL --name pokazatel --out mine.h5
      kappaflow opacity build --source H2O.R15000.TauREx.h5 --species H2O --name pokazatel --out mine.h5
    """
    if source == "packaged":
        from kappaflow.build.tables.cia_table import build_cia
        from kappaflow.build.tables.opacity_table import build_opacity

        folder = _data_folder(data)
        table = build_opacity(folder, out, workers=workers)
        build_cia(folder, out.with_name("cia.h5"))
    else:
        from kappaflow.build.tables.added_list import ListSource

        table = ListSource(source, species, name, database, data, clamp).added_to(into, out)
    _show(_summary(table, str(out)), as_json)


@opacity.command()
def info(
    file: Annotated[Path | None, typer.Argument(help="An opacity table; the packaged one if left out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say what a table holds: lists, provenance, citations, validity, digest.

    Example: kappaflow opacity info --json
    """
    from kappaflow.tables.opacity import load_opacity

    _show(_summary(load_opacity(file), "packaged" if file is None else str(file)), as_json)


def _list_named(text: str) -> tuple[OpacityTable, str, str]:
    """[FILE:]SPECIES/NAME to (table, species, name)."""
    from kappaflow.tables.opacity import load_opacity

    file, _, rest = text.rpartition(":")
    species, slash, name = rest.partition("/")
    if not slash or not name:
        raise UserError(f"opacity compare: {text!r} is not a list; expected SPECIES/NAME or FILE:SPECIES/NAME")
    table = load_opacity(file or None)
    table.line_list(species, name)
    return table, species, name


@opacity.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="[FILE:]SPECIES/NAME.")],
    second: Annotated[str, typer.Argument(metavar="B", help="[FILE:]SPECIES/NAME.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the figure and the JSON.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Measure the ratio of two lists over (T, P) and fit the perturbation field to it.

    The spread of the coefficients is what the perturbation prior has to cover; set yours from your own lists.

    Example: kappaflow opacity compare CH4/base CH4/exomol --out comparison
    """
    from kappaflow.build.tables.list_ratio import compare_lists
    from kappaflow.tables.field_prior import perturbation_prior

    a, b = _list_named(first), _list_named(second)
    comparison = compare_lists(a, b)
    summary = {
        "A": first,
        "B": second,
        "species": a[1],
        "lists": [a[2], b[2]],
        **comparison.summary(),
        "packaged prior": perturbation_prior()[a[1]],
    }
    if out is not None:
        from kappaflow.plots import save_figure
        from kappaflow.plots.list_figures import comparison_figure
        from kappaflow.storage import written_whole

        figure = comparison_figure(
            comparison.nu, comparison.ln_ratio, comparison.field, comparison.temperature, f"{first} over {second}"
        )
        stem = f"compare-{a[1]}-{a[2]}-{b[2]}"
        save_figure(figure, out / stem)
        with written_whole(out / f"{stem}.json") as part:
            part.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    _show_comparison(summary, comparison.temperature)


def _show_comparison(summary: dict[str, Any], temperature: np.ndarray) -> None:
    print(f"{summary['A']} over {summary['B']}, R = 200, {temperature[0]:.0f}-{temperature[-1]:.0f} K, 0.1-30 bar")
    print(f"{'coefficient':12s}{'measured':>10s}{'prior':>10s}")
    measured, prior = summary["sigma"], summary["packaged prior"]
    rows = zip([measured["const"], *measured["modes"]], [prior["const"], *prior["modes"]], strict=True)
    for m, (ours, packaged) in enumerate(rows):
        print(f"{'const' if m == 0 else f'm = {m}':12s}{ours:10.3f}{packaged:10.3f}")
    print(f"{'slope':12s}{summary['slope']:10.3f}{prior.get('slope', 0.0):10.3f}   in (T/700 K)^slope")
    total, field, rest = (summary[f"rms {what}"] for what in ("ln ratio", "field", "residual"))
    print(f"rms of ln ratio {total:.3f}: field {field:.3f}, residual {rest:.3f}")
