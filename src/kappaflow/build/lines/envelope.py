"""The smooth shape of a molecule's opacity: what a hot term follows inside a band that is known by its mean alone.

Means over a few tens of cm-1 at a few temperatures; between and beyond them each wavenumber has the lower energy that
two neighbouring temperatures tell, so that the shape moves with temperature as the molecule's lines do.
"""

from dataclasses import dataclass

import numpy as np

from kappaflow.build.lines.hitran import partition_ratio
from kappaflow.constants import C2, T_REFERENCE

__all__ = ["Envelope", "population"]

E_RANGE = (0.0, 5000.0)  # cm-1, of the lower energy that carries the shape beyond the temperatures known


def population(molecule: str, nu: np.ndarray, temperature: float) -> np.ndarray:
    """Return Q(296 K)/Q(T) and stimulated emission: a strength's change from 296 K but for its lower energy."""
    stimulated = np.expm1(-C2 * nu / temperature) / np.expm1(-C2 * nu / T_REFERENCE)
    return partition_ratio(molecule, 1, temperature) * stimulated


@dataclass(frozen=True)
class Envelope:
    """Smoothed cross sections `sigma` (T, nu) [cm2/molecule] at `nu` [cm-1] and `temperature` [K], both ascending."""

    molecule: str
    nu: np.ndarray
    temperature: np.ndarray
    sigma: np.ndarray

    def at(self, temperature: float) -> np.ndarray:
        """Cross section (nu,) at `temperature`: ln(sigma/population) is linear in 1/T between neighbours."""
        known = self.temperature
        left = int(np.clip(np.searchsorted(known, temperature) - 1, 0, known.size - 2))
        cool, warm = known[left], known[left + 1]
        reduced = [np.log(self.sigma[i] / population(self.molecule, self.nu, known[i])) for i in (left, left + 1)]
        energy = (reduced[1] - reduced[0]) / (C2 * (1 / cool - 1 / warm))
        nearest, base = (warm, reduced[1]) if temperature > warm else (cool, reduced[0])
        if not cool <= temperature <= warm:
            energy = np.clip(energy, *E_RANGE)
        carried = base - C2 * energy * (1 / temperature - 1 / nearest)
        return np.exp(carried) * population(self.molecule, self.nu, temperature)
