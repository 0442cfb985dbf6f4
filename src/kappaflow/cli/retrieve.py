"""`kappaflow retrieve`: telescope files become posteriors with a trust card, figures and one report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kappaflow.errors import UserError

if TYPE_CHECKING:
    from kappaflow.cli.retrieve_files import Outcome
    from kappaflow.observe import Spectrum
    from kappaflow.observe.retrieve import Settings

__all__ = ["forward_for", "register"]

HELP = """From telescope files to posteriors that say how far to trust them.

FILE is a JWST x1d or c1d product, an ECSV, a CSV or plain columns (wavelength, flux, error). Each is an object of its
own, unless --merge. Writes into --out, for each object: posterior.nc (ArviZ), summary.json, summary.csv, figures; and
for all: report.html, summary.json, summary.csv. A file that cannot be read is reported and does not stop the others;
the exit code is then 2.

Example: [bold]kappaflow retrieve jw01189_x1d.fits --model marginalized-0 --model marginalized-1 --distance 5.7[/bold]
two detectors of one object: [bold]kappaflow retrieve nrs1_x1d.fits nrs2_x1d.fits --merge --model marginalized-0[/bold]
a table without units: [bold]kappaflow retrieve wolf.csv --flux-unit erg/s/cm2/um --model marginalized-0[/bold]
"""


def forward_for(posterior: Any) -> Any:
    """Return the forward model on the networks' pixels, or a sentence that says why there is none."""
    try:
        from kappaflow.forward import ForwardModel

        return ForwardModel.load(posterior.members[0].card.preset)
    except UserError as error:
        return f"no forward model ({error})"


def _names(files: list[Path], merge: bool) -> list[tuple[str, list[Path]]]:
    """Objects and their files; names are made distinct, and safe as folders."""
    groups = [files] if merge else [[f] for f in files]
    taken: dict[str, int] = {}
    named = []
    for group in groups:
        stem = group[0].name.removesuffix(".gz").rsplit(".", 1)[0].strip(". ") or "spectrum"
        taken[stem] = taken.get(stem, 0) + 1
        named.append((stem if taken[stem] == 1 else f"{stem}-{taken[stem]}", group))
    return named


def _distance(asked: float | None, spectrum: Spectrum) -> float | None:
    """Return the flag's distance, else the file's own, else none."""
    stated = spectrum.meta.get("distance_pc")
    return asked if asked is not None else float(stated) if isinstance(stated, int | float) else None


def _one(name: str, files: list[Path], how: dict[str, Any]) -> Outcome:
    """Retrieve one object and write its files; a user's mistake becomes its outcome."""
    from kappaflow.cli.retrieve_files import Outcome, write_object
    from kappaflow.observe import read_spectrum
    from kappaflow.observe.retrieve import retrieve

    folder = how["out"] / name
    try:
        native = read_spectrum(*files, **how["hints"])
        result = retrieve(
            native,
            how["posterior"],
            control=how["control"],
            model=how["forward"],
            distance=_distance(how["distance"], native),
            settings=how["settings"],
        )
    except UserError as error:
        return Outcome(name, folder, None, str(error))
    outcome = Outcome(name, folder, result)
    write_object(outcome, how["provenance"])
    return outcome


def _all(objects: list[tuple[str, list[Path]]], how: dict[str, Any]) -> list[Outcome]:
    from kappaflow.progress import progress

    outcomes = []
    with progress("retrieving", len(objects), unit="spectra") as advance:
        for name, files in objects:
            outcomes.append(_one(name, files, how))
            advance(1, note=name)
    return outcomes


def _finish(outcomes: list[Outcome], how: dict[str, Any]) -> Path:
    """Write what concerns all objects: summary.json, summary.csv, report.html."""
    from kappaflow.cli.retrieve_files import overview, row_of, section_of, summary_of, write_rows
    from kappaflow.report import Report, write_report
    from kappaflow.storage import written_whole

    out = how["out"]
    with written_whole(out / "summary.json") as part:
        plain = [summary_of(outcome, how["provenance"]) for outcome in outcomes]
        part.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    write_rows(out / "summary.csv", [row_of(outcome) for outcome in outcomes])
    sections = [section_of(outcome) for outcome in outcomes]
    if len(outcomes) > 1:
        sections.insert(0, overview(outcomes, out))
    title = outcomes[0].title if len(outcomes) == 1 else f"{len(outcomes)} objects"
    made = {key: value for key, value in how["provenance"].items() if isinstance(value, str)}
    return write_report(
        Report(f"C/O of {title}", "with the line lists in its error bar", sections, made), out / "report.html"
    )


