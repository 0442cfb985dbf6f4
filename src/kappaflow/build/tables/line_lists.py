"""The packaged line lists: which data each is made of, and how (the table of docs/opacity.md, in code)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from kappaflow.build.lines.hitran import Lines, isotope_name, join_lines, read_hitran, strength
from kappaflow.build.lines.statistical_lines import DenseLines, hot_term, read_band_means, split
from kappaflow.build.lines.voigt import cross_section
from kappaflow.build.sources.exomol_bins import BinnedCrossSection, find_exomol, read_exomol, super_lines
from kappaflow.constants import C2, T_REFERENCE

__all__ = ["PACKAGED_LISTS", "CarbonMonoxide", "CompletedHitran", "ExoMolBins", "ListMaker", "ListRecipe", "SourceList"]

CUT = 25.0  # cm-1, where wings end
LINE_WINDOW = (1750.0, 3650.0)  # cm-1: the modelling grid plus 100 on either side, and the extent of the line files
DEUTERIUM = 2.0e-5 / 1.5576e-4  # protosolar D/H (Geiss & Gloeckler 2003) over VSMOW, which HITRAN's strengths assume

# Half-widths in 85 % H2 + 15 % He over those in air, all lines of a molecule alike. Our choice: CO2 from the 1.2-1.4
# for H2 that Heraty (2026) quotes and less for He; H2O and CH4 are round values (docs/opacity.md on how CH4's compare).
H2HE_OVER_AIR = {"H2O": 0.85, "CH4": 1.05, "CO2": 1.22}

# Half-width [cm-1/bar] and exponent of every super-line: our choice, round values typical of H2 and He broadening.
SUPER_WIDTH = {"H2O": (0.07, 0.5), "CH4": (0.055, 0.6), "CO2": (0.085, 0.65), "NH3": (0.07, 0.6), "H2S": (0.07, 0.6)}

# Density [cm-1] and ln-spread of the hot term's statistical lines, set against the k-tables' distribution of opacity.
HOT_LINES = {"H2O": (12.0, 1.5), "CH4": (300.0, 1.0), "CO2": (100.0, 1.0)}
# Into how many lines, with what ln-spread, the unresolved strength of an ExoMol bin is split.
PARTS = {"H2O": (4, 1.5), "CH4": (50, 1.0), "CO2": (25, 1.0), "NH3": (6, 1.5), "H2S": (6, 1.5)}
LACKING_E_LOWER = 3000.0  # cm-1, at most: beyond, the difference of two nearly equal lists decides, not the molecule
EXOMOL_STEP = 0.25  # cm-1, of the 600 K files
SPOILED_BANDS = {"H2O": (2494.0,)}  # cm-1, a band edge: the k-table has HITRAN2012's spurious H2O lines there


@dataclass(frozen=True)
class SourceList:
    """A list ready to be evaluated: lines known one by one, lines known statistically, and where they came from."""

    lines: Lines
    dense: tuple[DenseLines, ...]
    provenance: str
    citation: str

    def cross_section(self, grid: np.ndarray, temperature: float, pressure: float) -> np.ndarray:
        """Cross section [cm2/molecule] sampled at `grid` [cm-1]."""
        sigma = cross_section(self.lines, grid, temperature, pressure, cut=CUT)
        for dense in self.dense:
            sigma += dense.cross_section(grid, temperature, pressure, cut=CUT)
        return sigma


class ListMaker(Protocol):
    """How a list is made from the data folder: a frozen dataclass, so that it pickles and its repr says all of it."""

    def files(self, data: Path) -> list[Path]:
        """Return every file that decides the list."""
        ...

    def assemble(self, data: Path, temperatures: np.ndarray) -> SourceList:
        """Read them and make the list, for `temperatures` [K]."""
        ...


@dataclass(frozen=True)
class ListRecipe:
    """One list of one species and what makes it."""

    species: str
    name: str
    maker: ListMaker


_PAR = {
    "H2O": "01_hit12_1750-3650.par",
    "CO2": "02_hit12_1750-3650.par",
    "CO": "05_hit12.par",
    "CH4": "06_hit12_1750-3650.par",
}


def _par(data: Path, species: str) -> Path:
    return data / "linelists/hitran2012" / _PAR[species]


def _ktable(data: Path, species: str) -> Path:
    return data / f"ktables/photochem_{species}.h5"


def _exomol_files(data: Path, species: str) -> list[Path]:
    """Return ExoMol's cross sections at 600 and 350 K."""
    return [find_exomol(data / "xsec-exomol", species, t) for t in (600, 350)]


def _hitran2012(data: Path, species: str) -> Lines:
    """HITRAN2012 with its terrestrial deuterium and, for H2O, CH4 and CO2, half-widths for H2 and He."""
    lines = read_hitran(_par(data, species), species)
    return dataclasses.replace(lines, gamma=lines.gamma * H2HE_OVER_AIR.get(species, 1.0))


