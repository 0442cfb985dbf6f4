"""The forward model at a few wavenumbers, and the numbers of its columns: what bends in a spectrum, cheaply.

Numbers are the ln columns, temperatures and smooth opacities of all layers: what parameters act through.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from kappaflow.parameters import COEFFICIENTS

__all__ = ["ThinModel", "ThinSlopes", "ThinSpectra"]

FEW = 64  # wavenumbers
TOGETHER = 32  # columns at once: another size would have to be compiled


class ThinSlopes(NamedTuple):
    """Fluxes at a few wavenumbers and the columns' numbers, with derivatives by parameters and coefficients."""

    flux: np.ndarray  # (b, few)
    flux_by_theta: np.ndarray  # (b, D, few)
    flux_by_field: np.ndarray  # (b, K, few)
    numbers_by_theta: np.ndarray  # (b, D, values)
    numbers_by_field: np.ndarray  # (b, K, values)


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

    def slopes(self, theta: np.ndarray, field: np.ndarray) -> ThinSlopes:
        """Fluxes of `theta` (b, D) with coefficients `field` (b, K), and derivatives of these and of the numbers."""
        by_species, lists = self.by_species(field), np.array(self.lists, np.int32)
        parts = [_batches(a) for a in (theta, self.slope(by_species), self.ln_field(by_species))]
        found = [_compiled()["slopes"](*part, lists, self.thinned) for part in zip(*parts, strict=True)]
        joined = (_joined(column, len(theta)) for column in zip(*found, strict=True))
        flux, _, flux_by, numbers_by, of_field = joined
        d = theta.shape[1]
        flux_by, numbers_by = np.moveaxis(flux_by, 2, 1), np.moveaxis(numbers_by, 2, 1)
        flux_by_field = self._of_slopes(flux_by[:, d:])
        flux_by_field[:, :, :COEFFICIENTS] = of_field[:, :, None] * np.asarray(self.thinned.fourier)
        shape = (len(theta), self.inside.size, -1)
        return ThinSlopes(
            flux,
            flux_by[:, :d],
            flux_by_field.reshape(shape),
            numbers_by[:, :d],
            self._of_slopes(numbers_by[:, d:]).reshape(shape),
        )

    def _of_slopes(self, by_slope: np.ndarray) -> np.ndarray:
        """Return derivatives (b, species, coefficients, m) from those by the slope of each species (b, species, m)."""
        each = self.model.parameters.coefficients
        out = np.zeros((*by_slope.shape[:2], each, by_slope.shape[2]))
        out[:, :, COEFFICIENTS:] = by_slope[:, :, None]
        return out

    def by_species(self, field: np.ndarray) -> np.ndarray:
        """Coefficients (b, species, coefficients) of `field` (b, K)."""
        return np.asarray(field).reshape(len(field), len(self.lists), -1)

    def slope(self, by_species: np.ndarray) -> np.ndarray:
        """Slope in temperature (b, species), 0 where there is none."""
        return by_species[:, :, COEFFICIENTS:].sum(axis=2)

    def ln_field(self, by_species: np.ndarray) -> np.ndarray:
        """Ln of the opacities' factor (b, species, few)."""
        return by_species[:, :, :COEFFICIENTS] @ np.asarray(self.thinned.fourier, float)

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
        parts = zip(_batches(theta), _batches(thin.slope(thin.by_species(field))), strict=True)
        self._given = [(*part, lists, tables) for part in parts]
        self._columns = [_compiled()["columns"](*given) for given in self._given]
        self.numbers = _joined([numbers for _, numbers in self._columns], self.count)  # (b, values)

    def flux(self, field: np.ndarray) -> np.ndarray:
        """Fluxes (b, few) with the coefficients `field` (b, K)."""
        parts = zip(self._columns, _batches(self.thin.ln_field(self.thin.by_species(field))), strict=True)
        self._depths = [_compiled()["depths"](air, part, self.thin.thinned) for (air, _), part in parts]
        self._tops = [_compiled()["top"](*made) for made, _ in self._depths]
        return _joined([made for made, _ in self._tops], self.count)

    def pulled_flux(self, weight: np.ndarray) -> np.ndarray:
        """Gradient (b, K) by the coefficients, columns held, of the sum of `weight` (b, few) times `flux`."""
        steps = zip(self._tops, self._depths, _batches(weight), strict=True)
        back = _compiled()["back"]
        self._of_columns, parts = zip(
            *(back(deep, back(top, part)) for (_, top), (_, deep), part in steps), strict=True
        )
        of_field = np.zeros((self.count, len(self.thin.lists), self.thin.model.parameters.coefficients))
        of_field[:, :, :COEFFICIENTS] = _joined(parts, self.count) @ np.asarray(self.thin.thinned.fourier).T
        return of_field.reshape(self.count, -1)

    def pulled_columns(self, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradients (b, D), (b, K) of the last `pulled_flux` and of the sum of `weight` (b, values) times `numbers`.

        By the parameters and by the slopes among the coefficients.
        """
        steps = zip(self._given, self._of_columns, _batches(weight), strict=True)
        found = [_compiled()["columns back"](*given, (of_air, part)) for given, of_air, part in steps]
        of_theta, of_slopes = (_joined(column, self.count) for column in zip(*found, strict=True))
        of_field = np.zeros((self.count, len(self.thin.lists), self.thin.model.parameters.coefficients))
        of_field[:, :, COEFFICIENTS:] = of_slopes[:, :, None]
        return of_theta, of_field.reshape(self.count, -1)


def _batches(array: np.ndarray) -> list[np.ndarray]:
    """Parts of one size; the last is filled up with what it begins with."""
    starts = range(0, len(array), TOGETHER)
    return [np.resize(np.float32(array[i : i + TOGETHER]), (TOGETHER, *array.shape[1:])) for i in starts]


def _joined(parts: Any, count: int) -> np.ndarray:
    return np.concatenate([np.asarray(part, float) for part in parts])[:count]


@cache
def _compiled() -> dict[str, Any]:
    import jax

    from kappaflow.physics.sensitivity import column_response
    from kappaflow.physics.thinned import columns, depths, slopes, thinned, top_flux

    def columns_back(theta: Any, slope: Any, lists: Any, tables: Any, weight: Any) -> Any:
        return jax.vjp(lambda t, s: columns(t, s, lists, tables), theta, slope)[1](weight)

    # Three programs, each with its way back: as one, the compiler computes much of it twice. Columns are computed again
    # on theirs: that is quicker than to keep all they went through.
    functions = {
        "thinned": thinned,
        "slopes": slopes,
        "response": column_response,
        "columns": columns,
        "columns back": columns_back,
        "depths": lambda air, field, thin: jax.vjp(lambda a, f: depths(a, f, thin), air, field),
        "top": lambda depth, source: jax.vjp(top_flux, depth, source),
        "back": lambda back, weight: back(weight),
    }
    return {name: jax.jit(function) for name, function in functions.items()}
