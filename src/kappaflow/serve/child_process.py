"""A process of ours that answers one request at a time: a line of JSON in, events and one answer out.

What opens an upload or loads torch and JAX runs there: it can be slow, fail or be ended, and the page still answers.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kappaflow.errors import UserError

__all__ = ["Child", "ChildEnded", "ChildLate"]

_START = 600.0  # seconds, on a machine that is very busy
_LINE = 2**24  # bytes of the longest line: a spectrum as read is a few times 10 kB


class ChildEnded(Exception):
    """The process ended before it answered."""


class ChildLate(Exception):
    """No answer in time; the process was ended."""


class Child:
    """`python -m MODULE ARGUMENTS...`, started when first asked and again after it ended.

    It ends with us, however we end: it leaves when its input closes. What it prints goes to `log`.
    """

    def __init__(self, module: str, arguments: Sequence[str], log: Path) -> None:
        self.command = (sys.executable, "-m", module, *arguments)
        self.log = log
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process, if it is not running, so that the first request finds it ready."""
        async with self._turn:
            await self._running()

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            with self.log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self.command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    limit=_LINE,
                    start_new_session=True,  # Ctrl-C is for the server, which then closes our input
                )
            await self._greeted(self._process)
        return self._process

    async def _greeted(self, process: asyncio.subprocess.Process) -> None:
        """Wait until the process is ready: what it imports before is not part of any request's time."""
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_START):
                if not await process.stdout.readline():
                    raise ChildEnded(f"the process did not start (code {await process.wait()})")
        except TimeoutError:
            await self.stop()
            raise ChildEnded(f"the process did not start within {_START:.0f} s") from None
        except asyncio.CancelledError:
            await self.stop()
            raise

    async def ask(
        self, request: dict[str, Any], seconds: float, heard: Callable[[dict[str, Any]], None] = lambda event: None
    ) -> dict[str, Any]:
        """Send `request`, hand its events to `heard`, return its answer.

        Raises `UserError` with what the process refused, `ChildLate` after `seconds`, `ChildEnded` where it ended or
        failed by a mistake of ours, which its log then tells.
        """
        async with self._turn:
            process = await self._running()
            try:
                async with asyncio.timeout(seconds):
                    return await self._answer(process, request, heard)
            except TimeoutError:
                await self.stop()
                raise ChildLate from None
            except asyncio.CancelledError:
                await self.stop()  # an answer that nobody waits for would be taken for the next one
                raise

    async def _answer(
        self, process: asyncio.subprocess.Process, request: dict[str, Any], heard: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            await process.stdin.drain()
            while line := await process.stdout.readline():
                message = json.loads(line)
                if "event" in message:
                    heard(message["event"])
                elif "refused" in message:
                    raise UserError(message["refused"])
                elif "broken" in message:
                    raise ChildEnded(message["broken"])
                else:
                    return message["answer"]
        except (ConnectionError, ValueError) as error:
            if isinstance(error, UserError):
                raise
        code = await process.wait()
        raise ChildEnded(f"the process ended with code {code}")

    async def stop(self) -> None:
        """End the process now."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)  # it leads a session: processes it started end with it
                else:
                    process.kill()
            await process.wait()
