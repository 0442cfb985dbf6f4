"""The packaged line lists: which data each is made of, and how (the table of docs/opacity.md, in code)."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from kappaflow.build.lines.broadening import broadening_files, thermal_width
from kappaflow.build.lines.hitran import Lines, join_lines, read_hitran
from kappaflow.build.lines.statistical_lines import DenseLines
from kappaflow.build.lines.voigt import cross_section
from kappaflow.build.sources.exomol_bins import super_lines
from kappaflow.build.sources.exomol_lines import read_exomol_lines
from kappaflow.build.tables.completion import (
    LINE_WINDOW,
    exomol_files,
    guided,
    hitran2012,
    hitran_files,
    hot,
    hot_files,
    lacking,
    protosolar,
    split_bins,
    warm_cool,
    without_spurious,
)

__all__ = [
    "PACKAGED_LISTS",
    "CarbonMonoxide",
    "CompletedHitran",
    "ExoMolBins",
    "Li2015",
    "ListMaker",
    "ListRecipe",
    "SourceList",
]

CUT = 25.0  # cm-1, where wings end
MEASURED = "half-widths in 85 % H2 + 15 % He from measurements"
EXOMOL = "Tennyson et al. 2016, 2020; Hill et al. 2013"
KTABLES = "k-tables by N. Wogan with HELIOS-K (Grimm et al. 2021)"
WIDTHS = {  # whose half-widths
    "H2O": "Barton et al. 2017",
    "CO": "Faure et al. 2013; Tennyson et al. 2020",
    "CO2": "Tan et al. 2022",
    "H2S": "Tan et al. 2022",
    "PH3": "Tan et al. 2022",
    "CH4": "Pine 1992; Gharib-Nezhad et al. 2019; Hosokawa et al. 2025",
    "NH3": "Pine et al. 1993",
}


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


@dataclass(frozen=True)
class CompletedHitran:
    """HITRAN2012, what ExoMol has and it lacks (CH4, PH3), and a hot term where a k-table is known (not for PH3)."""

    species: str
    lacks: bool = False
    heated: bool = True

    def files(self, data: Path) -> list[Path]:
        """Return every file that decides the list."""
        more = hot_files(data, self.species) if self.heated else []
        return [*hitran_files(data, self.species), *exomol_files(data, self.species), *more]

    def assemble(self, data: Path, temperatures: np.ndarray) -> SourceList:
        """Read them and make the list, for `temperatures` [K]."""
        lines = hitran2012(data, self.species)
        parts = (lacking(lines, *warm_cool(data, self.species)),) if self.lacks else ()
        dense = tuple(split_bins(part) for part in parts)
        if self.heated:  # against terrestrial deuterium, which the k-tables have
            dense = (*dense, hot(data, [lines, *parts], temperatures))
        clean = without_spurious(protosolar(lines), data) if self.species == "H2O" else protosolar(lines)
        extra = "; ExoMol super-lines, split, for what ExoMol has more at 600 K" if self.lacks else ""
        lift = "; hot term to HITEMP-based k-table band means" if self.heated else ""
        cite = f"Rothman et al. 2013; Tennyson et al. 2020; {WIDTHS[self.species]}"
        return SourceList(
            clean,
            dense,
            f"HITRAN2012 lines, {MEASURED}{extra}{lift}",
            f"{cite}; {KTABLES}" if self.heated else cite,
        )


@dataclass(frozen=True)
class ExoMolBins:
    """ExoMol's binned cross sections as super-lines; `completed` by HITRAN's minor isotopologues and a hot term."""

    species: str
    completed: bool

    def files(self, data: Path) -> list[Path]:
        """Return every file that decides the list."""
        if not self.completed:
            return [*exomol_files(data, self.species), *broadening_files(data, self.species)]
        files = [*exomol_files(data, self.species), *hitran_files(data, self.species)]
        return [*files, *hot_files(data, self.species)]

    def assemble(self, data: Path, temperatures: np.ndarray) -> SourceList:
        """Read them and make the list, for `temperatures` [K]."""
        what = f"ExoMol cross sections at 350 and 600 K as super-lines, {MEASURED}"
        cite = f"{EXOMOL}; {WIDTHS[self.species]}"
        warm, cool = warm_cool(data, self.species)
        if not self.completed:
            lines = super_lines(self.species, warm, cool, width=thermal_width(data, self.species))
            return SourceList(lines.where(np.zeros(len(lines), bool)), (split_bins(lines),), what, cite)
        hitran = hitran2012(data, self.species)
        guide = hitran.where(hitran.isotope == 1)
        # The share of a bin that HITRAN knows stands as one line at its place, the rest is spread over the bin.
        lines = join_lines([guided(guide, warm, cool), hitran.where(hitran.isotope != 1)])
        rest = lacking(guide, warm, cool)
        return SourceList(
            protosolar(lines),
            (split_bins(rest), hot(data, [lines, rest], temperatures)),
            f"{what}; HITRAN2012 minor isotopologues; hot term as for base",
            f"{cite}; Rothman et al. 2013; {KTABLES}",
        )


@dataclass(frozen=True)
class CarbonMonoxide:
    """HITRAN's CO with half-widths for `broadener`, `h2he` or `air`."""

    broadener: str

    def files(self, data: Path) -> list[Path]:
        """Return every file that decides the list."""
        online = data / "linelists/hitran-online/CO_iso1_full_TestData.data"
        return [online, online.with_suffix(".header"), hitran_files(data, "CO")[0]]

    def assemble(self, data: Path, temperatures: np.ndarray) -> SourceList:
        """Read them and make the list; CO needs no hot term."""
        online, _, older = self.files(data)
        main = read_hitran(online, "CO", broadener=self.broadener)
        what = "air" if self.broadener == "air" else "85 % H2 + 15 % He"
        return SourceList(
            _windowed(join_lines([main, _minor(online, older, self.broadener)])),
            (),
            f"HITRAN CO (main isotopologue: HITRAN online; others: HITRAN2012), half-widths for {what}",
            "Gordon et al. 2017, 2022; Rothman et al. 2013; Wilzewski et al. 2016",
        )


