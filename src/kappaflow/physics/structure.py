"""What one column looks like inside: its profiles with quench levels and cloud, and where its light comes from."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from kappaflow.constants import LN10
from kappaflow.parameters import COEFFICIENTS, INDEX
from kappaflow.physics import cloud
from kappaflow.physics.composition import (
    ln_time_carbon,
    ln_time_carbon_dioxide,
    ln_time_mixing,
    ln_time_nitrogen,
    quenched_composition,
)
from kappaflow.physics.detector import doppler_kernel, observe
from kappaflow.physics.emission import Tables, atmosphere, sloped
from kappaflow.physics.temperature import profile
from kappaflow.physics.transfer import QUADRATURE, planck

__all__ = ["Structure", "contribution", "structure"]


class Structure(NamedTuple):
    """One column, top first."""

    temperature: Array  # (layer,), K
    log_vmr: Array  # (gas, layer), log10 of the volume mixing ratios in the order of GASES, quenched
    quench: Array  # (3,), log10(P/bar) where CO and CH4, CO2 and NH3 freeze; NaN where they never do
    cloud_depth: Array  # (layer,), grey optical depth of the cloud in each layer
    cloud_base: Array  # (), log10(P/bar) of the deepest condensation; NaN without any


def structure(theta: Float[Array, " parameter"], tables: Tables) -> Structure:
    """Return the profiles of the column that `theta` describes."""
    value = {name: theta[i] for name, i in INDEX.items() if i < theta.shape[0]}
    layers = tables.layers
    temperature = profile(theta[INDEX["T1"] : INDEX["T5"] + 1], layers.at_layer)
    ln_pressure = jnp.log(layers.pressure)
    mixed = (value["C_O"], value["M_H"], value["log_kzz"], value["log_g"])
    ln_vmr, mu = quenched_composition(tables.chemistry, temperature, ln_pressure, mixed)
    mixing = ln_time_mixing(temperature, mu, value["log_g"], value["log_kzz"])
    times = (
        ln_time_carbon(temperature, ln_pressure, value["M_H"]),
        ln_time_carbon_dioxide(temperature, ln_pressure),
        ln_time_nitrogen(temperature, ln_pressure),
    )
    air = cloud.Air(layers.pressure, layers.log_ratio, temperature, mu)
    grains = cloud.Grains(value["f_sed"], value["sigma_c"], value["log_kzz"], value["log_g"], value["M_H"])
    solid = cloud.condensed_fraction(air, value["M_H"])
    return Structure(
        temperature,
        ln_vmr / LN10,
        jnp.stack([_deepest_crossing(time - mixing, ln_pressure) for time in times]) / LN10,
        cloud.optical_depth(air, grains),
        _deepest_crossing(solid - 0.5, ln_pressure) / LN10,
    )


def _deepest_crossing(value: Float[Array, " layer"], ln_pressure: Float[Array, " layer"]) -> Float[Array, ""]:
    """Ln P at which `value`, negative at the bottom, first becomes positive on the way up; NaN where it never does.

    The bottom layer itself where it is positive already.
    """
    above = value > 0
    deepest = above.shape[0] - 1 - jnp.argmax(above[::-1])
    below = jnp.minimum(deepest + 1, above.shape[0] - 1)
    step = value[deepest] - value[below]
    share = jnp.where(below > deepest, value[deepest] / jnp.where(step == 0, 1.0, step), 0.0)
    at = ln_pressure[deepest] + share * (ln_pressure[below] - ln_pressure[deepest])
    return jnp.where(above.any(), at, jnp.nan)


def contribution(
    theta: Float[Array, " parameter"],
    field: Float[Array, "species coefficient"],
    lists: Int[Array, " species"],
    tables: Tables,
) -> Float[Array, "source pixel"]:
    """Flux [erg s-1 cm-2 / cm-1] of every pixel that comes from each layer, top first, and last from below them all.

    A layer gives the mean of pi B at its two levels times the transmission of flux that it takes away, 2 E3(tau_top) -
    2 E3(tau_bottom); what is left at the bottom is the blackbody's below. Seen by the detector as the spectrum is.

    References
    ----------
    Chamberlain and Hunten 1987, Theory of Planetary Atmospheres, ch. 4 (weighting functions)
    """
    air = sloped(atmosphere(theta, lists, tables), field)
    lines = tables.lines
    rows = lines.first + lists
    kernel = doppler_kernel(tables.detector, theta[None, INDEX["v_r"]], theta[None, INDEX["v_sin_i"]])

    def block(of_block: tuple[Array, ...]) -> Float[Array, "source point"]:
        basis, fourier, nodes, continuum = of_block
        ln_field = field[:, :COEFFICIENTS] @ fourier  # species, point
        levels = planck(nodes, air.level_temperature) @ lines.between  # level, point

        def layer(decays: tuple[Array, ...], here: tuple[Array, ...]) -> tuple[tuple[Array, ...], Array]:
            table, g, ln_column, smooth, top, bottom = here
            exponents = (g[s] @ table[rows[s]] + ln_field[s] + ln_column[s] for s in range(rows.shape[0]))
            dtau = sum(jnp.exp(e) for e in exponents) + smooth @ lines.between
            after = tuple(t * jnp.exp(-unit * dtau) for t, unit in zip(decays, QUADRATURE.units, strict=True))
            taken = QUADRATURE.sums(decays)[0] - QUADRATURE.sums(after)[0]
            return after, 0.5 * (top + bottom) * taken

        start = tuple(jnp.ones(levels.shape[1]) for _ in QUADRATURE.units)
        layers = (basis, jnp.moveaxis(air.weights, 1, 0), air.ln_column.T, continuum, levels[:-1], levels[1:])
        decays, given = lax.scan(layer, start, layers)
        return jnp.concatenate([given, (QUADRATURE.sums(decays)[0] * levels[-1])[None]])

    continuum = jnp.moveaxis(air.continuum, 1, 0)  # block, layer, node
    given = lax.map(block, (lines.basis, lines.fourier, lines.nodes, continuum))  # block, source, point
    given = jnp.moveaxis(given, 0, 1).reshape(given.shape[1], -1)
    return jax.vmap(lambda one: observe(tables.detector, one[None], kernel)[0])(given)
