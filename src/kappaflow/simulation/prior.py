"""Draws of the fifteen parameters and of the signal-to-noise ratio, one shard at a time.

The draws depend on the seed, the shard and the kind of draw, and on nothing else: two sets that differ in their
opacities only hold the same theta row by row, so that a comparison varies one axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kappaflow.parameters import PARAMETERS, SNR, bounds
from kappaflow.randomness import Stream, key

__all__ = ["SEQUENCES", "SHARD_SIZE", "draw_prior"]

SHARD_SIZE = 128


def _uniform(seed: int, shard: int) -> np.ndarray:
    """Independent uniform numbers in [0, 1), shape (128, 16)."""
    theta = Stream("theta", seed).at(shard).random((SHARD_SIZE, len(PARAMETERS)))
    snr = Stream("snr", seed).at(shard).random((SHARD_SIZE, 1))
    return np.hstack([theta, snr])


def _sobol(seed: int, shard: int) -> np.ndarray:
    """Points 128 shard ... 128 shard + 127 of a scrambled Sobol sequence in 16 dimensions, shape (128, 16)."""
    from scipy.stats import qmc  # half a second to import

    scramble: dict[str, Any] = {"seed": int(key("sobol", seed)[0])}  # SciPy 1.15 also calls it rng
    points = qmc.Sobol(d=len(PARAMETERS) + 1, scramble=True, **scramble)
    if shard:
        points.fast_forward(SHARD_SIZE * shard)
    return points.random(SHARD_SIZE)


SEQUENCES: dict[str, Callable[[int, int], np.ndarray]] = {"uniform": _uniform, "sobol": _sobol}


def draw_prior(kind: str, seed: int, shard: int) -> tuple[np.ndarray, np.ndarray]:
    """Return theta (128, 15) and SNR (128,) of one shard, float64, inside the prior box."""
    low, high = bounds()
    unit = SEQUENCES[kind](seed, shard)
    theta = low + unit[:, :-1] * (high - low)
    # low + u (high - low) may round onto a value just above high.
    return np.clip(theta, low, high), SNR.low + unit[:, -1] * SNR.width