def _protosolar(lines: Lines) -> Lines:
    """Scale isotopologues with deuterium from terrestrial to protosolar D/H."""
    heavy = [i for i in np.unique(lines.isotope) if "D" in isotope_name(lines.molecule, int(i))]
    return dataclasses.replace(lines, s=np.where(np.isin(lines.isotope, heavy), lines.s * DEUTERIUM, lines.s))


def _warm_cool(data: Path, species: str) -> tuple[BinnedCrossSection, BinnedCrossSection]:
    warm, cool = _exomol_files(data, species)
    return read_exomol(warm, *LINE_WINDOW), read_exomol(cool, *LINE_WINDOW)


def _without_spurious(lines: Lines, data: Path) -> Lines:
    """Drop lines of the main isotopologue 30 times stronger at 600 K than all that ExoMol has within 0.5 cm-1."""
    warm, _ = _warm_cool(data, lines.molecule)
    total = np.cumsum(np.append(0.0, warm.sigma * warm.step))
    edges = np.append(warm.nu - warm.step / 2, warm.nu[-1] + warm.step / 2)
    nearby = np.interp(lines.nu + 0.5, edges, total) - np.interp(lines.nu - 0.5, edges, total)
    spurious = (lines.isotope == 1) & (strength(lines, 600.0) > 30 * nearby) & (strength(lines, 600.0) > 1e-26)
    return lines.where(~spurious)


def _hot(data: Path, cold: Sequence[Lines], temperatures: np.ndarray) -> DenseLines:
    molecule = cold[0].molecule
    bands = read_band_means(_ktable(data, molecule), 1850.0, 3550.0)
    density, spread = HOT_LINES[molecule]
    # Bands that reach beyond the line files, or hold spurious lines, take the deficit of their neighbours.
    spoiled = SPOILED_BANDS.get(molecule, ())
    skip = [
        b for b, low in enumerate(bands.low) if bands.high[b] > LINE_WINDOW[1] or any(abs(low - s) < 1 for s in spoiled)
    ]
    bands = dataclasses.replace(bands, high=np.minimum(bands.high, LINE_WINDOW[1]))
    return hot_term(cold, bands, temperatures, density=density, spread=spread, skip=tuple(skip))


@dataclass(frozen=True)
class CompletedHitran:
    """HITRAN2012, what ExoMol has and it lacks (CH4), and a hot term."""

    species: str

    def files(self, data: Path) -> list[Path]:
        """Return every file that decides the list."""
        return [_par(data, self.species), _ktable(data, self.species), *_exomol_files(data, self.species)]

    def assemble(self, data: Path, temperatures: np.ndarray) -> SourceList:
        """Read them and make the list, for `temperatures` [K]."""
        lines = _hitran2012(data, self.species)
        lacking = (_lacking(lines, data),) if self.species == "CH4" else ()
        hot = _hot(data, [lines, *lacking], temperatures)  # against terrestrial D, which the k-tables have
        clean = _without_spurious(_protosolar(lines), data) if self.species == "H2O" else _protosolar(lines)
        extra = "; ExoMol super-lines, split, for what ExoMol has more at 600 K" if lacking else ""
        return SourceList(
            clean,
            (*(_split(part) for part in lacking), hot),
            f"HITRAN2012 lines{extra}; hot term to HITEMP-based k-table band means",
            "Rothman et al. 2013; Tennyson et al. 2020; k-tables by N. Wogan with HELIOS-K (Grimm et al. 2021)",
        )


def _split(lines: Lines) -> DenseLines:
    parts, spread = PARTS[lines.molecule]
    return split(lines, EXOMOL_STEP, parts=parts, spread=spread)


def _share_of(lines: Lines, bins: BinnedCrossSection, nu: np.ndarray) -> np.ndarray:
    """Share of the strength of `bins` that `lines` hold, in windows of 2 cm-1 around `nu`.

    Positions differ by up to a bin between the lists: bin by bin, a line would be missing here and extra there.
    """
    index = np.rint((lines.nu - bins.nu[0]) / bins.step).astype(int)
    inside = (index >= 0) & (index < bins.nu.size)
    own = np.bincount(index[inside], strength(lines, bins.temperature)[inside], minlength=bins.nu.size) / bins.step
    box = np.ones(2 * round(1.0 / bins.step) + 1)
    share = np.convolve(own, box, "same") / np.maximum(np.convolve(bins.sigma, box, "same"), 1e-300)
    return np.interp(nu, bins.nu, share)


