"""The structure that no model has, said once: line positions, sampling of the opacities, errors nobody states.

It is no fixed share of the flux. Dark pixels have more of it, as they have of an error of the brightness temperature T:
d ln F / d ln T = h(x) = x / (1 - exp(-x)), x = h nu / k T, which doubles from 900 K to 450 K at 4.5 um. Its standard
deviation is f F (h / 5)^p: f is the share of the flux where h is 5, as for 640 K there. The power was measured on real
spectra (docs/fit.md, "What is left").
"""

from __future__ import annotations

import numpy as np

from kappaflow.constants import PARSEC, R_JUP, REFERENCE_PC, C, H

__all__ = ["steepness", "structure_shape"]

USUAL = 5.0  # h where the structure is f times the flux
POWER = 2.0
DARKEST = 30.0  # x beyond which nothing is seen: 150 K at 3.2 um


def _thin(wavelength: np.ndarray) -> np.ndarray:
    """Flux (p,) [mJy at 10 pc] of Jupiter's disc were exp(x) - 1 one: pi (R/d)^2 2 h nu^3 / c^2."""
    nu = 1e4 / wavelength  # cm-1
    return np.pi * (R_JUP / (REFERENCE_PC * PARSEC)) ** 2 * 2 * H * C * nu**3 * 1e26


def steepness(flux: np.ndarray, radius: np.ndarray | float, wavelength: np.ndarray) -> np.ndarray:
    """Return x = h nu / k T (..., p) at the brightness temperature T of `flux` (..., p) [mJy at 10 pc].

    `radius` (...,) in Jupiter's. Flux that is nothing or less counts as `DARKEST`.

    Examples
    --------
    >>> wavelength = np.array([4.5])
    >>> x = 1.438777 * 1e4 / 4.5 / 640  # h c / k is 1.438777 cm K
    >>> flux = _thin(wavelength) * 1.1**2 / np.expm1(x)
    >>> bool(np.isclose(steepness(flux, 1.1, wavelength)[0], x))
    True
    """
    full = _thin(wavelength) * np.square(radius)[..., None]
    return np.log1p(full / np.maximum(flux, full / np.expm1(DARKEST)))


def structure_shape(
    flux: np.ndarray, radius: np.ndarray | float, wavelength: np.ndarray, power: float = POWER
) -> tuple[np.ndarray, np.ndarray]:
    """Return (h / 5)^p (..., p) of noise-free `flux` (..., p) [mJy at 10 pc], and d ln of it / d ln flux.

    The radius held: where the flux changes with the radius alone, or with the distance, it stays as it is.
    """
    x = steepness(flux, radius, wavelength)
    rest = -np.expm1(-x)  # 1 - exp(-x)
    shape = (x / rest / USUAL) ** power
    # d ln h / dx = 1/x - exp(-x) / (1 - exp(-x)), and d ln F / dx = -1 / (1 - exp(-x)).
    slope = np.where(x < DARKEST, -power * (rest / x - np.exp(-x)), 0.0)
    return shape, slope