def _windowed(lines: Lines) -> Lines:
    return lines.where((lines.nu > LINE_WINDOW[0]) & (lines.nu < LINE_WINDOW[1]))


def _minor(online: Path, older: Path, broadener: str) -> Lines:
    """CO's minor isotopologues of HITRAN2012; widths in H2 and He differ from those in air as the main one's do."""
    minor = read_hitran(older, "CO")
    minor = minor.where(minor.isotope != 1)
    if broadener == "air":
        return minor
    air, main = read_hitran(online, "CO"), read_hitran(online, "CO", broadener=broadener)
    ratio = np.average(main.gamma / air.gamma, weights=main.s)
    n = minor.n + np.average(main.n - air.n, weights=main.s)
    return dataclasses.replace(minor, gamma=minor.gamma * ratio, n=n)


@dataclass(frozen=True)
class Li2015:
    """CO of Li et al. (2015), complete to high temperatures, with HITRAN2012's minor isotopologues."""

    def files(self, data: Path) -> list[Path]:
        """Return every file that decides the list."""
        stem = data / "linelists/exomol-co/12C-16O__Li2015"
        lists = [stem.with_suffix(suffix) for suffix in (".states.bz2", ".trans.bz2")]
        return [*lists, *broadening_files(data, "CO"), *CarbonMonoxide("h2he").files(data)]

    def assemble(self, data: Path, temperatures: np.ndarray) -> SourceList:
        """Read them and make the list; it needs no hot term."""
        states, transitions = self.files(data)[:2]
        online, _, older = CarbonMonoxide("h2he").files(data)
        main = read_exomol_lines(states, transitions, "CO", data)
        return SourceList(
            _windowed(join_lines([main, _minor(online, older, "h2he")])),
            (),
            f"ExoMol Li2015 (main isotopologue; others: HITRAN2012), {MEASURED}",
            f"Li et al. 2015; Rothman et al. 2013; {WIDTHS['CO']}",
        )


PACKAGED_LISTS: tuple[ListRecipe, ...] = (
    ListRecipe("H2O", "base", CompletedHitran("H2O")),
    ListRecipe("H2O", "exomol", ExoMolBins("H2O", completed=True)),
    ListRecipe("CH4", "base", CompletedHitran("CH4", lacks=True)),
    ListRecipe("CH4", "exomol", ExoMolBins("CH4", completed=True)),
    ListRecipe("CO", "base", CarbonMonoxide("h2he")),
    ListRecipe("CO", "air", CarbonMonoxide("air")),
    ListRecipe("CO", "li2015", Li2015()),
    ListRecipe("CO2", "base", CompletedHitran("CO2")),
    ListRecipe("CO2", "exomol", ExoMolBins("CO2", completed=True)),
    ListRecipe("NH3", "base", ExoMolBins("NH3", completed=False)),
    ListRecipe("H2S", "base", ExoMolBins("H2S", completed=False)),
    ListRecipe("PH3", "base", CompletedHitran("PH3", lacks=True, heated=False)),
)
