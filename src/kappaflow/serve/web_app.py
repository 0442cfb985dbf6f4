"""The routes: what the page asks of the server, and what it gets."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

import kappaflow
from kappaflow.errors import UserError
from kappaflow.serve.child_process import Child, ChildEnded, ChildLate
from kappaflow.serve.guard import Guard
from kappaflow.serve.job_queue import JobQueue
from kappaflow.serve.job_record import METHODS, Job, JobObject, Upload, checked_hints, plain_name
from kappaflow.serve.job_request import asked_of, objects_of
from kappaflow.serve.job_shelf import JobShelf, NoSuch
from kappaflow.serve.result_files import result_file
from kappaflow.serve.serve_settings import ServeSettings
from kappaflow.serve.uploading import TooLarge, receive
from kappaflow.serve.web_page import REPORT_POLICY, page, page_policy
from kappaflow.storage import written_whole

__all__ = ["make_app"]

_LARGEST_BODY = 1_000_000  # bytes of JSON
_SHOWN = 100  # jobs in the list


@dataclass
class Desk:
    """What the routes work with: the jobs, their queue, and the process that reads uploads."""

    shelf: JobShelf
    queue: JobQueue
    reader: Child

    def told(self, job: Job, *, whole: bool = True) -> dict[str, Any]:
        """Return a job for the page, its progress and place in the queue included."""
        plain = job.to_dict()
        if not whole:
            plain["uploads"] = [{"key": one.key, "name": one.name} for one in job.uploads]
        running = job.state == "running"
        plain |= {"progress": dict(self.queue.progress) if running else None, "ahead": self.queue.ahead(job)}
        return plain

    async def read(self, job: Job, upload: Upload) -> Upload:
        """Let the reader look at an upload; what it cannot read is said in the upload's `error`."""
        path = (self.shelf.folder(job) / "uploads" / upload.key).resolve()
        request = {"path": str(path), "name": upload.name, "hints": upload.hints}
        limit = self.shelf.limits.read_seconds
        try:
            found = await self.reader.ask(request, limit)
        except UserError as error:
            return replace(upload, as_read=None, error=str(error))
        except ChildLate:
            return replace(upload, as_read=None, error=f"{upload.name}: not read within {limit:g} s; is it a spectrum?")
        except ChildEnded:
            return replace(
                upload, as_read=None, error=f"{upload.name}: cannot be read; expected FITS, ECSV, CSV or text"
            )
        if job.id not in self.shelf:
            raise NoSuch("the job was removed meanwhile")
        # The curve stays beside the job: with many files job.json, written at every change, would be all curves.
        with written_whole(self._curve(job, upload)) as part:
            part.write_text(json.dumps(found.pop("curve")), encoding="utf-8")
        return replace(upload, as_read=found, error=None)

    def shown(self, job: Job, upload: Upload) -> dict[str, Any]:
        """Return an upload for the page, with its curve."""
        plain = asdict(upload)
        if upload.as_read is not None:
            plain["as_read"]["curve"] = json.loads(self._curve(job, upload).read_text(encoding="utf-8"))
        return plain

    def _curve(self, job: Job, upload: Upload) -> Path:
        return self.shelf.folder(job) / "curves" / f"{upload.key}.json"

    async def check(self, objects: tuple[JobObject, ...]) -> None:
        """Refuse a distance that makes no sense."""
        try:
            await self.reader.ask({"objects": [asdict(one) for one in objects]}, self.shelf.limits.read_seconds)
        except (ChildLate, ChildEnded):
            raise UserError("the reader did not answer; try again") from None


