"""The composition: parameters, a field and a choice of lists in, the pixels of a JWST spectrum out.

Everything is a pure function of its arguments. The work is walked in blocks of wavenumber and, inside a block, layer by
layer from the top down for a whole batch of spectra, so that what is being worked on stays in cache.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from kappaflow.constants import AMU, BAR, LN10, PARSEC, R_JUP, REFERENCE_PC, C, K
from kappaflow.parameters import COEFFICIENTS, GASES, INDEX, SPECIES, TRACES
from kappaflow.physics import cloud
from kappaflow.physics.absorption import TemperatureGrid, temperature_weights
from kappaflow.physics.composition import EquilibriumTable, quenched_composition
from kappaflow.physics.continuum import CIATable, ln_cia
from kappaflow.physics.detector import Detector, doppler_kernel, observe
from kappaflow.physics.temperature import Hermite, profile
from kappaflow.physics.transfer import QUADRATURE, Column, Quadrature, descend, planck, start

__all__ = [
    "Atmosphere",
    "Layers",
    "LineTables",
    "Tables",
    "atmosphere",
    "clamped_layers",
    "emergent_spectra",
    "on_detector",
    "sloped",
    "spectra",
    "spectrum",
]

# erg s-1 cm-2 / cm-1 at the surface of a Jupiter radius -> mJy at 10 pc
TO_MJY = 1e26 / C * (R_JUP / (REFERENCE_PC * PARSEC)) ** 2
H2, HE = GASES.index("H2"), GASES.index("He")
T_SLOPE = 700.0  # K, where the temperature slope of a species changes nothing


class Layers(NamedTuple):
    """The pressures, fixed: `level` are the boundaries of the layers, `layer` their logarithmic centres; top first."""

    pressure: Array  # (layer,), bar
    log_ratio: Array  # (layer,), ln(P_bottom / P_top)
    at_layer: Hermite
    at_level: Hermite


class LineTables(NamedTuple):
    """The cross sections of every list, and the wavenumber blocks (all of one width in ln nu)."""

    grid: TemperatureGrid
    first: Array  # (species,), the row of each species' base list on the list axis
    loading: Array  # (list, layer, T, k)
    basis: Array  # (block, layer, list, k, point)
    fourier: Array  # (block, 9, point)
    nodes: Array  # (block, node), cm-1: where what is smooth in wavenumber is computed
    between: Array  # (node, point): from the nodes to the points of a block


class Tables(NamedTuple):
    """All that a spectrum depends on besides its parameters."""

    layers: Layers
    lines: LineTables
    chemistry: EquilibriumTable
    cia: CIATable
    detector: Detector


class Atmosphere(NamedTuple):
    """One column, ready for the wavenumber blocks."""

    level_temperature: Array  # (level,), K
    ln_column: Array  # (species, layer), ln of molecules per cm2
    weights: Array  # (species, layer, k)
    continuum: Array  # (layer, block, node), optical depth of CIA and cloud
    warmth: Array  # (layer,), ln of the temperature over 700 K


def atmosphere(theta: Float[Array, " parameter"], lists: Int[Array, " species"], tables: Tables) -> Atmosphere:
    """Everything about one column that is not resolved in wavenumber."""
    value = {name: theta[i] for name, i in INDEX.items() if i < theta.shape[0]}
    layers, lines = tables.layers, tables.lines
    knots = theta[INDEX["T1"] : INDEX["T5"] + 1]
    temperature = profile(knots, layers.at_layer)
    ln_vmr, mu = quenched_composition(
        tables.chemistry,
        temperature,
        jnp.log(layers.pressure),
        (value["C_O"], value["M_H"], value["log_kzz"], value["log_g"]),
    )
    air = cloud.Air(layers.pressure, layers.log_ratio, temperature, mu)
    grains = cloud.Grains(value["f_sed"], value["sigma_c"], value["log_kzz"], value["log_g"], value["M_H"])
    ln_column = column_density(air, value["log_g"])
    nodes = lines.nodes.reshape(-1)
    continuum = cia_depth(tables.cia, air, ln_vmr, ln_column, nodes) + cloud.optical_depth(air, grains)[:, None]
    traces = [LN10 * value[f"log_{name}"] for name in TRACES[: lines.first.shape[0] - len(SPECIES)]]
    constant = [jnp.broadcast_to(ln, (1, temperature.size)) for ln in traces]
    return Atmosphere(
        level_temperature=profile(knots, layers.at_level),
        ln_column=jnp.concatenate([ln_vmr[: len(SPECIES)], *constant]) + ln_column,
        weights=line_weights(lines, temperature, lists),
        continuum=continuum.reshape(-1, *lines.nodes.shape),
        warmth=jnp.log(temperature / T_SLOPE),
    )


def sloped(air: Atmosphere, field: Float[Array, "species coefficient"]) -> Atmosphere:
    """Multiply the opacity of each species by (T / 700 K)^slope where `field` has slopes, its tenth coefficients."""
    if field.shape[-1] == COEFFICIENTS:
        return air
    return air._replace(ln_column=air.ln_column + field[:, COEFFICIENTS, None] * air.warmth)


def column_density(air: cloud.Air, log_g: Float[Array, ""]) -> Float[Array, " layer"]:
    """Ln of the molecules per cm2 in each layer: dP / (mu g), in logarithms: the numbers leave single precision."""
    thickness = jnp.log(2 * jnp.sinh(air.log_ratio / 2) * air.pressure)
    return thickness - jnp.log(air.mu) - LN10 * log_g + math.log(BAR / AMU)


def cia_depth(
    table: CIATable, air: cloud.Air, ln_vmr: Float[Array, "species layer"], ln_column: Float[Array, " layer"], nu: Array
) -> Float[Array, "layer nu"]:
    """Optical depth of H2-H2 and H2-He collision-induced absorption at `nu` [cm-1]."""
    ln_density = jnp.log(air.pressure / air.temperature) + math.log(BAR / K)  # molecules cm-3
    common = (ln_density + ln_column + ln_vmr[H2])[:, None]
    h2_h2, h2_he = ln_cia(table, air.temperature, nu)
    return jnp.exp(h2_h2 + common + ln_vmr[H2][:, None]) + jnp.exp(h2_he + common + ln_vmr[HE][:, None])


def line_weights(
    lines: LineTables, temperature: Float[Array, " layer"], lists: Int[Array, " species"]
) -> Float[Array, "species layer k"]:
    """g_k(T) of every species' chosen list in every layer."""
    weights = temperature_weights(lines.grid, temperature)
    return jnp.einsum("lt,sltk->slk", weights, lines.loading[lines.first + lists], precision="highest")


