"""Lines too many to list: the unresolved part of a super-line bin, and the hot term.

The hot term is what a list tabulated at 296 K (or 350-600 K) lacks at high temperature. Correlated-k tables made from
HITEMP give band means over (T, P). Where they exceed a list's own mean, the deficit is added as statistical lines:
fixed pseudo-random places, a log-normal spread of strengths, each band lifted to the table's mean. Inside a band the
deficit follows the molecule's own envelope times a factor continuous from band to band: a band may be wide, and the
opacity fall by e^5 across it. Lines rather than a continuum, because the gaps between hot lines carry flux; the
density of lines is chosen by comparison with the tables' own distribution of opacity (docs/opacity.md).
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from scipy.signal import oaconvolve

from kappaflow.build.lines.broadening import mean_width
from kappaflow.build.lines.envelope import Envelope
from kappaflow.build.lines.hitran import MOLECULE, Lines, strength
from kappaflow.build.lines.voigt import cross_section
from kappaflow.constants import T_REFERENCE
from kappaflow.errors import UserError
from kappaflow.randomness import philox

__all__ = ["BandMeans", "DenseLines", "hot_term", "read_band_means", "split"]

FINE = 0.004  # cm-1, step of the comb: at most the Doppler width at the temperatures where hot lines matter
REFERENCE_LOG_P = 0.0  # the means hardly depend on pressure; 1 bar
CELL = 25.0  # cm-1: in each, the statistical lines' spread leaves the mean as it is
TAPER = (250.0, 450.0)  # K: a list made at 296 K lacks nothing there; the hot term comes in between, evenly in ln
LEAST = 1e-3  # of the envelope: the hot term never vanishes, so its logarithm is smooth in wavenumber and temperature
COLDEST = 1e-6  # of the envelope, below the taper: a hundredth would fill the gaps between cold lines at low pressure
EDGE = 30.0  # cm-1 either side of a band's edge, where its factor goes over into its neighbour's
MOST = 3.0  # times a band's own mean factor: no band's middle makes up for what its edges take from their neighbours
STEPS = 60  # of the damped search for the factor in every band


@dataclass(frozen=True)
class BandMeans:
    """Band means `mean` (band, T) [cm2/molecule] between wavenumbers `low` and `high` [cm-1], bands ascending."""

    low: np.ndarray
    high: np.ndarray
    temperature: np.ndarray
    mean: np.ndarray

    def at(self, temperature: float) -> np.ndarray:
        """Means at `temperature`, linear in ln against ln T."""
        x = np.log(np.clip(temperature, self.temperature[0], self.temperature[-1]))
        return np.exp([np.interp(x, np.log(self.temperature), row) for row in np.log(self.mean)])


@dataclass(frozen=True)
class DenseLines:
    """Statistical lines of one half-width, too many to know one by one.

    Strengths are the lines' own or, where `temperature` and `s` (T, line) [cm/molecule] are given, those tabulated.
    """

    lines: Lines
    temperature: np.ndarray | None = None
    s: np.ndarray | None = None

    def strength(self, temperature: float) -> np.ndarray:
        """Strengths [cm/molecule] at `temperature`; tabulated ones linear in ln against ln T."""
        if self.temperature is None or self.s is None:
            return strength(self.lines, temperature)
        x = np.interp(np.log(temperature), np.log(self.temperature), np.arange(self.temperature.size))
        left = min(int(x), self.temperature.size - 2)
        share = x - left
        return np.exp((1 - share) * np.log(self.s[left] + 1e-60) + share * np.log(self.s[left + 1] + 1e-60))

    def cross_section(self, grid: np.ndarray, temperature: float, pressure: float, *, cut: float) -> np.ndarray:
        """Cross section [cm2/molecule] at `grid` [cm-1].

        All lines share one half-width, so they are laid on a fine comb and convolved with one Voigt profile (the
        Doppler width is that of the middle of the window).
        """
        s = self.strength(temperature)
        low = self.lines.nu[0] - cut
        size = int((self.lines.nu[-1] + cut - low) / FINE) + 2
        place = (self.lines.nu - low) / FINE
        cell = place.astype(int)
        comb = np.bincount(cell, s * (cell + 1 - place), size) + np.bincount(cell + 1, s * (place - cell), size)
        middle = self.lines.where(np.array([len(self.lines) // 2]))
        lag = np.arange(-round(cut / FINE), round(cut / FINE) + 1) * FINE
        voigt = cross_section(middle, middle.nu[0] + lag, temperature, pressure, cut=2 * cut, s=np.ones(1))
        sigma = oaconvolve(comb, voigt, mode="same")
        return np.maximum(np.interp(grid, low + FINE * np.arange(size), sigma), 0.0)  # FFT round-off may be negative


def split(lines: Lines, step: float, *, parts: int, spread: float) -> DenseLines:
    """Split each super-line into `parts` at fixed pseudo-random places within `step` [cm-1], strengths log-normal.

    A bin of a hot list holds many lines: one in their stead would saturate and leave the gaps open.
    """
    random = philox(2000 + MOLECULE[lines.molecule])
    weight = np.exp(spread * random.standard_normal((len(lines), parts)))
    weight /= weight.sum(axis=1, keepdims=True)
    nu = (lines.nu[:, None] + step * (random.random((len(lines), parts)) - 0.5)).ravel()
    many = dataclasses.replace(lines.where(np.repeat(np.arange(len(lines)), parts)), nu=nu)
    many = dataclasses.replace(many, s=(lines.s[:, None] * weight).ravel())
    return DenseLines(many.where(np.argsort(nu, kind="stable")))


def read_band_means(path: Path, low: float, high: float) -> BandMeans:
    """Read a k-table's band means for the bands that touch [low, high] cm-1."""
    try:
        with h5py.File(path) as file:
            wavelength = np.asarray(file["wavelengths"], dtype=float)
            temperature = np.asarray(file["T"], dtype=float)
            log_pressure = np.asarray(file["log10P"], dtype=float)
            weights = np.asarray(file["weights"], dtype=float)
            log_k = np.asarray(file["log10k"], dtype=float)
    except (OSError, KeyError) as error:
        raise UserError(f"{path}: not a k-table with wavelengths, T, log10P, weights and log10k ({error})") from None
    if log_k.shape != (wavelength.size - 1, temperature.size, log_pressure.size, weights.size):
        raise UserError(f"{path}: log10k has shape {log_k.shape}; expected (wavelength - 1, T, P, g)")
    edges = 1e4 / wavelength  # descending
    keep = (edges[1:] < high) & (edges[:-1] > low)
    p = int(np.argmin(np.abs(log_pressure - REFERENCE_LOG_P)))
    mean = (10.0 ** log_k[keep][:, :, p] * weights).sum(axis=-1) / weights.sum()
    return BandMeans(edges[1:][keep][::-1], edges[:-1][keep][::-1], temperature, np.maximum(mean[::-1], 1e-60))


