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

from kappaflow.physics.constants import C2, C, H

__all__ = ["QUADRATURE", "Column", "Quadrature", "descend", "emergent_flux", "gauss", "planck", "start"]

THIN = 1e-2  # below this optical depth the mean transmission is the trapezium: error THIN^2 / 12


@dataclass(frozen=True)
class Quadrature:
    """Angles: 2 E3(tau), the transmission of flux, as sum_j weight_j exp(-rate_j tau), with rate = 1 / mu.

    `powers` are integers with rate_j = unit * powers_j: then one exponential and a few products give every angle.
    """

    unit: float
    powers: tuple[int, ...]
    weights: tuple[float, ...]

    def transmissions(self, tau: Float[Array, ...]) -> tuple[Float[Array, ...], Float[Array, ...]]:
        """Flux transmission Phi(tau) and minus its integral, Psi(tau) = sum_j weight_j/rate_j exp(-rate_j tau)."""
        have = {1: jnp.exp(-self.unit * tau)}
        for power in self.powers:
            _raise(have, power)
        phi = sum(w * have[p] for p, w in zip(self.powers, self.weights, strict=True))
        psi = sum(w / (self.unit * p) * have[p] for p, w in zip(self.powers, self.weights, strict=True))
        return jnp.asarray(phi), jnp.asarray(psi)

    def at_zero(self) -> tuple[float, float]:
        """Phi and Psi at tau = 0."""
        psi = sum(w / (self.unit * p) for p, w in zip(self.powers, self.weights, strict=True))
        return float(sum(self.weights)), float(psi)


@dataclass(frozen=True)
class _Separate:
    """A quadrature with unrelated angles: one exponential each."""

    rates: tuple[float, ...]
    weights: tuple[float, ...]

    def transmissions(self, tau: Float[Array, ...]) -> tuple[Float[Array, ...], Float[Array, ...]]:
        terms = [jnp.exp(-rate * tau) for rate in self.rates]
        phi = sum(w * t for w, t in zip(self.weights, terms, strict=True))
        psi = sum(w / r * t for w, r, t in zip(self.weights, self.rates, terms, strict=True))
        return jnp.asarray(phi), jnp.asarray(psi)

    def at_zero(self) -> tuple[float, float]:
        psi = sum(w / r for w, r in zip(self.weights, self.rates, strict=True))
        return float(sum(self.weights)), float(psi)


def _raise(have: dict[int, Array], power: int) -> Array:
    """Fill `have` with the `power`-th power of have[1], by squaring."""
    if power not in have:
        half = _raise(have, power // 2)
        have[power] = half * half if power % 2 == 0 else _raise(have, power - 1) * have[1]
    return have[power]


def gauss(angles: int) -> _Separate:
    """Gauss-Legendre in mu on [0, 1], the rule of ExoJAX and of most retrieval codes.

    Examples
    --------
    >>> round(gauss(4).at_zero()[0], 12)
    1.0
    """
    x, w = np.polynomial.legendre.leggauss(angles)
    mu = (x + 1) / 2
    return _Separate(tuple((1 / mu).tolist()), tuple((w * mu).tolist()))  # 2 mu dmu, and w sums to 2 on [-1, 1]


# Five angles in the ratios 4:5:8:16:32, the weights a minimax fit of the relative error of 2 E3 on 0 < tau < 14
# (benchmarks/transfer.py --fit makes them again): FITTED
QUADRATURE = Quadrature(
    unit=1.05 / 4,
    powers=(4, 5, 8, 16, 32),
    weights=(0.22964242, 0.38580218, 0.2755724, 0.07938899, 0.02959401),
)


class Column(NamedTuple):
    """What the walk from the top down carries: all of shape (..., nu)."""

    tau: Array  # optical depth so far
    phi: Array  # flux transmission there
    psi: Array
    source: Array  # pi B there
    flux: Array  # emergent flux gathered so far


def planck(nu: Float[Array, " nu"], temperature: Float[Array, ...]) -> Float[Array, "... nu"]:
    """Hemispheric blackbody flux pi B [erg s-1 cm-2 / cm-1] for `nu` [cm-1], `temperature` [K]."""
    x = C2 * nu / temperature[..., None]
    # exp(-x) rather than 1/(exp(x) - 1): x reaches 34 and its gradient would square an overflow
    decay = jnp.exp(-x)
    return 2 * np.pi * H * C**2 * nu**3 * decay / (1 - decay)


def start(source: Float[Array, "... nu"], quadrature: Quadrature | _Separate = QUADRATURE) -> Column:
    """Return the top of the column, where pi B = `source`."""
    phi, psi = quadrature.at_zero()
    zero = jnp.zeros_like(source)
    return Column(zero, zero + phi, zero + psi, source, source * phi)


def descend(
    column: Column,
    dtau: Float[Array, "... nu"],
    source: Float[Array, "... nu"],
    quadrature: Quadrature | _Separate = QUADRATURE,
) -> Column:
    """Cross one layer of optical depth `dtau`, below which pi B = `source`."""
    tau = column.tau + dtau
    phi, psi = quadrature.transmissions(tau)
    thick = dtau > THIN
    exact = (column.psi - psi) / jnp.where(thick, dtau, 1.0)
    mean = jnp.where(thick, exact, 0.5 * (column.phi + phi))
    return Column(tau, phi, psi, source, column.flux + (source - column.source) * mean)


def emergent_flux(
    dtau: Float[Array, "layer nu"], source: Float[Array, "level nu"], quadrature: Quadrature | _Separate = QUADRATURE
) -> Float[Array, " nu"]:
    """Emergent flux [the unit of `source`] of layers `dtau` between levels with pi B = `source`, top first.

    References
    ----------
    Olson and Kunasz 1987, JQSRT 38, 325 (linear source); Mihalas 1978, Stellar Atmospheres, ch. 2.
    """
    column, _ = lax.scan(
        lambda c, layer: (descend(c, *layer, quadrature), None), start(source[0], quadrature), (dtau, source[1:])
    )
    return column.flux
