"""How far training is, and the learning rate there."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["SCHEDULES", "Course"]

WARM = 0.01  # share of a run over which a cosine schedule rises


@dataclass(frozen=True)
class Course:
    """Progress from 0 to 1 as a straight line in steps: from `start` at `progress` to 1 at `end`.

    A plan is fixed up front in steps, so that a resumed run is the run. Only a budget in minutes, asked for and
    recorded, draws a new line from where it is to where the measured rate says it will end.
    """

    end: int
    start: int = 0
    progress: float = 0.0

    def at(self, step: int) -> float:
        """Progress at `step`, at most 1."""
        share = (step - self.start) / max(self.end - self.start, 1)
        return min(1.0, self.progress + (1 - self.progress) * share)

    def redrawn(self, step: int, seconds_left: float, seconds_per_step: float) -> Course:
        """From here on, end when `seconds_left` are over."""
        left = max(int(seconds_left / max(seconds_per_step, 1e-9)), 1)
        return Course(end=step + left, start=step, progress=self.at(step))


def _constant(progress: float) -> float:
    return 1.0


def _cosine(progress: float) -> float:
    return min(1.0, (progress + 1e-3) / WARM) * 0.5 * (1 + math.cos(math.pi * progress))


SCHEDULES: dict[str, Callable[[float], float]] = {"constant": _constant, "cosine": _cosine}
