"""A stand-in for the forward model: thousands of smooth, made-up spectra per second, in NumPy alone.

It tests what surrounds a simulation (a cluster, a file system, a kill) without its physics: `kappaflow simulate --toy`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kappaflow.instrument import WINDOW
from kappaflow.parameters import INDEX, PARAMETER_SETS, ParameterSet
from kappaflow.storage import digest

__all__ = ["ToyModel"]

_LISTS = {"H2O": ("base", "exomol"), "CH4": ("base", "exomol"), "CO": ("base", "air"), "CO2": ("base", "exomol")}


@dataclass(frozen=True)
class ToyModel:
    """One broad band per species on a sloping continuum; `pace` seconds are slept at each call."""

    pixels: int = 90
    pace: float = 0.0
    parameters: ParameterSet = PARAMETER_SETS["paper"]

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Species -> its line lists, the base first."""
        return {s: _LISTS.get(s, ("base",)) for s in self.parameters.species}

    def broadened(self, broadening: tuple[float, float]) -> ToyModel:
        """Return the model itself: its bands know no half-widths."""
        return self

    @property
    def wavelength(self) -> np.ndarray:
        """Pixels [micron], 2.87 to 5.27."""
        return np.linspace(*WINDOW, self.pixels)

    @property
    def digest(self) -> str:
        """Digest of what decides the spectra."""
        return digest(["toy", self.pixels, self.parameters.name])

    table_digest = "toy"

    def __call__(
        self, theta: np.ndarray, field: np.ndarray | None = None, lists: Mapping[str, str] | None = None
    ) -> np.ndarray:
        """Return positive flux (n, p), float32."""
        time.sleep(self.pace)
        theta = np.asarray(theta, dtype=float)
        low, high, species = self.parameters.low, self.parameters.high, self.parameters.species
        unit = (theta - low) / (high - low)
        x = np.linspace(0, 1, self.pixels)
        shape = (len(theta), len(species), self.parameters.coefficients)
        strength = np.exp(np.zeros(shape) if field is None else np.asarray(field).reshape(shape))[..., 0]
        depth = np.zeros((len(theta), self.pixels))
        for i, name in enumerate(species):
            swapped = (lists or {}).get(name, "base") != "base"
            centre = (i + 0.5) / len(species) + (0.01 if swapped else 0.0)
            band = np.exp(-0.5 * ((x - centre) / 0.08) ** 2)
            depth += (0.2 + unit[:, i % len(self.parameters), None]) * strength[:, i, None] * band
        slope = 1 + 0.5 * unit[:, :1] * x
        return ((unit[:, INDEX["R"], None] + 0.1) ** 2 * slope * np.exp(-depth)).astype(np.float32)
