"""Many objects: each into a folder of its own, and a report on all; one function per object, here."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from kappaflow.errors import UserError
from kappaflow.observe.read import Hint, read_spectrum
from kappaflow.observe.spectrum import Spectrum
from kappaflow.observe.targets import Target
from kappaflow.progress import progress
from kappaflow.retrieval.result import Failed, Retrieval
from kappaflow.retrieval.retriever import Retriever
from kappaflow.storage import folder_written_whole

__all__ = ["read_target", "retrieve_files", "retrieve_target"]


def retrieve_files(
    retriever: Retriever,
    targets: Sequence[Target],
    out: Path,
    *,
    command: str = "",
    first: Sequence[Any] = (),
    **hints: Unpack[Hint],
) -> tuple[list[Retrieval | Failed], Path | None]:
    """Retrieve each target into a folder of its own in `out`, and write the report on all that are there.

    A mistake in one does not stop the others. An earlier result of the same name is replaced by a finished one only,
    and a run in which nothing succeeds leaves the report alone. `command` is how the user asked, for the record;
    `first` are sections of the report before the objects' own. Returns what came of each, and the path of report.html.
    """
    from kappaflow.report.files import write_collection

    outcomes: list[Retrieval | Failed] = []
    with progress("retrieving", len(targets), unit="spectra") as advance:
        for target in targets:
            try:
                found: Retrieval | Failed = retrieve_target(
                    retriever, target, read_target(target, hints), out, command=command
                )
            except UserError as error:
                found = Failed(target.name, str(error))
            outcomes.append(found)
            advance(1, note=target.name)
    return outcomes, write_collection(outcomes, out, first)


def read_target(target: Target, hints: Hint) -> Spectrum:
    """Read the files of one target, as `hints` and its own row of the table say."""
    own: Hint = {**hints}
    if target.offset is not None:
        own["detector_offset"] = target.offset
    native = read_spectrum(*target.files, **own)
    return native if target.title is None else native.noted(target=target.title)


def retrieve_target(
    retriever: Retriever, target: Target, native: Spectrum, out: Path, *, command: str = "", request: str = ""
) -> Retrieval:
    """Retrieve one target, as read, and write its folder in `out`, whole or not at all."""
    from kappaflow.report.files import write_object

    found = retriever(native, target.distance)
    made = {**found.provenance, **({"command": command} if command else {})}
    found = replace(found, name=target.name, provenance=made, request=request)
    with folder_written_whole(out / target.name) as part:
        write_object(found, part)
    return found
