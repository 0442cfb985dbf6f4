"""Cross sections of lists too long to sum line by line: strengths on a fine comb, convolved with Voigt profiles.

Equal steps in ln nu make the Doppler width the same everywhere; Lorentz widths fall into a few classes, each line
shared between the two nearest. One Fourier transform per class and temperature then serves all pressures (the idea of
DIT, van den Bekerom & Pannier 2021, JQSRT 261, 107476, and of MODIT, Kawahara et al. 2022, ApJS 258, 31). The strength
of every line is exact at every temperature, and wings end where they do in `voigt.cross_section`.
"""

import numpy as np
from scipy import fft

from kappaflow.build.lines.hitran import Lines, isotope_mass
from kappaflow.build.lines.voigt import cross_section, doppler_width
from kappaflow.constants import T_REFERENCE

__all__ = ["comb_cross_sections"]

POINTS = 8  # of the comb in a Doppler 1/e half-width: profiles stay within about 1 %
CLASS_RATIO = 1.3  # of neighbouring Lorentz widths
CHUNK = 2_000_000  # lines laid on the comb at once


def comb_cross_sections(
    lines: Lines, s: np.ndarray, grid: np.ndarray, temperature: float, pressures: np.ndarray, *, cut: float
) -> np.ndarray:
    """Cross sections [cm2/molecule], shape (P, nu), at `grid` [cm-1] (equal in log) and `pressures` [bar].

    `s` [cm/molecule] are the strengths at `temperature` [K]; wings end `cut` cm-1 from the line, measured in the middle
    of the grid. All lines take the Doppler width of the main isotopologue.
    """
    middle = float(np.sqrt(grid[0] * grid[-1]))
    mass = np.array([isotope_mass(lines.molecule, 1)])
    doppler = float(doppler_width(np.array([1.0]), mass, temperature)[0])  # over nu
    node = float(np.log(grid[-1] / grid[0]) / (grid.size - 1))
    between = int(np.ceil(node / doppler * POINTS))  # comb points from one grid point to the next
    step = node / between
    reach = int(np.ceil(cut / middle / step))
    size = (grid.size - 1) * between + 1 + 2 * reach
    start = float(np.log(grid[0])) - reach * step
    width = lines.gamma * (T_REFERENCE / temperature) ** lines.n / lines.nu  # Lorentz, over nu, at 1 bar
    classes = _classes(width)
    length = int(
        fft.next_fast_len(size, real=True) or size
    )  # no room for wrapping: it only reaches the margins, which are dropped
    combs = np.asarray(fft.rfft(_comb(lines.nu, s, width, classes, (start, step, size)), length, axis=1))
    lag = step * np.arange(reach + 1)
    sigma = np.empty((pressures.size, grid.size))
    for p, pressure in enumerate(pressures):
        kernel = np.zeros((classes.size, length))
        for c, relative in enumerate(classes):
            half = _profile(lines.molecule, middle, relative * middle, lag, temperature, float(pressure))
            kernel[c, : reach + 1] = half
            kernel[c, -reach:] = half[:0:-1]
        total = (combs * np.asarray(fft.rfft(kernel, axis=1, workers=-1))).sum(axis=0)
        row = np.asarray(fft.irfft(total, length))[reach : reach + (grid.size - 1) * between + 1 : between]
        sigma[p] = np.maximum(row, 0.0) / grid  # per ln nu -> per cm-1; round-off may be negative
    return sigma


def _classes(width: np.ndarray) -> np.ndarray:
    """Widths of the classes, equal in log, from the narrowest line to the broadest."""
    low, high = float(width.min()), float(width.max())
    count = int(np.ceil(np.log(high / low) / np.log(CLASS_RATIO))) + 1
    return np.geomspace(low, high, count) if count > 1 else np.array([low])


def _comb(
    nu: np.ndarray, s: np.ndarray, width: np.ndarray, classes: np.ndarray, comb: tuple[float, float, int]
) -> np.ndarray:
    """Strengths shared among the nearest two classes and the nearest two points of the comb, shape (class, point)."""
    start, step, size = comb
    total = np.zeros(classes.size * size)
    spacing = np.log(classes[-1] / classes[0]) / max(classes.size - 1, 1)
    for first in range(0, nu.size, CHUNK):
        part = slice(first, first + CHUNK)
        place = (np.log(nu[part]) - start) / step
        inside = (place >= 0) & (place < size - 1)
        place, strength = place[inside], s[part][inside]
        cell = place.astype(np.int64)
        share = place - cell
        if spacing > 0:
            kind = np.log(width[part][inside] / classes[0]) / spacing
            row = np.clip(kind.astype(np.int64), 0, classes.size - 2)
            up = np.clip(kind - row, 0.0, 1.0)
        else:
            row, up = np.zeros(cell.size, np.int64), np.zeros(cell.size)
        for more, weight in ((0, 1 - up), (1, up)) if spacing > 0 else ((0, 1 - up),):
            at = (row + more) * size + cell
            total += np.bincount(at, strength * weight * (1 - share), total.size)
            total += np.bincount(at + 1, strength * weight * share, total.size)
    return total.reshape(classes.size, size)


def _profile(
    molecule: str, nu: float, gamma: float, lag: np.ndarray, temperature: float, pressure: float
) -> np.ndarray:
    """Voigt profile per unit of ln nu at `lag` from a line at `nu` whose Lorentz half-width is `gamma` [cm-1/bar]."""
    one = np.ones(1)
    line = Lines(molecule, nu * one, one, one, gamma * one, 0.0 * one, np.ones(1, np.int16))
    return nu * cross_section(line, nu * (1 + lag), temperature, pressure, s=one)
