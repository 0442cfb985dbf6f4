"""`kappaflow retrieve`: telescope files become posteriors with a trust card, figures and one report."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kappaflow.errors import UserError

if TYPE_CHECKING:
    from kappaflow.observe import Spectrum
    from kappaflow.report.files import Outcome
    from kappaflow.report.page import Section
    from kappaflow.retrieval.pipeline import RetrievalSettings

__all__ = ["Job", "forward_for", "register", "retrieve_objects", "say_outcomes"]

HELP = """From telescope files to posteriors that say how far to trust them.

FILE is a JWST x1d or c1d product, an ECSV, a CSV or plain columns (wavelength, flux, error). Each is an object of its
own, unless --merge. Writes into --out, for each object: posterior.nc (ArviZ), summary.json, summary.csv, figures; and
for all: report.html, summary.json, summary.csv. A file that cannot be read is reported and does not stop the others;
the exit code is then 2.

Example: [bold]kappaflow retrieve jw01189_x1d.fits --distance 5.7[/bold]
two detectors of one object: [bold]kappaflow retrieve nrs1_x1d.fits nrs2_x1d.fits --merge[/bold]
a table without units: [bold]kappaflow retrieve wolf.csv --flux-unit erg/s/cm2/um[/bold]
your own networks, pooled: [bold]kappaflow retrieve x1d.fits --model m0 --model m1 --control c0[/bold]
"""


def forward_for(posterior: Any) -> Any:
    """Return the forward model on the networks' pixels, or a sentence that says why there is none."""
    try:
        from kappaflow.model.forward import ForwardModel

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


@dataclass(frozen=True)
class Job:
    """All that a call of `retrieve` has been told: where to, with which networks, and how to read."""

    out: Path
    posterior: Any
    control: Any
    settings: RetrievalSettings
    distance: float | None = None
    hints: Mapping[str, Any] = field(default_factory=dict)  # of `read_spectrum`
    first: Sequence[Section] = ()  # of the report, before the objects

    @cached_property
    def forward(self) -> Any:
        """The forward model on the networks' pixels, or why there is none."""
        return forward_for(self.posterior)

    @cached_property
    def provenance(self) -> dict[str, str]:
        """What made the numbers, for every file."""
        import kappaflow

        def named(networks: Any) -> str:
            card = networks.members[0].card
            return f"{len(networks.members)} of preset {card.preset}, data {card.digest}"

        made = {"kappaflow": kappaflow.__version__, "networks": named(self.posterior), "seed": str(self.settings.seed)}
        return made | ({"control networks": named(self.control)} if self.control is not None else {})


def retrieve_objects(job: Job, objects: list[tuple[str, list[Path]]]) -> tuple[list[Outcome], Path]:
    """Retrieve each object (name, files), write everything, and return what came of it and the report's path."""
    from kappaflow.progress import progress

    outcomes = []
    with progress("retrieving", len(objects), unit="spectra") as advance:
        for name, files in objects:
            outcomes.append(_one(job, name, files))
            advance(1, note=name)
    return outcomes, _finish(job, outcomes)


def _one(job: Job, name: str, files: list[Path]) -> Outcome:
    """Retrieve one object and write its files; a user's mistake becomes its outcome."""
    from kappaflow.observe import read_spectrum
    from kappaflow.report.files import Outcome, write_object
    from kappaflow.retrieval.pipeline import retrieve

    folder = job.out / name
    try:
        native = read_spectrum(*files, **job.hints)
        result = retrieve(
            native,
            job.posterior,
            control=job.control,
            model=job.forward,
            distance=_distance(job.distance, native),
            settings=job.settings,
        )
    except UserError as error:
        return Outcome(name, folder, None, str(error))
    outcome = Outcome(name, folder, result)
    write_object(outcome, job.provenance)
    return outcome


def _finish(job: Job, outcomes: list[Outcome]) -> Path:
    """Write what concerns all objects: summary.json, summary.csv, report.html."""
    from kappaflow.report.files import overview, row_of, section_of, summary_of, write_rows
    from kappaflow.report.page import Report, write_report
    from kappaflow.storage import written_whole

    with written_whole(job.out / "summary.json") as part:
        plain = [summary_of(outcome, job.provenance) for outcome in outcomes]
        part.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    write_rows(job.out / "summary.csv", [row_of(outcome) for outcome in outcomes])
    sections = [section_of(outcome) for outcome in outcomes]
    if len(outcomes) > 1:
        sections.insert(0, overview(outcomes, job.out))
    title = outcomes[0].title if len(outcomes) == 1 else f"{len(outcomes)} objects"
    report = Report(f"C/O of {title}", "with the line lists in its error bar", [*job.first, *sections], job.provenance)
    return write_report(report, job.out / "report.html")


def _networks(model: list[Path] | None, control: list[Path] | None) -> tuple[Any, Any]:
    from kappaflow.inference import Posterior
    from kappaflow.inference.posterior import packaged

    posterior = Posterior.load(*(model or []))
    others = control or ([] if model else packaged("control"))
    return posterior, Posterior.load(*others) if others else None


def say_outcomes(outcomes: Sequence[Outcome], report: Path) -> None:
    """Print a line an object, mistakes on stderr, and where the report is."""
    from kappaflow.report.files import row_of

    for row in map(row_of, outcomes):
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
    from kappaflow.retrieval.pipeline import RetrievalSettings

    posterior, others = _networks(model, control)
    hints = {
        "wavelength_unit": wavelength_unit,
        "flux_unit": flux_unit,
        "medium": medium,
        "columns": columns,
        "source": source,
        "detector_offset": detector_offset,
    }
    job = Job(out, posterior, others, RetrievalSettings(draws=draws, seed=seed), distance, hints)
    outcomes, report = retrieve_objects(job, _names(files, merge))
    if as_json:
        from kappaflow.report.files import row_of

        print(json.dumps({"report": str(report), "objects": [row_of(outcome) for outcome in outcomes]}))
    else:
        say_outcomes(outcomes, report)
    if any(outcome.result is None for outcome in outcomes):
        raise typer.Exit(2)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("retrieve", help=HELP)(retrieve)
