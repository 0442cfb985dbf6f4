"""What a retrieval leaves behind: netCDF, JSON, CSV, figures, and the report on all objects of a folder."""

import gc
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kappaflow.constants import REFERENCE_PC
from kappaflow.report.atmosphere_files import atmosphere_summary, write_atmosphere
from kappaflow.report.catalogue_files import INLINED, catalogue_row, overview, write_ecsv
from kappaflow.report.citations import software_versions, write_citations
from kappaflow.report.object_section import failed_section, object_section
from kappaflow.report.page import Report, Section, write_report
from kappaflow.report.reference_files import write_groups
from kappaflow.report.refined_files import write_refined
from kappaflow.retrieval.result import SCHEMA, Failed, Retrieval
from kappaflow.storage import write_json, write_rows

__all__ = ["import_writers", "object_summary", "read_summaries", "write_collection", "write_object", "write_page"]

_WRITERS = ("kappaflow.plots.object_figures", "matplotlib.backends.backend_pdf", "xarray", "astropy.table")


def import_writers() -> None:
    """Import what draws and writes: a second that is free in a thread beside a computation outside Python."""
    for name in _WRITERS:
        importlib.import_module(name)


def write_object(result: Retrieval, folder: Path) -> dict[str, Any]:
    """Write posterior.nc, summary.csv, figures and, last, summary.json of one object; return what the last holds."""
    folder.mkdir(parents=True, exist_ok=True)
    with _uncollected():
        return _write_object(result, folder)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the collector of cycles: figures are so many small objects that it would walk the whole heap often."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _write_object(result: Retrieval, folder: Path) -> dict[str, Any]:
    write_groups(result.datasets(), folder / "posterior.nc")
    write_rows(folder / "summary.csv", [*result.parameters(), *result.derived_quantities()])
    figures = [*_write_figures(result, folder), *write_refined(result, folder), *write_atmosphere(result, folder)]
    summary = object_summary(result)
    figures += write_citations(summary, folder)
    files = ["posterior.nc", "report.html", "summary.csv", "summary.json", *(path.name for path in figures)]
    summary["files"] = sorted(files)
    write_json(folder / "summary.json", summary)
    return summary


def object_summary(result: Retrieval) -> dict[str, Any]:
    """Return the content of an object's summary.json, but for the names of its files."""
    return {**result.summary(), "atmosphere": atmosphere_summary(result), "software": software_versions()}


def read_summaries(out: Path) -> dict[str, dict[str, Any]]:
    """Return the summary of every object in the folder `out`, by its name; what is not ours is passed over."""
    found = {}
    for path in sorted(out.glob("*/summary.json")):
        try:
            summary = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(summary, dict) and summary.get("schema") == SCHEMA and not path.parent.name.startswith("."):
            found[path.parent.name] = summary
    return found


def write_collection(outcomes: Sequence[Any], out: Path, first: Sequence[Section] = ()) -> Path | None:
    """Write what concerns all objects in `out`: summary.json, summary.csv and report.html, whose path is returned.

    Those of `outcomes` (each has a `name`; those that failed are `Failed`) come first, then the ones of earlier runs.
    Where none of `outcomes` has a result, nothing is written. More than `INLINED` objects have a page each.
    """
    if all(isinstance(outcome, Failed) for outcome in outcomes):
        return None
    there = read_summaries(out)
    failures = {outcome.name: outcome for outcome in outcomes if isinstance(outcome, Failed)}
    summaries: list[dict[str, Any]] = []
    for name in dict.fromkeys([*(outcome.name for outcome in outcomes), *there]):
        error = {"error": failures[name].error} if name in failures else {}
        summaries.append({**there[name], **error} if name in there else failures[name].summary())
    write_json(out / "summary.json", summaries)
    write_rows(out / "summary.csv", [catalogue_row(summary) for summary in summaries])
    write_ecsv(summaries, out / "summary.ecsv")
    objects = [(summary, out / summary["name"]) for summary in summaries]
    if len(summaries) > 1:
        first = [*first, overview(summaries, out)]
    if len(summaries) > INLINED:
        for summary, folder in objects:
            if "parameters" in summary:
                write_page([(summary, folder)], folder / "report.html")
        objects = [pair for pair in objects if "parameters" not in pair[0]]
        return write_page(objects, out / "report.html", first, title=f"{len(summaries)} objects")
    return write_page(objects, out / "report.html", first)


def write_page(
    objects: Sequence[tuple[Mapping[str, Any], Path]], path: Path, first: Sequence[Section] = (), *, title: str = ""
) -> Path:
    """Write the report on objects, each a summary and the folder of its figures, after the sections `first`.

    How they were made stands at the foot where it is the same for all, else with each object.
    """
    made = [summary["provenance"] for summary, _ in objects if "provenance" in summary]
    same = all(one == made[0] for one in made)
    sections = []
    for summary, folder in objects:
        if "parameters" not in summary:
            sections.append(failed_section(summary["name"], summary["error"]))
        else:
            sections.append(object_section(summary, folder, {} if same else summary["provenance"]))
    title = title or (sections[0].title if len(objects) == 1 else f"{len(objects)} objects")
    foot = made[0] if made and same else {}
    return write_report(
        Report(f"C/O of {title}", "with the line lists in its error bar", [*first, *sections], foot), path
    )


def _write_figures(result: Retrieval, folder: Path) -> list[Path]:
    """Write the figures; return their paths."""
    from kappaflow.plots import object_figures as plots
    from kappaflow.plots import save_figure
    from kappaflow.plots.dial_figure import c_to_o_against_dial

    spectrum, band = result.spectrum, result.envelope
    data = (spectrum.flux, spectrum.error, spectrum.mask)
    title = f"{result.title}   SNR {spectrum.snr:.0f}"
    drawn = None if band is None else (band.low, band.median, band.high)
    scaled = f" at {REFERENCE_PC:g} pc" if spectrum.meta["scale_known"] else ""
    every = {"refined": result.draws if result.source == "refined" else None, "one line list": result.one_list_draws}
    every |= {"networks": result.network_draws, "control networks": result.control_draws}
    draws = {label: values for label, values in every.items() if values is not None}
    shown = {label: values for label, values in draws.items() if label != "one line list"}
    place = result.box.names.index("C_O")
    figures = {
        "spectrum": plots.spectrum(spectrum.wavelength, data, drawn, title=title, distance=scaled),
        "corner": plots.corner(dict(list(shown.items())[:2]), result.box),
        "c_to_o": plots.c_to_o(
            {k: v[:, place] for k, v in draws.items()}, prior=(result.box.low[place], result.box.high[place])
        ),
    }
    if result.dial is not None:
        figures["dial"] = c_to_o_against_dial(result.dial.amplitude, result.dial.quantiles, result.dial.chosen)
    return [path for name, figure in figures.items() for path in save_figure(figure, folder / name)]
