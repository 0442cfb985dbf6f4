"""The temperature profile: a monotone cubic through five knots in log pressure."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from kappaflow.parameters import KNOT_LOG_PRESSURE

__all__ = ["SPACING", "Hermite", "profile"]

SPACING = KNOT_LOG_PRESSURE[1] - KNOT_LOG_PRESSURE[0]  # dex; the slopes below assume equal spacing


class Hermite(NamedTuple):
    """Weights of the knots' values and slopes at fixed pressures: the positions never change, so two matrices do."""

    value: Array  # (level, 5)
    tangent: Array  # (level, 5)


def profile(knots: Float[Array, " 5"], at: Hermite) -> Float[Array, " level"]:
    """T(P) [K] through `knots` [K] at `KNOT_LOG_PRESSURE`.

    Piecewise cubic Hermite with the slopes of Fritsch and Butland: the harmonic mean of the two adjacent secants,
    zero where they differ in sign. It never leaves the interval between two neighbouring knots, so that no overshoot
    can drive a layer below zero kelvin, and it has a continuous first derivative in log P.

    References
    ----------
    Fritsch and Butland 1984, SIAM J. Sci. Stat. Comput. 5, 300; end slopes as in Moler 2004, Numerical Computing with
    MATLAB, ch. 3.
    """
    secant = jnp.diff(knots) / SPACING
    slope = jnp.concatenate([_end(secant[0], secant[1])[None], _inner(secant), _end(secant[-1], secant[-2])[None]])
    high = "highest"  # TPUs would round the factors to bfloat16
    return jnp.dot(at.value, knots, precision=high) + jnp.dot(at.tangent, slope, precision=high)


def _inner(secant: Float[Array, " 4"]) -> Float[Array, " 3"]:
    left, right = secant[:-1], secant[1:]
    same = left * right > 0
    total = jnp.where(same, left + right, 1.0)  # the unused branch must not divide by zero: its gradient would be NaN
    return jnp.where(same, 2 * left * right / total, 0.0)


def _end(near: Float[Array, ""], far: Float[Array, ""]) -> Float[Array, ""]:
    """Three-point slope at an end knot, held between zero and three times the first secant."""
    return jnp.clip(1.5 * near - 0.5 * far, jnp.minimum(3 * near, 0.0), jnp.maximum(3 * near, 0.0))