def hot_term(
    cold: Sequence[Lines],
    bands: BandMeans,
    temperatures: np.ndarray,
    envelope: Envelope,
    *,
    lines: tuple[float, float],
    skip: tuple[int, ...] = (),
) -> DenseLines:
    """Statistical lines that lift `cold` to the band means of `bands` at each of `temperatures`.

    `lines` are their density [per cm-1] and the standard deviation of their ln strength, which set how far the gaps
    fill. Bands in `skip` (numbers, ascending in wavenumber) take the factor interpolated from their neighbours.
    Where `envelope` goes beyond the lines of `cold`, it stands for them.
    """
    density, spread = lines
    molecule = cold[0].molecule
    random = philox(1000 + MOLECULE[molecule])
    low, high = bands.low[0], bands.high[-1]
    count = int((high - low) * density)
    nu = np.sort(low + (high - low) * random.random(count))
    weight = np.exp(spread * random.standard_normal(count))
    cell = ((nu - low) / CELL).astype(int)
    mean = np.bincount(cell, weight) / np.maximum(np.bincount(cell), 1)
    expected = np.bincount(cell) / (density * np.minimum(CELL, high - low - CELL * np.arange(cell[-1] + 1)))
    weight /= density * (mean * expected)[cell]
    good = np.setdiff1d(np.arange(bands.low.size), skip)
    s = np.empty((temperatures.size, count))
    for t, temperature in enumerate(temperatures):
        shape = envelope.at(float(temperature))
        factor = _factor(shape, _deficit(cold, bands, float(temperature), envelope), bands, envelope.nu, good)
        share = np.clip((temperature - TAPER[0]) / (TAPER[1] - TAPER[0]), 0.0, 1.0)
        s[t] = weight * np.exp(np.interp(nu, envelope.nu, np.log(shape * factor**share * COLDEST ** (1 - share))))
    gamma, n = mean_width(cold[0])
    zero, one = np.zeros(count), np.ones(count)
    return DenseLines(Lines(molecule, nu, zero, zero, gamma * one, n * one, np.ones(count, np.int16)), temperatures, s)


