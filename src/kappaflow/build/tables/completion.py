"""What turns public line data into complete lists: measured widths, cleaning, what a list lacks, the hot term."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kappaflow.build.lines.broadening import broadening_files, mean_width, with_measured_widths
from kappaflow.build.lines.hitran import Lines, isotope_name, read_hitran, strength
from kappaflow.build.lines.statistical_lines import DenseLines, hot_term, read_band_means, split
from kappaflow.build.sources.exomol_bins import (
    BinnedCrossSection,
    envelope,
    find_exomol,
    lower_energy,
    read_exomol,
    super_lines,
)
from kappaflow.constants import C2, T_REFERENCE

__all__ = [
    "DEUTERIUM",
    "LINE_WINDOW",
    "exomol_files",
    "guided",
    "hitran2012",
    "hitran_files",
    "hot",
    "hot_files",
    "lacking",
    "protosolar",
    "share_of",
    "split_bins",
    "warm_cool",
    "without_spurious",
]

LINE_WINDOW = (1750.0, 3650.0)  # cm-1: the modelling grid plus 100 on either side, and the extent of the line files
DEUTERIUM = 2.0e-5 / 1.5576e-4  # protosolar D/H (Geiss & Gloeckler 2003) over VSMOW, which HITRAN's strengths assume

# Density [cm-1] and ln-spread of the hot term's statistical lines, set against the k-tables' distribution of opacity.
HOT_LINES = {"H2O": (12.0, 1.5), "CH4": (300.0, 1.0), "CO2": (100.0, 1.0)}
# Into how many lines, with what ln-spread, the unresolved strength of an ExoMol bin is split.
PARTS = {"H2O": (4, 1.5), "CH4": (50, 1.0), "CO2": (25, 1.0), "NH3": (6, 1.5), "H2S": (6, 1.5), "PH3": (12, 1.0)}
LACKING_E_LOWER = 3000.0  # cm-1, at most: beyond, the difference of two nearly equal lists decides, not the molecule
EXOMOL_STEP = 0.25  # cm-1, of the 600 K files
ENVELOPE_TEMPERATURES = {"H2O": (350, 600, 3400)}  # K; 350 and 600 for others
SPOILED_BANDS = {"H2O": (2494.0,)}  # cm-1, a band edge: the k-table has HITRAN2012's spurious H2O lines there
SPURIOUS = 2.0  # times all that ExoMol has nearby: a stronger line is none; no other molecule has one above 1.5
BAND_WINDOW = (1850.0, 3550.0)  # cm-1: k-table bands that touch the modelling grid

_PAR = {
    "H2O": "01_hit12_1750-3650.par",
    "CO2": "02_hit12_1750-3650.par",
    "CO": "05_hit12.par",
    "CH4": "06_hit12_1750-3650.par",
    "PH3": "28_hit12_1750-3650.par",
}


def hitran_files(data: Path, species: str) -> list[Path]:
    """Return HITRAN2012's file and those of its half-widths."""
    return [data / "linelists/hitran2012" / _PAR[species], *broadening_files(data, species)]


def exomol_files(data: Path, species: str) -> list[Path]:
    """Return ExoMol's cross sections at 600 and 350 K."""
    return [find_exomol(data / "xsec-exomol", species, t) for t in (600, 350)]


def hot_files(data: Path, species: str) -> list[Path]:
    """Return the k-table and the cross sections whose envelope the hot term follows."""
    known = [find_exomol(data / "xsec-exomol", species, t) for t in ENVELOPE_TEMPERATURES.get(species, (350, 600))]
    return [data / f"ktables/photochem_{species}.h5", *known]


def hitran2012(data: Path, species: str) -> Lines:
    """HITRAN2012 with its terrestrial deuterium and measured half-widths in H2 and He."""
    path = hitran_files(data, species)[0]
    return with_measured_widths(read_hitran(path, species), path, data)


def protosolar(lines: Lines) -> Lines:
    """Scale isotopologues with deuterium from terrestrial to protosolar D/H."""
    heavy = [i for i in np.unique(lines.isotope) if "D" in isotope_name(lines.molecule, int(i))]
    return dataclasses.replace(lines, s=np.where(np.isin(lines.isotope, heavy), lines.s * DEUTERIUM, lines.s))


def warm_cool(data: Path, species: str) -> tuple[BinnedCrossSection, BinnedCrossSection]:
    """ExoMol's bins at 600 and at 350 K."""
    warm, cool = exomol_files(data, species)
    return read_exomol(warm, *LINE_WINDOW), read_exomol(cool, *LINE_WINDOW)


def without_spurious(lines: Lines, data: Path) -> Lines:
    """Drop lines of the main isotopologue much stronger at 600 K than all that ExoMol has within 0.5 cm-1."""
    warm, _ = warm_cool(data, lines.molecule)
    total = np.cumsum(np.append(0.0, warm.sigma * warm.step))
    edges = np.append(warm.nu - warm.step / 2, warm.nu[-1] + warm.step / 2)
    nearby = np.interp(lines.nu + 0.5, edges, total) - np.interp(lines.nu - 0.5, edges, total)
    spurious = (lines.isotope == 1) & (strength(lines, 600.0) > SPURIOUS * np.maximum(nearby, 1e-26))
    return lines.where(~spurious)


