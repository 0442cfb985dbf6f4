"""The forward model at a few wavenumbers: what bends in a spectrum, cheaply."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from kappaflow.parameters import COEFFICIENTS

__all__ = ["ThinColumns", "ThinModel"]

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
        return _compiled()["thinned"](self.model.tables, self.rows, place.astype(np.int32))

    @cached_property
    def rows(self) -> np.ndarray:
        """Which list of each species."""
        return np.array(self.lists, np.int32)

    @cached_property
    def fourier(self) -> np.ndarray:
        """Basis (9, few) of the field."""
        return np.asarray(self.thinned.fourier, float)

    def at(self, theta: np.ndarray) -> ThinColumns:
        """Columns of `theta` (b, D)."""
        return ThinColumns(self, theta)


class ThinColumns:
    """Columns of one batch, of any size."""

    def __init__(self, thin: ThinModel, theta: np.ndarray) -> None:
        self.thin, self.count, self.theta = thin, len(theta), _batches(theta)
        self._air = [_compiled()["opened"](part, thin.rows, thin.thinned) for part in self.theta]

    def local(self, field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fluxes (b, few) with the coefficients `field` (b, K), and their derivatives (b, K, few) by these."""
        by_species = np.asarray(field).reshape(self.count, len(self.thin.lists), -1)
        each, basis = by_species.shape[2], self.thin.fourier
        ln_field = _batches(by_species[:, :, :COEFFICIENTS] @ basis)
        slope = _batches(by_species[:, :, COEFFICIENTS:].sum(axis=2))
        found = [_compiled()["local"](*part) for part in zip(self._air, ln_field, slope, strict=True)]
        self._places = [
            (theta, f, s, made.by_depth, made.by_source)
            for theta, f, s, made in zip(self.theta, ln_field, slope, found, strict=True)
        ]
        flux, by_field, by_slope = (
            _joined([getattr(made, name) for made in found], self.count) for name in ("flux", "by_field", "by_slope")
        )
        out = np.empty((self.count, len(self.thin.lists), each, flux.shape[1]))
        out[:, :, :COEFFICIENTS] = by_field[:, :, None] * basis
        out[:, :, COEFFICIENTS:] = by_slope[:, :, None]
        return flux, out.reshape(self.count, -1, flux.shape[1])

    def pulled(self, weight: np.ndarray) -> np.ndarray:
        """Gradient (b, D) by the parameters of the sum of `weight` (b, few) times the fluxes last computed."""
        parts = zip(self._places, _batches(weight), strict=True)
        made = [_compiled()["pulled"](place, part, self.thin.rows, self.thin.thinned) for place, part in parts]
        return _joined(made, self.count)


def _batches(array: np.ndarray) -> list[np.ndarray]:
    """Parts of one size; the last is filled up with what it begins with."""
    starts = range(0, len(array), TOGETHER)
    return [np.resize(np.float32(array[i : i + TOGETHER]), (TOGETHER, *array.shape[1:])) for i in starts]


def _joined(parts: Any, count: int) -> np.ndarray:
    return np.concatenate([np.asarray(part, float) for part in parts])[:count]


@cache
def _compiled() -> dict[str, Any]:
    import jax

    from kappaflow.physics.thinned import FluxPlace, local, opened, pulled, thinned

    def back(place: Any, weight: Any, lists: Any, thin: Any) -> Any:
        return pulled(FluxPlace(*place), weight, lists, thin)

    functions = {"thinned": thinned, "opened": opened, "local": local, "pulled": back}
    return {name: jax.jit(function) for name, function in functions.items()}
