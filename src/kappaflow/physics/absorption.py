"""Cross sections at the layers' own pressures: a short sum of functions of temperature times functions of wavenumber.

For one list and one layer, ln sigma(T, nu) = sum_k g_k(T) basis_k(nu), with g_k known at the table's temperatures and
splined between them. A batch of spectra then needs, per layer, one small matrix product and one exponential, and no
gather over wavenumber.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import CubicSpline

from kappaflow.constants import AMU, BAR

__all__ = [
    "Blocks",
    "TemperatureGrid",
    "block_grid",
    "negligible",
    "reduce_rank",
    "temperature_grid",
    "temperature_weights",
]


class TemperatureGrid(NamedTuple):
    """Cardinal cubic splines in ln T on the table's temperatures."""

    log_nodes: Array  # (T,), ln K
    spline: Array  # (T - 1, 4, T): polynomial coefficients of every cardinal spline in every interval


def temperature_grid(temperature: np.ndarray) -> TemperatureGrid:
    """Prepare the interpolation between `temperature` [K], ascending."""
    nodes = np.log(np.asarray(temperature, dtype=float))
    cubic = CubicSpline(nodes, np.eye(nodes.size))  # not-a-knot: fourth order up to the ends
    return TemperatureGrid(jnp.asarray(nodes), jnp.asarray(np.moveaxis(cubic.c, 1, 0)))


def temperature_weights(grid: TemperatureGrid, temperature: Float[Array, ...]) -> Float[Array, "... T"]:
    """Weight of every table temperature at `temperature` [K], held at the edges of the table outside it."""
    log_t = jnp.clip(jnp.log(temperature), grid.log_nodes[0], grid.log_nodes[-1])
    interval = jnp.clip(jnp.searchsorted(grid.log_nodes, log_t, side="right") - 1, 0, grid.spline.shape[0] - 1)
    t = (log_t - grid.log_nodes[interval])[..., None]
    c = grid.spline[interval]
    return ((c[..., 0, :] * t + c[..., 1, :]) * t + c[..., 2, :]) * t + c[..., 3, :]


def reduce_rank(ln_sigma: np.ndarray, terms: int, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Factor `ln_sigma` (layer, T, nu) into (layer, T, k) @ (layer, k, nu), the best of rank `terms` per layer.

    `weights` (layer, T) say how much an error at each temperature counts. The singular vectors come from the small Gram
    matrix over temperature; where there are no more temperatures than `terms` the factorization is exact and the first
    factor is the identity.
    """
    layers, nodes, points = ln_sigma.shape
    if nodes <= terms:
        eye = np.broadcast_to(np.eye(nodes, dtype=np.float32), (layers, nodes, nodes))
        return eye, ln_sigma.astype(np.float32)
    scale = np.ones((layers, nodes)) if weights is None else np.asarray(weights, float)
    loading = np.empty((layers, nodes, terms), np.float32)
    basis = np.empty((layers, terms, points), np.float32)
    for layer in range(layers):
        values = scale[layer, :, None].astype(np.float32) * ln_sigma[layer]
        gram = values.astype(np.float64) @ values.T.astype(np.float64)
        vectors = np.linalg.eigh(gram)[1][:, ::-1][:, :terms]
        loading[layer] = vectors / scale[layer, :, None]
        basis[layer] = vectors.T.astype(np.float32) @ values
    return loading, basis


def negligible(log_pressure: np.ndarray) -> np.ndarray:
    """Ln of the cross section [cm2] below optical depth 1e-6 in a whole column, at `log_pressure` [log10 bar].

    So thin a layer is invisible even where it is far hotter than what lies below. The largest column of the prior:
    P / (mu g) with g = 1000 cm s-2, mu = 2.3, and a mole fraction of 0.02.
    """
    column = 0.02 * 10.0**log_pressure * BAR / (2.3 * AMU * 1e3)
    return np.log(1e-6 / column)


class Blocks(NamedTuple):
    """The wavenumber grid cut into blocks of one width in ln nu; the last is padded beyond the grid."""

    nu: np.ndarray  # (block, point), cm-1
    nodes: np.ndarray  # (block, node), cm-1, Chebyshev points of the block
    between: np.ndarray  # (node, point), Lagrange interpolation from the nodes to the points


def block_grid(nu: np.ndarray, points: int = 512) -> Blocks:
    """Cut `nu` [cm-1], uniform in log, into blocks of `points`.

    What is smooth in wavenumber (Planck function, continuum) is computed at a few nodes a block and interpolated:
    with x = h nu / kT up to 34, four nodes are good to 4e-5 over a block 0.017 wide in ln nu, six over 0.045
    and eight over 0.085 to better than that.
    """
    step = np.log(nu[-1] / nu[0]) / (nu.size - 1)
    count = -(-nu.size // points)
    padded = nu[0] * np.exp(step * np.arange(count * points)).reshape(count, points)
    order = next((n for n, width in ((4, 0.02), (6, 0.045)) if points * step < width), 8)
    roots = np.cos((np.arange(order)[::-1] + 0.5) * np.pi / order)  # in (-1, 1)
    place = np.linspace(-1, 1, points)
    between = np.linalg.solve(np.vander(roots, increasing=True).T, np.vander(place, order, increasing=True).T)
    half = 0.5 * step * (points - 1)
    nodes = padded[:, :1] * np.exp(half * (1 + roots))
    return Blocks(padded, nodes, between)
