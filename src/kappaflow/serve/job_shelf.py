"""All jobs of a folder: kept in memory, saved whole on every change, found again after a restart."""

import json
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kappaflow.errors import UserError
from kappaflow.serve.job_record import Job
from kappaflow.serve.serve_settings import Limits
from kappaflow.storage import written_whole

__all__ = ["JobShelf", "NoSuch", "now"]

_DRAFT_DAYS = 7  # after which an upload that nobody ran is removed
_ATTEMPTS = 3  # a job that ends the server this many times is not tried again


class NoSuch(LookupError):
    """What a client asked for is not there."""


def now() -> str:
    """Return the time, in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class JobShelf:
    """Jobs by their identifier, in the order in which they were made; every path in it is the server's own.

    A job lives in ROOT/ID: job.json, uploads/KEY, curves/KEY.json (for the page), inputs/ (the uploads under readable
    names), result/ (as `kappaflow retrieve --out`), everything.zip.
    """

    def __init__(self, root: Path, limits: Limits) -> None:
        self.root, self.limits = root, limits
        root.mkdir(parents=True, exist_ok=True)
        self._jobs: dict[str, Job] = {}
        for path in sorted(root.glob("*/job.json")):
            try:
                job = Job.from_dict(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # not ours, or damaged: left alone
            if job.id == path.parent.name:
                self._jobs[job.id] = job
        self._bytes = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        for job in self:
            self._take_up(job)

    def _take_up(self, job: Job) -> None:
        """Bring a job into order after a restart: what ran is queued again, forgotten drafts are removed."""
        if job.state == "running":
            if job.attempts >= _ATTEMPTS:
                told = f"ended unfinished {job.attempts} times, the server with it; not tried again"
                self.save(replace(job, state="failed", finished=now(), error=told))
            else:
                self.save(replace(job, state="queued"))
        oldest = (datetime.now(UTC) - timedelta(days=_DRAFT_DAYS)).strftime("%Y-%m-%dT%H:%M:%SZ")
        if job.state == "draft" and job.created < oldest:
            self.remove(job.id)

    def __iter__(self) -> Iterator[Job]:
        yield from list(self._jobs.values())

    def __getitem__(self, identifier: str) -> Job:
        if identifier not in self._jobs:  # a key of a dictionary, never a part of a path
            raise NoSuch("no such job; it may have been removed")
        return self._jobs[identifier]

    def __contains__(self, identifier: str) -> bool:
        return identifier in self._jobs

    def folder(self, job: Job) -> Path:
        """Return the job's own folder."""
        return self.root / job.id

    def new(self) -> Job:
        """Make an empty job, with an identifier that nobody can guess."""
        if sum(job.state == "draft" for job in self) >= self.limits.drafts:
            raise UserError(f"{self.limits.drafts} uploads wait to be run; run or remove some first")
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        job = Job(f"{stamp}-{secrets.token_hex(8)}", now())
        (self.root / job.id / "uploads").mkdir(parents=True)
        return self.save(job)

    def save(self, job: Job) -> Job:
        """Write the job whole, and remember it."""
        with written_whole(self.root / job.id / "job.json") as part:
            part.write_text(json.dumps(job.to_dict(), allow_nan=False) + "\n", encoding="utf-8")
        return self.remember(job)

    def remember(self, job: Job) -> Job:
        """Keep the job in memory alone, where the disk cannot take it."""
        self._jobs[job.id] = job
        return job

    def remove(self, identifier: str) -> None:
        """Remove a job and all its files."""
        job = self._jobs.pop(identifier)
        self._bytes -= self._size(job)
        shutil.rmtree(self.folder(job), ignore_errors=True)

    def _size(self, job: Job) -> int:
        return sum(path.stat().st_size for path in self.folder(job).rglob("*") if path.is_file())

    def account(self, job: Job) -> None:
        """Account for what running a job has left behind; results are not refused."""
        results = self.folder(job) / "result", self.folder(job) / "everything.zip"
        found = [path for top in results for path in (top.rglob("*") if top.is_dir() else [top])]
        self._bytes += sum(path.stat().st_size for path in found if path.is_file())

    def charge(self, count: int) -> None:
        """Account for `count` bytes more (or fewer), or refuse them where the folder would be too full."""
        if count > 0 and self._bytes + count > self.limits.folder_bytes:
            limit = self.limits.folder_bytes / 1e9
            raise UserError(f"the folder of results holds {limit:.3g} GB, the limit; remove results first")
        self._bytes += count
