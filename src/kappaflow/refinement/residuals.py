"""What a fit leaves, per band: the smooth part, the fine part, and whether the fine part is white."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from kappaflow.instrument import GAP, WINDOW

__all__ = ["BANDS", "BandResidual", "band_residuals", "smooth_and_fine"]

WIDTH = 25  # pixels of the mean that is called smooth
_EDGES = (WINDOW[0], 3.0, 3.15, 3.35, 3.55, GAP[0]), (GAP[1], 4.0, 4.2, 4.4, 4.6, 4.85, 5.0, 5.15, WINDOW[1])
BANDS = tuple((low, high) for edges in _EDGES for low, high in zip(edges[:-1], edges[1:], strict=True))  # um


@dataclass(frozen=True)
class BandResidual:
    """Root mean squares in one band over the mean of the fitted flux there."""

    low: float  # um
    high: float
    pixels: int
    smooth: float  # of the mean over 25 pixels
    smooth_noise: float  # what the errors of the file give it
    fine: float  # of the rest
    fine_noise: float
    lag_one: float  # autocorrelation of the rest from pixel to pixel; the mean's removal makes it about -1/25

    def as_dict(self) -> dict[str, float]:
        """Plain data."""
        return asdict(self)


def smooth_and_fine(residual: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of `residual` (p,) over the good ones of 25 pixels, and the rest; NaN where masked."""
    good = np.asarray(mask, bool)
    total, count = _summed(np.where(good, residual, 0.0)), _summed(good)
    smooth = np.where(good, total / np.maximum(count, 1), np.nan)
    return smooth, np.where(good, residual, np.nan) - smooth


def _summed(values: np.ndarray) -> np.ndarray:
    """Sum over the 25 pixels around each, fewer at the ends."""
    return np.convolve(values, np.ones(WIDTH), mode="full")[WIDTH // 2 : WIDTH // 2 + values.size]


def band_residuals(
    wavelength: np.ndarray, residual: np.ndarray, error: np.ndarray, mask: np.ndarray, flux: np.ndarray
) -> tuple[BandResidual, ...]:
    """Split `residual` (p,) = data - fit with `error` on good pixels `mask`, relative to the fit `flux`."""
    rows = []
    for low, high in BANDS:
        here = (wavelength >= low) & (wavelength < high)
        good = here & np.asarray(mask, bool)
        if good.sum() < WIDTH:
            continue
        # Windows end at the edges of the bands: no detector gap is averaged over.
        smooth, fine = smooth_and_fine(residual[here], good[here])
        level = float(np.mean(flux[good]))
        noise = float(np.sqrt(np.mean(error[good] ** 2)))
        share = float(np.mean(1 / _summed(good[here])[good[here]]))
        rows.append(
            BandResidual(
                low=low,
                high=high,
                pixels=int(good.sum()),
                smooth=float(np.sqrt(np.nanmean(smooth**2))) / level,
                smooth_noise=noise * np.sqrt(share) / level,
                fine=float(np.sqrt(np.nanmean(fine**2))) / level,
                fine_noise=noise * np.sqrt(1 - share) / level,
                lag_one=_lag_one(fine / np.where(good, error, 1.0)[here]),
            )
        )
    return tuple(rows)


def _lag_one(values: np.ndarray) -> float:
    """Autocorrelation of neighbours, of those pairs that are both there."""
    pairs = values[:-1] * values[1:]
    return float(np.nanmean(pairs) / np.nanmean(values**2))
