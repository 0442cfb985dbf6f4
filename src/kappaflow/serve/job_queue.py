"""Jobs wait their turn; one runs at a time, in the worker process, within its time."""

import asyncio
from dataclasses import replace
from typing import Any

from kappaflow.errors import UserError
from kappaflow.serve.child_process import Child, ChildEnded, ChildLate
from kappaflow.serve.job_record import Job
from kappaflow.serve.job_shelf import JobShelf, now

__all__ = ["JobQueue"]


class JobQueue:
    """The queue of a shelf: jobs `queued` on it, the oldest first, found again after a restart."""

    def __init__(self, shelf: JobShelf, worker: Child) -> None:
        self.shelf, self.worker = shelf, worker
        self.progress: dict[str, Any] = {}  # of the running job
        self._wake = asyncio.Event()
        queued = sorted((job for job in shelf if job.state == "queued"), key=lambda job: (job.created, job.id))
        self._waiting = [job.id for job in queued]
        self._current: str | None = None
        self._asking: asyncio.Task[dict[str, Any]] | None = None
        self._cancelled = False
        self._warming: asyncio.Task[None] | None = None

    def add(self, job: Job) -> Job:
        """Put a job at the end."""
        if len(self._waiting) >= self.shelf.limits.waiting:
            raise UserError(f"{len(self._waiting)} jobs are waiting, the limit; try again when some are done")
        job = self.shelf.save(replace(job, state="queued", error=None))
        self._waiting.append(job.id)
        self._wake.set()
        return job

    def ahead(self, job: Job) -> int:
        """How many jobs come before this one."""
        return self._waiting.index(job.id) + (self._current is not None) if job.id in self._waiting else 0

    async def cancel(self, job: Job) -> Job:
        """Take a job out of the queue, or end the worker that runs it."""
        if job.id in self._waiting:
            self._waiting.remove(job.id)
            return self.shelf.save(replace(job, state="cancelled", finished=now()))
        if job.id == self._current:
            self._cancelled = True
            if self._asking is not None:
                self._asking.cancel()
            while job.id == self._current:
                await asyncio.sleep(0.02)
        return self.shelf[job.id]

    def warm(self) -> None:
        """Let the worker load its networks while the user still types."""
        if self._warming is None or (self._warming.done() and not self.worker.alive):
            self._warming = asyncio.create_task(self._warm())

    async def _warm(self) -> None:
        try:
            await self.worker.ask({"warm": True}, self.shelf.limits.job_seconds)
        except (UserError, ChildEnded, ChildLate):
            pass  # the first job will meet the same, and say so

    async def run(self) -> None:
        """Run jobs, for ever."""
        while True:
            while self._waiting:
                self._current = self._waiting.pop(0)
                try:
                    await self._run(self.shelf[self._current])
                except OSError as error:  # a full disk: the next job may be smaller, or somebody makes room
                    told = f"the server's disk: {error.strerror or error}"
                    self.shelf.remember(replace(self.shelf[self._current], state="failed", error=told))
                finally:
                    self._current, self.progress = None, {}
            self._wake.clear()
            await self._wake.wait()

    async def _run(self, job: Job) -> None:
        job = self.shelf.save(replace(job, state="running", started=now(), attempts=job.attempts + 1))
        self._cancelled = False
        limit = self.shelf.limits.job_seconds
        folder = self.shelf.folder(job).resolve()
        try:
            self._asking = asyncio.create_task(self.worker.ask({"folder": str(folder)}, limit, self.progress.update))
            answer = await self._asking
        except asyncio.CancelledError:
            if not self._cancelled:  # the server ends: the job is found running when it starts again, and queued
                self._asking.cancel() if self._asking is not None else None
                raise
            done = replace(job, state="cancelled")
        except UserError as error:
            done = replace(job, state="failed", error=str(error))
        except ChildLate:
            told = f"took longer than {limit / 60:.3g} minutes, the limit (`--time-limit`); nothing was kept"
            done = replace(job, state="failed", error=told)
        except ChildEnded as error:
            told = f"ended by a mistake of kappaflow's own ({error}); the server's {self.worker.log.name} has more"
            done = replace(job, state="failed", error=told)
        else:
            rows = tuple(answer["rows"])
            failures = [row["error"] for row in rows if row["verdict"] == "error"]
            whole = len(failures) < len(rows)
            done = replace(job, state="done" if whole else "failed", outcomes=rows)
            done = done if whole else replace(done, error="; ".join(failures)[:1000])
        self.shelf.account(self.shelf.save(replace(done, finished=now())))
