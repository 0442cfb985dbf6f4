"""Catalogues: all objects through the networks in one batch, then each on its own, on all cores, resumably.

Every worker is a process with its own networks and forward model; what it hands back is a summary. An object's folder
is written whole, so that a run that is killed loses at most what was under way: the same command with `--resume` goes
on.
"""

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.inference.devices import use_threads
from kappaflow.inference.posterior import Posterior
from kappaflow.observe.distances import as_distance, stated_distance
from kappaflow.observe.read import Hint, read_spectrum
from kappaflow.observe.resampling import on_pixels
from kappaflow.observe.spectrum import Spectrum
from kappaflow.observe.targets import Target
from kappaflow.processes import serve_parent
from kappaflow.progress import no_bars, progress
from kappaflow.retrieval.result import SCHEMA, Failed, Retrieval, row_of
from kappaflow.retrieval.retriever import Retriever
from kappaflow.storage import digest, folder_written_whole

__all__ = ["CatalogueRun", "Finished", "retrieve_many"]

ENOUGH = 6  # objects from which a second process pays for its start
_TOGETHER = 32  # spectra in one pass through the networks


@dataclass(frozen=True)
class Finished:
    """An object whose result is on disk, written by another process or an earlier run: its summary."""

    plain: Mapping[str, Any]
    kept: bool = False  # of an earlier run

    @property
    def name(self) -> str:
        """Of its folder."""
        return self.plain["name"]

    def summary(self) -> dict[str, Any]:
        """Plain data, as in summary.json."""
        return dict(self.plain)

    def row(self) -> dict[str, Any]:
        """One line of the table of many objects."""
        return row_of(self.plain)


Outcome = Retrieval | Failed | Finished


@dataclass(frozen=True)
class CatalogueRun:
    """How a catalogue is retrieved, apart from what is in it."""

    command: str = ""  # how the user asked, for the record
    resume: bool = False  # keep results of the same request
    workers: int | None = None  # processes; None: as many as cores where there are objects enough
    done: Callable[[Outcome], None] = field(default=lambda _: None)  # called with each outcome as it comes
    first: Sequence[Any] = ()  # sections of the report before the objects' own


def retrieve_many(
    load: Callable[[], Retriever], targets: Sequence[Target], out: Path, run: CatalogueRun, hints: Hint
) -> tuple[list[Outcome], Path | None]:
    """Retrieve each target into a folder of its own in `out`, and write the report on all that are there.

    A mistake in one does not stop the others. An earlier result of the same name is replaced by a finished one only,
    and a run in which nothing succeeds leaves the report alone.
    `load` makes the retriever, here and in every worker: it must be importable there (a `functools.partial` of
    `Retriever.load`). Returns what came of each target, in their order, and the path of report.html.
    """
    from kappaflow.report.files import write_collection

    retriever = load()
    outcomes: dict[str, Outcome] = {}

    def note(outcome: Outcome) -> None:
        outcomes[outcome.name] = outcome
        run.done(outcome)
        advance(1, note=outcome.name)

    with progress("retrieving", len(targets), unit="spectra") as advance:
        waiting = []
        for target in targets:
            request, kept = _request(retriever, target, hints), None
            if run.resume:
                kept = _kept(out / target.name, request)
            if kept is not None:
                note(kept)
            else:
                waiting.append((target, request))
        workers = run.workers or (1 if len(waiting) < ENOUGH else os.cpu_count() or 1)
        jobs = _jobs(retriever, waiting, hints, note)
        if workers == 1:
            for job in jobs:
                note(_alone(retriever, job, out, run.command, hints))
        else:
            _shared(load, jobs, (out, run.command, hints), workers, note)
    ordered = [outcomes[target.name] for target in targets]
    return ordered, write_collection(ordered, out, run.first)


@dataclass(frozen=True, eq=False)
class _Job:
    """One object with its networks' draws: (M, n, D), and those of the control."""

    target: Target
    request: str
    members: np.ndarray
    control: np.ndarray | None


def _jobs(
    retriever: Retriever, waiting: Sequence[tuple[Target, str]], hints: Hint, note: Callable[[Outcome], None]
) -> Iterator[_Job]:
    """Read the objects and put them through the networks, many in one pass; what cannot be read is noted as failed."""
    for start in range(0, len(waiting), _TOGETHER):
        read: list[tuple[Target, str, Spectrum]] = []
        for target, request in waiting[start : start + _TOGETHER]:
            try:
                native = read_target(target, hints)
                known = as_distance(target.distance) or stated_distance(native.meta)
                pc = None if known is None else known.pc
                read.append((target, request, on_pixels(native, retriever.posterior.wavelength, pc)))
            except UserError as error:
                note(Failed(target.name, str(error)))
        if not read:
            continue
        spectra = [spectrum for _, _, spectrum in read]
        members = _batch(retriever.posterior, spectra, retriever)
        control = None if retriever.control is None else _batch(retriever.control, spectra, retriever)
        for i, (target, request, _) in enumerate(read):
            yield _Job(target, request, members[i], None if control is None else control[i])


