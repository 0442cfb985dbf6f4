"""What follows from a posterior: mass, luminosity, effective temperature, ratios of gases; one value per draw.

The luminosity is the data's own: the spectrum, the predicted median where pixels are missing, integrated over the
window. Its spread is the noise, the gain (sigma_cal of each draw) and the distance. Most of an object's light leaves
outside the window, so that the effective temperature stands on an assumption, `SHARE`, whose spread it carries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from kappaflow.constants import GM_JUP, L_SUN, PARSEC, R_JUP, REFERENCE_PC, SIGMA_SB, C
from kappaflow.instrument import WINDOW, on_nrs2
from kappaflow.observe.spectrum import Spectrum
from kappaflow.parameters import INDEX
from kappaflow.randomness import generator

if TYPE_CHECKING:
    from kappaflow.model.atmospheres import Atmospheres
    from kappaflow.retrieval.result import Retrieval

__all__ = ["QUANTITIES", "SHARE", "Quantity", "derive", "derived_rows", "window_luminosity"]

# Ln of the share of an object's light that leaves in 2.87-5.27 um: mean and scatter of six observed late-T and Y dwarfs
# (0.24 to 0.47; luminosities of Saumon et al. 2007 and of the SEDs of five objects) and two Sonora Elf Owl models
# (0.18 at 1200 K, 0.49 at 400 K): `python benchmarks/bolometric.py`.
SHARE = (-1.15, 0.35)
LEAST = 0.5  # share of the window under good data below which no luminosity is given without a predicted spectrum
AT = 1.0  # bar, where ratios of gases are given


@dataclass(frozen=True)
class Quantity:
    """A derived quantity: name, unit and label as of a parameter, and how it was found."""

    name: str
    unit: str
    label: str
    how: str


QUANTITIES: Mapping[str, Quantity] = MappingProxyType(
    {
        q.name: q
        for q in (
            Quantity("mass", "M_Jup", r"$M$", "g R^2 / G"),
            Quantity(
                "log_L_window",
                "dex(L_sun)",
                r"$\log L_\mathrm{window}$",
                f"spectrum integrated over {WINDOW[0]}-{WINDOW[1]} um at the distance, the predicted median where "
                "pixels are missing; nothing outside",
            ),
            Quantity(
                "T_window",
                "K",
                r"$T_\mathrm{window}$",
                "of the window's luminosity alone at radius R: a lower limit of T_eff",
            ),
            Quantity(
                "T_eff",
                "K",
                r"$T_\mathrm{eff}$",
                f"extrapolated: {np.exp(SHARE[0]):.2f} (times or over {np.exp(SHARE[1]):.1f}, one sigma) of the light "
                "is taken to leave in the window, as in six observed late-T and Y dwarfs and models of 400 and 1200 K",
            ),
            Quantity("log_CO_CH4", "dex", r"$\log\,\mathrm{CO/CH_4}$", "by number at 1 bar, quenched"),
            Quantity("log_CO2_CO", "dex", r"$\log\,\mathrm{CO_2/CO}$", "by number at 1 bar, quenched"),
            Quantity(
                "C_O_gas",
                "",
                r"C/O$_\mathrm{gas}$",
                "(CH4 + CO + CO2) / (H2O + CO + 2 CO2) at 1 bar; the chemistry has no condensates, so that oxygen is "
                "missing here only where SiO and other gases hold it",
            ),
        )
    }
)


def derive(result: Retrieval, columns: Atmospheres | None, stretch: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Return the derived quantities of `result.draws`, name -> (n,); those that cannot be known are left out.

    Parameters
    ----------
    result
        A retrieval, whoever made its draws.
    columns
        The atmospheres of its draws; no ratios of gases without them.
    stretch
        d/d0 of each draw, where the distance is uncertain and R was multiplied by it.
    """
    draws = result.draws
    radius = draws[:, INDEX["R"]]
    found = {}
    if result.spectrum.meta.get("scale_known"):  # else R is the prior's, and so would the mass be
        found["mass"] = 10 ** draws[:, INDEX["log_g"]] * (radius * R_JUP) ** 2 / GM_JUP
    rng = generator("derived", result.settings.seed)
    median = None if result.envelope is None else result.envelope.median
    inside = window_luminosity(result.spectrum, median)
    if inside is not None:
        light = inside.draw(draws[:, INDEX["sigma_cal"]], rng)
        light = light if stretch is None else light * stretch**2
        surface = light * L_SUN / (4 * np.pi * (radius * R_JUP) ** 2 * SIGMA_SB)
        share = np.minimum(np.exp(SHARE[0] + SHARE[1] * rng.standard_normal(len(draws))), 1.0)
        found |= {"log_L_window": np.log10(light), "T_window": surface**0.25, "T_eff": (surface / share) ** 0.25}
    return found if columns is None else found | _gas(columns)


