"""Flux-conserving resampling onto pixels, with errors and masks. The velocity frame is left alone.

The flux density is per frequency, so overlaps are measured in frequency: the energy integral of f_nu d nu over
the covered part of a pixel is kept exactly.
"""

import numpy as np
from numpy.typing import ArrayLike

from kappaflow.constants import REFERENCE_PC
from kappaflow.errors import UserError
from kappaflow.instrument import WINDOW
from kappaflow.observe.distances import as_distance
from kappaflow.observe.resolution import of_this_pitch
from kappaflow.observe.spectrum import MIN_COVERED, Spectrum, pixel_edges
from kappaflow.observe.wrong_flux import mask_calibration_end, mask_clipped

__all__ = ["MIN_FRACTION", "edges_like", "mask_outliers", "on_pixels", "overlap_mean", "resample", "shares", "trusted"]

MIN_FRACTION = 0.5  # a target pixel is good when at least this share of it lies under good source pixels


def resample(
    spectrum: Spectrum, pixels: ArrayLike, *, min_fraction: float = MIN_FRACTION, min_covered: float = MIN_COVERED
) -> Spectrum:
    """Average `spectrum` over `pixels`: centres (m,) or lower and upper edges (m, 2), in um.

    F_j = sum_i w_ij F_i / sum_i w_ij and sigma_j^2 = sum_i w_ij^2 sigma_i^2 / (sum_i w_ij)^2 over the good source
    pixels i, where w_ij is the frequency interval shared by source pixel i and target pixel j. The noise of
    neighbouring targets that share a source pixel is correlated; only its variance is returned.

    Raises `UserError` when fewer than `min_covered` of the target pixels come out good.
    """
    target = edges_like(pixels)
    source = pixel_edges(spectrum.wavelength)
    flux, error, fraction = overlap_mean(spectrum.flux, spectrum.error, spectrum.mask, source, target)
    good = fraction >= min_fraction
    if good.mean() < min_covered:
        name = ", ".join(spectrum.meta.get("files", ())) or "spectrum"
        raise UserError(
            f"{name}: good data on {good.mean():.1%} of the model's pixels ({target[0, 0]:.2f}-{target[-1, 1]:.2f} um, "
            f"the file has {spectrum.wavelength[0]:.2f}-{spectrum.wavelength[-1]:.2f} um); expected at least "
            f"{min_covered:.0%}: add the other detector's file, or check --wavelength-unit"
        )
    meta = {**spectrum.meta, "resampled_from": len(spectrum), "covered_fraction": float(good.mean())}
    return Spectrum(target.mean(axis=1), flux, error, good, meta)


def edges_like(pixels: ArrayLike) -> np.ndarray:
    """Edges (m, 2) [um] from centres (m,) or from edges already."""
    array = np.asarray(pixels, dtype=float)
    if array.ndim == 1:
        return pixel_edges(array)
    if array.ndim != 2 or array.shape[1] != 2 or not (array[:, 1] > array[:, 0]).all():
        raise UserError(f"pixels: shape {array.shape}; expected increasing centres (m,) or edges (m, 2), in um")
    if (array[1:, 0] < array[:-1, 1] - 1e-9).any():
        raise UserError("pixels: they overlap; expected edges in increasing order")
    return array


