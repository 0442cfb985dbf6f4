"""An upload becomes a file under the server's own name, counted while it streams."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from kappaflow.errors import UserError
from kappaflow.serve.job_shelf import JobShelf
from kappaflow.serve.serve_settings import Limits

__all__ = ["TooLarge", "receive"]


class TooLarge(UserError):
    """An upload over the limit."""


async def receive(stream: AsyncIterator[bytes], folder: Path, shelf: JobShelf) -> tuple[str, int]:
    """Write `stream` to a new file in `folder`; returns its name, made here, and its size.

    What is too large or stalls is removed as soon as that is seen, whatever its header promised.
    """
    limits = shelf.limits
    key = f"upload-{secrets.token_hex(8)}"
    path, size = folder / key, 0
    try:
        with path.open("xb") as file:
            async for chunk in _unstalled(stream, limits):
                if size + len(chunk) > limits.file_bytes:
                    raise TooLarge(f"over {limits.file_bytes / 1e6:g} MB; expected a 1-D spectrum")
                shelf.charge(len(chunk))
                size += len(chunk)
                file.write(chunk)
        if size == 0:
            raise UserError("empty; expected a spectrum")
    except BaseException:
        path.unlink(missing_ok=True)
        shelf.charge(-size)
        raise
    return key, size


async def _unstalled(stream: AsyncIterator[bytes], limits: Limits) -> AsyncIterator[bytes]:
    source = aiter(stream)
    while True:
        try:
            yield await asyncio.wait_for(anext(source), limits.stall_seconds)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise UserError(f"no data for {limits.stall_seconds:g} s; try again") from None
