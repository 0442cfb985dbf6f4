"""Fill a directory with shards: in this process, in several on this machine, or on a Dask cluster; the same bytes."""

import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kappaflow.errors import UserError
from kappaflow.progress import progress
from kappaflow.simulation.config import ShardPlan, SpectraConfig, load_model, plan_shards
from kappaflow.simulation.directory import Claims, prepare, shard_path, sweep, write_bytes
from kappaflow.simulation.prior import SHARD_SIZE
from kappaflow.simulation.shard import draw_shard, encode
from kappaflow.spectra import Forward

__all__ = ["ONE_THREAD", "Backend", "ShardJob", "environment", "processors", "simulate_directory"]

POLL = 0.1  # s between looks at shards that others are making


@dataclass(frozen=True)
class Backend:
    """Where shards are made, and what makes the forward model there.

    `where` is a number of processes on this machine (0: this one), or the address of a Dask scheduler; by default one
    process per processor, or this process where there is a GPU. `load` makes the forward model from the config; it must
    be picklable where other processes use it.
    """

    where: int | str | None = None
    load: Callable[[SpectraConfig], Forward] = load_model


@dataclass(frozen=True)
class ShardJob:
    """What a worker needs to make any shard of a set; small, and picklable."""

    plan: ShardPlan
    load: Callable[[SpectraConfig], Forward] = load_model

    def make(self, model: Forward, index: int) -> bytes:
        """Return the bytes of shard `index`, computed with `model`."""
        return encode(draw_shard(self.plan, model, index), self.plan, index)


def simulate_directory(
    out: str | Path,
    config: SpectraConfig,
    n: int,
    *,
    seed: int = 0,
    resume: bool = False,
    backend: Backend = Backend(),  # noqa: B008 (frozen)
) -> dict[str, Any]:
    """Simulate at least `n` spectra, in whole shards, into the directory `out`.

    Parameters
    ----------
    backend : where the shards are made, and what makes the forward model there

    Returns
    -------
    dict with the directory, its digest and seed, the shards made now and in all, and the rate in spectra per second
    """
    if n < 1:
        raise UserError(f"n: {n}; expected at least 1 spectrum")
    directory = Path(out)
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{out}: a file; expected a directory")
    model = backend.load(config)
    plan = plan_shards(config, seed, model)
    where = _default_place(config) if backend.where is None else backend.where
    shards = -(-n // SHARD_SIZE)
    directory.mkdir(parents=True, exist_ok=True)
    claims = Claims(directory)
    start = time.monotonic()
    try:
        todo = prepare(directory, plan, shards, claims, resume=resume)
        job = ShardJob(plan, backend.load)
        with _bar(shards, len(todo)) as advance:
            if isinstance(where, str):
                from kappaflow.simulation.cluster import fill_on_cluster

                fill_on_cluster(where, directory, job, todo, advance)
            elif where == 0:
                fill(directory, job, model, todo, claims, advance)
            elif todo:
                _fill_with_processes(min(where, len(todo)), directory, job, todo, advance)
    except BaseException:
        sweep(directory, claims)  # what a process that was ended in the middle of writing may have left
        raise
    finally:
        claims.close()
    return _told(directory, plan, shards, len(todo), time.monotonic() - start)


def _told(directory: Path, plan: ShardPlan, shards: int, made: int, seconds: float) -> dict[str, Any]:
    return {
        "out": str(directory),
        "digest": plan.digest,
        "seed": plan.seed,
        "shards": shards,
        "spectra": shards * SHARD_SIZE,
        "made": made,
        "discarded": 0,
        "seconds": round(seconds, 3),
        "spectra_per_second": round(made * SHARD_SIZE / seconds, 1) if made else None,
    }


@contextmanager
def _bar(shards: int, todo: int) -> Iterator[Callable[..., None]]:
    with progress("simulate", shards * SHARD_SIZE, unit="spectra", done=(shards - todo) * SHARD_SIZE) as advance:
        yield advance


def fill(
    directory: Path,
    job: ShardJob,
    model: Forward,
    todo: list[int],
    claims: Claims,
    advance: Callable[..., None],
) -> None:
    """Make the shards `todo`, leaving those that another process has claimed, and wait for these at the end.

    Writing (and its fsync) happens in a thread while the next shard is computed.
    """
    wanted = {i: _stamp(directory, i) for i in todo}
    with ThreadPoolExecutor(1, thread_name_prefix="writer") as writer:
        writing: Future[None] | None = None
        while wanted:
            others = []
            for index in list(wanted):
                name = shard_path(directory, index).name
                mine = claims.take(name)
                if _stamp(directory, index) != wanted[index]:  # another process has made it
                    if mine:
                        claims.release(name)
                elif not mine:
                    others.append(index)
                    continue
                else:
                    content = job.make(model, index)
                    if writing is not None:
                        writing.result()
                    writing = writer.submit(_write, directory, index, content, claims)
                del wanted[index]
                advance(SHARD_SIZE)
            if others:
                time.sleep(POLL)
        if writing is not None:
            writing.result()


def _stamp(directory: Path, index: int) -> tuple[int, int] | None:
    """Return what changes when a shard is replaced: its inode and time; None where there is none."""
    try:
        found = shard_path(directory, index).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _write(directory: Path, index: int, content: bytes, claims: Claims) -> None:
    path = shard_path(directory, index)
    write_bytes(path, content)
    claims.release(path.name)


def _default_place(config: SpectraConfig) -> int:
    """One process per processor; this process for a model that needs none, and on a GPU, which one fills."""
    if config.model == "toy":
        return 0
    import jax

    return processors() if jax.default_backend() == "cpu" else 0


def processors() -> int:
    """Count the processors that this process may use: on a shared node fewer than it has, where the system tells."""
    if hasattr(os, "sched_getaffinity"):  # Linux; macOS and Windows have no such thing
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# The processes share the processors, their threads need not: the first three are linear algebra's, as Dask starts its
# workers, the last is XLA's. (No byte depends on it: tables are prepared with one thread wherever that happens.)
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PJRT_NPROC": "1",
}