def clamped_layers(theta: Float[Array, " parameter"], tables: Tables) -> Int[Array, " 2"]:
    """Count the layers colder and hotter than the opacity table, where its edge stands in."""
    log_t = jnp.log(profile(theta[INDEX["T1"] : INDEX["T5"] + 1], tables.layers.at_layer))
    nodes = tables.lines.grid.log_nodes
    slack = 1e-5  # rounding of the logarithm
    return jnp.stack([jnp.sum(log_t < nodes[0] - slack), jnp.sum(log_t > nodes[-1] + slack)])


def emergent_spectra(
    air: Atmosphere,
    field: Float[Array, "batch species coefficient"],
    lists: Int[Array, " species"],
    lines: LineTables,
    quadrature: Quadrature = QUADRATURE,
) -> Float[Array, "batch nu"]:
    """Emergent flux [erg s-1 cm-2 / cm-1] of a batch of columns (`air` with a leading batch axis) on the padded grid.

    The batch axis is explicit, not vmapped: for each layer the exponents of all spectra come from one matrix product
    per species against the same block of the table.
    """
    rows = lines.first + lists
    weights = jnp.moveaxis(air.weights, 0, 2)  # species, layer, batch, k
    per_layer = (
        jnp.moveaxis(weights, 1, 0),  # layer, species, batch, k
        jnp.moveaxis(air.ln_column, (2, 1), (0, 1)),  # layer, species, batch
    )
    coefficients = jnp.moveaxis(field[..., :COEFFICIENTS], 0, 1)  # species, batch, coefficient

    @jax.checkpoint  # the gradient recomputes a block instead of storing every exponential
    def block(of_block: tuple[Array, ...]) -> Float[Array, "batch point"]:
        basis, fourier, nodes, continuum = of_block
        ln_field = jnp.einsum("sbc,cn->sbn", coefficients, fourier, precision="highest")
        source = jnp.moveaxis(planck(nodes, air.level_temperature), 1, 0)  # level, batch, node

        def layer(column: Column, here: tuple[Array, ...]) -> tuple[Column, None]:
            table, g, ln_column, smooth, rise = here
            # A sum in Python, not over an axis: XLA fuses the exponentials into one loop over the products.
            exponents = (_product(g[s], table[rows[s]]) + ln_field[s] for s in range(rows.shape[0]))
            lines_depth = sum(jnp.exp(e + n[:, None]) for e, n in zip(exponents, ln_column, strict=True))
            dtau = lines_depth + _product(smooth, lines.between)
            return descend(column, dtau, _product(rise, lines.between), quadrature), None

        top = start(_product(source[0], lines.between), quadrature)
        column, _ = lax.scan(layer, top, (basis, *per_layer, continuum, jnp.diff(source, axis=0)))
        return column.flux

    continuum = jnp.moveaxis(air.continuum, (2, 1), (0, 1))  # block, layer, batch, node
    flux = lax.map(block, (lines.basis, lines.fourier, lines.nodes, continuum))
    return jnp.moveaxis(flux, 0, 1).reshape(field.shape[0], -1)


def _product(a: Array, b: Array) -> Array:
    return jnp.dot(a, b, precision="highest")  # TPUs would round the factors to bfloat16


def spectra(
    theta: Float[Array, "batch parameter"],
    field: Float[Array, "batch species coefficient"],
    lists: Int[Array, " species"],
    tables: Tables,
) -> Float[Array, "batch pixel"]:
    """Noise-free spectra [mJy at 10 pc] on the detector's pixels; see `spectrum`."""
    air = jax.vmap(sloped)(jax.vmap(atmosphere, in_axes=(0, None, None))(theta, lists, tables), field)
    return on_detector(theta, emergent_spectra(air, field, lists, tables.lines), tables)


def on_detector(
    theta: Float[Array, "batch parameter"], flux: Float[Array, "batch nu"], tables: Tables
) -> Float[Array, "batch pixel"]:
    """Pixels [mJy at 10 pc] of emergent `flux` [erg s-1 cm-2 / cm-1]: velocity, rotation, line spread, radius."""
    kernel = doppler_kernel(tables.detector, theta[:, INDEX["v_r"]], theta[:, INDEX["v_sin_i"]])
    return observe(tables.detector, flux, kernel) * (TO_MJY * theta[:, INDEX["R"], None] ** 2)


def spectrum(
    theta: Float[Array, " parameter"],
    field: Float[Array, "species coefficient"],
    lists: Int[Array, " species"],
    tables: Tables,
) -> Float[Array, " pixel"]:
    """One noise-free spectrum [mJy at 10 pc], differentiable in `theta` and `field`.

    `lists` says, per species, which of its line lists (0 is the base). `sigma_cal` and `log_f` do nothing here: gain
    and structure are drawn with the noise.
    """
    return spectra(theta[None], field[None], lists, tables)[0]