def _networks(model: list[Path] | None, control: list[Path] | None) -> tuple[Any, Any]:
    from kappaflow.inference import Posterior
    from kappaflow.inference.posterior import packaged

    posterior = Posterior.load(*(model or []))
    others = control or ([] if model else packaged("control"))
    return posterior, Posterior.load(*others) if others else None


def _provenance(posterior: Any, control: Any, settings: Settings) -> dict[str, Any]:
    import kappaflow

    def named(networks: Any) -> str:
        card = networks.members[0].card
        return f"{len(networks.members)} of preset {card.preset}, data {card.digest}"

    made = {"kappaflow": kappaflow.__version__, "networks": named(posterior), "seed": str(settings.seed)}
    return made | ({"control networks": named(control)} if control is not None else {})


def _say(outcomes: list[Outcome], report: Path, as_json: bool) -> None:
    from kappaflow.cli.retrieve_files import row_of

    rows = [row_of(outcome) for outcome in outcomes]
    if as_json:
        print(json.dumps({"report": str(report), "objects": rows}))
        return
    for row in rows:
        if row["verdict"] == "error":
            print(f"kappaflow: {row['error']}", file=sys.stderr)
        else:
            span = f"{row['C_O_q50']:.2f} (68 %: {row['C_O_q16']:.2f} to {row['C_O_q84']:.2f})"
            print(f"{row['name']}: C/O {span}, SNR {row['snr']:.0f}, trust: {row['verdict']}")
    print(report)


def retrieve(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Spectra, one object each.")],
    out: Annotated[Path, typer.Option(help="Folder for everything written.")] = Path("retrieved"),
    model: Annotated[
        list[Path] | None, typer.Option(help="Trained network; several are pooled. Default: the packaged ones.")
    ] = None,
    control: Annotated[
        list[Path] | None, typer.Option(help="Network trained with fixed opacities, to compare.")
    ] = None,
    distance: Annotated[float | None, typer.Option(help="In pc: lets the flux scale measure the radius.")] = None,
    merge: Annotated[bool, typer.Option("--merge", help="All FILEs are one object (NRS1 and NRS2, dithers).")] = False,
    draws: Annotated[int, typer.Option(min=100, max=1_000_000, help="Posterior draws, over all networks.")] = 2001,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    wavelength_unit: Annotated[
        str | None, typer.Option(help="um, nm, Angstrom, cm-1: where the file is silent.")
    ] = None,
    flux_unit: Annotated[
        str | None, typer.Option(help="mJy, erg/s/cm2/um, W/m2/um...: where the file is silent.")
    ] = None,
    medium: Annotated[str | None, typer.Option(help="Of the wavelengths: vacuum or air.")] = None,
    columns: Annotated[str | None, typer.Option(help="WAVELENGTH,FLUX,ERROR: names or numbers from 1.")] = None,
    source: Annotated[str | None, typer.Option(help="Slit or source, where a file holds several; or all.")] = None,
    detector_offset: Annotated[float, typer.Option(help="NRS2 is multiplied by one plus this.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Retrieve (see `HELP`)."""
    from kappaflow.observe.retrieve import Settings

    settings = Settings(draws=draws, seed=seed)
    posterior, others = _networks(model, control)
    how = {
        "out": out,
        "posterior": posterior,
        "control": others,
        "forward": forward_for(posterior),
        "distance": distance,
        "settings": settings,
        "hints": {
            "wavelength_unit": wavelength_unit,
            "flux_unit": flux_unit,
            "medium": medium,
            "columns": columns,
            "source": source,
            "detector_offset": detector_offset,
        },
        "provenance": _provenance(posterior, others, settings),
    }
    outcomes = _all(_names(files, merge), how)
    _say(outcomes, _finish(outcomes, how), as_json)
    if any(outcome.result is None for outcome in outcomes):
        raise typer.Exit(2)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("retrieve", help=HELP)(retrieve)
