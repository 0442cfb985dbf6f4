"""Lines too many to list: the unresolved part of a super-line bin, and the hot term.

The hot term is what a list tabulated at 296 K (or 350-600 K) lacks at high temperature. Correlated-k tables made from
HITEMP give band means over (T, P). Where they exceed a list's own mean, the deficit is added as statistical lines:
fixed pseudo-random places, a log-normal spread of strengths, each band lifted to the table's mean. Lines rather than a
continuum, because the gaps between hot lines carry flux; the density of lines is chosen by comparison with the tables'
own distribution of opacity (docs/opacity.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from scipy.signal import oaconvolve

from kappaflow.build.lines.hitran import MOLECULE, Lines, strength
from kappaflow.build.lines.voigt import cross_section
from kappaflow.errors import UserError
from kappaflow.randomness import philox

__all__ = ["BandMeans", "DenseLines", "hot_term", "read_band_means", "split"]

FINE = 0.004  # cm-1, step of the comb: at most the Doppler width at the temperatures where hot lines matter
REFERENCE_LOG_P = 0.0  # the means hardly depend on pressure; 1 bar


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
    *,
    density: float,
    spread: float,
    skip: tuple[int, ...] = (),
) -> DenseLines:
    """Statistical lines that lift `cold` to the band means of `bands` at each of `temperatures`.

    `density` [lines per cm-1] and `spread` (standard deviation of ln strength) set how far the gaps fill. Bands in
    `skip` (numbers, ascending in wavenumber) take the deficit interpolated from their neighbours.
    """
    molecule = cold[0].molecule
    random = philox(1000 + MOLECULE[molecule])
    low, high = bands.low[0], bands.high[-1]
    count = int((high - low) * density)
    nu = np.sort(low + (high - low) * random.random(count))
    weight = np.exp(spread * random.standard_normal(count))
    band = np.clip(np.searchsorted(bands.high, nu, side="right"), 0, bands.low.size - 1)
    s = np.empty((temperatures.size, count))
    for t, temperature in enumerate(temperatures):
        deficit = _deficit(cold, bands, float(temperature), skip)
        shape = weight * _between_bands(nu, bands, deficit)
        total = np.bincount(band, shape, minlength=bands.low.size)
        wanted = deficit * (bands.high - bands.low)
        s[t] = shape * (wanted / np.where(total > 0, total, 1.0))[band]
    gamma = np.average(cold[0].gamma, weights=cold[0].s)
    n = np.average(cold[0].n, weights=cold[0].s)
    lines = Lines(
        molecule,
        nu,
        np.zeros(count),
        np.zeros(count),
        np.full(count, gamma),
        np.full(count, n),
        np.ones(count, np.int16),
    )
    return DenseLines(lines, temperatures, s)


def _deficit(cold: Sequence[Lines], bands: BandMeans, temperature: float, skip: tuple[int, ...]) -> np.ndarray:
    """Mean cross section [cm2] that each band lacks at `temperature`."""
    own = np.zeros(bands.low.size)
    for lines in cold:
        index = np.searchsorted(bands.high, lines.nu, side="right")
        inside = (index < bands.low.size) & (lines.nu >= bands.low[0])
        own += np.bincount(index[inside], strength(lines, temperature)[inside], minlength=bands.low.size)
    own /= bands.high - bands.low
    mean = bands.at(temperature)
    deficit = np.maximum(mean - own, 0.0)
    good = np.setdiff1d(np.arange(bands.low.size), skip)
    centre = (bands.low + bands.high) / 2
    for b in skip:
        deficit[b] = np.exp(np.interp(centre[b], centre[good], np.log(np.maximum(deficit[good], 1e-60))))
    return deficit


def _between_bands(nu: np.ndarray, bands: BandMeans, deficit: np.ndarray) -> np.ndarray:
    """Deficit interpolated log-linearly between band centres: hot wings slope through a band, they do not step."""
    centre = (bands.low + bands.high) / 2
    floor = max(deficit.max() * 1e-12, 1e-60)
    return np.exp(np.interp(nu, centre, np.log(np.maximum(deficit, floor))))
