"""Emergent flux at a few wavenumbers: everything that is nonlinear in a spectrum, for a hundredth of its cost.

All of a spectrum's thousands of wavenumbers see the same columns, temperatures and clouds; how their fluxes bend as
these change is much the same function for all, with different weights. So the bends of a few dozen of them say those of
all pixels (`refinement/emulator.py`). In three steps, so that a gradient can keep what each has computed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from kappaflow.physics.emission import Atmosphere, Tables, atmosphere
from kappaflow.physics.sensitivity import CONTINUUM, few_nodes, numbers
from kappaflow.physics.transfer import emergent_flux, planck

__all__ = ["Slopes", "Thinned", "columns", "depths", "slopes", "thinned", "top_flux"]


class Thinned(NamedTuple):
    """What a few wavenumbers see."""

    tables: Tables  # with few nodes: the smooth opacities are interpolated between them
    basis: Array  # (species, layer, k, few), of the lists chosen
    fourier: Array  # (9, few)
    wavenumber: Array  # (few,)
    between: Array  # (node, few)


def thinned(tables: Tables, lists: Int[Array, " species"], place: Int[Array, " few"]) -> Thinned:
    """Return the tables at the points `place` of the grid only."""
    lines = tables.lines
    block, point = jnp.divmod(place, lines.fourier.shape[2])
    at = block / (lines.nodes.shape[0] - 1) * (CONTINUUM - 1)
    return Thinned(
        tables._replace(lines=few_nodes(lines)._replace(basis=lines.basis[:0], fourier=lines.fourier[:0])),
        jnp.moveaxis(lines.basis[block, :, :, :, point][:, :, lines.first + lists], (0, 2), (3, 0)),
        lines.fourier[block, :, point].T,
        jnp.einsum("fn,nf->f", lines.nodes[block], lines.between[:, point], precision="highest"),
        jnp.maximum(0.0, 1 - jnp.abs(at - jnp.arange(CONTINUUM)[:, None])),
    )


def columns(
    theta: Float[Array, "batch parameter"],
    slopes: Float[Array, "batch species"],
    lists: Int[Array, " species"],
    tables: Tables,
) -> tuple[Atmosphere, Float[Array, "batch value"]]:
    """Columns with few nodes, and their numbers (`sensitivity.numbers`)."""

    def one(row: Array, slope: Array) -> tuple[Atmosphere, Array]:
        air = atmosphere(row, lists, tables)
        air = air._replace(ln_column=air.ln_column + slope[:, None] * air.warmth)
        return air, numbers(row, air, tables)

    return jax.vmap(one)(theta, slopes)


def depths(
    air: Atmosphere, ln_field: Float[Array, "batch species few"], thin: Thinned
) -> tuple[Float[Array, "batch layer few"], Float[Array, "batch level few"]]:
    """Optical depths of layers and the source at levels; all layers at once: so few points fit into the cache."""
    ln_depth = jnp.einsum("bslk,slkf->bslf", air.weights, thin.basis, precision="highest")
    lines = jnp.exp(ln_depth + air.ln_column[..., None] + ln_field[:, :, None]).sum(axis=1)
    smooth = jnp.einsum("bln,nf->blf", air.continuum.reshape(*lines.shape[:2], -1), thin.between, precision="highest")
    return lines + smooth, planck(thin.wavenumber, air.level_temperature)


def top_flux(depth: Float[Array, "batch layer few"], source: Float[Array, "batch level few"]) -> Array:
    """Emergent flux (batch, few) [erg s-1 cm-2 / cm-1]."""
    return emergent_flux(jnp.moveaxis(depth, 1, 0), jnp.moveaxis(source, 1, 0))


class Slopes(NamedTuple):
    """Fluxes and numbers of columns with their derivatives."""

    flux: Array  # (batch, few)
    numbers: Array  # (batch, value)
    flux_by: Array  # (batch, few, parameter + species): by the parameters, and by the slope of each species
    numbers_by: Array  # (batch, value, parameter + species)
    flux_by_field: Array  # (batch, species, few): by the field at the same wavenumber


def slopes(
    theta: Float[Array, "batch parameter"],
    slope: Float[Array, "batch species"],
    ln_field: Float[Array, "batch species few"],
    lists: Int[Array, " species"],
    thin: Thinned,
) -> Slopes:
    """All derivatives of columns and of their fluxes; forward mode: parameters are fewer than what they act on."""

    def made(row: Array, field: Array) -> tuple[Array, Array]:
        parameters = theta.shape[1]
        air, values = columns(row[None, :parameters], row[None, parameters:], lists, thin.tables)
        return top_flux(*depths(air, field[None], thin))[0], values[0]

    def one(both: tuple[Array, Array]) -> Slopes:
        row, field = both
        flux, values = made(row, field)
        flux_by, values_by = jax.jacfwd(made)(row, field)
        return Slopes(flux, values, flux_by, values_by, jax.grad(lambda f: made(row, f)[0].sum())(field))

    return lax.map(one, (jnp.concatenate([theta, slope], axis=1), ln_field))
