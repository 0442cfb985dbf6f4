"""One progress bar for every long command: what, how far, rate, time left; on stderr, silent off a terminal.

Where one is shown already, what begins inside it is a second line below it, for as long as it lasts.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

__all__ = ["Step", "listened_to", "no_bars", "progress"]


@dataclass
class Step:
    """How far a bar is."""

    what: str
    done: int
    total: int
    note: str = ""


Listener = Callable[[list[Step]], None]
_listeners: list[Listener] = []
_under_way: list[Step] = []  # the outermost first


@contextmanager
def listened_to(listener: Listener) -> Iterator[None]:
    """Tell `listener` of all bars under way, whenever one moves while the body runs, on a terminal or not."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class _Rate(ProgressColumn):
    """Steps per second, in the unit of the task."""

    def render(self, task: Task) -> Text:
        """Draw the column."""
        speed = task.finished_speed or task.speed
        unit = task.fields.get("unit", "it")
        return Text("" if speed is None else f"{speed:,.1f} {unit}/s", style="cyan")


_shown: list[Progress] = []  # the bars on the screen, at most one
_silent: list[bool] = []  # not empty: this process shows none


def no_bars() -> None:
    """Show no bar in this process from now on: a worker whose parent has one."""
    _silent.append(True)


@contextmanager
def progress(what: str, total: int, *, unit: str = "it", done: int = 0) -> Iterator[Callable[..., None]]:
    """Show a bar while the body runs; the yielded `advance(steps=1, note="")` moves it, and listeners hear of it.

    More steps than `total` make it longer.
    """
    step = Step(what, done, total)

    def tell() -> None:
        for listener in _listeners:
            listener(_under_way)

    with _line(what, total, unit, done) as (bar, task):

        def advance(steps: int = 1, note: str = "") -> None:
            row = next(t for t in bar.tasks if t.id == task)
            if row.total is not None and row.completed + steps > row.total:
                bar.update(task, total=row.completed + steps)
            bar.update(task, advance=steps, note=note)
            step.done, step.note = step.done + steps, note
            tell()

        _under_way.append(step)
        tell()
        try:
            yield advance
        finally:
            _under_way.remove(step)


@contextmanager
def _line(what: str, total: int, unit: str, done: int) -> Iterator[tuple[Progress, TaskID]]:
    """Yield the bars on the screen and a line of them: the first, or one that is there as long as the body runs."""
    if _shown:
        bar = _shown[-1]
        task = bar.add_task(what, total=total, completed=done, unit=unit, note="")
        try:
            yield bar, task
        finally:
            bar.remove_task(task)
        return
    console = Console(file=sys.stderr)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=bool(_silent) or not console.is_terminal) as bar:
        _shown.append(bar)
        try:
            yield bar, bar.add_task(what, total=total, completed=done, unit=unit, note="")
        finally:
            _shown.remove(bar)
