"""Cross sections at the layers' own pressures: a short sum of functions of temperature times functions of wavenumber.

For one list and one layer, ln sigma(T, nu) = sum_k g_k(T) basis_k(nu), with g_k known at the table's temperatures and
splined between them. A batch of spectra then needs, per layer, one small matrix product and one exponential, and no
gather over wavenumber.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["TemperatureGrid", "temperature_weights"]


class TemperatureGrid(NamedTuple):
    """Cardinal cubic splines in ln T on the table's temperatures."""

    log_nodes: Array  # (T,), ln K
    spline: Array  # (T - 1, 4, T): polynomial coefficients of every cardinal spline in every interval


def temperature_weights(grid: TemperatureGrid, temperature: Float[Array, ...]) -> Float[Array, "... T"]:
    """Weight of every table temperature at `temperature` [K], held at the edges of the table outside it."""
    log_t = jnp.clip(jnp.log(temperature), grid.log_nodes[0], grid.log_nodes[-1])
    interval = jnp.clip(jnp.searchsorted(grid.log_nodes, log_t, side="right") - 1, 0, grid.spline.shape[0] - 1)
    t = (log_t - grid.log_nodes[interval])[..., None]
    c = grid.spline[interval]
    return ((c[..., 0, :] * t + c[..., 1, :]) * t + c[..., 2, :]) * t + c[..., 3, :]
