"""`kappaflow retrieve`: telescope files become posteriors with a trust card, figures and one report."""

from __future__ import annotations

import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kappaflow.cli.command_line import AsOne, FluxUnit, WavelengthUnit
from kappaflow.errors import UserError
from kappaflow.parameters import DRAWS

if TYPE_CHECKING:
    from kappaflow.observe.distances import Distance
    from kappaflow.observe.read import Hint
    from kappaflow.observe.targets import Target
    from kappaflow.retrieval.parallel import Finished
    from kappaflow.retrieval.result import Failed, Retrieval

__all__ = ["retrieve", "say_outcome"]

HELP = """From telescope files to posteriors that say how far to trust them.

The networks propose, the likelihood decides: their draws are refined to exact ones, line lists marginalized;
--amortized gives the networks alone, in seconds. A refinement that has not converged is never the result.

FILE is a JWST x1d or c1d product, an ECSV, a CSV or plain columns (wavelength, flux, error). Each is an object of its
own, unless --merge. Writes into --out, for each object: posterior.nc (ArviZ), summary.json, summary.csv, figures; and
for all objects in that folder: report.html, summary.json, summary.csv. A file that cannot be read is reported, does not
stop the others and leaves an earlier result as it was; the exit code is then 2.

Example: [bold]kappaflow retrieve jw01189_x1d.fits --distance 5.7[/bold]
a quick look: [bold]kappaflow retrieve jw01189_x1d.fits --distance 5.7 --amortized[/bold]
many objects, each with its distance: [bold]kappaflow retrieve --targets targets.csv[/bold] (columns file, name,
distance, distance_error, offset; any may be absent; files relative to the table, two of one object joined by " + ")
a catalogue that was interrupted, on all cores: [bold]kappaflow retrieve --targets targets.csv --resume[/bold]
two detectors of one object: [bold]kappaflow retrieve nrs1_x1d.fits nrs2_x1d.fits --merge[/bold]
a table without units: [bold]kappaflow retrieve wolf.csv --flux-unit erg/s/cm2/um[/bold]
your own networks, pooled: [bold]kappaflow retrieve x1d.fits --model m0 --model m1[/bold]
line lists twice as wrong as packaged, with networks that have a dial: [bold]kappaflow retrieve x1d.fits --model d0
--line-lists 2[/bold]
trained with your own line lists: [bold]kappaflow retrieve x1d.fits --model m0 --opacity mine.h5[/bold]
"""


def say_outcome(outcome: Retrieval | Failed | Finished) -> None:
    """Print the line of one object, a mistake on stderr."""
    row = outcome.row()
    if row["verdict"] == "error":
        print(f"kappaflow: {row['error']}", file=sys.stderr, flush=True)
        return
    span = f"{row['C_O_q50']:.2f} (68 %: {row['C_O_q16']:.2f} to {row['C_O_q84']:.2f})"
    whose = "refined" if row["source"] == "refined" else "networks alone"
    kept = ", kept" if getattr(outcome, "kept", False) else ""
    print(f"{row['name']}: C/O {span}, {whose}, SNR {row['snr']:.0f}, trust: {row['verdict']}{kept}", flush=True)
    _say_beside(row)


def _say_beside(row: dict[str, Any]) -> None:
    """Print what networks and one line list say, where the result is neither."""
    for kind, name in (("network", "networks"), ("one_list", "one line list")):
        if f"{kind}_C_O_q50" in row:
            low, middle, high = (row[f"{kind}_C_O_{q}"] for q in ("q16", "q50", "q84"))
            print(f"  {name}: {middle:.2f} ({low:.2f} to {high:.2f})")


def _targets(files: list[Path], table: Path | None, distance: Distance | None, merge: bool) -> list[Target]:
    """Objects to retrieve, from the table where there is one."""
    from kappaflow.observe.targets import named_targets, read_targets

    if table is None:
        if not files:
            raise UserError("retrieve: no FILE; give spectra, or a table of them with --targets")
        return named_targets([files] if merge else [[file] for file in files], distance)
    if merge or distance is not None:
        option = "--merge" if merge else "--distance"
        raise UserError(f"{option}: not beside --targets, which says it for each object; put it into the table")
    targets, unused = read_targets(table, files)
    if unused:
        print(f"kappaflow: {table.name}: not used: {', '.join(unused)}", file=sys.stderr)
    return targets


