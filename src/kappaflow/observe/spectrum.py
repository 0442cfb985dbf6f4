"""One observed spectrum, and the pixels it sits on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.instrument import WINDOW
from kappaflow.spectra import median_snr

__all__ = ["MIN_COVERED", "Spectrum", "covered_fraction", "local_pitch", "pixel_edges"]

MIN_COVERED = 0.10  # share of the band below which a file is refused: too little for any C/O
_GAP = 1.5  # a spacing this many times the local pitch is a hole, not a wide pixel
_NEIGHBOURS = 15  # spacings on each side that define the local pitch


@dataclass(frozen=True, eq=False)
class Spectrum:
    """A spectrum on increasing vacuum wavelengths, read-only.

    Attributes
    ----------
    wavelength
        Pixel centres [um], vacuum, strictly increasing, shape (n,).
    flux
        Flux density [mJy], shape (n,). Negative values are kept: they are information.
    error
        One standard deviation [mJy], shape (n,). Any value where `mask` is False.
    mask
        True where the pixel is good, shape (n,).
    meta
        Where it comes from: files, target, units as read, rows masked and why, notes.
    """

    wavelength: np.ndarray
    flux: np.ndarray
    error: np.ndarray
    mask: np.ndarray
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arrays = {name: np.array(getattr(self, name), dtype=float) for name in ("wavelength", "flux", "error")}
        arrays["mask"] = np.array(self.mask, dtype=bool)
        shape = arrays["wavelength"].shape
        if len(shape) != 1 or shape[0] < 2 or any(a.shape != shape for a in arrays.values()):
            shapes = ", ".join(f"{name} {a.shape}" for name, a in arrays.items())
            raise UserError(f"spectrum: {shapes}; expected four arrays of one length of at least 2")
        step = np.diff(arrays["wavelength"])
        if not (np.isfinite(arrays["wavelength"]).all() and (step > 0).all() and arrays["wavelength"][0] > 0):
            raise UserError("spectrum: wavelengths must be finite, positive and strictly increasing (um)")
        with np.errstate(invalid="ignore"):
            usable = np.isfinite(arrays["flux"]) & np.isfinite(arrays["error"]) & (arrays["error"] > 0)
        arrays["mask"] &= usable
        for name, array in arrays.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "meta", MappingProxyType(dict(self.meta)))

    def __len__(self) -> int:
        return self.wavelength.size

    @property
    def snr(self) -> float:
        """Median of flux over error on the good pixels inside the window (nan when there is none)."""
        use = self.mask & (self.wavelength > WINDOW[0]) & (self.wavelength < WINDOW[1])
        return float(median_snr(self.flux[None], self.error[None], use[None])[0])

    def noted(self, **more: Any) -> Spectrum:
        """Return the same spectrum with `more` in its meta."""
        return Spectrum(self.wavelength, self.flux, self.error, self.mask, {**self.meta, **more})


def pixel_edges(wavelength: np.ndarray) -> np.ndarray:
    """Lower and upper edges [um] of pixels centred on increasing `wavelength` (n,), shape (n, 2).

    Neighbours share the edge halfway between them, unless their distance exceeds 1.5 times the local pitch
    (the lower quartile of the spacings around): then there is a hole, where pixels were dropped or detectors
    end, and the pixel stops half a pitch from its centre.
    """
    centre = np.asarray(wavelength, dtype=float)
    if centre.ndim != 1 or centre.size < 2 or not (np.diff(centre) > 0).all():
        raise UserError("pixel edges: expected at least two strictly increasing wavelengths")
    step, pitch = np.diff(centre), local_pitch(centre)
    half = np.empty((centre.size, 2))
    half[0, 0], half[-1, 1] = pitch[0], pitch[-1]
    half[1:, 0] = half[:-1, 1] = step
    half = np.where(half > _GAP * pitch[:, None], pitch[:, None], half) / 2
    return centre[:, None] + half * np.array([-1.0, 1.0])


def local_pitch(wavelength: np.ndarray) -> np.ndarray:
    """Spacing [um] of the pixels around each of `wavelength` (n,): their lower quartile, deaf to missing rows."""
    step = np.diff(wavelength)
    width = min(2 * _NEIGHBOURS + 1, step.size)
    windows = np.lib.stride_tricks.sliding_window_view(step, width)
    quartile = np.quantile(windows, 0.25, axis=1, method="lower")
    return quartile[np.clip(np.arange(len(wavelength)) - width // 2, 0, quartile.size - 1)]


def covered_fraction(spectrum: Spectrum, band: tuple[float, float] = WINDOW) -> float:
    """Share of `band` [um] under good pixels."""
    low, high = np.clip(pixel_edges(spectrum.wavelength), *band).T
    return float(((high - low) * spectrum.mask).sum() / (band[1] - band[0]))
