"""All derivatives of one spectrum with respect to its parameters and the coefficients of the opacity field.

Forward mode, one tangent per atmospheric parameter and one per species, all through one walk of the table. Transfer is
local in wavenumber: what a coefficient does to the emergent flux is what ln kappa of its species does, times the
coefficient's basis function at the same wavenumber. So one tangent per species gives all its Fourier coefficients, and
radius and velocities, which act after the atmosphere, need none.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kappaflow.parameters import INDEX
from kappaflow.physics.emission import Tables, atmosphere, emergent_spectra, on_detector

__all__ = ["Sensitivity", "sensitivity"]

AFTER = ("R", "v_r", "v_sin_i")  # act on the emergent flux
NOWHERE = ("sigma_cal", "log_f")  # act on the noise


class Sensitivity(NamedTuple):
    """A spectrum [mJy at 10 pc] and its derivatives."""

    flux: Array  # (pixel,)
    theta: Array  # (parameter, pixel), per unit of each parameter
    field: Array  # (species, coefficient, pixel)


def sensitivity(
    theta: Float[Array, " parameter"],
    field: Float[Array, "species coefficient"],
    lists: Int[Array, " species"],
    tables: Tables,
) -> Sensitivity:
    """Return the spectrum of `theta`, `field` and `lists` with all its derivatives (see `emission.spectrum`)."""
    inside = jnp.array([i for name, i in INDEX.items() if name not in AFTER + NOWHERE])
    modes = tables.lines.fourier.shape[1]
    # The constant stands for all Fourier modes of its species; a coefficient past them goes by itself.
    apart = jnp.array([0, *range(modes, field.shape[1])])

    def emergent(some: Array, coefficients: Array) -> Float[Array, " nu"]:
        air = atmosphere(theta.at[inside].set(some), lists, tables)
        varied = field.at[:, apart].set(coefficients)
        return emergent_spectra(jax.tree.map(lambda a: a[None], air), varied[None], lists, tables.lines)[0]

    at = theta[inside], field[:, apart]
    flux, of_theta, of_field = _pushed(emergent, at)
    basis = jnp.moveaxis(tables.lines.fourier, 1, 0).reshape(modes, -1)
    of_field = jnp.concatenate([of_field[:, :1] * basis, of_field[:, 1:]], axis=1)
    rows = jnp.concatenate([flux[None], of_theta, of_field.reshape(-1, flux.size)])
    pixels = on_detector(jnp.broadcast_to(theta, (len(rows), theta.size)), rows, tables)

    def observed(some: Array) -> Float[Array, " pixel"]:
        return on_detector(theta.at[after].set(some)[None], flux[None], tables)[0]

    after = jnp.array([INDEX[name] for name in AFTER])
    outside = jax.jacfwd(observed)(theta[after])  # (pixel, 3)
    d_theta = jnp.zeros((theta.size, pixels.shape[1])).at[inside].set(pixels[1 : 1 + inside.size])
    d_field = pixels[1 + inside.size :].reshape(*field.shape, -1)
    return Sensitivity(pixels[0], d_theta.at[after].set(outside.T), d_field)


def _pushed(function: object, at: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    """Value (n,) of `function` at two arrays (a,) and (s, c), and its derivatives (a, n) and (s, c, n).

    One batch of tangents shares the value: what is computed again per tangent is linear.
    """
    sizes = [x.size for x in at]

    def push(tangent: Array) -> tuple[Array, Array]:
        parts = tangent[: sizes[0]], tangent[sizes[0] :].reshape(at[1].shape)
        return jax.jvp(function, at, parts)  # type: ignore[arg-type]

    value, tangents = jax.vmap(push, out_axes=(None, 0))(jnp.eye(sum(sizes), dtype=at[0].dtype))
    return value, tangents[: sizes[0]], tangents[sizes[0] :].reshape(*at[1].shape, -1)
