"""Many objects, one after the other: each into a folder of its own, and a report on all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from kappaflow.errors import UserError
from kappaflow.observe.read import Hint, read_spectrum
from kappaflow.observe.targets import Target
from kappaflow.progress import progress
from kappaflow.retrieval.result import Failed, Retrieval
from kappaflow.retrieval.retriever import Retriever
from kappaflow.storage import folder_written_whole

__all__ = ["retrieve_files"]


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
    from kappaflow.report.files import write_collection, write_object

    outcomes: list[Retrieval | Failed] = []
    with progress("retrieving", len(targets), unit="spectra") as advance:
        for target in targets:
            try:
                found = _named(_retrieved(retriever, target, hints), target, command)
                with folder_written_whole(out / target.name) as part:
                    write_object(found, part)
            except UserError as error:
                found = Failed(target.name, str(error))
            outcomes.append(found)
            advance(1, note=target.name)
    return outcomes, write_collection(outcomes, out, first)


def _retrieved(retriever: Retriever, target: Target, hints: Hint) -> Retrieval:
    own: Hint = {**hints}
    if target.offset is not None:
        own["detector_offset"] = target.offset
    native = read_spectrum(*target.files, **own)
    if target.title is not None:
        native = native.noted(target=target.title)
    return retriever(native, target.distance)


def _named(found: Retrieval, target: Target, command: str) -> Retrieval:
    made = {**found.provenance, **({"command": command} if command else {})}
    return replace(found, name=target.name, provenance=made)
