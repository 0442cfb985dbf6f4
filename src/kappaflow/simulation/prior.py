"""Draws of the parameters and of the signal-to-noise ratio, one shard at a time.

The draws depend on the seed, the shard and the kind of draw, and on nothing else: two sets that differ in their
opacities only hold the same theta row by row, so that a comparison varies one axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kappaflow.parameters import PARAMETER_SETS, SNR, ParameterSet
from kappaflow.randomness import Stream, key

__all__ = ["SEQUENCES", "SHARD_SIZE", "draw_prior"]

SHARD_SIZE = 128


def _uniform(seed: int, shard: int, count: int) -> np.ndarray:
    """Independent uniform numbers in [0, 1), shape (128, count + 1)."""
    theta = Stream("theta", seed).at(shard).random((SHARD_SIZE, count))
    snr = Stream("snr", seed).at(shard).random((SHARD_SIZE, 1))
    return np.hstack([theta, snr])


def _sobol(seed: int, shard: int, count: int) -> np.ndarray:
    """Points 128 shard ... 128 shard + 127 of a scrambled Sobol sequence, shape (128, count + 1)."""
    from scipy.stats import qmc  # half a second to import

    scramble: dict[str, Any] = {"seed": int(key("sobol", seed)[0])}  # SciPy 1.15 also calls it rng
    points = qmc.Sobol(d=count + 1, scramble=True, **scramble)
    if shard:
        points.fast_forward(SHARD_SIZE * shard)
    return points.random(SHARD_SIZE)


SEQUENCES: dict[str, Callable[[int, int, int], np.ndarray]] = {"uniform": _uniform, "sobol": _sobol}


def draw_prior(
    kind: str, seed: int, shard: int, parameters: ParameterSet = PARAMETER_SETS["paper"]
) -> tuple[np.ndarray, np.ndarray]:
    """Return theta (128, D) and SNR (128,) of one shard, float64, inside the prior box."""
    low, high = parameters.low, parameters.high
    unit = SEQUENCES[kind](seed, shard, len(parameters))
    theta = low + unit[:, :-1] * (high - low)
    # low + u (high - low) may round onto a value just above high.
    return np.clip(theta, low, high), SNR.low + unit[:, -1] * SNR.width
