"""A spectrum as it was read, for the page: facts in words, and a curve of a few hundred points."""

from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.instrument import PIXEL, WINDOW, pixel_grid
from kappaflow.observe.distances import stated_distance
from kappaflow.observe.resampling import on_pixels, trusted
from kappaflow.observe.spectrum import Spectrum, local_pitch
from kappaflow.presets import PRESETS
from kappaflow.report.object_section import spectrum_facts

__all__ = ["as_read", "curve"]

_POINTS = 480  # of the curve


def as_read(native: Spectrum) -> dict[str, Any]:
    """Return what the page shows of `native` before anything is run; raises where the networks cannot take it."""
    pixels = pixel_grid(PRESETS["laptop"].pixel_bin).mean(axis=0)
    seen = on_pixels(native, pixels)  # refuses another resolution, masks outliers
    if not np.isfinite(native.snr):
        raise UserError("no good pixel between 2.87 and 5.27 um; expected NIRSpec G395H")
    known = stated_distance(native.meta)
    facts = spectrum_facts({**seen.meta, "distance_pc": None, "files": ()})
    del facts["file"], facts["distance"]
    inside = native.mask & (native.wavelength > WINDOW[0]) & (native.wavelength < WINDOW[1])
    pitch = float(np.median(local_pitch(native.wavelength)[inside]))
    first, last = native.wavelength[native.mask][[0, -1]]
    facts["resolution"] = f"pixels of {pitch:.2g} um, those of G395H have {PIXEL:.2g} um"
    facts["range"] = f"{first:.2f} to {last:.2f} um; {seen.mask.mean():.0%} of the model's pixels have data"
    facts["signal to noise"] = f"{native.snr:.0f} per pixel of the file, {seen.snr:.0f} per pixel of the model (median)"
    target = native.meta.get("target")
    return {
        "target": target if isinstance(target, str) else "",
        "facts": facts,
        "notes": [str(note) for note in seen.meta.get("notes", ())],
        "distance": None if known is None else known.pc,
        "distance_error": None if known is None or not known.error else known.error,
        "curve": curve(trusted(native, pixels)),
    }


def curve(native: Spectrum, points: int = _POINTS) -> dict[str, list[float | None]]:
    """Median and range of the good flux [mJy] and share of masked rows in `points` equal steps over the window.

    A step without a good row has None. A whole file of thousands of rows is then drawn by any browser at once, and no
    outlier is averaged away: it is in the range.
    """
    edges = np.linspace(*WINDOW, points + 1)
    step = np.searchsorted(edges, native.wavelength, side="right") - 1
    inside = (step >= 0) & (step < points)
    rows = np.bincount(step[inside], minlength=points)
    good = inside & native.mask
    kept = np.bincount(step[good], minlength=points)
    median, low, high = (np.full(points, np.nan) for _ in range(3))
    values = np.split(native.flux[good], np.cumsum(kept)[:-1])  # rows are in order of wavelength
    for k in np.flatnonzero(kept):
        median[k], low[k], high[k] = np.median(values[k]), values[k].min(), values[k].max()
    masked = np.where(rows > 0, 1 - kept / np.maximum(rows, 1), 0.0)
    plain: dict[str, list[float | None]] = {
        name: [None if not np.isfinite(value) else float(f"{value:.4g}") for value in array]
        for name, array in (("median", median), ("low", low), ("high", high), ("masked", masked))
    }
    return {"from": [WINDOW[0]], "to": [WINDOW[1]], **plain}
