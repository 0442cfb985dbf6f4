"""The numbers of an atmosphere's column as functions of parameters and coefficients, for batches of any size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kappaflow.parameters import COEFFICIENTS

__all__ = ["ListedColumn"]

TOGETHER = 32  # columns at once: another size would have to be compiled


@dataclass(frozen=True)
class ListedColumn:
    """Columns of the forward model with its line lists chosen; see `physics.sensitivity.column_values`."""

    model: Any  # kappaflow.ForwardModel
    lists: tuple[int, ...]  # of each species

    @property
    def inside(self) -> np.ndarray:
        """Which coefficients (K,) act on the column: slopes in temperature."""
        each = self.model.parameters.coefficients
        return np.arange(len(self.lists) * each) % each >= COEFFICIENTS

    def values(self, theta: np.ndarray, field: np.ndarray) -> np.ndarray:
        """Return the numbers (b, values) of columns of `theta` (b, D) and coefficients `field` (b, K)."""
        return self._run("values", theta, self._slopes(field))[0]

    def pulled(self, theta: np.ndarray, field: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradients (b, D) and (b, K) of the sum of `weight` (b, values) times the numbers."""
        of_theta, of_slope = self._run("pulled", theta, self._slopes(field), weight)
        return of_theta, self._spread(of_slope)

    def jacobian(self, theta: np.ndarray, field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives (b, D, values) and (b, K, values) of the numbers."""
        of_theta, of_slope = self._run("jacobian", theta, self._slopes(field))
        return np.moveaxis(of_theta, 2, 1), self._spread(np.moveaxis(of_slope, 2, 1))

    def response(self, theta: np.ndarray, field: np.ndarray) -> np.ndarray:
        """Return the derivatives (values, p) of the spectrum of `theta` (D,) and `field` (K,) by the numbers."""
        coefficients = np.asarray(field, np.float32).reshape(len(self.lists), -1)
        lists = np.array(self.lists, np.int32)
        return np.asarray(_compiled()["response"](np.float32(theta), coefficients, lists, self.model.tables), float)

    def _slopes(self, field: np.ndarray) -> np.ndarray:
        """Slopes (b, species) among coefficients (b, K); 0 where there are none."""
        each = field.reshape(len(field), len(self.lists), -1)
        return each[:, :, COEFFICIENTS] if each.shape[2] > COEFFICIENTS else np.zeros(each.shape[:2])

    def _spread(self, of_slope: np.ndarray) -> np.ndarray:
        """Return the derivatives (b, K, ...) by coefficients from those by slopes (b, species, ...)."""
        out = np.zeros((len(of_slope), self.inside.size, *of_slope.shape[2:]))
        if self.inside.any():
            out[:, self.inside] = of_slope
        return out

    def _run(self, what: str, *arrays: np.ndarray) -> list[np.ndarray]:
        lists, parts = np.array(self.lists, np.int32), []
        for i in range(0, len(arrays[0]), TOGETHER):
            some = [np.asarray(a[i : i + TOGETHER], np.float32) for a in arrays]
            rows = np.arange(TOGETHER) % len(some[0])
            found = _compiled()[what](*(a[rows] for a in some), lists, self.model.tables)
            parts.append([np.asarray(a, float)[: len(some[0])] for a in found])
        return [np.concatenate(column) for column in zip(*parts, strict=True)]


@cache
def _compiled() -> dict[str, Any]:
    import jax

    from kappaflow.physics.sensitivity import column_response, column_values

    def pulled(theta: Any, slopes: Any, weight: Any, lists: Any, tables: Any) -> Any:
        _, back = jax.vjp(lambda t, s: column_values(t, s, lists, tables), theta, slopes)
        return back(weight)

    def values(*arrays: Any) -> tuple[Any]:
        return (column_values(*arrays),)

    jacobian = jax.jacfwd(column_values, argnums=(0, 1))
    batched = {
        "values": jax.vmap(values, in_axes=(0, 0, None, None)),
        "pulled": jax.vmap(pulled, in_axes=(0, 0, 0, None, None)),
        "jacobian": jax.vmap(jacobian, in_axes=(0, 0, None, None)),
        "response": column_response,
    }
    return {name: jax.jit(function) for name, function in batched.items()}
