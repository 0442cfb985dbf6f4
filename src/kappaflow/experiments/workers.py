"""Processes that make steps: on this machine one per core, each with one thread; or the workers of a Dask cluster.

A worker is started once and makes one step after the other. It ends with its parent, whatever ended that: every file is
written whole, so nothing is spoilt, and the next run goes on from the last saved state.
"""

from __future__ import annotations

import multiprocessing
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from kappaflow.errors import UserError
from kappaflow.experiments.making import make_step
from kappaflow.experiments.steps import Step
from kappaflow.experiments.store import StepStore
from kappaflow.processes import serve_parent
from kappaflow.simulation.cluster import connect
from kappaflow.simulation.run import ONE_THREAD, environment, processors

__all__ = ["DaskWorkers", "LocalWorkers", "StepTask", "Task", "Workers", "chosen_workers"]

PAUSE = 0.5  # s between two reports of a worker

Task = Callable[[Callable[[float], None]], Any]  # called with a report of the share done; must be picklable


class Workers(Protocol):
    """What the order of steps asks of those who make them."""

    count: int

    def submit(self, task: Task) -> int:
        """Start a task on a free worker; its number."""
        ...

    def events(self) -> Iterator[tuple[int, str, Any]]:
        """Wait, then yield (number, "share", share done) or (number, "done", what the task returned)."""
        ...


class StepTask:
    """A step to be made in a store."""

    def __init__(self, step: Step, folder: Path) -> None:
        self.step, self.folder = step, folder

    def __call__(self, report: Callable[[float], None]) -> None:
        """Make the step."""
        if not self.folder.is_dir():
            raise UserError(
                f"worker: there is no {self.folder} here; --scheduler trains and draws on the workers, which have to "
                "see --out: choose a folder on a file system that they share"
            )
        make_step(self.step, StepStore(self.folder), report)


class LocalWorkers:
    """Processes on this machine; use as a context."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or processors()
        self._context = multiprocessing.get_context("spawn")  # a fork would inherit torch's and JAX's threads
        self._processes: list[Any] = []
        self._lines: list[Connection] = []
        self._task: dict[int, int] = {}  # worker -> number of its task
        self._next = 0

    def __enter__(self) -> LocalWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        self._processes, self._lines, self._task = [], [], {}

    def _start(self) -> int:
        mine, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
        with environment(ONE_THREAD):
            process.start()
        theirs.close()
        self._processes.append(process)
        self._lines.append(mine)
        return len(self._processes) - 1

    def submit(self, task: Task) -> int:
        """See `Workers`."""
        free = [i for i in range(len(self._processes)) if i not in self._task]
        worker = free[0] if free else self._start()
        self._next += 1
        self._task[worker] = self._next
        self._lines[worker].send(task)
        return self._next

    def events(self) -> Iterator[tuple[int, str, Any]]:
        """See `Workers`."""
        busy = {self._lines[i]: i for i in self._task}
        for line in wait(list(busy)):
            worker = busy[line]  # type: ignore[index]
            number = self._task[worker]
            try:
                what, value = self._lines[worker].recv()
            except (EOFError, ConnectionResetError):
                raise UserError(
                    "a worker process died (killed, or out of memory); every finished step is safe: run the same "
                    "command again"
                ) from None
            if what == "error":
                raise value
            if what == "done":
                del self._task[worker]
            yield number, what, value


def _serve(line: Connection) -> None:
    """Do one task after the other until the parent is gone."""
    serve_parent()
    while True:
        task = line.recv()
        try:
            line.send(("done", task(_Throttled(line))))
        except Exception as error:
            try:
                pickle.loads(pickle.dumps(error))
                line.send(("error", error))
            except Exception:  # some errors cannot travel
                line.send(("error", RuntimeError(repr(error))))


class _Throttled:
    """Reports of the share done, a few per second at most."""

    def __init__(self, line: Connection) -> None:
        self._line, self._last = line, 0.0

    def __call__(self, share: float) -> None:
        now = time.monotonic()
        if now - self._last > PAUSE:
            self._line.send(("share", share))
            self._last = now


class DaskWorkers:
    """The workers of a Dask cluster, which share the file system of --out; use as a context."""

    def __init__(self, address: str) -> None:
        self._client = connect(address)
        self.count = max(1, sum(self._client.nthreads().values()))
        self._futures: dict[int, Any] = {}
        self._next = 0

    def __enter__(self) -> DaskWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def submit(self, task: Task) -> int:
        """See `Workers`."""
        self._next += 1
        self._futures[self._next] = self._client.submit(_run_quietly, task, pure=False)
        return self._next

    def events(self) -> Iterator[tuple[int, str, Any]]:
        """See `Workers`."""
        from distributed import KilledWorker

        while not (done := [number for number, future in self._futures.items() if future.done()]):
            time.sleep(PAUSE)
        for number in done:
            try:
                value = self._futures.pop(number).result()
            except (KilledWorker, CancelledError):
                raise UserError(
                    "a worker of the cluster died, or its scheduler; every finished step is safe: run the same command "
                    "again"
                ) from None
            yield number, "done", value


def _run_quietly(task: Task) -> Any:
    return task(lambda share: None)


@contextmanager
def chosen_workers(scheduler: str | None, count: int | None = None) -> Iterator[Workers]:
    """Yield the workers of a cluster, or of this machine."""
    with DaskWorkers(scheduler) if scheduler else LocalWorkers(count) as workers:
        yield workers
