"""Is it G395H? What the header says of the disperser, and what the pixels say of the resolution.

The networks and the model know one line-spread function; a spectrum of another disperser would be read as another
atmosphere, without any other sign.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.instrument import PIXEL, WINDOW
from kappaflow.observe.columns import Segment
from kappaflow.observe.spectrum import Spectrum, local_pitch

__all__ = ["of_this_disperser", "of_this_pitch"]

_OURS = "G395H"
_OTHERS = re.compile(r"\b(PRISM|G140[MH]|G235[MH]|G395M|MIRROR|GRISM[RC]|GR150[RC]|P750L|MIRI|NIRCAM|NIRISS|WFC3)\b")
_SAID = ("grating", "disperser", "filter", "instrument")
_COARSE = 1.2  # native pitch / the model's pixel: beyond it the file is of another disperser, or binned
_FINE = 0.5  # native pitch / the detector's: below it neighbours are not independent, or it is another instrument
_MEDIUM = (1.55e-3, 2.05e-3)  # um: pitch of G395M in the window, 1.79e-3, give or take
_RIM = 0.02  # um: pixels centred this far outside the window still reach into it
_PRISM = 3e-3  # um: the prism's is coarser everywhere in the window


def _disperser(meta: Mapping[str, Any]) -> str | None:
    """Return the name of another disperser or instrument that a header states; None where it is ours or not said."""
    said = " ".join(str(meta[key]).upper() for key in _SAID if key in meta)
    found = _OTHERS.search(said)
    return found[1] if found is not None and _OURS not in said else None


def of_this_disperser(where: str, segments: Sequence[Segment]) -> list[Segment]:
    """Keep segments of NIRSpec/G395H (or that do not say): others are masked, or refused where there is nothing else.

    `where` names the files. What was left out is a note and a count in the first segment's meta.
    """
    named = [_disperser(segment.meta) for segment in segments]
    ours = [segment for segment, other in zip(segments, named, strict=True) if other is None]
    others = sorted({other for other in named if other is not None})
    if not others:
        return list(segments)
    listed = " and ".join(others)
    if not ours:
        raise UserError(
            f"{where}: a spectrum of {listed}; expected NIRSpec {_OURS} (F290LP): the networks know its resolution only"
        )
    rows = sum(len(segment) for segment, other in zip(segments, named, strict=True) if other is not None)
    meta = dict(ours[0].meta)
    meta["rows"] = {**meta["rows"], "read": meta["rows"]["read"] + rows, f"of {listed}": rows}
    meta["notes"] = (*meta.get("notes", ()), f"what is of {listed} in the file was masked: only {_OURS} was used")
    return [replace(ours[0], meta=meta), *ours[1:]]


def of_this_pitch(spectrum: Spectrum, pixels: np.ndarray) -> Spectrum:
    """Mask pixels wider than the model's, `pixels` (m, 2) [um]; refuse a spectrum that mostly has such.

    The local pitch is the lower quartile of the spacings around, so that rows left out do not count as width.
    """
    inside = spectrum.mask & (np.abs(spectrum.wavelength - np.mean(WINDOW)) < np.ptp(WINDOW) / 2 + _RIM)
    if not inside.any():
        return spectrum
    pitch = local_pitch(spectrum.wavelength)
    width = np.interp(spectrum.wavelength, pixels.mean(axis=1), pixels[:, 1] - pixels[:, 0])
    coarse = inside & (pitch > _COARSE * np.maximum(width, PIXEL))
    notes = tuple(spectrum.meta.get("notes", ()))
    if coarse.any():
        share = pitch[coarse].sum() / pitch[inside].sum()  # of the wavelengths covered, not of the rows
        typical = float(np.median(pitch[coarse]))
        kind = _looks_like(typical)
        if share > 0.5:
            name = ", ".join(spectrum.meta.get("files", ())) or "spectrum"
            raise UserError(
                f"{name}: pixels of {typical:.2g} um, {kind}; expected those of NIRSpec {_OURS}, {PIXEL:.2g} um, or at "
                f"most the model's, {np.median(width[inside]):.2g} um: the networks know no other resolution"
            )
        low, high = spectrum.wavelength[coarse][[0, -1]]
        notes += (f"{coarse.sum()} pixels of {typical:.2g} um at {low:.2f}-{high:.2f} um, {kind}, were masked",)
    fine = float(np.median(pitch[inside]))
    if fine < _FINE * PIXEL:
        notes += (
            f"pixels of {fine:.2g} um are finer than {_OURS}'s {PIXEL:.2g} um: if the spectrum was resampled its "
            f"errors are not independent, and if it is sharper than {_OURS} it has to be convolved first",
        )
    if notes == tuple(spectrum.meta.get("notes", ())):
        return spectrum
    meta = {**spectrum.meta, "notes": notes}
    if coarse.any() and "rows" in meta:
        meta["rows"] = {**meta["rows"], "too coarse": int(coarse.sum())}
    return Spectrum(spectrum.wavelength, spectrum.flux, spectrum.error, spectrum.mask & ~coarse, meta)


def _looks_like(pitch: float) -> str:
    if pitch > _PRISM:
        return "like the PRISM's"
    return "like G395M's" if _MEDIUM[0] < pitch < _MEDIUM[1] else "as of a binned spectrum"