def hot(data: Path, cold: Sequence[Lines], temperatures: np.ndarray) -> DenseLines:
    """Statistical lines that lift `cold` to the k-table's band means, in the shape of ExoMol's envelope."""
    molecule = cold[0].molecule
    ktable, *known = hot_files(data, molecule)
    bands = read_band_means(ktable, *BAND_WINDOW)
    shape = envelope(molecule, [read_exomol(file, LINE_WINDOW[0], bands.high[-1]) for file in known])
    spoiled = SPOILED_BANDS.get(molecule, ())  # bands that take the factor of their neighbours
    skip = tuple(b for b, low in enumerate(bands.low) if any(abs(low - s) < 1 for s in spoiled))
    return hot_term(cold, bands, temperatures, shape, lines=HOT_LINES[molecule], skip=skip)


def split_bins(lines: Lines) -> DenseLines:
    """Split super-lines into the many that a bin of the molecule holds."""
    parts, spread = PARTS[lines.molecule]
    return split(lines, EXOMOL_STEP, parts=parts, spread=spread)


def _binned(lines: Lines, bins: BinnedCrossSection, weight: np.ndarray) -> np.ndarray:
    """Sum of `weight` over the lines in each bin."""
    index = np.rint((lines.nu - bins.nu[0]) / bins.step).astype(int)
    inside = (index >= 0) & (index < bins.nu.size)
    return np.bincount(index[inside], weight[inside], minlength=bins.nu.size)


def share_of(lines: Lines, bins: BinnedCrossSection, nu: np.ndarray) -> np.ndarray:
    """Share of the strength of `bins` that `lines` hold, in windows of 2 cm-1 around `nu`.

    Positions differ by up to a bin between the lists: bin by bin, a line would be missing here and extra there.
    """
    own = _binned(lines, bins, strength(lines, bins.temperature)) / bins.step
    box = np.ones(2 * round(1.0 / bins.step) + 1)
    share = np.convolve(own, box, "same") / np.maximum(np.convolve(bins.sigma, box, "same"), 1e-300)
    return np.interp(nu, bins.nu, share)


def lacking(lines: Lines, warm: BinnedCrossSection, cool: BinnedCrossSection) -> Lines:
    """Super-lines for the strength that the bins have and `lines` lacks.

    What is lacking is hotter than the bin it lies in: its lower energy comes from what is lacking at 600 and 350 K.
    """
    extra = super_lines(lines.molecule, warm, cool, width=mean_width(lines))
    lacks_warm, lacks_cool = (np.clip(1 - share_of(lines, bins, extra.nu), 1e-3, 1.0) for bins in (warm, cool))
    hotter = np.log(lacks_warm / lacks_cool) / (C2 * (1 / cool.temperature - 1 / warm.temperature))
    e_lower = np.clip(extra.e_lower + hotter, extra.e_lower, np.maximum(extra.e_lower, LACKING_E_LOWER))
    s = extra.s * np.where(lacks_warm > 2e-3, lacks_warm, 0.0)
    s *= np.exp(C2 * (e_lower - extra.e_lower) * (1 / warm.temperature - 1 / T_REFERENCE))
    return dataclasses.replace(extra, e_lower=e_lower, s=s)


def guided(guide: Lines, warm: BinnedCrossSection, cool: BinnedCrossSection) -> Lines:
    """Super-lines for the share of the bins that `guide` knows: their strength at 600 K is ExoMol's.

    Place, half-width and lower energy are those of the lines of `guide` in the bin: what is known cools as it does.
    """
    main = super_lines(guide.molecule, warm, cool, width=mean_width(guide), guide=guide)
    at = np.rint((main.nu - warm.nu[0]) / warm.step).astype(int)
    hot_s, cold_s = strength(guide, warm.temperature), strength(guide, cool.temperature)
    here, here_cold = (_binned(guide, warm, s) for s in (hot_s, cold_s))
    box = np.ones(2 * round(1.0 / warm.step) + 1)
    near, near_cold = (np.convolve(x, box, "same") for x in (here, here_cold))
    none = here <= 0
    pair = [np.maximum(np.where(none, b, a), 1e-300)[at] for a, b in ((here, near), (here_cold, near_cold))]
    energy = lower_energy(guide.molecule, main.nu, (pair[0], warm.temperature), (pair[1], cool.temperature))
    energy = np.where((near > 0)[at], np.maximum(energy, 0.0), main.e_lower)
    known = np.clip(share_of(guide, warm, main.nu), 0, 1)
    s = main.s * known * np.exp(C2 * (energy - main.e_lower) * (1 / warm.temperature - 1 / T_REFERENCE))
    total = np.where(none, 1.0, here)
    gamma, n = (
        np.where(none[at], mean, (_binned(guide, warm, hot_s * own) / total)[at])
        for own, mean in ((guide.gamma, main.gamma), (guide.n, main.n))
    )
    return dataclasses.replace(main, s=s, e_lower=energy, gamma=gamma, n=n)
