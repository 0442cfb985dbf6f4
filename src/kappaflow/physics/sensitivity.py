"""All derivatives of spectra with respect to their parameters and the coefficients of the opacity field.

Transfer is local in wavenumber, so what one quantity of one layer does to the emergent flux is one number per layer and
wavenumber: K = dF/d(optical depth), for all layers at once by one backward walk. With it the derivatives with respect
to any parameter are sums over layers of K times what the parameter does to columns, temperatures and continuum there,
which are small matrix products; and those with respect to the Fourier coefficients of a species are dF/d(ln kappa)
times their basis functions at the same wavenumber. Radius and velocities act after the atmosphere.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from kappaflow.parameters import COEFFICIENTS, INDEX
from kappaflow.physics.emission import Atmosphere, LineTables, Tables, atmosphere, line_weights, on_detector, sloped
from kappaflow.physics.temperature import profile
from kappaflow.physics.transfer import emergent_flux, planck

__all__ = ["CONTINUUM", "Sensitivity", "column_response", "few_nodes", "numbers", "sensitivities"]

AFTER = ("R", "v_r", "v_sin_i")  # act on the emergent flux
NOWHERE = ("sigma_cal", "log_f")  # act on the noise
CONTINUUM = 6  # places in wavenumber


class Sensitivity(NamedTuple):
    """Spectra [mJy at 10 pc] and their derivatives."""

    flux: Array  # (batch, pixel)
    theta: Array  # (batch, parameter, pixel), per unit of each parameter
    field: Array  # (batch, species, coefficient, pixel)


class _Column(NamedTuple):
    """One column with its derivatives: `p` counts the parameters that act inside the atmosphere."""

    air: Atmosphere
    slopes: Array  # (species, layer, k): d weights / d temperature of the layer
    temperature: Array  # (layer, p)
    level_temperature: Array  # (level, p)
    ln_column: Array  # (species, layer, p)
    continuum: Array  # (layer, block, node, p)


def sensitivities(
    theta: Float[Array, "batch parameter"],
    field: Float[Array, "batch species coefficient"],
    lists: Int[Array, " species"],
    tables: Tables,
) -> Sensitivity:
    """Return the spectra of `theta`, `field` and `lists` with all their derivatives (see `emission.spectra`)."""
    lines = tables.lines
    inside = _inside(theta.shape[1])
    column = jax.vmap(_column, in_axes=(0, 0, None, None))(theta, field, lists, tables)
    flux, of_theta, of_opacity, of_slope = _emergent(column, field, lists, lines)
    basis = jnp.moveaxis(lines.fourier, 1, 0).reshape(lines.fourier.shape[1], -1)
    of_field = of_opacity[:, :, None] * basis  # batch, species, coefficient, nu
    if field.shape[2] > COEFFICIENTS:
        of_field = jnp.concatenate([of_field, of_slope[:, :, None]], axis=2)
    batch, points = flux.shape
    rows = jnp.concatenate([flux[:, None], of_theta, of_field.reshape(batch, -1, points)], axis=1)
    every = jnp.repeat(theta, rows.shape[1], axis=0)
    pixels = on_detector(every, rows.reshape(-1, points), tables).reshape(*rows.shape[:2], -1)
    after = jnp.array([INDEX[name] for name in AFTER])

    def observed(some: Array, row: Array, spectrum: Array) -> Float[Array, " pixel"]:
        return on_detector(row.at[after].set(some)[None], spectrum[None], tables)[0]

    outside = jax.vmap(jax.jacfwd(observed))(theta[:, after], theta, flux)  # batch, pixel, 3
    d_theta = jnp.zeros((*theta.shape, pixels.shape[-1]), pixels.dtype)
    d_theta = d_theta.at[:, inside].set(pixels[:, 1 : 1 + inside.size])
    d_theta = d_theta.at[:, after].set(jnp.moveaxis(outside, 2, 1))
    return Sensitivity(pixels[:, 0], d_theta, pixels[:, 1 + inside.size :].reshape(*field.shape, -1))


def _inside(count: int) -> Int[Array, " p"]:
    """Places of the parameters that act inside the atmosphere, of a set of `count`."""
    return jnp.array([i for name, i in INDEX.items() if i < count and name not in AFTER + NOWHERE])


def _column(
    theta: Float[Array, " parameter"],
    field: Float[Array, "species coefficient"],
    lists: Int[Array, " species"],
    tables: Tables,
) -> _Column:
    """One column, and what every parameter does to it."""
    inside = _inside(theta.size)

    def varied(some: Array) -> tuple[Array, ...]:
        row = theta.at[inside].set(some)
        air = sloped(atmosphere(row, lists, tables), field)
        return _temperature(row, tables), air.level_temperature, air.ln_column, air.continuum

    def weights(temperature: Array) -> Array:
        return line_weights(tables.lines, temperature, lists)

    temperature = _temperature(theta, tables)
    # Each layer's weights depend on its own temperature only: one tangent serves all layers.
    _, slopes = jax.jvp(weights, (temperature,), (jnp.ones_like(temperature),))
    air = sloped(atmosphere(theta, lists, tables), field)
    return _Column(air, slopes, *jax.jacfwd(varied)(theta[inside]))


def _temperature(theta: Float[Array, " parameter"], tables: Tables) -> Float[Array, " layer"]:
    return profile(theta[INDEX["T1"] : INDEX["T5"] + 1], tables.layers.at_layer)


class _Response(NamedTuple):
    """What the emergent flux of a block (batch, point) does where a layer changes."""

    flux: Array  # (batch, point)
    depth: Array  # (layer, batch, point), by optical depth
    ln_depth: Array  # (layer, species, batch, point), by ln of that of a species
    warmth: Array  # (layer, batch, point), by the temperature of the opacities
    source: Array  # (level, batch, point), by the temperature of the source


class _OfBlock(NamedTuple):
    """What is the block's own."""

    basis: Array  # (layer, list, k, point)
    fourier: Array  # (9, point)
    nodes: Array  # (node,)
    continuum: Array  # (layer, batch, node)