def _gas(columns: Atmospheres) -> dict[str, np.ndarray]:
    """Ratios of gases at 1 bar."""
    h2o, ch4, co, co2 = (10.0 ** columns.at(gas, AT) for gas in ("H2O", "CH4", "CO", "CO2"))
    return {
        "log_CO_CH4": np.log10(co / ch4),
        "log_CO2_CO": np.log10(co2 / co),
        "C_O_gas": (ch4 + co + co2) / (h2o + co + 2 * co2),
    }


@dataclass(frozen=True)
class WindowLight:
    """Luminosity of the window [L_sun] on each detector (the gap halved between them), and its noise."""

    nrs1: float
    nrs2: float
    error: float

    def draw(self, sigma_cal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the luminosity [L_sun] with each draw's own gains and noise, (n,)."""
        gains = 1 + sigma_cal[:, None] * rng.standard_normal((sigma_cal.size, 2))
        light = self.nrs1 / gains[:, 0] + self.nrs2 / gains[:, 1] + self.error * rng.standard_normal(sigma_cal.size)
        return np.maximum(light, 1e-3 * (self.nrs1 + self.nrs2))


def window_luminosity(spectrum: Spectrum, median: np.ndarray | None = None) -> WindowLight | None:
    """Integrate a `spectrum` scaled to 10 pc over the window; `median` (p,) stands in for missing pixels.

    None where the distance is unknown, where the light is not positive, or where half of the pixels are missing and
    nothing stands in for them. The gap between the detectors is bridged by a straight line.
    """
    good = spectrum.mask
    if not spectrum.meta.get("scale_known") or good.sum() < 2 or (median is None and good.mean() < LEAST):
        return None
    wave = spectrum.wavelength
    flux = np.where(good, spectrum.flux, np.interp(wave, wave[good], spectrum.flux[good]))
    flux = flux if median is None else np.where(good, spectrum.flux, median)
    nu = C / (wave * 1e-4)  # Hz
    to_sun = 4 * np.pi * (REFERENCE_PC * PARSEC) ** 2 * 1e-26 / L_SUN  # mJy Hz at 10 pc -> L_sun
    weight = np.abs(np.gradient(nu)) * to_sun
    steps = np.abs(np.diff(nu)) * to_sun
    pieces = steps * 0.5 * (flux[1:] + flux[:-1])
    beyond = on_nrs2(0.5 * (wave[1:] + wave[:-1]))
    error = float(np.sqrt(((weight * spectrum.error)[good] ** 2).sum()))
    parts = WindowLight(float(pieces[~beyond].sum()), float(pieces[beyond].sum()), error)
    return parts if parts.nrs1 + parts.nrs2 > 0 else None


def derived_rows(values: Mapping[str, np.ndarray], quantiles: Any) -> list[dict[str, Any]]:
    """Return one row per derived quantity: name, unit, what `quantiles` makes of its draws, and how it was found."""
    return [
        {"parameter": name, "unit": QUANTITIES[name].unit} | quantiles(draws) | {"how": QUANTITIES[name].how}
        for name, draws in values.items()
    ]