def _lacking(lines: Lines, data: Path) -> Lines:
    """Super-lines for the strength that ExoMol has and `lines` lacks.

    What is lacking is hotter than the bin it lies in: its lower energy comes from what is lacking at 600 and 350 K.
    """
    warm, cool = _warm_cool(data, lines.molecule)
    extra = super_lines(lines.molecule, warm, cool, width=SUPER_WIDTH[lines.molecule])
    lacks_warm, lacks_cool = (np.clip(1 - _share_of(lines, bins, extra.nu), 1e-3, 1.0) for bins in (warm, cool))
    hotter = np.log(lacks_warm / lacks_cool) / (C2 * (1 / cool.temperature - 1 / warm.temperature))
    e_lower = np.clip(extra.e_lower + hotter, extra.e_lower, np.maximum(extra.e_lower, LACKING_E_LOWER))
    s = extra.s * np.where(lacks_warm > 2e-3, lacks_warm, 0.0)
    s *= np.exp(C2 * (e_lower - extra.e_lower) * (1 / warm.temperature - 1 / T_REFERENCE))
    return dataclasses.replace(extra, e_lower=e_lower, s=s)


@dataclass(frozen=True)
class ExoMolBins:
    """ExoMol's binned cross sections as super-lines; `completed` by HITRAN's minor isotopologues and a hot term."""

    species: str
    completed: bool

    def files(self, data: Path) -> list[Path]:
        """Return every file that decides the list."""
        more = [_par(data, self.species), _ktable(data, self.species)] if self.completed else []
        return [*_exomol_files(data, self.species), *more]

    def assemble(self, data: Path, temperatures: np.ndarray) -> SourceList:
        """Read them and make the list, for `temperatures` [K]."""
        what, cite = (
            "ExoMol cross sections at 350 and 600 K as super-lines",
            "Tennyson et al. 2016, 2020; Hill et al. 2013",
        )
        warm, cool = _warm_cool(data, self.species)
        if not self.completed:
            lines = super_lines(self.species, warm, cool, width=SUPER_WIDTH[self.species])
            return SourceList(lines.where(np.zeros(len(lines), bool)), (_split(lines),), what, cite)
        hitran = _hitran2012(data, self.species)
        guide = hitran.where(hitran.isotope == 1)
        main = super_lines(self.species, warm, cool, width=SUPER_WIDTH[self.species], guide=guide)
        # The share of a bin that HITRAN knows stands as one line at its place, the rest is spread over the bin.
        known = np.clip(_share_of(guide, warm, main.nu), 0, 1)
        lines = join_lines([dataclasses.replace(main, s=main.s * known), hitran.where(hitran.isotope != 1)])
        rest = dataclasses.replace(main, s=main.s * (1 - known))
        return SourceList(
            _protosolar(lines),
            (_split(rest), _hot(data, [lines, rest], temperatures)),
            f"{what}; HITRAN2012 minor isotopologues; hot term as for base",
            f"{cite}; Rothman et al. 2013",
        )


@dataclass(frozen=True)
class CarbonMonoxide:
    """HITRAN's CO with half-widths for `broadener`, `h2he` or `air`."""

    broadener: str

    def files(self, data: Path) -> list[Path]:
        """Return every file that decides the list."""
        online = data / "linelists/hitran-online/CO_iso1_full_TestData.data"
        return [online, online.with_suffix(".header"), _par(data, "CO")]

    def assemble(self, data: Path, temperatures: np.ndarray) -> SourceList:
        """Read them and make the list; CO needs no hot term."""
        online, _, older = self.files(data)
        main = read_hitran(online, "CO", broadener=self.broadener)
        minor = read_hitran(older, "CO")
        minor = minor.where(minor.isotope != 1)
        if self.broadener != "air":
            air = read_hitran(online, "CO")
            ratio = np.average(main.gamma / air.gamma, weights=main.s)
            minor = dataclasses.replace(
                minor, gamma=minor.gamma * ratio, n=minor.n + np.average(main.n - air.n, weights=main.s)
            )
        lines = join_lines([main, minor])
        keep = (lines.nu > LINE_WINDOW[0]) & (lines.nu < LINE_WINDOW[1])
        what = "air" if self.broadener == "air" else "85 % H2 + 15 % He"
        return SourceList(
            lines.where(keep),
            (),
            f"HITRAN CO (main isotopologue: HITRAN online; others: HITRAN2012), half-widths for {what}",
            "Gordon et al. 2017, 2022; Rothman et al. 2013; Wilzewski et al. 2016",
        )


PACKAGED_LISTS: tuple[ListRecipe, ...] = (
    ListRecipe("H2O", "base", CompletedHitran("H2O")),
    ListRecipe("H2O", "exomol", ExoMolBins("H2O", completed=True)),
    ListRecipe("CH4", "base", CompletedHitran("CH4")),
    ListRecipe("CH4", "exomol", ExoMolBins("CH4", completed=True)),
    ListRecipe("CO", "base", CarbonMonoxide("h2he")),
    ListRecipe("CO", "air", CarbonMonoxide("air")),
    ListRecipe("CO2", "base", CompletedHitran("CO2")),
    ListRecipe("CO2", "exomol", ExoMolBins("CO2", completed=True)),
    ListRecipe("NH3", "base", ExoMolBins("NH3", completed=False)),
    ListRecipe("H2S", "base", ExoMolBins("H2S", completed=False)),
)
