"""`serve`: take the folder, start the processes, answer until interrupted."""

import json
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

import uvicorn
from filelock import FileLock, Timeout
from starlette.applications import Starlette

from kappaflow.errors import UserError
from kappaflow.serve.child_process import Child
from kappaflow.serve.job_queue import JobQueue
from kappaflow.serve.job_shelf import JobShelf
from kappaflow.serve.serve_settings import ServeSettings
from kappaflow.serve.web_app import Desk, make_app

__all__ = ["app_of", "serve"]

_LONGEST_LOG = 10_000_000  # bytes; a longer one is begun anew


def app_of(folder: Path, settings: ServeSettings, token: str | None = None) -> Starlette:
    """Return the application on `folder`, with processes of its own."""
    shelf = JobShelf(folder, settings.limits)
    log = folder / "log.txt"
    if log.is_file() and log.stat().st_size > _LONGEST_LOG:
        log.unlink()
    worker = Child("kappaflow.serve.worker_process", [json.dumps(astuple(settings.networks))], log)
    reader = Child("kappaflow.serve.reader_process", [str(settings.limits.reader_memory)], log)
    return make_app(Desk(shelf, JobQueue(shelf, worker), reader), settings, token)


def serve(folder: Path, settings: ServeSettings, ready: Callable[[str], None] = print) -> None:
    """Serve `folder` until interrupted; `ready(address)` is called when the page can be opened."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(f"--out {folder}: another kappaflow serve uses it; stop that one, or choose another") from None
    try:
        with _listening(settings) as listener:
            port = listener.getsockname()[1]
            token = None if settings.is_local else secrets.token_urlsafe(16)
            address = f"http://{_name_to_open(settings)}:{port}/" + ("" if token is None else f"?token={token}")
            config = uvicorn.Config(
                app_of(folder, settings, token),
                log_level="error",
                access_log=False,
                server_header=False,
                limit_concurrency=400,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=2,
                ws="none",
                http="h11",
            )
            config.load()  # its imports now, so that the first answer does not wait for them
            ready(address)
            with suppress(KeyboardInterrupt):  # the way to end it
                uvicorn.Server(config).run(sockets=[listener])
    finally:
        lock.release()


def _name_to_open(settings: ServeSettings) -> str:
    """Return what to type for the host: for all addresses at once, a name given or this machine's own address."""
    host = settings.host
    if host in ("0.0.0.0", "::", ""):
        host = settings.names[0] if settings.names else _own_address()
    return f"[{host}]" if ":" in host else host


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: the system only says which address it would use
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _listening(settings: ServeSettings) -> socket.socket:
    """Return a socket that listens, or say in a line why there is none."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        where = f"{settings.host}:{settings.port}"
        raise UserError(
            f"serve: cannot listen on {where} ({error.strerror or error}); choose another --port (0: any free one)"
        ) from None
    return listener
