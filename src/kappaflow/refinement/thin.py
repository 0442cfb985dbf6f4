"""The forward model at a few wavenumbers, and the numbers of its columns: what bends in a spectrum, cheaply.

Numbers are the ln columns, temperatures and smooth opacities of all layers: what parameters act through.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from kappaflow.parameters import COEFFICIENTS

__all__ = ["ThinModel", "ThinSpectra"]

FEW = 64  # wavenumbers
TOGETHER = 32  # columns at once: another size would have to be compiled


@dataclass(frozen=True, eq=False)
class ThinModel:
    """Columns of the forward model, its line lists chosen, and their flux at wavenumbers spread over good pixels."""

    model: Any  # kappaflow.ForwardModel
    lists: tuple[int, ...]  # of each species
    good: np.ndarray  # (p,), which pixels count

    @cached_property
    def thinned(self) -> Any:
        """The model's tables, thinned."""
        lines = self.model.tables.lines
        grid = (np.asarray(lines.nodes) @ np.asarray(lines.between)).ravel()  # cm-1, ascending
        pixels = 1e4 / self.model.wavelength[self.good]
        chosen = pixels[np.linspace(0, pixels.size - 1, FEW).round().astype(int)]
        place = np.searchsorted(grid, chosen).clip(0, grid.size - 1)
        return _compiled()["thinned"](self.model.tables, np.array(self.lists, np.int32), place.astype(np.int32))

    @property
    def inside(self) -> np.ndarray:
        """Which coefficients (K,) act on the columns: slopes in temperature."""
        each = self.model.parameters.coefficients
        return np.arange(len(self.lists) * each) % each >= COEFFICIENTS

    def jacobian(self, theta: np.ndarray, field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives (D, values) and (K, values) of a column's numbers at `theta` (D,), `field` (K,)."""
        slopes = np.asarray(field).reshape(len(self.lists), -1)[:, COEFFICIENTS:].sum(axis=1)
        lists = np.array(self.lists, np.int32)
        made = _compiled()["jacobian"](np.float32(theta), np.float32(slopes), lists, self.model.tables)
        of_theta, of_slopes = (np.asarray(a, float).T for a in made)
        of_field = np.zeros((self.inside.size, of_theta.shape[1]))
        if self.inside.any():
            of_field[self.inside] = of_slopes
        return of_theta, of_field

    def response(self, theta: np.ndarray, field: np.ndarray) -> np.ndarray:
        """Return the derivatives (values, p) of the spectrum of `theta` (D,) and `field` (K,) by the numbers."""
        coefficients, lists = np.float32(field).reshape(len(self.lists), -1), np.array(self.lists, np.int32)
        return np.asarray(_compiled()["response"](np.float32(theta), coefficients, lists, self.model.tables), float)

    def at(self, theta: np.ndarray, field: np.ndarray) -> ThinSpectra:
        """Columns of `theta` (b, D) with the slopes among the coefficients `field` (b, K)."""
        return ThinSpectra(self, theta, field)


class ThinSpectra:
    """Columns of one batch, of any size; fluxes and gradients keep what has been computed."""

    def __init__(self, thin: ThinModel, theta: np.ndarray, field: np.ndarray) -> None:
        self.thin, self.count = thin, len(theta)
        lists, tables = np.array(thin.lists, np.int32), thin.thinned.tables
        slopes = self._by_species(field)[:, :, COEFFICIENTS:].sum(axis=2)  # 0 where there are none
        parts = zip(self._batches(theta), self._batches(slopes), strict=True)
        self._columns = [_compiled()["columns"](*part, lists, tables) for part in parts]
        self.numbers = self._joined([made[1] for made, _ in self._columns])  # (b, values)

    def flux(self, field: np.ndarray) -> np.ndarray:
        """Fluxes (b, few) with the coefficients `field` (b, K)."""
        parts = zip(self._columns, self._batches(self._by_species(field)), strict=True)
        self._depths = [_compiled()["depths"](made[0], part, self.thin.thinned) for (made, _), part in parts]
        self._tops = [_compiled()["top"](*made) for made, _ in self._depths]
        return self._joined([made for made, _ in self._tops])

    def pulled_flux(self, weight: np.ndarray) -> np.ndarray:
        """Gradient (b, K) by the coefficients, columns held, of the sum of `weight` (b, few) times `flux`."""
        steps = zip(self._tops, self._depths, self._batches(weight), strict=True)
        back = _compiled()["back"]
        self._of_columns, of_field = zip(
            *(back(deep, back(top, part)) for (_, top), (_, deep), part in steps), strict=True
        )
        return self._joined(of_field).reshape(self.count, -1)

    def pulled_columns(self, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradients (b, D), (b, K) of the last `pulled_flux` and of the sum of `weight` (b, values) times `numbers`.

        By the parameters and by the slopes among the coefficients.
        """
        steps = zip(self._columns, self._of_columns, self._batches(weight), strict=True)
        found = [_compiled()["back"](back, (of_air, part)) for (_, back), of_air, part in steps]
        of_theta, of_slopes = (self._joined(column) for column in zip(*found, strict=True))
        each = self.thin.model.parameters.coefficients
        of_field = np.zeros((self.count, len(self.thin.lists), each))
        of_field[:, :, COEFFICIENTS:] = of_slopes[:, :, None]
        return of_theta, of_field.reshape(self.count, -1)

    def _by_species(self, field: np.ndarray) -> np.ndarray:
        return np.asarray(field).reshape(len(field), len(self.thin.lists), -1)

    def _batches(self, array: np.ndarray) -> list[np.ndarray]:
        """Parts of one size; the last is filled up with what it begins with."""
        starts = range(0, len(array), TOGETHER)
        return [np.resize(np.float32(array[i : i + TOGETHER]), (TOGETHER, *array.shape[1:])) for i in starts]

    def _joined(self, parts: Any) -> np.ndarray:
        return np.concatenate([np.asarray(part, float) for part in parts])[: self.count]


@cache
def _compiled() -> dict[str, Any]:
    import jax

    from kappaflow.physics.sensitivity import column_response, column_values
    from kappaflow.physics.thinned import columns, depths, thinned, top_flux

    # Three programs, each with its way back: as one, the compiler computes much of it twice.
    functions = {
        "thinned": thinned,
        "jacobian": jax.jacfwd(column_values, argnums=(0, 1)),
        "response": column_response,
        "columns": lambda theta, slopes, *tables: jax.vjp(lambda t, s: columns(t, s, *tables), theta, slopes),
        "depths": lambda air, field, thin: jax.vjp(lambda a, f: depths(a, f, thin), air, field),
        "top": lambda depth, source: jax.vjp(top_flux, depth, source),
        "back": lambda back, weight: back(weight),
    }
    return {name: jax.jit(function) for name, function in functions.items()}
