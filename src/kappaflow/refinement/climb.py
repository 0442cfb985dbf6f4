"""Levenberg and Marquardt's way to a maximum, with several dampings tried at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kappaflow.refinement.likelihood import Expansion

__all__ = ["Climb", "climb"]

DAMPINGS = 4.0 ** np.arange(-4, 4)  # around the last that worked: one batch of spectra
LARGEST = 1.5  # of a step in any coordinate
HOPELESS = 1e7  # damping


@dataclass(frozen=True, eq=False)
class Climb:
    """Where a climb is: to be continued by another call."""

    z: np.ndarray
    value: float = -np.inf  # ln density, once a step has been taken
    damping: float = 1e-2
    steps: int = 0
    converged: bool = False
    information: np.ndarray | None = None  # at z, once converged


def climb(
    density: Callable[[np.ndarray], np.ndarray],
    expand: Callable[[np.ndarray], Expansion],
    start: Climb,
    *,
    steps: int,
    tolerance: float = 0.02,
    inside: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> Climb:
    """Take at most `steps` steps uphill.

    Parameters
    ----------
    density : ln density (b,) of points (b, k)
    expand : value, gradient and a positive definite information matrix at a point (k,)
    start : where to begin
    steps : at most
    tolerance : a step that gains, and expects to gain, less than this ends the climb
    inside : draws points (b, k) into the region where the density is meant
    """
    z, damping, value = start.z, start.damping, start.value
    for step in range(steps):
        here = expand(z)
        value = here.value
        tried = damping * DAMPINGS
        shifts = np.stack([_step(here, d) for d in tried])
        points = inside(z + shifts)
        values = density(points)
        best = int(np.nanargmax(np.where(np.isfinite(values), values, -np.inf)))
        gain = values[best] - value
        newton = _step(here, 0.0)
        expected = 0.5 * float(newton @ here.gradient)
        if not gain > 0:
            if expected < tolerance or damping > HOPELESS:
                return Climb(z, value, damping, start.steps + step + 1, True, here.information)
            damping *= DAMPINGS[-1] / DAMPINGS[0]
            continue
        z, value, damping = points[best], float(values[best]), max(float(tried[best]), 1e-8)
        if gain < tolerance and expected < 10 * tolerance:
            return Climb(z, value, damping, start.steps + step + 1, True, expand(z).information)
    return Climb(z, value, damping, start.steps + steps, False)


def _step(here: Expansion, damping: float) -> np.ndarray:
    """Solve the damped equations; no coordinate moves by more than LARGEST."""
    diagonal = np.diag(here.information)
    shift = np.linalg.solve(here.information + damping * np.diag(diagonal), here.gradient)
    return shift * min(1.0, LARGEST / max(np.abs(shift).max(), 1e-12))
