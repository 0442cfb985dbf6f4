"""Two line lists side by side: their ratio over (T, P), and the Fourier field that describes it.

The ratio is taken of cross sections averaged in windows of R = 200 (sampled ones differ line by line), and fitted with
ln(A/B) = c0 + sum_m [a_m cos 2 pi m u + b_m sin 2 pi m u], u the normalized log wavenumber: the perturbation's field.
How its mean over the window moves with temperature is the slope: gamma in (T/700 K)^gamma.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.parameters import COEFFICIENTS, MODES
from kappaflow.tables.field_prior import fourier_basis
from kappaflow.tables.opacity import OpacityTable

__all__ = ["Comparison", "compare_lists", "slope_widths"]

BINNED_TO = 200.0  # resolving power of the bins that are compared
TEMPERATURES = (400.0, 1500.0)  # K, the photospheric range of the paper's amplitudes
LOG_PRESSURES = (-1.0, 1.5)  # 0.1 to 30 bar, likewise
PIVOT = 700.0  # K, where the slope leaves the opacity as it is
SEEN = 1e-27  # cm2: windows with less, in either list, say nothing of the slope: one list simply ends there


@dataclass(frozen=True)
class Comparison:
    """Ratio spectra `ln_ratio` (P, T, window) at `nu` [cm-1] and their `fit` (P, T, 9).

    `seen` (window,) tells where both lists absorb, more than 1e-27 cm2 at every node.
    """

    nu: np.ndarray
    log_pressure: np.ndarray
    temperature: np.ndarray
    ln_ratio: np.ndarray
    fit: np.ndarray
    seen: np.ndarray

    @property
    def field(self) -> np.ndarray:
        """The fitted field, (P, T, window)."""
        return self.fit @ fourier_basis(self.nu)

    @property
    def slope(self) -> float:
        """Exponent of T/700 K that the ratio's mean, where seen, follows; root mean square over pressures."""
        if self.temperature.size < 2 or not self.seen.any():
            return 0.0
        x = np.log(self.temperature / PIVOT)
        gamma = np.polynomial.polynomial.polyfit(x, self.ln_ratio[..., self.seen].mean(axis=-1).T, 1)[1]
        return float(np.sqrt((gamma**2).mean()))

    def summary(self) -> dict[str, Any]:
        """Spread of each mode over (T, P), rms of ratio, of the field and of what it leaves, per temperature too."""
        residual = self.ln_ratio - self.field
        spread = np.sqrt((self.fit**2).mean(axis=(0, 1)))  # about zero: the prior has zero mean
        cosine, sine = spread[1 : 1 + MODES], spread[1 + MODES :]
        return {
            "sigma": {
                "const": round(float(spread[0]), 4),
                "modes": np.sqrt((cosine**2 + sine**2) / 2).round(4).tolist(),
            },
            "slope": round(self.slope, 4),
            "rms ln ratio": round(float(np.sqrt((self.ln_ratio**2).mean())), 4),
            "rms field": round(float(np.sqrt((self.field**2).mean())), 4),
            "rms residual": round(float(np.sqrt((residual**2).mean())), 4),
            "rms ln ratio by temperature": {
                f"{t:.0f} K": round(float(np.sqrt((self.ln_ratio[:, i] ** 2).mean())), 4)
                for i, t in enumerate(self.temperature)
            },
        }


def compare_lists(
    a: tuple[OpacityTable, str, str],
    b: tuple[OpacityTable, str, str],
    *,
    temperatures: tuple[float, float] = TEMPERATURES,
    log_pressures: tuple[float, float] = LOG_PRESSURES,
) -> Comparison:
    """Compare two lists, each (table, species, name), at the nodes of the first table within the given ranges."""
    (first, species_a, name_a), (second, species_b, name_b) = a, b
    if species_a != species_b:
        raise UserError(f"opacity compare: {species_a} against {species_b}; expected two lists of one species")
    if not np.array_equal(first.nu, second.nu) or not np.array_equal(first.temperature, second.temperature):
        raise UserError("opacity compare: the two tables have different grids; build both with the same one")
    use_t = (first.temperature >= temperatures[0]) & (first.temperature <= temperatures[1])
    log_p = first.log_pressure[(first.log_pressure >= log_pressures[0]) & (first.log_pressure <= log_pressures[1])]
    if not use_t.any() or not log_p.size:
        raise UserError("opacity compare: no node of the table lies in the range of temperature and pressure asked for")
    edges = np.arange(0, first.nu.size, max(int(1 / BINNED_TO / np.log(first.nu[1] / first.nu[0])), 1))
    means = [
        _window_means(table.ln_sigma(species, name, log_p)[:, use_t], edges)
        for table, species, name in ((first, species_a, name_a), (second, species_b, name_b))
    ]
    ratio = means[0] - means[1]
    nu = np.exp(np.add.reduceat(np.log(first.nu), edges) / np.diff(np.append(edges, first.nu.size)))
    design = fourier_basis(nu).T
    fit = np.linalg.lstsq(design, ratio.reshape(-1, nu.size).T, rcond=None)[0].T
    seen = (np.minimum(*means) > np.log(SEEN)).all(axis=(0, 1))
    return Comparison(nu, log_p, first.temperature[use_t], ratio, fit.reshape(*ratio.shape[:2], COEFFICIENTS), seen)


def slope_widths(table: OpacityTable) -> dict[str, float]:
    """Width of the temperature slope per species: `slope` of the alternatives against the base, root mean square.

    A species with one list takes the mean of the measured ones.
    """
    measured = {}
    for species, (base, *others) in table.lists.items():
        slopes = [compare_lists((table, species, other), (table, species, base)).slope for other in others]
        if slopes:
            measured[species] = float(np.sqrt(np.mean(np.square(slopes))))
    mean = float(np.mean(list(measured.values())))
    return {species: round(measured.get(species, mean), 4) for species in table.lists}


def _window_means(ln_sigma: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Logarithm of the mean cross section between `edges` along the last axis."""
    top = ln_sigma.max(axis=-1, keepdims=True)
    total = np.add.reduceat(np.exp((ln_sigma - top).astype(float)), edges, axis=-1)
    return np.log(total / np.diff(np.append(edges, ln_sigma.shape[-1]))) + top
