"""The atmospheres behind parameters, NumPy on both sides: profiles, quench levels, cloud, sources of light."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from kappaflow.model.forward import ForwardModel
from kappaflow.parameters import GASES
from kappaflow.physics.structure import contribution, structure

__all__ = ["QUENCHED", "Atmospheres", "atmospheres", "contributions"]

QUENCHED = ("CO, CH4", "CO2", "NH3")  # what freezes at each of the quench levels
_CHUNK = 250  # columns computed together


@dataclass(frozen=True, eq=False)
class Atmospheres:
    """Columns of `n` sets of parameters on the model's layers, top first."""

    pressure: np.ndarray  # (layer,), bar
    temperature: np.ndarray  # (n, layer), K
    log_vmr: np.ndarray  # (n, gas, layer), log10 of the volume mixing ratio, in the order of GASES
    quench: np.ndarray  # (n, 3), log10(P/bar) of the levels in QUENCHED; NaN where there is none
    cloud_depth: np.ndarray  # (n, layer), grey optical depth in each layer
    cloud_base: np.ndarray  # (n,), log10(P/bar); NaN where nothing condenses

    def at(self, gas: str, bar: float) -> np.ndarray:
        """log10 of the mixing ratio of `gas` at a pressure [bar], (n,), linear in log P between layers."""
        x, at = np.log10(self.pressure), np.log10(bar)
        i = int(np.clip(np.searchsorted(x, at) - 1, 0, x.size - 2))
        share = (at - x[i]) / (x[i + 1] - x[i])
        values = self.log_vmr[:, GASES.index(gas)]
        return (1 - share) * values[:, i] + share * values[:, i + 1]


def atmospheres(model: ForwardModel, theta: np.ndarray) -> Atmospheres:
    """Return the columns of `theta` (n, D).

    Examples
    --------
    >>> model = ForwardModel.load("tiny")
    >>> found = atmospheres(model, [[300, 500, 900, 1500, 2500, 0.55, 0, 8, 5, 1, 3, 2, 0, 5, 0]])
    >>> found.temperature.shape, bool(found.at("H2O", 1.0)[0] > -4)
    ((1, 30), True)
    """
    rows = np.atleast_2d(np.asarray(theta, np.float32))
    size = min(_CHUNK, len(rows))
    padded = np.concatenate([rows, np.repeat(rows[-1:], -len(rows) % size, axis=0)])
    parts = [_structures(jnp.asarray(padded[i : i + size]), model.tables) for i in range(0, len(padded), size)]
    joined = [np.concatenate([np.asarray(part[k]) for part in parts])[: len(rows)] for k in range(len(parts[0]))]
    return Atmospheres(np.asarray(model.tables.layers.pressure), *joined)


def contributions(
    model: ForwardModel,
    theta: np.ndarray,
    field: np.ndarray | None = None,
    lists: Mapping[str, str] | None = None,
) -> np.ndarray:
    """Share of each pixel's flux from each layer, (layer + 1, pixel), of one `theta` (D,); the last is from below."""
    shape = (len(model.parameters.species), model.parameters.coefficients)
    coefficients = np.zeros(shape) if field is None else np.reshape(field, shape)
    rows = model.list_indices(lists or {})
    found = _contribution(jnp.asarray(theta, jnp.float32), jnp.asarray(coefficients, jnp.float32), rows, model.tables)
    flux = np.asarray(found)
    return flux / flux.sum(axis=0)


_structures = jax.jit(jax.vmap(structure, in_axes=(0, None)))
_contribution = jax.jit(contribution)
