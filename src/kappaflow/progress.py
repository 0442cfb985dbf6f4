"""One progress bar for every long command: what, how far, rate, time left; on stderr, silent off a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

__all__ = ["progress"]


class _Rate(ProgressColumn):
    """Steps per second, in the unit of the task."""

    def render(self, task: Task) -> Text:
        """Draw the column."""
        speed = task.finished_speed or task.speed
        unit = task.fields.get("unit", "it")
        return Text("" if speed is None else f"{speed:,.1f} {unit}/s", style="cyan")


@contextmanager
def progress(what: str, total: int, *, unit: str = "it", done: int = 0) -> Iterator[Callable[..., None]]:
    """Show a bar while the body runs; the yielded `advance(steps=1, note="")` moves it."""
    console = Console(file=sys.stderr)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total, completed=done, unit=unit, note="")

        def advance(steps: int = 1, note: str = "") -> None:
            bar.update(task, advance=steps, note=note)

        yield advance
