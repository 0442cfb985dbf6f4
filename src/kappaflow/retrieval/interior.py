"""The atmosphere behind a posterior, as bands: temperature, gases, quench levels, cloud, and the light's origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kappaflow.parameters import INDEX, SPECIES, TRACES

if TYPE_CHECKING:
    from kappaflow.model.atmospheres import Atmospheres

__all__ = ["BANDS", "Interior", "columns_of", "interior", "representative"]

BANDS = (0.025, 0.16, 0.5, 0.84, 0.975)  # levels of the bands: 68 and 95 % around the median


@dataclass(frozen=True, eq=False)
class Interior:
    """Quantiles at BANDS of the columns of all draws, on the model's layers, top first."""

    pressure: np.ndarray  # (layer,), bar
    temperature: np.ndarray  # (5, layer), K
    log_vmr: Mapping[str, np.ndarray]  # gas -> (5, layer), log10
    quench: Mapping[str, np.ndarray]  # what freezes -> (5,), log10(P/bar); absent where most draws have no such level
    cloud_depth: np.ndarray  # (5, layer), grey optical depth from the top down to the layer's bottom
    cloud_base: np.ndarray | None  # (5,), log10(P/bar); None where most draws have no cloud
    metallicity: float  # median [M/H], of which the condensation curve is drawn
    wavelength: np.ndarray  # (p,), um
    light: np.ndarray  # (layer + 1, p), share of each pixel's flux from each layer, the last from below them

    @property
    def probed(self) -> np.ndarray:
        """log10(P/bar) above which 2.5, 16, 50, 84 and 97.5 % of each pixel's light is emitted, (5, p)."""
        return np.stack([self._depth(share) for share in self.light.T], axis=1)

    def _depth(self, share: np.ndarray) -> np.ndarray:
        return np.interp(BANDS, np.cumsum(share)[:-1], np.log10(self.pressure))

    def probed_by(self, flux: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Share of all light from each layer (layer,), pixels weighted by `flux` (p,), and its pressures at BANDS."""
        weight = np.clip(flux, 0, None)
        share = self.light @ (weight / weight.sum())
        return share[:-1], self._depth(share)


def columns_of(model: Any, draws: np.ndarray) -> Atmospheres | None:
    """Return the columns of `draws` (n, D), or None where `model` has no atmosphere (none given, a made-up one)."""
    if not hasattr(model, "tables"):
        return None
    from kappaflow.model.atmospheres import atmospheres

    return atmospheres(model, draws)


def representative(draws: np.ndarray) -> np.ndarray:
    """Return the draw (D,) nearest to the medians of `draws` (n, D), each parameter in its own 68 % half-widths.

    A combination of medians may be an atmosphere that no draw has.
    """
    low, middle, high = np.quantile(draws, [0.16, 0.5, 0.84], axis=0)
    off = (draws - middle) / np.maximum((high - low) / 2, 1e-12)
    return draws[np.argmin((off**2).sum(axis=1))]


def interior(
    model: Any,
    draws: np.ndarray,
    columns: Atmospheres | None,
    shown: tuple[np.ndarray, np.ndarray | None, Mapping[str, str] | None] | None = None,
) -> Interior | None:
    """Return the bands of `draws` (n, D), whose `columns` these are; None without columns.

    `shown`: parameters, coefficients of the opacity field and line lists of which the contribution function is
    computed: a best fit's; by default the `representative` draw's, with the base lists.
    """
    if columns is None:
        return None
    from kappaflow.model.atmospheres import QUENCHED, contributions

    theta, field, lists = (representative(draws), None, None) if shown is None else shown
    gases = {gas: _bands(columns.log_vmr[:, i]) for i, gas in enumerate(SPECIES)}
    for trace in TRACES:
        if f"log_{trace}" in model.parameters.names:
            constant = _bands(draws[:, INDEX[f"log_{trace}"]])
            gases[trace] = np.repeat(constant[:, None], columns.pressure.size, axis=1)
    levels = {name: columns.quench[:, i] for i, name in enumerate(QUENCHED)}
    return Interior(
        columns.pressure,
        _bands(columns.temperature),
        gases,
        {name: found for name, level in levels.items() if (found := _known(level)) is not None},
        _bands(np.cumsum(columns.cloud_depth, axis=1)),
        _known(columns.cloud_base),
        float(np.median(draws[:, INDEX["M_H"]])),
        model.wavelength,
        contributions(model, theta, field, lists),
    )


def _bands(values: np.ndarray) -> np.ndarray:
    """Quantiles (5, ...) of (n, ...)."""
    return np.quantile(values, BANDS, axis=0, method="weibull")


def _known(values: np.ndarray) -> np.ndarray | None:
    """Quantiles of what is not NaN, where that is most of it."""
    there = np.isfinite(values)
    return _bands(values[there]) if there.mean() > 0.5 else None
