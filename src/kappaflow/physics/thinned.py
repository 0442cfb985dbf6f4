"""Emergent flux at a few wavenumbers: everything that is nonlinear in a spectrum, for a hundredth of its cost.

All of a spectrum's thousands of wavenumbers see the same columns, temperatures and clouds; how their fluxes bend as
these change is much the same function for all, with different weights. So the bends of a few dozen of them say those of
all pixels (`refinement/emulator.py`). Transfer is local in wavenumber: one backward walk gives the derivatives of every
flux by the opacities at its own wavenumber.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from kappaflow.physics.emission import Atmosphere, LineTables, Tables, atmosphere
from kappaflow.physics.transfer import emergent_flux, planck

__all__ = ["Local", "Opened", "FluxPlace", "Thinned", "local", "opened", "pulled", "thinned"]

CONTINUUM = 6  # places in wavenumber at which smooth opacities are computed
CHUNK = 8  # columns that are walked together: what they work on stays in the cache


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
        tables._replace(lines=_few_nodes(lines)._replace(basis=lines.basis[:0], fourier=lines.fourier[:0])),
        jnp.moveaxis(lines.basis[block, :, :, :, point][:, :, lines.first + lists], (0, 2), (3, 0)),
        lines.fourier[block, :, point].T,
        jnp.einsum("fn,nf->f", lines.nodes[block], lines.between[:, point], precision="highest"),
        jnp.maximum(0.0, 1 - jnp.abs(at - jnp.arange(CONTINUUM)[:, None])),
    )


def _few_nodes(lines: LineTables) -> LineTables:
    """Return the tables with `CONTINUUM` nodes in all, in the middle of as many blocks."""
    places = jnp.linspace(0, lines.nodes.shape[0] - 1, CONTINUUM).round().astype(int)
    return lines._replace(nodes=lines.nodes[places, lines.nodes.shape[1] // 2 :][:, :1])


class Opened(NamedTuple):
    """Columns, before anything is done to their opacities."""

    lines: Array  # (batch, species, layer, few), optical depth
    smooth: Array  # (batch, layer, few), optical depth
    source: Array  # (batch, level, few)
    warmth: Array  # (batch, layer), ln of the temperature over 700 K


def opened(theta: Float[Array, "batch parameter"], lists: Int[Array, " species"], thin: Thinned) -> Opened:
    """Columns of `theta`."""

    def one(row: Float[Array, " parameter"]) -> Opened:
        return _of_column(atmosphere(row, lists, thin.tables), thin)

    return lax.map(one, theta, batch_size=CHUNK)


def _of_column(air: Atmosphere, thin: Thinned) -> Opened:
    ln_depth = jnp.einsum("slk,slkf->slf", air.weights, thin.basis, precision="highest") + air.ln_column[..., None]
    smooth = jnp.einsum("ln,nf->lf", air.continuum.reshape(ln_depth.shape[1], -1), thin.between, precision="highest")
    return Opened(jnp.exp(ln_depth), smooth, planck(thin.wavenumber, air.level_temperature), air.warmth)


class Local(NamedTuple):
    """Fluxes of columns, and their derivatives by what is at the same wavenumber."""

    flux: Array  # (batch, few)
    by_field: Array  # (batch, species, few), by ln of a species' opacity
    by_slope: Array  # (batch, species, few), by its slope in temperature
    by_depth: Array  # (batch, layer, few), by the optical depth of a layer
    by_source: Array  # (batch, level, few)


def local(air: Opened, ln_field: Float[Array, "batch species few"], slope: Float[Array, "batch species"]) -> Local:
    """Fluxes of `air` with its opacities times exp(`ln_field`) (T / 700 K)^`slope`."""

    def one(here: tuple[Opened, Array, Array]) -> Local:
        column, field, gamma = here
        factor, warmer = jnp.exp(field), jnp.exp(gamma[:, None] * column.warmth)
        lines = jnp.einsum("slf,sf,sl->lf", column.lines, factor, warmer)
        flux, back = jax.vjp(emergent_flux, lines + column.smooth, column.source)
        by_depth, by_source = back(jnp.ones_like(flux))
        by_field = factor * jnp.einsum("slf,lf,sl->sf", column.lines, by_depth, warmer)
        by_slope = factor * jnp.einsum("slf,lf,sl->sf", column.lines, by_depth, warmer * column.warmth)
        return Local(flux, by_field, by_slope, by_depth, by_source)

    return lax.map(one, (air, ln_field, slope), batch_size=CHUNK)


class FluxPlace(NamedTuple):
    """Where fluxes were computed: parameters, factors of the opacities, and what fluxes do there."""

    theta: Array  # (batch, parameter)
    ln_field: Array  # (batch, species, few)
    slope: Array  # (batch, species)
    by_depth: Array  # (batch, layer, few)
    by_source: Array  # (batch, level, few)


def pulled(
    place: FluxPlace, weight: Float[Array, "batch few"], lists: Int[Array, " species"], thin: Thinned
) -> Float[Array, "batch parameter"]:
    """Gradient by the parameters of the sum of `weight` times the fluxes at `place`."""

    def one(here: tuple[FluxPlace, Array]) -> Float[Array, " parameter"]:
        at, some = here

        def depths(row: Float[Array, " parameter"]) -> tuple[Array, Array]:
            column = _of_column(atmosphere(row, lists, thin.tables), thin)
            warmer = jnp.exp(at.slope[:, None] * column.warmth)
            lines = jnp.einsum("slf,sf,sl->lf", column.lines, jnp.exp(at.ln_field), warmer)
            return lines + column.smooth, column.source

        _, back = jax.vjp(depths, at.theta)
        return back((at.by_depth * some, at.by_source * some))[0]

    return lax.map(one, (place, weight), batch_size=CHUNK)
