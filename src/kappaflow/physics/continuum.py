"""Collision-induced absorption of H2-H2 and H2-He, interpolated to the layers' temperatures and to wavenumbers."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["CIATable", "ln_cia"]


class CIATable(NamedTuple):
    """One family: `ln_coefficient` (pair, T, nu), ln of cm5 molecule-2, pairs H2-H2 and H2-He.

    `ln_temperature` (T,) is ln K; `nu_grid` is (first, step) of the table's even wavenumbers, cm-1.
    """

    ln_coefficient: Float[Array, "pair T coarse"]
    ln_temperature: Float[Array, " T"]
    nu_grid: Float[Array, " 2"]


def ln_cia(
    table: CIATable, T: Float[Array, " layer"], nu: Float[Array, " nu"]
) -> tuple[Float[Array, "layer nu"], Float[Array, "layer nu"]]:
    """Ln of the H2-H2 and of the H2-He coefficient [cm5 molecule-2] at `T` [K] and `nu` [cm-1].

    The absorption per length [cm-1] is n_H2 n_H2 k_H2H2 + n_H2 n_He k_H2He, n in cm-3. Linear in ln T and in nu, the
    edge outside the table. `nu` may be any part of the modelling grid, or a few nodes of it: the coefficients vary
    over hundreds of cm-1.
    """
    nodes = table.ln_temperature
    x = jnp.clip(jnp.log(T), nodes[0], nodes[-1])
    left = jnp.clip(jnp.searchsorted(nodes, x, side="right") - 1, 0, nodes.size - 2)
    weight = ((x - nodes[left]) / (nodes[left + 1] - nodes[left]))[None, :, None]
    coarse = (1.0 - weight) * table.ln_coefficient[:, left] + weight * table.ln_coefficient[:, left + 1]

    last = coarse.shape[-1] - 1
    u = jnp.clip((nu - table.nu_grid[0]) / table.nu_grid[1], 0.0, last)
    cell = jnp.clip(jnp.floor(u).astype(jnp.int32), 0, last - 1)
    fraction = u - cell
    fine = (1.0 - fraction) * coarse[..., cell] + fraction * coarse[..., cell + 1]
    return fine[0], fine[1]
