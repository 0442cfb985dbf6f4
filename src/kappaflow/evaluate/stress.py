"""What deployment does to a spectrum, as functions of arrays, so that its cost in coverage can be scored.

Shapes: `flux` (n, p), `mask` (n, p) or (p,) True = good, `snr` (n,). Randomness comes in as a Generator.
`PATHS` holds the four variants of the paper's section f under the names of its table, and the mask channel that
replaces them here. Each is a function (drawn, mask, rng) -> `Stressed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kappaflow.errors import UserError
from kappaflow.observe.resampling import MIN_FRACTION, edges_like, overlap_mean
from kappaflow.observe.spectrum import Spectrum, pixel_edges

__all__ = [
    "PATHS",
    "Drawn",
    "Stressed",
    "assign_masks",
    "mask_channel",
    "median_fill",
    "real_masks",
    "renoise",
    "scalar_error",
]


@dataclass(frozen=True)
class Drawn:
    """Simulated spectra as drawn: noise-free flux, flux with noise, and the noise's deviation, each (n, p)."""

    clean: np.ndarray
    flux: np.ndarray
    error: np.ndarray


@dataclass(frozen=True)
class Stressed:
    """What the network is shown: flux, its error and the mask it is told, each (n, p)."""

    flux: np.ndarray
    error: np.ndarray
    mask: np.ndarray


def real_masks(spectra: Sequence[Spectrum], pixels: np.ndarray) -> np.ndarray:
    """Good-pixel masks (len(spectra), p) of real spectra on `pixels` (centres or edges, um)."""
    edges = edges_like(pixels)
    rows = []
    for spectrum in spectra:
        own = pixel_edges(spectrum.wavelength)
        rows.append(overlap_mean(spectrum.flux, spectrum.error, spectrum.mask, own, edges)[2] >= MIN_FRACTION)
    return np.array(rows)


def assign_masks(masks: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """One of the `masks` (m, p) for each of `n` spectra, drawn with equal chance, (n, p)."""
    return np.asarray(masks, bool)[rng.integers(len(masks), size=n)]


def scalar_error(flux: np.ndarray, snr: np.ndarray) -> np.ndarray:
    """One standard deviation for all pixels of a spectrum: its median |flux| over its SNR, (n, p)."""
    sigma = np.median(np.abs(flux), axis=-1, keepdims=True) / np.asarray(snr, float)[..., None]
    return np.broadcast_to(sigma, flux.shape)


def renoise(flux: np.ndarray, snr: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Noise-free `flux` (n, p) plus Gaussian noise of the scalar error that `snr` (n,) implies."""
    return flux + scalar_error(flux, snr) * rng.standard_normal(flux.shape)


def median_fill(flux: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Replace the pixels outside `mask` by the median of the spectrum's good pixels (what breaks calibration)."""
    mask = np.broadcast_to(np.asarray(mask, bool), flux.shape)
    if not mask.any(axis=-1).all():
        raise UserError("median fill: a spectrum has no good pixel; drop it")
    median = np.nanmedian(np.where(mask, flux, np.nan), axis=-1, keepdims=True)
    return np.where(mask, flux, median)


def mask_channel(flux: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Two channels (n, 2, p): flux with zeros outside `mask`, and the mask as 0 and 1."""
    mask = np.broadcast_to(np.asarray(mask, bool), flux.shape)
    return np.stack([np.where(mask, flux, 0.0), mask.astype(flux.dtype)], axis=-2)


def _none(drawn: Drawn, mask: np.ndarray, rng: np.random.Generator) -> Stressed:
    return Stressed(drawn.flux, drawn.error, np.ones(drawn.flux.shape, bool))


def _fill(drawn: Drawn, mask: np.ndarray, rng: np.random.Generator) -> Stressed:
    return Stressed(median_fill(drawn.flux, mask), drawn.error, np.ones(drawn.flux.shape, bool))


def _renoise(drawn: Drawn, mask: np.ndarray, rng: np.random.Generator) -> Stressed:
    snr = np.median(drawn.clean / drawn.error, axis=-1)
    error = scalar_error(drawn.clean, snr)
    return Stressed(renoise(drawn.clean, snr, rng), error, np.ones(error.shape, bool))


def _full(drawn: Drawn, mask: np.ndarray, rng: np.random.Generator) -> Stressed:
    noisy = _renoise(drawn, mask, rng)
    return Stressed(median_fill(noisy.flux, mask), noisy.error, noisy.mask)


def _told(drawn: Drawn, mask: np.ndarray, rng: np.random.Generator) -> Stressed:
    """Name masked pixels instead of filling them: they hold zero and carry no weight."""
    mask = np.broadcast_to(np.asarray(mask, bool), drawn.flux.shape)
    return Stressed(np.where(mask, drawn.flux, 0.0), drawn.error, mask)


Path = Callable[[Drawn, np.ndarray, np.random.Generator], Stressed]
PATHS: dict[str, Path] = {
    "none": _none,
    "real-mask median fill": _fill,
    "scalar re-noise": _renoise,
    "full path": _full,
    "mask channel": _told,
}