@contextmanager
def environment(settings: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the processes started inside."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _fill_with_processes(
    processes: int, directory: Path, job: ShardJob, todo: list[int], advance: Callable[..., None]
) -> None:
    """Fill the directory from several processes, which share the work by its claims."""
    before = {i: _stamp(directory, i) for i in todo}
    context = multiprocessing.get_context("spawn")  # a fork would inherit JAX's threads in an unknown state
    unwanted = context.RawValue("b", 0)  # without a lock, which a killed process could keep
    receiver, sender = context.Pipe(duplex=False)
    advance(0, note="loading and compiling")
    workers = [
        context.Process(target=_fill_alone, args=(directory, job, todo, unwanted, sender), daemon=True)
        for _ in range(processes)
    ]
    try:
        with environment(ONE_THREAD):
            for worker in workers:
                worker.start()
        while before:
            time.sleep(POLL)
            if any(worker.exitcode not in (None, 0) for worker in workers):
                raise receiver.recv() if receiver.poll() else UserError(f"{directory}: {DIED}")
            for index in [i for i, stamp in before.items() if _stamp(directory, i) != stamp]:
                del before[index]
                advance(SHARD_SIZE)
    finally:
        unwanted.value = 1
        for worker in workers:
            worker.join(timeout=10)  # time to end its shard
            worker.kill()
            worker.join()


DIED = (
    "a worker process died (killed, or out of memory); every finished shard is safe: run the same command with "
    "--resume, with fewer --workers if memory was short"
)


def _fill_alone(directory: Path, job: ShardJob, todo: list[int], unwanted: Any, sender: Connection) -> None:
    """Fill in a process of its own until all is done, another one failed, or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    parent = multiprocessing.parent_process()

    def advance(steps: int) -> None:
        if unwanted.value or parent is None or not parent.is_alive():
            raise _UnwantedError

    claims = Claims(directory)
    try:
        fill(directory, job, job.load(job.plan.config), todo, claims, advance)
    except _UnwantedError:
        pass
    except Exception as error:
        try:
            sender.send(error)
        except (pickle.PicklingError, TypeError, AttributeError):
            sender.send(RuntimeError(repr(error)))
        sys.exit(1)
    finally:
        claims.close()


class _UnwantedError(Exception):
    """Nobody wants the rest of the shards."""