def _blocks(air: Atmosphere, lines: LineTables) -> _OfBlock:
    """All blocks, of columns with a batch axis."""
    return _OfBlock(lines.basis, lines.fourier, lines.nodes, jnp.moveaxis(air.continuum, (2, 1), (0, 1)))


def _response(
    here: _OfBlock, air: Atmosphere, slopes: Array, field: Array, rows: Int[Array, " species"], lines: LineTables
) -> _Response:
    """Walk down a block, and back; `slopes` (batch, species, layer, k) are d weights / d temperature."""
    batch = field.shape[0]
    # Weights and their slopes go through the table together: layer, species, 2 batch, k.
    both = jnp.concatenate([jnp.moveaxis(w, 0, 2) for w in (air.weights, slopes)], axis=2)
    per_layer = jnp.moveaxis(both, 1, 0), jnp.moveaxis(air.ln_column, (2, 1), (0, 1))
    coefficients = jnp.moveaxis(field[..., :COEFFICIENTS], 0, 1)
    ln_field = jnp.einsum("sbc,cn->sbn", coefficients, here.fourier, precision="highest")

    def layer(_: None, of_layer: tuple[Array, ...]) -> tuple[None, tuple[Array, Array]]:
        table, g, ln_column = of_layer
        depths, warm = [], jnp.zeros(())
        for s in range(field.shape[1]):
            product = _dot(g[s], table[rows[s]])
            depths.append(jnp.exp(product[:batch] + ln_field[s] + ln_column[s][:, None]))
            warm = warm + depths[-1] * product[batch:]
        return None, (jnp.stack(depths), warm)

    _, (depth, warm) = lax.scan(layer, None, (here.basis, *per_layer))  # layer, (species,) batch, point
    temperature = jnp.moveaxis(air.level_temperature, 1, 0)  # level, batch
    source, d_source = jax.jvp(lambda t: planck(here.nodes, t), (temperature,), (jnp.ones_like(temperature),))
    dtau = depth.sum(axis=1) + _dot(here.continuum, lines.between)
    flux, back = jax.vjp(emergent_flux, dtau, _dot(source, lines.between))
    k, of_source = back(jnp.ones_like(flux))
    return _Response(flux, k, k[:, None] * depth, k * warm, of_source * _dot(d_source, lines.between))


def _joined(of_blocks: Array) -> Array:
    """Blocks, first axis, and their points, last, as one axis of wavenumber."""
    return jnp.moveaxis(of_blocks, 0, -2).reshape(*of_blocks.shape[1:-1], -1)