def _batch(posterior: Posterior, spectra: Sequence[Spectrum], retriever: Retriever) -> np.ndarray:
    each = -(-retriever.settings.draws // len(posterior.members))
    return posterior.sample_many(spectra, each, retriever.settings.seed)


class _Presampled:
    """A posterior whose draws of one spectrum were made together with others'."""

    def __init__(self, posterior: Posterior, members: np.ndarray) -> None:
        self._posterior, self._drawn = posterior, members

    def __getattr__(self, name: str) -> Any:
        return getattr(self._posterior, name)

    def sample_members(self, _: Any, n: int, seed: int = 0) -> np.ndarray:
        """Return the draws (M, n, D)."""
        return self._drawn


def _alone(retriever: Retriever, job: _Job, out: Path, command: str, hints: Hint) -> Retrieval | Failed:
    """Retrieve one object, whose draws are made, and write its folder in `out`, whole or not at all."""
    from kappaflow.report.files import import_writers, write_object

    posterior: Any = _Presampled(retriever.posterior, job.members)
    control: Any = None
    if retriever.control is not None and job.control is not None:
        control = _Presampled(retriever.control, job.control)
    one = replace(retriever, posterior=posterior, control=control)
    vars(one).update(forward=retriever.forward, sources=retriever.sources)  # not loaded once more for every object
    try:
        native = read_target(job.target, hints)
        importing = Thread(target=import_writers)
        importing.start()  # now: reading and the model, loaded above, import some of the same
        found = one(native, job.target.distance)
        importing.join()
        made = {**found.provenance, **({"command": command} if command else {})}
        found = replace(found, name=job.target.name, provenance=made, request=job.request)
        with folder_written_whole(out / found.name) as part:
            write_object(found, part)
    except UserError as error:
        return Failed(job.target.name, str(error))
    return found


def read_target(target: Target, hints: Hint) -> Spectrum:
    """Read the files of one target, as `hints` and its own row of the table say."""
    own: Hint = {**hints}
    if target.offset is not None:
        own["detector_offset"] = target.offset
    native = read_spectrum(*target.files, **own)
    return native if target.title is None else native.noted(target=target.title)


_RETRIEVER: list[Retriever] = []  # of a worker process


def _begin(load: Callable[[], Retriever]) -> None:
    """Set up a worker: one thread each, for there is a worker per core; it ends with its parent."""
    serve_parent()
    use_threads(1)
    no_bars()
    retriever = load()
    model = retriever.forward
    if hasattr(model, "threads"):
        vars(retriever)["forward"] = replace(model, threads=1)  # pyright: ignore[reportArgumentType]
    _RETRIEVER[:] = [retriever]


def _work(job: _Job, out: Path, command: str, hints: Hint) -> Finished | Failed:
    found = _alone(_RETRIEVER[0], job, out, command, hints)
    if isinstance(found, Failed):
        return found
    return Finished(json.loads((out / found.name / "summary.json").read_text(encoding="utf-8")))


def _shared(
    load: Callable[[], Retriever],
    jobs: Iterator[_Job],
    common: tuple[Path, str, Hint],
    workers: int,
    note: Callable[[Outcome], None],
) -> None:
    """Give the jobs to `workers` processes; note what comes back as it comes."""
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(load,))
    try:
        asked: dict[Future[Finished | Failed], str] = {
            pool.submit(_work, job, *common): job.target.name for job in jobs
        }
        for future in as_completed(asked):
            note(future.result())
    except BrokenProcessPool:
        raise UserError(
            "retrieve: a worker process died (out of memory?); run the same command with --resume --workers 1"
        ) from None
    except BaseException:
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.terminate()  # what is under way is lost, and made again with --resume
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _request(retriever: Retriever, target: Target, hints: Hint) -> str:
    """Digest of all that decides an object's result: its bytes, what is said of it, networks, settings, version."""
    import kappaflow

    try:
        files = [sha256(path.read_bytes()).hexdigest() for path in target.files]
    except OSError:
        return ""  # never kept: reading says what is wrong
    networks = [*retriever.posterior.members, *(retriever.control.members if retriever.control else ())]
    asked = {
        "files": files,
        "target": [target.title, target.offset, None if target.distance is None else repr(target.distance)],
        "hints": {key: repr(value) for key, value in hints.items() if value},
        "settings": {key: repr(value) for key, value in asdict(retriever.settings).items()},
        "networks": [[network.card.digest, network.seed, network.card.n_train] for network in networks],
        "version": kappaflow.__version__,
    }
    return digest(asked)


def _kept(folder: Path, request: str) -> Finished | None:
    """Return the result in `folder`, where it answers the same `request`."""
    try:
        plain = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not request or not isinstance(plain, dict) or plain.get("schema") != SCHEMA or plain.get("request") != request:
        return None
    return Finished(plain, kept=True)
