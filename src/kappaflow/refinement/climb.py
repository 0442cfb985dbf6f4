"""Levenberg and Marquardt's way to a maximum, for several starts in step: their expansions are computed together.

Beside the damping of all coordinates each has its own: one that swings across a kink (two knots of one temperature), or
that overshoots where the model is flat (no rotation), is held back while the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kappaflow.refinement.likelihood import Expansion

__all__ = ["Climb", "climb"]

LARGEST = 1.5  # of a step in any coordinate
HOPELESS = 1e9  # damping
GROWTH = 4.0  # of the damping, at the first step that fails
SWING = 0.1  # of a coordinate: one that moves less is not to blame
PATIENCE = 8  # steps that together must gain something: at a kink of the density single ones may gain little for long


@dataclass(frozen=True, eq=False)
class Climb:
    """Where a climb is: to be continued by another call."""

    z: np.ndarray
    here: Expansion | None = None  # about z, once a step has been taken
    damping: float = 1e-2  # of the information's diagonal
    growth: float = GROWTH  # of the damping at the next step that fails
    stiff: np.ndarray | float = 0.0  # (k,), damping of single coordinates on top of it, of their marginal precision
    last: np.ndarray | float = 0.0  # (k,), the last step taken
    steps: int = 0
    converged: bool = False
    trail: tuple[float, ...] = ()  # ln density before each of the last `PATIENCE` steps

    @property
    def value(self) -> float:
        """Ln density."""
        return -np.inf if self.here is None else self.here.value

    def stalled(self, tolerance: float) -> bool:
        """Whether the last steps have together gained less than `tolerance`, taken or not."""
        return len(self.trail) == PATIENCE and self.value - self.trail[0] < tolerance

    @property
    def foreseen(self) -> float:
        """Ln density after a full step, were it quadratic."""
        return -np.inf if self.here is None else self.here.value + _newton_gain(self.here)


def climb(
    expand: Callable[[np.ndarray], list[Expansion]],
    starts: Sequence[Climb],
    *,
    steps: int,
    tolerance: float = 0.02,
    worth: Callable[[Climb], bool] = lambda _: True,
    inside: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> list[Climb]:
    """Take at most `steps` steps uphill from every start.

    Parameters
    ----------
    expand : value, gradient and a positive definite information matrix at, or near, points (b, k)
    starts : where to begin
    steps : at most; each is one expansion, taken or not
    tolerance : a step that gains, and a full step that expects to gain, less than this ends the climb; so do
        `PATIENCE` steps that gain less than this together
    worth : whether a climb is worth another step
    inside : draws points (k,) into the region where the density is meant
    """
    runs = list(starts)
    fresh = [i for i, run in enumerate(runs) if run.here is None]
    if fresh:
        for i, here in zip(fresh, expand(np.stack([runs[i].z for i in fresh])), strict=True):
            runs[i] = replace(runs[i], z=here.z, here=here)
    for _ in range(steps):
        active = [i for i, run in enumerate(runs) if not (run.converged or run.stalled(tolerance)) and worth(run)]
        if not active:
            break
        tried = [inside(runs[i].z + _step(runs[i])) for i in active]
        for i, z, there in zip(active, tried, expand(np.stack(tried)), strict=True):
            trail = (*runs[i].trail, runs[i].value)[-PATIENCE:]
            runs[i] = replace(_judged(runs[i], z - runs[i].z, there, tolerance), trail=trail)
    return runs


def _judged(run: Climb, shift: np.ndarray, there: Expansion, tolerance: float) -> Climb:
    """Take the step `shift`, or stay and damp more (Nielsen 1999: the damping follows how well a step was foreseen)."""
    here = run.here
    assert here is not None
    steps = run.steps + 1
    gain = there.value - here.value
    if not (np.isfinite(gain) and gain > 0):
        done = _newton_gain(here) < tolerance or run.damping > HOPELESS
        damping, growth, stiff = run.damping * run.growth, 2 * run.growth, _blamed(run.stiff, shift)
        return replace(run, damping=damping, growth=growth, stiff=stiff, steps=steps, converged=done)
    foreseen = float(shift @ here.gradient - 0.5 * shift @ here.information @ shift)
    ratio = min(gain / max(foreseen, 1e-300), 2.0)
    damping = max(run.damping * max(0.1, 1 - (2 * ratio - 1) ** 3), 1e-9)
    done = gain < tolerance and _newton_gain(there) < tolerance
    swings = (shift * run.last < 0) & (np.abs(shift) > SWING) & (ratio < 0.5)
    stiff = np.where(swings, np.maximum(2 * run.stiff, 0.5), 0.3 * run.stiff)
    return Climb(there.z, there, damping, stiff=stiff, last=shift, steps=steps, converged=done)


def _blamed(stiff: np.ndarray | float, shift: np.ndarray) -> np.ndarray:
    """Return the coordinates' dampings after the step `shift` has failed: those that moved most are the likeliest."""
    size = np.abs(shift)
    return np.where(size > max(0.5 * size.max(), SWING), np.maximum(4 * stiff, 1.0), stiff)


def _newton_gain(here: Expansion) -> float:
    """Return what a full step would gain, were the density quadratic."""
    return 0.5 * float(here.gradient @ np.linalg.solve(here.information, here.gradient))


def _step(run: Climb) -> np.ndarray:
    """Solve the damped equations; no coordinate moves by more than LARGEST."""
    here = run.here
    assert here is not None
    damped = here.information + run.damping * np.diag(np.diag(here.information))
    # Of the marginal precision, which in a narrow valley is far less than the diagonal: along it there is no swing.
    damped = damped + np.diag(run.stiff / np.diag(np.linalg.inv(damped)))
    shift = np.linalg.solve(damped, here.gradient)
    return shift * min(1.0, LARGEST / max(np.abs(shift).max(), 1e-12))
