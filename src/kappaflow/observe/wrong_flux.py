"""Flux that is known to be wrong: where the instrument's calibration ends, and where negative values were left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import median_filter
from scipy.special import ndtr

from kappaflow.instrument import CALIBRATION_END, WINDOW
from kappaflow.observe.spectrum import Spectrum, local_pitch, pixel_edges

__all__ = ["FaintPixels", "faint_pixels", "mask_calibration_end", "mask_clipped"]

_FAINT = 3.0  # SNR below which noise alone makes some pixels negative; at it their loss shifts the mean by 0.004 sigma
_ENOUGH = 10.0  # expected negative pixels; none of them is then a chance of 5e-5
_AROUND = 31  # pixels over which flux and noise are taken as constant
_REPEATED = 5  # equal values among faint pixels: real noise repeats none
_RUN = 10  # rows missing in a row; of noise about zero more than so many are negative once in a thousand times


@dataclass(frozen=True, eq=False)
class FaintPixels:
    """Pixels that noise alone could make negative, and whether it did."""

    where: np.ndarray  # (n,), which of a spectrum's
    negative: int
    expected: float  # how many should be negative
    missing: int  # rows not there, or not good, between them
    repeated: int  # how many share one value; 0 where too few to mean anything
    value: float  # which [mJy]

    @property
    def one_sided(self) -> bool:
        """Whether none is negative although many should be."""
        return self.negative == 0 and self.expected >= _ENOUGH

    @property
    def clipped(self) -> bool:
        """Whether negative flux was set to one value, or as many rows as should be negative were left out."""
        return self.negative == 0 and (self.repeated > 0 or (self.one_sided and self.missing >= self.expected))


def faint_pixels(native: Spectrum) -> FaintPixels:
    """Find the faint pixels of `native` inside the window, by the median of the 31 good ones around each.

    Noise is the smaller of the stated error and the scatter from pixel to pixel: errors stated too large do not make a
    spectrum look clipped.
    """
    index = np.flatnonzero(native.mask & (native.wavelength > WINDOW[0]) & (native.wavelength < WINDOW[1]))
    where = np.zeros(len(native), bool)
    if index.size <= _AROUND:
        return FaintPixels(where, 0, 0.0, 0, 0, float("nan"))
    flux, error = native.flux[index], native.error[index]
    level = median_filter(flux, _AROUND, mode="nearest")
    scatter = 1.4826 / np.sqrt(2) * median_filter(np.abs(np.diff(flux, append=flux[-1])), _AROUND, mode="nearest")
    faint = level < _FAINT * error
    where[index[faint]] = True
    if not faint.any():
        return FaintPixels(where, 0, 0.0, 0, 0, float("nan"))
    noise = np.minimum(error, scatter)
    seen = faint & (noise > 0)
    expected = float(ndtr(-np.maximum(level[seen], 0) / noise[seen]).sum())
    values, counts = np.unique(flux[faint], return_counts=True)
    repeated = int(counts.max()) if counts.max() >= _REPEATED else 0
    missing = _missing(native.wavelength[index], faint)
    negative = int((flux[faint] < 0).sum())
    return FaintPixels(where, negative, expected, missing, repeated, float(values[counts.argmax()]))


def _missing(wavelength: np.ndarray, faint: np.ndarray) -> int:
    """Count the rows missing beside the `faint` ones (n,) of good rows at `wavelength` (n,) [um], in short runs."""
    rows = np.rint(np.diff(wavelength) / local_pitch(wavelength)[:-1]).astype(int) - 1
    return int(rows[(faint[1:] | faint[:-1]) & (rows <= _RUN)].sum())


def mask_clipped(native: Spectrum) -> Spectrum:
    """Mask the faint pixels of a spectrum whose negative flux was clipped or left out.

    What is left of noise about zero has a mean of 0.8 sigma: it would be fitted as light.
    """
    faint = faint_pixels(native)
    return _without(native, faint.where, "faint, clipped") if faint.clipped else native


def mask_calibration_end(native: Spectrum) -> Spectrum:
    """Mask the pixels that lie in `CALIBRATION_END`, where extracted flux falls short."""
    low, high = pixel_edges(native.wavelength).T
    inside = (low >= CALIBRATION_END[0]) & (high <= CALIBRATION_END[1])
    return _without(native, inside, "at the end of the calibration")


def _without(native: Spectrum, bad: np.ndarray, reason: str) -> Spectrum:
    count = int((native.mask & bad).sum())
    if not count:
        return native
    meta = dict(native.meta)
    if "rows" in meta:
        meta["rows"] = {**meta["rows"], reason: count}
    return Spectrum(native.wavelength, native.flux, native.error, native.mask & ~bad, meta)
