"""Cross sections of every line list at the layers' own pressures, cut to the functions of temperature that count."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline
from threadpoolctl import threadpool_limits

from kappaflow.constants import AMU, BAR
from kappaflow.parameters import INDEX, KNOT_LOG_PRESSURE, ParameterSet
from kappaflow.tables.field_prior import fourier_basis
from kappaflow.tables.opacity import OpacityTable

__all__ = ["Blocks", "block_grid", "negligible", "prepare_lines", "reduce_rank", "temperature_grid"]

TERMS = 14  # functions of temperature kept per list and layer
AT_ONCE = 4  # lists in work together: each takes some 0.4 GB at 20,000 points


def prepare_lines(
    opacity: OpacityTable,
    log_pressure: np.ndarray,
    stride: int,
    broadening: tuple[float, float],
    parameters: ParameterSet,
) -> dict[str, np.ndarray]:
    """Bring `opacity` to `log_pressure` [log10 bar] and every `stride`-th wavenumber: the fields of `LineTables`.

    The species are those of `parameters`, whose prior says which temperatures matter in which layer.
    """
    nu = opacity.nu[::stride]
    blocks = block_grid(nu, points=512 if nu.size > 4000 else 128)
    count, points = blocks.nu.shape
    names = [(s, name) for s in parameters.species for name in opacity.lists[s]]
    terms = min(TERMS, opacity.temperature.size)
    basis = np.empty((count, log_pressure.size, len(names), terms, points), np.float32)
    floor = negligible(log_pressure).astype(np.float32)[:, None, None]
    weights = _likely(log_pressure, opacity.temperature, parameters)

    def fill(row: int) -> np.ndarray:
        ln_sigma = opacity.ln_sigma(*names[row], log_pressure, stride=stride, broadening=broadening)
        # What no column of the prior can show is levelled off, so that the few terms go to what can be seen.
        loading, reduced = reduce_rank(np.logaddexp(ln_sigma, floor), terms, weights)
        basis[:, :, row] = np.moveaxis(_cut(reduced, count, points), 2, 0)
        return loading

    # The last bits of linear algebra depend on its number of threads: one, so that they do not depend on the machine;
    # the lists share the cores instead.
    with threadpool_limits(1), ThreadPoolExecutor(min(AT_ONCE, os.cpu_count() or 1)) as pool:
        loading = np.stack(list(pool.map(fill, range(len(names)))))
    return {
        **{f"grid.{name}": array for name, array in temperature_grid(opacity.temperature).items()},
        "first": np.cumsum([0, *(len(opacity.lists[s]) for s in parameters.species[:-1])]),
        "loading": loading,
        "basis": basis,
        "fourier": np.moveaxis(_cut(fourier_basis(nu), count, points), 1, 0),
        "nodes": blocks.nodes,
        "between": blocks.between,
    }


def _likely(log_pressure: np.ndarray, temperature: np.ndarray, parameters: ParameterSet) -> np.ndarray:
    """Weight (layer, T) of an error: 1 at temperatures that the prior reaches in a layer, 0.1 below them."""
    coldest = parameters.low[INDEX["T1"] : INDEX["T5"] + 1]
    # The profile stays between neighbouring knots, so the upper of the two bounds a layer from below.
    knot = np.clip(np.searchsorted(KNOT_LOG_PRESSURE, log_pressure, side="right") - 1, 0, coldest.size - 2)
    return np.where(temperature >= 0.85 * coldest[knot][:, None], 1.0, 0.1)


def _cut(array: np.ndarray, count: int, points: int) -> np.ndarray:
    """Cut the last axis into `count` blocks of `points`, the last filled with the edge value, which no pixel sees."""
    missing = count * points - array.shape[-1]
    padded = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)], mode="edge")
    return padded.reshape(*array.shape[:-1], count, points)


def temperature_grid(temperature: np.ndarray) -> dict[str, np.ndarray]:
    """Cubic splines between `temperature` [K], ascending: the fields of `TemperatureGrid`."""
    nodes = np.log(np.asarray(temperature, dtype=float))
    cubic = CubicSpline(nodes, np.eye(nodes.size))  # not-a-knot: fourth order up to the ends
    return {"log_nodes": nodes, "spline": np.moveaxis(cubic.c, 1, 0)}


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

    What is smooth in wavenumber (Planck function, continuum) is computed at a few nodes per block and interpolated:
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
