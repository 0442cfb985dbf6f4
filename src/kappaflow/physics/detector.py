"""From the modelling grid to the detector: radial velocity, rotation, line-spread function, pixels.

The grid is uniform in ln(wavelength), so a velocity is a shift. Every step is a kernel without negative lobes:
nothing rings, and a positive spectrum stays positive.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kappaflow.constants import C

__all__ = ["KM", "Detector", "doppler_kernel", "observe"]

KM = C / 1e5  # speed of light, km/s


class Detector(NamedTuple):
    """The fixed part of the chain as arrays."""

    wavelength: Array  # (pixel,), um
    step: Array  # (), d ln(lambda) of the modelling grid
    offsets: Array  # (tap,), integers in units of `step`
    rotation: Array  # (2, point), nodes and weights of the rotation profile
    first: Array  # (group,), index into the modelling grid where each group of pixels begins to see
    matrix: Array  # (group, width, pixel of the group), line-spread function and pixel in one
    place: Array  # (pixel,), position of each pixel among the groups


def _spread(distance: Float[Array, ...]) -> Float[Array, ...]:
    """Quadratic B-spline: positive, sums to one and has the variance 1/4 at any sub-step shift, smooth in the shift."""
    a = jnp.abs(distance)
    return jnp.where(a < 0.5, 0.75 - a**2, 0.5 * jnp.clip(1.5 - a, 0.0) ** 2)


def doppler_kernel(parts: Detector, v_r: Float[Array, ...], v_sin_i: Float[Array, ...]) -> Float[Array, "... tap"]:
    """Weight of every neighbour in the spectrum shifted by `v_r` and broadened by `v_sin_i` [km/s]; they sum to one."""
    shift = jnp.log1p(v_r / KM) / parts.step
    breadth = v_sin_i / KM / parts.step
    nodes, weights = parts.rotation
    centre = shift[..., None] + breadth[..., None] * nodes  # (..., point)
    return jnp.sum(weights * _spread(parts.offsets[:, None] - centre[..., None, :]), axis=-1)


def observe(
    parts: Detector, flux: Float[Array, "batch nu"], kernel: Float[Array, "batch tap"]
) -> Float[Array, "batch pixel"]:
    """Pixels of spectra `flux` given on the modelling grid (ascending wavenumber), with each its Doppler `kernel`."""
    taps = kernel.shape[-1]
    points = flux.shape[-1]
    padded = jnp.pad(flux, ((0, 0), (taps // 2, taps // 2)), mode="edge")
    # Towards higher wavenumber the wavelength falls: a redshift brings in what was at the higher index.
    moved = jnp.zeros_like(flux)
    for j in range(taps):
        moved = moved + kernel[:, j, None] * padded[:, j : j + points]
    width = parts.matrix.shape[1]

    def group(of_group: tuple[Array, Array]) -> Float[Array, "batch of_group"]:
        first, matrix = of_group
        return jnp.dot(lax.dynamic_slice_in_dim(moved, first, width, axis=1), matrix, precision="highest")

    pixels = lax.map(group, (parts.first, parts.matrix))  # group, batch, pixel of the group
    return jnp.moveaxis(pixels, 0, 1).reshape(flux.shape[0], -1)[:, parts.place]
