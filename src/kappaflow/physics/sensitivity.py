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
from kappaflow.physics.transfer import emergent_response, planck

__all__ = ["Sensitivity", "sensitivities"]

AFTER = ("R", "v_r", "v_sin_i")  # act on the emergent flux
NOWHERE = ("sigma_cal", "log_f")  # act on the noise


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
    flux, inner = _emergent(column, field, lists, lines)
    basis = jnp.moveaxis(lines.fourier, 1, 0).reshape(lines.fourier.shape[1], -1)

    def seen(of_spectrum: tuple[Array, Array, Array]) -> Float[Array, "row pixel"]:
        row, emergent, found = of_spectrum
        of_theta, of_opacity, of_slope = jnp.split(found, (inside.size, inside.size + field.shape[1]))
        of_field = of_opacity[:, None] * basis  # species, coefficient, nu
        if field.shape[2] > COEFFICIENTS:
            of_field = jnp.concatenate([of_field, of_slope[:, None]], axis=1)
        rows = jnp.concatenate([emergent[None], of_theta, of_field.reshape(-1, emergent.size)])
        return on_detector(jnp.repeat(row[None], rows.shape[0], axis=0), rows, tables)

    pixels = lax.map(seen, (theta, flux, inner))  # one after the other: a spectrum's rows stay in cache
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

    number: Array  # ()
    fourier: Array  # (9, point)
    nodes: Array  # (node,)
    continuum: Array  # (layer, batch, node)


def _blocks(air: Atmosphere, lines: LineTables) -> _OfBlock:
    """All blocks, of columns with a batch axis."""
    number = jnp.arange(lines.nodes.shape[0])
    return _OfBlock(number, lines.fourier, lines.nodes, jnp.moveaxis(air.continuum, (2, 1), (0, 1)))


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
        number, g, ln_column = of_layer
        depths, warm = [], jnp.zeros(())
        for s in range(field.shape[1]):
            # Out of the whole table: scanned over, every list of the block would be copied before one is read.
            product = _dot(g[s], lines.basis[here.number, number, rows[s]])
            depths.append(jnp.exp(product[:batch] + ln_field[s] + ln_column[s][:, None]))
            warm = warm + depths[-1] * product[batch:]
        return None, (jnp.stack(depths), warm)

    layers = jnp.arange(lines.basis.shape[1])
    _, (depth, warm) = lax.scan(layer, None, (layers, *per_layer))  # layer, (species,) batch, point
    temperature = jnp.moveaxis(air.level_temperature, 1, 0)  # level, batch
    source, d_source = jax.jvp(lambda t: planck(here.nodes, t), (temperature,), (jnp.ones_like(temperature),))
    dtau = depth.sum(axis=1) + _dot(here.continuum, lines.between)
    flux, k, of_source = emergent_response(dtau, _dot(source, lines.between))
    return _Response(flux, k, k[:, None] * depth, k * warm, of_source * _dot(d_source, lines.between))


def _joined(of_blocks: Array) -> Array:
    """Blocks, first axis, and their points, last, as one axis of wavenumber."""
    return jnp.moveaxis(of_blocks, 0, -2).reshape(*of_blocks.shape[1:-1], -1)


def _emergent(
    column: _Column, field: Float[Array, "batch species coefficient"], lists: Int[Array, " species"], lines: LineTables
) -> tuple[Float[Array, "batch nu"], Float[Array, "batch row nu"]]:
    """Emergent flux of a batch of columns, and its derivatives.

    In rows: by the parameters, by ln kappa of each species and by its slope in temperature.
    """
    sums = jax.vmap(_sums)(column)

    def block(of_block: tuple[_OfBlock, Array]) -> tuple[Array, Array]:
        here, d_continuum = of_block
        found = _response(here, column.air, column.slopes, field, lines.first + lists, lines)
        # One spectrum after the other: products of two plain matrices, for which no axis has to be moved.
        columns = [jax.tree.map(lambda a, j=j: a[j], column) for j in range(field.shape[0])]
        each = [
            _derivatives(one, sums[j], d_continuum[j], _one(found, j), lines.between) for j, one in enumerate(columns)
        ]
        return found.flux, jnp.stack(each)

    d_continuum = jnp.moveaxis(column.continuum, 2, 0)  # block, batch, layer, node, p
    flux, rows = map(_joined, lax.map(block, (_blocks(column.air, lines), d_continuum)))
    return flux, rows


def _one(found: _Response, j: int) -> _Response:
    return _Response(*(a[..., j, :] for a in found))


def _sums(column: _Column) -> Float[Array, "row term"]:
    """Weights of dF/d(ln depth) of every layer and species in each derivative of one column, as rows of a matrix."""
    species = jnp.eye(column.ln_column.shape[0])[:, None]
    of_opacity = jnp.broadcast_to(species, (species.shape[0], column.air.warmth.size, species.shape[0]))
    of_theta = jnp.moveaxis(column.ln_column, (2, 1), (0, 1))  # p, layer, species
    rows = jnp.concatenate([of_theta, of_opacity, species * column.air.warmth[:, None]])
    return rows.reshape(rows.shape[0], -1)


def _derivatives(
    column: _Column, sums: Array, d_continuum: Float[Array, "layer node p"], found: _Response, between: Array
) -> Float[Array, "row point"]:
    """All derivatives of the emergent flux of one column in a block."""
    layers, nodes, count = d_continuum.shape
    points = found.flux.shape[-1]
    rows = _dot(sums, found.ln_depth.reshape(-1, points))
    at_nodes = _dot(d_continuum.reshape(layers, -1).T, found.depth).reshape(nodes, count, points)
    of_theta = (
        _dot(column.temperature.T, found.warmth)
        + _dot(column.level_temperature.T, found.source)
        + (at_nodes * between[:, None]).sum(axis=0)
    )
    return rows.at[:count].add(of_theta)


def _dot(a: Array, b: Array) -> Array:
    return jnp.dot(a, b, precision="highest")
