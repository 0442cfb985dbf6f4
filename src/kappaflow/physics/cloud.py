"""A grey cloud of enstatite grains after Ackerman and Marley (2001), in the geometric-optics limit."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kappaflow.constants import AMU, BAR, K

__all__ = ["Air", "Grains", "condensed_fraction", "effective_radius", "optical_depth"]

RHO = 3.192  # g cm-3, enstatite (Ackerman and Marley 2001, table 1)
MASS = 100.389  # g mol-1, MgSiO3
LATENT = 58_663.0  # K, slope of ln(vapour pressure) in 1/T (Ackerman and Marley 2001, appendix A)
SILICON = 10 ** (7.51 - 12.0)  # Si/H of the Sun (Asplund et al. 2009): the scarcer partner of Mg, Si
HYDROGEN = 1.68  # hydrogen nuclei per molecule of a solar H2-He mixture
DIAMETER, WELL = 2.827e-8, 59.7  # cm, K: Lennard-Jones H2 (Rosner 2000, as in Ackerman and Marley 2001)


class Air(NamedTuple):
    """The gas of each layer, top first."""

    pressure: Array  # bar, at the layer's centre
    log_ratio: Array  # ln(P_bottom / P_top)
    temperature: Array  # K
    mu: Array  # mean molecular weight, amu


class Grains(NamedTuple):
    """What sets the cloud of one atmosphere."""

    f_sed: Array
    sigma: Array  # geometric standard deviation of the lognormal sizes
    log_kzz: Array  # dex(cm2 s-1)
    log_g: Array  # dex(cm s-2)
    metallicity: Array  # dex


def condensed_fraction(air: Air, metallicity: Float[Array, ""]) -> Float[Array, " layer"]:
    """Share of MgSiO3 that is solid: 1 below the condensation temperature, 0 above, Clausius-Clapeyron between.

    Condensation curve: 10^4 / T = 6.26 - 0.35 log10(P/bar) - 0.70 [M/H] (Visscher et al. 2010).
    """
    inverse = (6.26 - 0.35 * jnp.log10(air.pressure) - 0.70 * metallicity) * 1e-4
    return jax.nn.sigmoid(LATENT * (1 / air.temperature - inverse))


def effective_radius(air: Air, grains: Grains) -> Float[Array, " layer"]:
    """Area-weighted mean radius [cm] of grains whose mass-weighted fall speed is f_sed times the mixing speed.

    A grain of radius r_w falls at w = kzz / H. Stokes' law with Cunningham's slip, v = 2/9 g rho r^2 (1 + 1.26 l/r)
    / eta (l the mean free path), makes r_w the root of a quadratic; alpha = dln v/dln r lies between 1 and 2.
    """
    gravity = 10**grains.log_g
    # Constants are folded in double precision first: m k T alone would underflow single precision.
    sqrt_t = jnp.sqrt(air.temperature)
    viscosity = (5 / 16 * np.sqrt(np.pi * 2.016 * AMU * K) / (np.pi * DIAMETER**2) / 1.22) * sqrt_t
    viscosity = viscosity * (air.temperature / WELL) ** 0.16
    free_path = K / (np.sqrt(2) * np.pi * DIAMETER**2 * BAR) * air.temperature / air.pressure
    height = (K / AMU) * air.temperature / (air.mu * gravity)
    mixing = 10**grains.log_kzz / height
    slip = 1.26 * free_path
    area = 4.5 * mixing * viscosity / (gravity * RHO)
    r_w = 2 * area / (slip + jnp.sqrt(slip**2 + 4 * area))  # the stable form of the root
    alpha = (2 * r_w + slip) / (r_w + slip)
    spread = jnp.log(grains.sigma) ** 2
    return r_w * jnp.exp(jnp.log(grains.f_sed) / alpha - 0.5 * (alpha + 1) * spread)


def optical_depth(air: Air, grains: Grains) -> Float[Array, " layer"]:
    """Grey extinction optical depth of each layer, extinction efficiency 2.

    From the bottom up the total (vapour and solid) mixing ratio obeys dln q/dln P = f_sed * condensed fraction: above a
    single base it falls as (P/P_base)^f_sed; hot layers in between lose nothing; a profile that never crosses the
    condensation curve has no cloud. The mean of the solid over a layer is exact, so the cloud fades as f_sed grows,
    however thin it becomes against the layer.
    """
    solid = condensed_fraction(air, grains.metallicity)
    loss = grains.f_sed * solid * air.log_ratio
    below = jnp.cumsum(loss[::-1])[::-1] - loss  # lost between the deepest level and this layer's bottom
    q_deep = SILICON * HYDROGEN * 10**grains.metallicity * MASS / air.mu
    mean = q_deep * jnp.exp(-below) * -jnp.expm1(-loss) / (grains.f_sed * air.log_ratio)
    thickness = 2 * jnp.sinh(air.log_ratio / 2) * air.pressure * BAR  # P_bottom - P_top around the logarithmic centre
    column = thickness / 10**grains.log_g  # g cm-2
    return 1.5 * mean * column / (RHO * effective_radius(air, grains))
