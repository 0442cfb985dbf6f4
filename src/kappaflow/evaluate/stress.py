"""What deployment does to a spectrum, as functions of arrays, so that its cost in coverage can be scored.

Shapes: `flux` (n, p), `mask` (n, p) or (p,) True = good, `snr` (n,). Randomness comes in as a Generator.
`PATHS` holds the four variants of the paper's section f under the names of its table, and the mask channel that
replaces them here. Each is a function (clean, drawn, mask, rng) -> what the network is shown: `clean` (n, p) is the
noise-free flux of `drawn`, spectra whose every pixel is good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from kappaflow.errors import UserError
from kappaflow.observe.resampling import MIN_FRACTION, edges_like, overlap_mean
from kappaflow.observe.spectrum import Spectrum, pixel_edges
from kappaflow.spectra import Spectra, median_snr

__all__ = [
    "PATHS",
    "assign_masks",
    "median_fill",
    "real_masks",
    "renoise",
    "scalar_error",
]


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


def _none(clean: np.ndarray, drawn: Spectra, mask: np.ndarray, rng: np.random.Generator) -> Spectra:
    return drawn


def _fill(clean: np.ndarray, drawn: Spectra, mask: np.ndarray, rng: np.random.Generator) -> Spectra:
    return replace(drawn, flux=median_fill(drawn.flux, mask))


def _renoise(clean: np.ndarray, drawn: Spectra, mask: np.ndarray, rng: np.random.Generator) -> Spectra:
    snr = median_snr(clean, drawn.error, drawn.mask)
    return replace(drawn, flux=renoise(clean, snr, rng), error=scalar_error(clean, snr))


def _full(clean: np.ndarray, drawn: Spectra, mask: np.ndarray, rng: np.random.Generator) -> Spectra:
    return _fill(clean, _renoise(clean, drawn, mask, rng), mask, rng)


def _told(clean: np.ndarray, drawn: Spectra, mask: np.ndarray, rng: np.random.Generator) -> Spectra:
    """Name masked pixels instead of filling them: they hold zero and carry no weight."""
    mask = np.broadcast_to(np.asarray(mask, bool), drawn.flux.shape)
    return replace(drawn, flux=np.where(mask, drawn.flux, 0.0), mask=mask)


Path = Callable[[np.ndarray, Spectra, np.ndarray, np.random.Generator], Spectra]
PATHS: dict[str, Path] = {
    "none": _none,
    "real-mask median fill": _fill,
    "scalar re-noise": _renoise,
    "full path": _full,
    "mask channel": _told,
}