def _emergent(
    column: _Column, field: Float[Array, "batch species coefficient"], lists: Int[Array, " species"], lines: LineTables
) -> tuple[Array, Array, Array, Array]:
    """Emergent flux (batch, nu) of a batch of columns, and its derivatives.

    By the parameters (batch, p, nu), by ln kappa of each species (batch, species, nu) and by its slope in temperature.
    """
    air = column.air
    warming = jnp.moveaxis(column.level_temperature, 1, 0)  # level, batch, p

    def block(of_block: tuple[_OfBlock, Array]) -> tuple[Array, ...]:
        here, d_continuum = of_block
        found = _response(here, air, column.slopes, field, lines.first + lists, lines)
        of_theta = (
            _einsum("lsbn,bslp->bpn", found.ln_depth, column.ln_column)
            + _einsum("lbn,blp->bpn", found.warmth, column.temperature)
            + _einsum("vbn,vbp->bpn", found.source, warming)
            + _einsum("bjpn,jn->bpn", _einsum("lbn,lbjp->bjpn", found.depth, d_continuum), lines.between)
        )
        of_slope = _einsum("lsbn,bl->bsn", found.ln_depth, air.warmth)
        return found.flux, of_theta, jnp.moveaxis(found.ln_depth.sum(axis=0), 1, 0), of_slope

    d_continuum = jnp.moveaxis(column.continuum, (2, 1), (0, 1))  # block, layer, batch, node, p
    flux, of_theta, of_opacity, of_slope = map(_joined, lax.map(block, (_blocks(air, lines), d_continuum)))
    return flux, of_theta, of_opacity, of_slope


def few_nodes(lines: LineTables) -> LineTables:
    """Return the tables with `CONTINUUM` nodes in all, in the middle of as many blocks."""
    places = jnp.linspace(0, lines.nodes.shape[0] - 1, CONTINUUM).round().astype(int)
    return lines._replace(nodes=lines.nodes[places, lines.nodes.shape[1] // 2 :][:, :1])


def numbers(theta: Float[Array, " parameter"], air: Atmosphere, tables: Tables) -> Float[Array, " value"]:
    """All numbers of a column through which parameters and slopes act on a spectrum, but few, in one row.

    Ln columns of all species and layers, temperatures of layers and of levels, and the continuum of all layers in
    `CONTINUUM` places (`tables` have as few nodes): between them it is smooth. They are cheap, and as nonlinear as
    chemistry and clouds are.
    """
    parts = (air.ln_column, _temperature(theta, tables), air.level_temperature, air.continuum)
    return jnp.concatenate([part.reshape(-1) for part in parts])


def column_response(
    theta: Float[Array, " parameter"],
    field: Float[Array, "species coefficient"],
    lists: Int[Array, " species"],
    tables: Tables,
) -> Float[Array, "value pixel"]:
    """Return the derivatives of a spectrum [mJy at 10 pc] with respect to each of its `numbers`."""
    lines = tables.lines
    column = jax.tree.map(lambda a: a[None], _column(theta, field, lists, tables))

    def block(of_block: tuple[_OfBlock, Array]) -> Array:
        here, hats = of_block
        found = _response(here, column.air, column.slopes, field[None], lines.first + lists, lines)
        continuum = found.depth[:, 0, None] * hats[:, None]  # layer, place, point
        by_species = jnp.moveaxis(found.ln_depth[:, :, 0], 1, 0)
        parts = (by_species, found.warmth[:, 0], found.source[:, 0], continuum)
        return jnp.concatenate([part.reshape(-1, part.shape[-1]) for part in parts])

    blocks = lines.nodes.shape[0]
    at = jnp.linspace(0, CONTINUUM - 1, blocks)
    hats = jnp.maximum(0.0, 1 - jnp.abs(at[:, None] - jnp.arange(CONTINUUM)))  # block, place
    rows = _joined(lax.map(block, (_blocks(column.air, lines), hats)))
    return on_detector(jnp.repeat(theta[None], rows.shape[0], axis=0), rows, tables)


def _dot(a: Array, b: Array) -> Array:
    return jnp.dot(a, b, precision="highest")


def _einsum(how: str, a: Array, b: Array) -> Array:
    return jnp.einsum(how, a, b, precision="highest")