def _deficit(cold: Sequence[Lines], bands: BandMeans, temperature: float, envelope: Envelope) -> np.ndarray:
    """Mean cross section [cm2] that each band lacks at `temperature`; the wings of the lines count where they reach."""
    own = _smeared(cold, envelope.nu, temperature)
    reach = max(part.nu[-1] for part in cold)
    own = np.where(envelope.nu > reach, envelope.at(temperature), own)
    return np.maximum(bands.at(temperature) - _band_means(own, envelope.nu, bands), 0.0)


def _smeared(cold: Sequence[Lines], nu: np.ndarray, temperature: float) -> np.ndarray:
    """Cross section [cm2] on the even grid `nu` [cm-1], each line smeared by its Lorentz profile at 1 bar."""
    step = nu[1] - nu[0]
    total = np.zeros(nu.size)
    for lines in cold:
        gamma, n = mean_width(lines)
        width = gamma * (T_REFERENCE / temperature) ** n
        edges = (np.arange(-round(CELL / step), round(CELL / step) + 2) - 0.5) * step
        kernel = np.diff(np.arctan(edges / width)) / np.pi
        cell = np.rint((lines.nu - nu[0]) / step).astype(int)
        inside = (cell >= 0) & (cell < nu.size)
        comb = np.bincount(cell[inside], strength(lines, temperature)[inside], minlength=nu.size) / step
        total += np.convolve(comb, kernel, "same")
    return total


def _band_means(sigma: np.ndarray, nu: np.ndarray, bands: BandMeans) -> np.ndarray:
    """Means of `sigma` at the even grid `nu` over each band."""
    step = nu[1] - nu[0]
    overlap = np.minimum(bands.high[:, None], nu + step / 2) - np.maximum(bands.low[:, None], nu - step / 2)
    return np.maximum(overlap, 0.0) @ sigma / (bands.high - bands.low)


def _factor(shape: np.ndarray, deficit: np.ndarray, bands: BandMeans, nu: np.ndarray, good: np.ndarray) -> np.ndarray:
    """Factor (nu,) that gives `shape` the mean `deficit` in every band of `good`.

    Even in the middle of a band, log-linear across its edges.
    """
    corner = np.stack([bands.low + EDGE, bands.high - EDGE], axis=1)[good].ravel()
    mean = np.maximum(deficit / _band_means(shape, nu, bands), LEAST)[good]
    node = np.log(mean)
    factor = np.exp(np.interp(nu, corner, np.repeat(node, 2)))
    for _ in range(STEPS):
        found = (_band_means(shape * factor, nu, bands) / _band_means(shape, nu, bands))[good]
        node = np.clip(node + 0.5 * np.log(mean / found), np.log(LEAST), np.log(MOST * mean))
        factor = np.exp(np.interp(nu, corner, np.repeat(node, 2)))
    return factor
