"""Radiative transfer: the flux that leaves a plane-parallel, purely absorbing, thermally emitting column.

With the source linear in optical depth inside each layer and a blackbody below the last, integrating the formal
solution by parts gives, at every angle, I = B(top) + sum over layers of (B_below - B_above) * mean transmission of the
layer: every term has the sign of a temperature step, there is no cancellation, and an isothermal column is exactly a
blackbody at any optical depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from kappaflow.constants import C2, C, H

__all__ = [
    "QUADRATURE",
    "Column",
    "Quadrature",
    "descend",
    "emergent_flux",
    "emergent_response",
    "gauss",
    "planck",
    "start",
]

THIN = 1e-2  # below this optical depth the mean transmission is the trapezium: error THIN^2 / 12


@dataclass(frozen=True)
class Quadrature:
    """Angles: 2 E3(tau), the transmission of flux, as sum_j weight_j exp(-rate_j tau), with rate = 1 / mu.

    rate_j = units[base_j] * power_j with integer powers, `terms` holding (base, power, weight): where the powers
    are not all 1, one exponential and a few products give several angles.
    """

    units: tuple[float, ...]
    terms: tuple[tuple[int, int, float], ...]

    @property
    def rates(self) -> tuple[float, ...]:
        """1 / mu of every angle."""
        return tuple(self.units[base] * power for base, power, _ in self.terms)

    @property
    def weights(self) -> tuple[float, ...]:
        """Weight of every angle; they sum to one."""
        return tuple(weight for _, _, weight in self.terms)

    def sums(self, decays: tuple[Array, ...]) -> tuple[Array, Array]:
        """Phi = sum_j weight_j exp(-rate_j tau) and Psi, the same over rate_j, from `decays` = exp(-units tau)."""
        each = self._transmissions(decays)
        phi = sum(w * t for w, t in zip(self.weights, each, strict=True))
        psi = sum(w / r * t for w, r, t in zip(self.weights, self.rates, each, strict=True))
        return jnp.asarray(phi), jnp.asarray(psi)

    def slope(self, decays: tuple[Array, ...]) -> Array:
        """Return dPhi/dtau; that of Psi is -Phi."""
        each = self._transmissions(decays)
        return jnp.asarray(-sum(w * r * t for w, r, t in zip(self.weights, self.rates, each, strict=True)))

    def _transmissions(self, decays: tuple[Array, ...]) -> list[Array]:
        powers = [{1: decay} for decay in decays]
        return [_raise(powers[base], power) for base, power, _ in self.terms]


def _raise(have: dict[int, Array], power: int) -> Array:
    """Fill `have` with the `power`-th power of have[1], by squaring."""
    if power not in have:
        half = _raise(have, power // 2)
        have[power] = half * half if power % 2 == 0 else _raise(have, power - 1) * have[1]
    return have[power]


def gauss(angles: int) -> Quadrature:
    """Gauss-Legendre in mu on [0, 1], the rule of ExoJAX and of most retrieval codes: one exponential per angle.

    Examples
    --------
    >>> round(sum(gauss(4).weights), 12)
    1.0
    """
    x, w = np.polynomial.legendre.leggauss(angles)
    mu = (x + 1) / 2
    weights = (w * mu).tolist()  # 2 mu dmu, and w sums to 2 on [-1, 1]
    return Quadrature(tuple((1 / mu).tolist()), tuple((i, 1, weights[i]) for i in range(angles)))


# Six angles with 1/mu in the ratios 5:6:9:20:64:256, so that one exponential serves all. The weights are a minimax fit
# (`python benchmarks/transfer.py --fit`): within 1e-3 of 2 E3 and of 1 - 2 E3 for tau < 14. The second counts where a
# thin hot layer shines over a cold one.
QUADRATURE = Quadrature(
    (1.04 / 5,),
    (
        (0, 5, 0.18895278),
        (0, 6, 0.35201285),
        (0, 9, 0.32251063),
        (0, 20, 0.12289516),
        (0, 64, 0.0120428),
        (0, 256, 0.00158578),
    ),
)


class Column(NamedTuple):
    """What the walk from the top down carries: arrays of shape (..., nu)."""

    decays: tuple[Array, ...]  # exp(-unit tau) down to here, per unit of the quadrature
    flux: Array  # emergent flux gathered so far


def planck(nu: Float[Array, " nu"], temperature: Float[Array, ...]) -> Float[Array, "... nu"]:
    """Hemispheric blackbody flux pi B [erg s-1 cm-2 / cm-1] for `nu` [cm-1], `temperature` [K]."""
    x = C2 * nu / temperature[..., None]
    # exp(-x) rather than 1/(exp(x) - 1): x reaches 34 and its gradient would square an overflow
    decay = jnp.exp(-x)
    return 2 * np.pi * H * C**2 * nu**3 * decay / (1 - decay)


def start(source: Float[Array, "... nu"], quadrature: Quadrature = QUADRATURE) -> Column:
    """Return the top of the column, where pi B = `source`."""
    return Column(tuple(jnp.ones_like(source) for _ in quadrature.units), source)


def descend(
    column: Column, dtau: Float[Array, "... nu"], rise: Float[Array, "... nu"], quadrature: Quadrature = QUADRATURE
) -> Column:
    """Cross one layer of optical depth `dtau`, over which pi B grows by `rise` downwards."""
    # A running product, not exp(-tau): one exponential per layer, and full relative precision deep down.
    decays = tuple(t * jnp.exp(-unit * dtau) for t, unit in zip(column.decays, quadrature.units, strict=True))
    phi_above, psi_above = quadrature.sums(column.decays)
    phi_below, psi_below = quadrature.sums(decays)
    thick = dtau > THIN
    exact = (psi_above - psi_below) / jnp.where(thick, dtau, 1.0)  # 1: an unused branch must stay finite in gradients
    mean = jnp.where(thick, exact, 0.5 * (phi_above + phi_below))
    return Column(decays, column.flux + rise * mean)


def emergent_flux(
    dtau: Float[Array, "layer nu"], source: Float[Array, "level nu"], quadrature: Quadrature = QUADRATURE
) -> Float[Array, " nu"]:
    """Emergent flux [the unit of `source`] of layers `dtau` between levels with pi B = `source`, top first.

    References
    ----------
    Olson and Kunasz 1987, JQSRT 38, 325 (linear source); Mihalas 1978, Stellar Atmospheres, ch. 2.
    """
    top = start(source[0], quadrature)
    column, _ = lax.scan(lambda c, here: (descend(c, *here, quadrature), None), top, (dtau, jnp.diff(source, axis=0)))
    return column.flux


def emergent_response(
    dtau: Float[Array, "layer ... nu"], source: Float[Array, "level ... nu"], quadrature: Quadrature = QUADRATURE
) -> tuple[Float[Array, "... nu"], Float[Array, "layer ... nu"], Float[Array, "level ... nu"]]:
    """Emergent flux, and its derivatives with respect to `dtau` of every layer and to `source` of every level.

    What a layer adds, rise times mean transmission, depends on its own depth and on the depth above it: two numbers per
    layer, gathered on the way down and summed on the way up. Reverse mode would keep every power of every decay.
    """

    def layer(column: Column, here: tuple[Array, Array]) -> tuple[Column, tuple[Array, ...]]:
        depth, rise = here
        below = descend(column, depth, rise, quadrature)
        (phi_above, psi_above), (phi_below, psi_below) = quadrature.sums(column.decays), quadrature.sums(below.decays)
        steep_above, steep_below = quadrature.slope(column.decays), quadrature.slope(below.decays)
        thick = depth > THIN
        over = jnp.where(thick, depth, 1.0)
        mean = jnp.where(thick, (psi_above - psi_below) / over, 0.5 * (phi_above + phi_below))
        own = jnp.where(thick, (phi_below - mean) / over, 0.5 * steep_below)
        above = jnp.where(thick, (phi_below - phi_above) / over, 0.5 * (steep_above + steep_below))
        return below, (mean, rise * own, rise * above)

    column, (mean, own, above) = lax.scan(layer, start(source[0], quadrature), (dtau, jnp.diff(source, axis=0)))
    zero = jnp.zeros_like(column.flux)
    _, of_dtau = lax.scan(lambda deeper, here: (deeper + here[1], deeper + here[0]), zero, (own, above), reverse=True)
    of_source = -jnp.diff(mean, axis=0, prepend=1.0, append=0.0)
    return column.flux, of_dtau, of_source
