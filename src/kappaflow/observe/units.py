"""Units as people write them, and the one place where flux becomes mJy and wavelength becomes vacuum micron."""

import re
import warnings
from typing import Any

import numpy as np
from astropy import units as u

from kappaflow.errors import UserError

__all__ = ["air_to_vacuum", "is_flux", "is_spectral", "parse_unit", "to_micron", "to_mjy", "units_in"]

_JY, _WAV = u.Jy, u.Unit("W m-2 um-1")
_PHOTONS = (u.Unit("ph s-1 cm-2 um-1"), u.Unit("ph s-1 cm-2 Hz-1"))
_ALLOWED = re.compile(r"[A-Za-z0-9 ./*^()+\-]{1,80}")
_LONG_NUMBER = re.compile(r"\d{4}")  # no unit needs one, and a power like m^99999999 would never end
_WORDS = {
    "aa": "Angstrom",
    "ang": "Angstrom",
    "angstroms": "Angstrom",
    "microns": "um",
    "micrometer": "um",
    "micrometers": "um",
    "nanometer": "nm",
    "nanometers": "nm",
    "ergs": "erg",
    "sec": "s",
    "watt": "W",
    "watts": "W",
    "janskys": "Jy",
    "jansky": "Jy",
    "mum": "um",
}


def parse_unit(text: str | None) -> Any:
    """Understand a unit as written in a header (`erg/s/cm2/A`, `W m-2 µm-1`, `mJy`); None when it is none.

    A lone `A` means Angstrom, never ampere: no spectrum is in amperes.
    """
    if not text:
        return None
    text = text.strip().replace("µ", "u").replace("μ", "u").replace("Å", "Angstrom").replace("Å", "Angstrom")
    if not _ALLOWED.fullmatch(text) or _LONG_NUMBER.search(text):
        return None
    text = re.sub(r"[A-Za-z]+", lambda m: _word(m.group()), text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            unit = u.Unit(text, format="generic")
    except (ValueError, TypeError, ArithmeticError, RecursionError):
        return None
    return unit if isinstance(unit, u.UnitBase) else None


def _word(word: str) -> str:
    return "Angstrom" if word == "A" else _WORDS.get(word.lower(), word)


def is_spectral(unit: Any) -> bool:
    """Whether `unit` measures wavelength, wavenumber or frequency."""
    return unit is not None and unit.is_equivalent(u.um, u.spectral()) and not unit.is_equivalent(u.J)


def is_flux(unit: Any) -> bool:
    """Whether `unit` is a flux density, per wavelength or per frequency, energy or photons."""
    return unit is not None and any(unit.is_equivalent(known) for known in (_JY, _WAV, *_PHOTONS))


def to_micron(values: np.ndarray, unit: Any) -> np.ndarray:
    """Wavelength [um] of `values` in `unit` (a length, wavenumber or frequency); nan outside 1 nm to 1 cm."""
    with np.errstate(all="ignore"):
        positive = np.where(np.isfinite(values) & (values > 0), values, np.nan)
        micron = np.asarray((positive * unit).to_value(u.um, u.spectral()))
        return np.where((micron > 1e-3) & (micron < 1e4), micron, np.nan)


def to_mjy(values: np.ndarray, unit: Any, wavelength: np.ndarray, where: str = "flux") -> np.ndarray:
    """Flux density [mJy] of `values` in `unit` at `wavelength` [um]."""
    if not is_flux(unit):
        raise UserError(
            f"{where}: unit '{unit}' is not a flux density; expected one like Jy, mJy, erg/s/cm2/um or W/m2/um "
            "(surface brightness and counts cannot be used); if the file is wrong, pass --flux-unit"
        )
    with np.errstate(all="ignore"):
        return values * (1.0 * unit).to_value(u.mJy, u.spectral_density(wavelength * u.um))


def air_to_vacuum(wavelength: np.ndarray) -> np.ndarray:
    """Vacuum wavelength [um] of an air wavelength [um]: the refractive index of Ciddor (1996), standard air.

    At 4 um the step is 0.00109 um, or 82 km/s: left out, it would be the radial velocity.
    """
    s2 = wavelength**-2.0
    return wavelength * (1.0 + 0.05792105 / (238.0185 - s2) + 0.00167917 / (57.362 - s2))


def units_in(text: str) -> list[Any]:
    """Every unit that stands in brackets or parentheses in a comment line, in order.

    Examples
    --------
    >>> [str(unit) for unit in units_in("Wavelength [um], Flux Density [erg / (Angstrom s cm2)]")]
    ['um', 'erg / (Angstrom s cm2)']
    """
    found, depth, start = [], 0, 0
    for i, letter in enumerate(text[:1000]):
        if letter in "[(":
            start = i + 1 if depth == 0 else start
            depth += 1
        elif letter in "])" and depth:
            depth -= 1
            if depth == 0:
                unit = parse_unit(text[start:i])
                if unit is not None and (is_spectral(unit) or is_flux(unit)):
                    found.append(unit)
    return found
