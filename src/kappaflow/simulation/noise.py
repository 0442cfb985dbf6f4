"""What turns a noise-free spectrum into an observed one: error arrays, structure, and the gain of each detector.

A simulated spectrum is stored with the SNR that sets its noise level (the median over good pixels of its noise-free
flux/error); what a network is told is the same median of the noisy spectrum, which is all that an observer can compute.

The error arrays are e^2 = k^2 A(lambda)^2 [1 - w + w F/median(F)], k set by the SNR:

====== ================================================ =================================
share  kind                                             photon weight w, shape A
====== ================================================ =================================
1/4    constant                                         0, 1
1/4    photon-like (a tenth of the median as a floor)    0.99, 1
1/2    as real arrays are                               uniform in [0, 0.99], drawn
====== ================================================ =================================

ln A is a Gaussian combination of Legendre polynomials and a detector step plus a scatter from pixel to pixel, with the
mean, the covariance (widened) and the scatter measured on real arrays (`kappaflow.build.tables.mask_statistics`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any

import numpy as np

from kappaflow.instrument import WINDOW, on_nrs2
from kappaflow.parameters import INDEX
from kappaflow.unmodelled import structure_shape

__all__ = [
    "ErrorFamily",
    "error_basis",
    "gain",
    "statistics",
    "structure",
    "with_structure",
]

CONSTANT, PHOTON = 0.25, 0.5  # cumulative shares of the kinds of the table above
PHOTON_WEIGHT = 0.99
WIDENING = 2.0  # of the measured spread: seven spectra of a few programmes understate it


@cache
def statistics() -> dict[str, Any]:
    """Return the packaged statistics of real masks and error arrays."""
    return json.loads(resources.files("kappaflow.data").joinpath("masks.json").read_text(encoding="utf-8"))


def gain(theta: np.ndarray, normal: np.ndarray, wavelength: np.ndarray) -> np.ndarray:
    """Multiplicative calibration error, (b, p): 1 + sigma_cal N(0, 1), one draw for each detector.

    `normal` has shape (b, 2): NRS1 is below 3.736 micron, the middle of the gap, NRS2 above.
    """
    step = 1 + theta[:, INDEX["sigma_cal"], None] * normal
    return step[:, on_nrs2(wavelength).astype(int)].astype(np.float32)


def with_structure(error: np.ndarray, flux: np.ndarray, theta: np.ndarray, wavelength: np.ndarray) -> np.ndarray:
    """Return the standard deviation of the noise, (b, p): s^2 = error^2 + (f w flux)^2, f = 10^log_f of `theta`.

    Its shape w is that of `unmodelled.py`. The error array does not tell it; it is inferred.
    """
    if theta.shape[1] <= INDEX["log_f"]:
        return error
    shape, _ = structure_shape(flux, theta[:, INDEX["R"]], wavelength)
    return np.sqrt(error**2 + (structure(theta)[:, None] * shape * flux) ** 2).astype(np.float32)


def structure(theta: np.ndarray) -> np.ndarray:
    """Return f (b,) of the parameters (b, D); zero where the set has none."""
    return 10.0 ** theta[:, INDEX["log_f"]] if theta.shape[1] > INDEX["log_f"] else np.zeros(len(theta))


def error_basis(wavelength: np.ndarray) -> np.ndarray:
    """Legendre polynomials 1 to 3 over the window and the detector step, shape (4, pixel)."""
    x = 2 * (wavelength - WINDOW[0]) / (WINDOW[1] - WINDOW[0]) - 1
    step = np.where(on_nrs2(wavelength), 0.5, -0.5)
    return np.stack([x, 1.5 * x**2 - 0.5, 2.5 * x**3 - 1.5 * x, step])


@dataclass(frozen=True)
class ErrorFamily:
    """Relative error arrays on the pixels `wavelength` [micron]."""

    wavelength: np.ndarray

    UNIFORMS = 2  # numbers each spectrum needs, besides one uniform per pixel
    NORMALS = 4

    @cached_property
    def _basis(self) -> np.ndarray:
        return error_basis(self.wavelength).astype(np.float32)

    def draw(self, flux: np.ndarray, uniform: np.ndarray, normal: np.ndarray, scatter: np.ndarray) -> np.ndarray:
        """Return relative errors (b, p), float32, for noise-free `flux` (b, p).

        `uniform` (b, 2) chooses the kind and the photon weight, `normal` (b, 4) the shape, `scatter` (b, p), uniform in
        [0, 1), the scatter from pixel to pixel.
        """
        measured = statistics()["error"]
        real = uniform[:, 0] >= PHOTON
        weight = np.where(uniform[:, 0] < CONSTANT, 0.0, PHOTON_WEIGHT)
        weight = np.where(real, PHOTON_WEIGHT * uniform[:, 1], weight).astype(np.float32)[:, None]
        median = np.median(flux, axis=1, keepdims=True)
        error = np.sqrt(1 - weight + weight * (flux / median))
        if real.any():
            # (u - 1/2) sqrt(12) has unit variance: a normal number per pixel would double the cost of a batch.
            spread = np.float32(np.median(measured["scatter"]) * np.sqrt(12))
            error[real] *= np.exp(self._shape(normal[real]) + spread * (scatter[real] - np.float32(0.5)))
        return error

    def _shape(self, normal: np.ndarray) -> np.ndarray:
        """Smooth part of ln A, (b, p), from four normal numbers per spectrum."""
        mean, factor = _shape_moments()
        coefficients = mean + WIDENING * normal @ factor.T
        return coefficients.astype(np.float32) @ self._basis


@cache
def _shape_moments() -> tuple[np.ndarray, np.ndarray]:
    """Mean (4,) and a square root (4, 4) of the covariance of the measured coefficients of ln A."""
    measured = statistics()["error"]
    values, vectors = np.linalg.eigh(np.array(measured["shape_covariance"]))
    return np.array(measured["shape_mean"]), vectors * np.sqrt(np.clip(values, 0, None))