def make_app(desk: Desk, settings: ServeSettings, token: str | None = None) -> Starlette:
    """Return the application; its queue runs as long as it does."""

    @asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        queue = asyncio.create_task(desk.queue.run())
        started = asyncio.create_task(desk.reader.start())
        yield
        for task in (queue, started):
            task.cancel()
            with suppress(asyncio.CancelledError, ChildEnded):
                await task
        await desk.reader.stop()
        await desk.queue.worker.stop()

    def bound(handler: Callable[[Desk, Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await handler(desk, request)

        return endpoint

    routes = [Route(path, bound(handler), methods=[method]) for method, path, handler in _ROUTES]
    handlers: dict[Any, Any] = {
        TooLarge: lambda request, error: _refused(413, error),
        UserError: lambda request, error: _refused(400, error),
        NoSuch: lambda request, error: _refused(404, error),
        HTTPException: lambda request, error: _refused(error.status_code, error.detail),
        ClientDisconnect: lambda request, error: Response(status_code=400),
        OSError: lambda request, error: _refused(507, f"the server's disk: {error.strerror or error}"),
    }
    for make in (page, page_policy):
        make()  # now rather than at the first request
    guard = Middleware(Guard, settings=settings, token=token)
    app = Starlette(routes=routes, lifespan=running, exception_handlers=handlers, middleware=[guard])
    app.state.desk = desk
    return app


def _refused(status: int, error: Exception | str) -> JSONResponse:
    return JSONResponse({"error": str(error)}, status)


async def _body(request: Request) -> dict[str, Any]:
    """Return a small JSON object from the request's body."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > _LARGEST_BODY:
            raise TooLarge("over 1 MB of JSON; expected a few lines")
    try:
        found = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        raise UserError("not JSON; expected an object") from None
    if not isinstance(found, dict):
        raise UserError("not an object of JSON")
    return found


def _job(desk: Desk, request: Request, *, draft: bool = False) -> Job:
    job = desk.shelf[request.path_params["id"]]
    if draft and job.state != "draft":
        raise UserError("this job has been started; drop the files again for another one")
    return job


async def _page(desk: Desk, request: Request) -> Response:
    return Response(page(), media_type="text/html", headers={"content-security-policy": page_policy()})


async def _state(desk: Desk, request: Request) -> Response:
    jobs = sorted((job for job in desk.shelf if job.state != "draft"), key=lambda job: job.id, reverse=True)
    limits = asdict(desk.shelf.limits)
    told = [desk.told(job, whole=False) for job in jobs[:_SHOWN]]
    return JSONResponse({"version": kappaflow.__version__, "limits": limits, "methods": METHODS, "jobs": told})


async def _new(desk: Desk, request: Request) -> Response:
    return JSONResponse(desk.told(desk.shelf.new()), 201)


async def _show(desk: Desk, request: Request) -> Response:
    job = _job(desk, request)
    told = desk.told(job)
    if job.state == "draft":
        told["uploads"] = [desk.shown(job, one) for one in job.uploads]
    return JSONResponse(told)


async def _upload(desk: Desk, request: Request) -> Response:
    job = _job(desk, request, draft=True)
    limits = desk.shelf.limits
    if len(job.uploads) >= limits.files:
        raise UserError(f"{limits.files} files in this job, the limit; run it, and drop the others into another one")
    promised = request.headers.get("content-length", "0")
    if not promised.isdecimal() or len(promised) > 15 or int(promised) > limits.file_bytes:
        raise TooLarge(f"over {limits.file_bytes / 1e6:g} MB; expected a 1-D spectrum")
    name = plain_name(request.query_params.get("name", "")[:1000])
    key, size = await receive(request.stream(), desk.shelf.folder(job) / "uploads", desk.shelf)
    return JSONResponse(desk.shown(job, await _kept(desk, job, Upload(key, name, size))), 201)


async def _kept(desk: Desk, job: Job, upload: Upload) -> Upload:
    """Read a new upload and add it to its job, as that is by then."""
    desk.queue.warm()
    upload = await desk.read(job, upload)
    desk.shelf.save(desk.shelf[job.id].with_upload(upload))
    return upload


async def _example(desk: Desk, request: Request) -> Response:
    """Put the packaged spectrum into a draft."""
    from importlib.resources import files

    job = _job(desk, request, draft=True)
    name = "wolf1130c.ecsv"
    data = (files("kappaflow.data") / name).read_bytes()

    async def stream() -> AsyncIterator[bytes]:
        yield data

    key, size = await receive(stream(), desk.shelf.folder(job) / "uploads", desk.shelf)
    return JSONResponse(desk.shown(job, await _kept(desk, job, Upload(key, name, size))), 201)


async def _read_again(desk: Desk, request: Request) -> Response:
    job = _job(desk, request, draft=True)
    upload = job.upload(request.path_params["key"])
    hints = checked_hints((await _body(request)).get("hints", {}))
    upload = await desk.read(job, replace(upload, hints=hints))
    desk.shelf.save(desk.shelf[job.id].with_upload(upload))
    return JSONResponse(desk.shown(job, upload))


async def _drop(desk: Desk, request: Request) -> Response:
    job = _job(desk, request, draft=True)
    upload = job.upload(request.path_params["key"])
    desk.shelf.save(replace(job, uploads=tuple(one for one in job.uploads if one.key != upload.key)))
    (desk.shelf.folder(job) / "uploads" / upload.key).unlink(missing_ok=True)
    desk.shelf.charge(-upload.size)
    return JSONResponse({})


async def _run(desk: Desk, request: Request) -> Response:
    job = _job(desk, request, draft=True)
    body = await _body(request)
    objects, asked = objects_of(job, body.get("objects")), asked_of(body.get("asked"))
    await desk.check(objects)
    job = _job(desk, request, draft=True)  # as it is now: a second request may have been quicker
    return JSONResponse(desk.told(desk.queue.add(replace(job, objects=objects, asked=asked))), 202)


async def _cancel(desk: Desk, request: Request) -> Response:
    return JSONResponse(desk.told(await desk.queue.cancel(_job(desk, request))))


async def _remove(desk: Desk, request: Request) -> Response:
    job = await desk.queue.cancel(_job(desk, request))
    desk.shelf.remove(job.id)
    return JSONResponse({})


async def _everything(desk: Desk, request: Request) -> Response:
    job = _job(desk, request)
    path = desk.shelf.folder(job) / "everything.zip"
    if job.state != "done" or not path.is_file():
        raise NoSuch("this job has no results")
    return FileResponse(path, media_type="application/zip", filename=f"kappaflow-{job.id[:15]}.zip")


async def _result(desk: Desk, request: Request) -> Response:
    job = _job(desk, request)
    path, media = result_file(desk.shelf.folder(job) / "result", request.path_params["path"])
    headers = {"content-security-policy": REPORT_POLICY}
    return FileResponse(path, media_type=media, headers=headers)


_ROUTES: tuple[tuple[str, str, Callable[[Desk, Request], Awaitable[Response]]], ...] = (
    ("GET", "/", _page),
    ("GET", "/api/state", _state),
    ("POST", "/api/jobs", _new),
    ("GET", "/api/jobs/{id}", _show),
    ("DELETE", "/api/jobs/{id}", _remove),
    ("POST", "/api/jobs/{id}/files", _upload),
    ("POST", "/api/jobs/{id}/example", _example),
    ("POST", "/api/jobs/{id}/files/{key}/read", _read_again),
    ("DELETE", "/api/jobs/{id}/files/{key}", _drop),
    ("POST", "/api/jobs/{id}/run", _run),
    ("POST", "/api/jobs/{id}/cancel", _cancel),
    ("GET", "/jobs/{id}/everything.zip", _everything),
    ("GET", "/jobs/{id}/{path:path}", _result),
)