def retrieve(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE...", help="Spectra, one object each.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for everything written.")] = Path("retrieved"),
    model: Annotated[
        list[Path] | None, typer.Option(help="Trained network; several are pooled. Default: the packaged ones.")
    ] = None,
    control: Annotated[
        list[Path] | None, typer.Option(help="Network trained with fixed opacities, drawn beside the others.")
    ] = None,
    opacity: Annotated[
        Path | None, typer.Option(help="Opacity table the networks were trained with. Default: the packaged one.")
    ] = None,
    distance: Annotated[float | None, typer.Option(help="In pc: lets the flux scale measure the radius.")] = None,
    distance_error: Annotated[float | None, typer.Option(help="In pc, one sigma: widens R as it should.")] = None,
    targets: Annotated[
        Path | None, typer.Option(help="CSV or ECSV: file, name, distance, distance_error, offset of each object.")
    ] = None,
    merge: AsOne = False,
    amortized: Annotated[
        bool, typer.Option("--amortized", help="The networks alone: seconds, and wider than the data allow.")
    ] = False,
    draws: Annotated[int, typer.Option(min=100, max=1_000_000, help="Posterior draws, over all networks.")] = DRAWS,
    line_lists: Annotated[
        float, typer.Option(min=0, help="Size of line-list errors: 0 none, 1 as packaged. Networks with a dial.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    wavelength_unit: WavelengthUnit = None,
    flux_unit: FluxUnit = None,
    medium: Annotated[str | None, typer.Option(help="Of the wavelengths: vacuum or air.")] = None,
    columns: Annotated[str | None, typer.Option(help="WAVELENGTH,FLUX,ERROR: names or numbers from 1.")] = None,
    source: Annotated[str | None, typer.Option(help="Slit or source, where a file holds several; or all.")] = None,
    detector_offset: Annotated[float, typer.Option(help="NRS2 is multiplied by one plus this.")] = 0.0,
    mask: Annotated[list[str] | None, typer.Option(help="LOW:HIGH in um, left out: 4.2:4.4. Repeatable.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep results that answer the same request.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes for many objects. Default: one per core.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Retrieve (see `HELP`)."""
    from kappaflow.observe.columns import Hints
    from kappaflow.observe.distances import as_distance

    chosen = _targets(files or [], targets, as_distance(distance, distance_error), merge)
    hints: Hint = {
        "wavelength_unit": wavelength_unit,
        "flux_unit": flux_unit,
        "medium": medium,
        "columns": columns,
        "source": source,
        "detector_offset": detector_offset,
        "mask": mask,
    }
    Hints(**hints)  # type: ignore[arg-type]  # a wrong one is refused before the networks are loaded

    from kappaflow.retrieval.parallel import CatalogueRun, retrieve_many
    from kappaflow.retrieval.result import Failed, RetrievalSettings
    from kappaflow.retrieval.retriever import Retriever

    settings = RetrievalSettings(draws=draws, seed=seed, amortized=amortized, line_lists=line_lists)
    load = partial(Retriever.load, tuple(model or ()), tuple(control or ()), opacity=opacity, settings=settings)
    command = shlex.join(["kappaflow", *sys.argv[1:]])
    run = CatalogueRun(command, resume, workers, (lambda _: None) if as_json else say_outcome)
    outcomes, report = retrieve_many(load, chosen, out, run, hints)
    if as_json:
        print(
            json.dumps(
                {"report": None if report is None else str(report), "objects": [outcome.row() for outcome in outcomes]}
            )
        )
    elif report is not None:
        print(report)
    if any(isinstance(outcome, Failed) for outcome in outcomes):
        raise typer.Exit(2)
