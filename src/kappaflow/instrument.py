"""JWST/NIRSpec G395H with F290LP, said once: window, gap, pixels, resolving power."""

from __future__ import annotations

import numpy as np

__all__ = [
    "CALIBRATION_END",
    "GAP",
    "PIXEL",
    "POINT_SOURCE",
    "SPLIT",
    "WINDOW",
    "on_nrs2",
    "pixel_grid",
    "resolving_power",
]

WINDOW = (2.87, 5.27)  # um
GAP = (3.684, 3.788)  # um, between the detectors NRS1 and NRS2
SPLIT = 0.5 * (GAP[0] + GAP[1])  # um, its middle: NRS1 below, NRS2 above
# um: where the flux of real spectra falls to nothing, at the end of G395H's nominal range, 2.87-5.14 um (JWST User
# Documentation); measured in docs/fit.md, "The end of the calibration".
CALIBRATION_END = (5.128, 5.143)
PIXEL = 6.68e-4  # um, one detector pixel
# R(lambda) as a polynomial in (lambda/um - 4), highest power first: our least-squares fit over 2.8-5.42 um of the
# curve in STScI's jwst_nirspec_g395h_disp.fits (pre-launch), which it follows within 1e-4.
RESOLVING_POWER = (2.42906948, 8.11582549, 27.8583291, 739.982850, 2738.58746)

# Width of the line-spread function of a point source over that of a filled slit, which is what the curve is for;
# measured in docs/fit.md, "The line-spread function".
POINT_SOURCE = 0.8


def resolving_power(wavelength: np.ndarray) -> np.ndarray:
    """R = lambda/FWHM, within 1e-4 of the file's.

    Examples
    --------
    >>> resolving_power(np.array([2.87, 5.18])).round().tolist()
    [1930.0, 3669.0]
    """
    return np.polyval(RESOLVING_POWER, np.asarray(wavelength) - 4.0)


def on_nrs2(wavelength: np.ndarray) -> np.ndarray:
    """Whether each wavelength [um] falls on the detector NRS2."""
    return np.asarray(wavelength) > SPLIT


def pixel_grid(binning: int) -> np.ndarray:
    """Lower and upper edges [um] of the pixels, (2, pixel), `binning` detector pixels in each.

    Each detector starts at its first wavelength; a last incomplete bin is dropped.
    """
    edges = []
    for first, last in ((WINDOW[0], GAP[0]), (GAP[1], WINDOW[1])):
        count = int((last - first) / (PIXEL * binning))
        edges.append(first + PIXEL * binning * np.arange(count + 1))
    return np.stack([np.concatenate([e[:-1] for e in edges]), np.concatenate([e[1:] for e in edges])])