def overlap_mean(
    flux: np.ndarray, error: np.ndarray, good: np.ndarray, source: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean flux, its error and the covered fraction on `target` edges (m, 2) from good pixels on `source` (n, 2)."""
    i, j, weight = _overlaps(source[good], target)
    m = len(target)
    total = np.bincount(j, weight, m)
    seen = total > 0
    flux_sum = np.bincount(j, weight * flux[good][i], m)
    variance = np.bincount(j, (weight * error[good][i]) ** 2, m)
    mean, sigma = np.zeros(m), np.full(m, np.inf)
    mean[seen] = flux_sum[seen] / total[seen]
    sigma[seen] = np.sqrt(variance[seen]) / total[seen]
    width = 1 / target[:, 0] - 1 / target[:, 1]
    return mean, sigma, np.minimum(total / width, 1.0)


def shares(spectrum: Spectrum, pixels: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indices (m,) of good pixels of `spectrum` and of `pixels`, and the weight of the one in the other's mean.

    The weights are those of `resample`; they sum to one over a pixel.
    """
    target = edges_like(pixels)
    index = np.flatnonzero(spectrum.mask)
    i, j, weight = _overlaps(pixel_edges(spectrum.wavelength)[index], target)
    return index[i], j, weight / np.bincount(j, weight, len(target))[j]


def _overlaps(source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs (i, j) of source and target pixels that overlap, with the shared interval of 1/wavelength [um-1]."""
    first = np.searchsorted(source[:, 1], target[:, 0], side="right")
    last = np.searchsorted(source[:, 0], target[:, 1], side="left")
    count = np.maximum(last - first, 0)
    j = np.repeat(np.arange(len(target)), count)
    start = np.cumsum(count) - count
    i = np.arange(count.sum()) - start[j] + first[j]
    low = np.maximum(source[i, 0], target[j, 0])
    high = np.minimum(source[i, 1], target[j, 1])
    shared = np.maximum(1 / low - 1 / high, 0.0)
    return i, j, shared


def mask_outliers(spectrum: Spectrum, *, threshold: float = 10.0) -> Spectrum:
    """Mask lone pixels that stand `threshold` scales off the running median of five good pixels.

    The scale is the larger of the pixel's error and the scatter (1.4826 MAD) of the same residual over the
    nearest 101 good pixels. Lone means three times the residual of the two neighbours on each side: the
    line-spread function is more than two pixels wide, so nothing real is.
    """
    index = np.flatnonzero(spectrum.mask & (spectrum.wavelength > WINDOW[0]) & (spectrum.wavelength < WINDOW[1]))
    if index.size < 101:
        return spectrum
    flux, error = spectrum.flux[index], spectrum.error[index]
    residual = np.abs(flux - _running_median(flux, 5))
    scatter = 1.4826 * _running_median(residual, 101)
    beside = np.max([np.roll(residual, k) for k in (-2, -1, 1, 2)], axis=0)
    wild = (residual > threshold * np.maximum(error, scatter)) & (residual > 3 * beside)
    wild[[0, 1, -2, -1]] = False  # no neighbours on one side to judge by
    if not wild.any():
        return spectrum
    mask = spectrum.mask.copy()
    mask[index[wild]] = False
    meta = {**spectrum.meta, "outliers_masked": int(wild.sum())}
    return Spectrum(spectrum.wavelength, spectrum.flux, spectrum.error, mask, meta)


def _running_median(values: np.ndarray, window: int) -> np.ndarray:
    padded = np.pad(values, window // 2, mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, window), axis=-1)


def trusted(native: Spectrum, pixels: np.ndarray) -> Spectrum:
    """Mask what no model can fit: clipped flux, the end of the calibration, pixels coarser than `pixels`, outliers.

    A spectrum mostly of coarser pixels is refused: another resolution.
    """
    return mask_outliers(of_this_pitch(mask_calibration_end(mask_clipped(native)), edges_like(pixels)))


def on_pixels(native: Spectrum, pixels: np.ndarray, distance: float | None = None) -> Spectrum:
    """Resample what is `trusted` onto `pixels` [um] and, with a `distance` [pc], scale the flux to 10 pc.

    A spectrum whose meta says `scale_known` has been scaled already and keeps its flux.
    """
    spectrum = resample(trusted(native, pixels), pixels)
    if native.meta.get("scale_known"):
        return spectrum
    if distance is None:
        return spectrum.noted(scale_known=False)
    as_distance(distance)  # refuses what is none
    factor = (distance / REFERENCE_PC) ** 2
    meta = {**spectrum.meta, "scale_known": True, "distance_pc": distance}
    return Spectrum(spectrum.wavelength, spectrum.flux * factor, spectrum.error * factor, spectrum.mask, meta)
