"""Half-widths in 85 % H2 + 15 % He from measurements, by rotational quantum number, each gas with its own exponent.

H2O and CO: ExoMol's `.broad` files, by J'' and J' (Barton et al. 2017; Tennyson et al. 2020). CO2, H2S and PH3: the
fits of Tan et al. (2022, ApJS 262, 40). CH4: laboratory values of the nu3 band (Pine 1992, J. Chem. Phys. 97, 773;
Gharib-Nezhad et al. 2019). NH3: of the nu1 band (Pine et al. 1993). A gas's width at T is gamma (296 K / T)^n.
"""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from kappaflow.build.lines.hitran import Lines, mixed_widths, read_quanta, strength
from kappaflow.constants import ATM, C2, T_REFERENCE
from kappaflow.errors import UserError

__all__ = ["Rotation", "broadening_files", "half_widths", "mean_width", "thermal_width", "with_measured_widths"]

Widths = tuple[np.ndarray, np.ndarray]  # half-width [cm-1/atm] at 296 K and exponent

# cm-1, geometric mean of the rotational constants (Herzberg): tells J from a lower energy, and how J is populated.
ROTATIONAL_CONSTANT = {"H2O": 15.5, "CH4": 5.24, "CO2": 0.39, "CO": 1.93, "NH3": 8.5, "H2S": 7.6, "PH3": 4.27}
J_MOST = 40.0  # of a level known by its energy alone: much of it may be vibration

# Exponents of CH4 against J''. H2: Varanasi & Chudamani (1989, nu4 below 296 K) have 0.51 at 5 and 0.46 at 9. He: 0.37,
# 0.36 there. Beyond, both fall so that their mixture has the 0.27 of Hosokawa et al. (2025) for J'' = 13 to 20.
CH4_EXPONENT = {"H2": ((5.0, 0.51), (9.0, 0.465), (16.5, 0.275)), "He": ((5.0, 0.37), (9.0, 0.36), (16.5, 0.24))}
# NH3 was measured at one temperature; round values, within 0.1 of what microwave and nu2 studies report.
NH3_EXPONENT = {"H2": 0.65, "He": 0.5}

# Columns of the laboratory file that are used: beginnings of the titles (its README says which are sane).
LABORATORY = {
    "CH4": ("Self‐, N2, O2, H2, Ar, and He broadening in the ν3 band Q branch", "H2-induced pressure broadening and"),
    "NH3": ("N2, O2, H2, Ar and He broadening in the ν1 band of NH3",),
}
MEAN_BETWEEN = (500.0, 1000.0)  # K, where one width that stands for many must be right


@dataclass(frozen=True)
class Rotation:
    """Rotational quanta of lines, arrays (line,): J of the lower and the upper level, K of the upper."""

    lower: np.ndarray
    upper: np.ndarray
    k: np.ndarray

    @property
    def m(self) -> np.ndarray:
        """|m|: J'' + 1 in the R branch, J'' otherwise."""
        return np.where(self.upper > self.lower, self.lower + 1, self.lower)


def broadening_files(data: Path, molecule: str) -> list[Path]:
    """Return the files that decide the half-widths of `molecule`."""
    folder = data / "broadening"
    named = {"H2O": "1H2-16O", "CO": "12C-16O"}
    if molecule in named:
        return [folder / f"{named[molecule]}__{gas}.broad" for gas in ("H2", "He")]
    return [folder / ("ch4_nh3_lab_widths.csv" if molecule in LABORATORY else "tan2022_coefficients.json")]


def half_widths(data: Path, molecule: str, rotation: Rotation) -> Widths:
    """Half-width [cm-1/bar] at 296 K in H2 and He, mixed, and its exponent, per line."""
    h2, he = (_LAW[molecule](data, molecule, gas, rotation) for gas in ("H2", "He"))
    gamma, n = mixed_widths(h2, he)
    return gamma / ATM, n


def with_measured_widths(lines: Lines, path: Path, data: Path) -> Lines:
    """Return the lines of the HITRAN file `path` with measured half-widths in place of those in air."""
    gamma, n = half_widths(data, lines.molecule, _rotation(lines, *read_quanta(path)))
    return replace(lines, gamma=gamma, n=n)


def mean_width(lines: Lines) -> tuple[float, float]:
    """Half-width [cm-1/bar] and exponent that give the strength-weighted mean width of `lines` at 500 and 1000 K.

    The exponent is larger than the lines' own: at higher temperatures lines of higher J, which are narrower, weigh in.
    """
    means = [
        float(np.average(lines.gamma * (T_REFERENCE / t) ** lines.n, weights=strength(lines, t))) for t in MEAN_BETWEEN
    ]
    return _power_law(means)


def thermal_width(data: Path, molecule: str) -> tuple[float, float]:
    """Half-width [cm-1/bar] and exponent of a molecule without a line list: the mean over the population of J.

    A non-linear molecule has (2J + 1)^2 states per J; K is taken as J/2.
    """
    j = np.arange(1.0, 31.0)
    gamma, n = half_widths(data, molecule, Rotation(j, j, j / 2))
    energy = ROTATIONAL_CONSTANT[molecule] * j * (j + 1)
    means = [
        float(np.average(gamma * (T_REFERENCE / t) ** n, weights=(2 * j + 1) ** 2 * np.exp(-C2 * energy / t)))
        for t in MEAN_BETWEEN
    ]
    return _power_law(means)


def _power_law(means: list[float]) -> tuple[float, float]:
    cool, warm = MEAN_BETWEEN
    n = float(np.log(means[0] / means[1]) / np.log(warm / cool))
    return means[0] * (cool / T_REFERENCE) ** n, n


def _rotation(lines: Lines, upper: np.ndarray, lower: np.ndarray) -> Rotation:
    """Read J and K from HITRAN's local quanta; where a line has none, J from its lower energy."""
    guess = np.sqrt(lines.e_lower / ROTATIONAL_CONSTANT[lines.molecule] + 0.25) - 0.5
    guess = np.clip(np.rint(guess), 0.0, J_MOST)
    if lines.molecule == "CO2":  # the branch and J'' stand in the lower field
        low = _integers(lower, 6, 9)
        step = np.array([{b"P": -1, b"R": 1}.get(cell[5:6], 0) for cell in lower.tolist()])
        low = np.where(np.isnan(low), guess, low)
        return Rotation(low, low + step, np.zeros(low.size))
    first, last = (0, 3) if lines.molecule != "CH4" else (0, 5)
    low, up, k = _integers(lower, first, last), _integers(upper, first, last), _integers(upper, 3, 6)
    if lines.molecule == "CH4":  # CH3D is written as a symmetric top: J in the first three characters
        top = lines.isotope == 3
        low = np.where(top, _integers(lower, 0, 3), low)
        up = np.where(top, _integers(upper, 0, 3), up)
    low = np.where(np.isnan(low), guess, low)
    up = np.where(np.isnan(up), low, up)
    return Rotation(low, up, np.where(np.isnan(k), up / 2, np.abs(k)))


def _integers(text: np.ndarray, first: int, last: int) -> np.ndarray:
    """Numbers in the characters from `first` to `last`; NaN where there is none."""
    cells = (cell[first:last].strip() for cell in text.tolist())
    return np.array([float(c) if c.lstrip(b"-").isdigit() else np.nan for c in cells])


def _exomol(data: Path, molecule: str, gas: str, rotation: Rotation) -> Widths:
    """ExoMol's `.broad`: rows a1 by (J'', J') where there are, else a0 by J''; the last J beyond the file."""
    file = next(f for f in broadening_files(data, molecule) if f.name.endswith(f"__{gas}.broad"))
    pairs, alone = _broad_rows(file)
    last = max(alone)
    lower = np.minimum(rotation.lower, last).astype(int)
    upper = np.where(rotation.lower > last, -1, rotation.upper).astype(int)
    table = {key: pairs.get(key, alone[key[0]]) for key in set(zip(lower.tolist(), upper.tolist(), strict=True))}
    found = np.array([table[key] for key in zip(lower.tolist(), upper.tolist(), strict=True)])
    return found[:, 0], found[:, 1]


@cache
def _broad_rows(file: Path) -> tuple[dict[tuple[int, int], tuple[float, float]], dict[int, tuple[float, float]]]:
    pairs, alone = {}, {}
    try:
        rows = [row.split() for row in file.read_text(encoding="utf-8").splitlines() if row.strip()]
        for code, gamma, n, *quanta in rows:
            if code == "a1":
                pairs[int(quanta[0]), int(quanta[1])] = float(gamma), float(n)
            elif code == "a0":
                alone[int(quanta[0])] = float(gamma), float(n)
    except OSError as error:
        raise UserError(f"{file}: cannot read ({error.strerror})") from None
    except (ValueError, IndexError) as error:
        raise UserError(f"{file}: not an ExoMol broadening file ({error}); expected rows 'a0 gamma n J'") from None
    if set(alone) != set(range(len(alone))) or not alone:
        raise UserError(f"{file}: rows a0 must hold every J'' from 0 up; found {len(alone)}")
    return pairs, alone


@cache
def _tan(file: Path) -> dict[str, dict[str, dict]]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot read the coefficients of Tan et al. 2022 ({error})") from None


def _pade(fit: dict[str, list[float]], x: np.ndarray) -> np.ndarray:
    top = np.polynomial.polynomial.polyval(x, fit["a"])
    return top / np.polynomial.polynomial.polyval(x, [1.0, *fit["b"]])


def _carbon_dioxide(data: Path, molecule: str, gas: str, rotation: Rotation) -> Widths:
    m = np.maximum(rotation.m, 1.0)
    gamma = _pade(_tan(broadening_files(data, molecule)[0])[molecule][gas], np.minimum(m, 120.0))
    # H2: 0.58. He: falls to 0.58 at |m| = 20. (Their sample output has 0.30, which moves the mixture by 0.02.)
    n = np.full(m.size, 0.58) if gas == "H2" else np.where(m <= 20, 0.7207695 - 0.0068858 * m, 0.58)
    return gamma, n


def _hydrogen_sulfide(data: Path, molecule: str, gas: str, rotation: Rotation) -> Widths:
    fit = _tan(broadening_files(data, molecule)[0])[molecule][gas]
    x = rotation.lower + 0.2 * rotation.k
    x = np.where(x <= 1.2, 2.0, x) if gas == "H2" else x
    return _pade(fit, np.clip(x, 1.0, 30.0)), np.full(x.size, float(fit["n"]))


def _phosphine(data: Path, molecule: str, gas: str, rotation: Rotation) -> Widths:
    fit = _tan(broadening_files(data, molecule)[0])[molecule][gas]
    if gas == "He":
        gamma = 0.05915 - 0.00104 * np.minimum(rotation.lower, 14)
        return gamma, np.full(gamma.size, float(fit["n"]))
    m = np.minimum(rotation.m, 22.0)
    k = np.minimum(rotation.k, m)
    terms = np.stack([m**0, m, k, m**2, k**2, m * k, m**3, k**3, m**2 * k, m * k**2])
    return np.asarray(fit["poly(m,K')"]) @ terms, 0.7247 - 0.0103 * np.minimum(rotation.lower, 11)


def _laboratory(data: Path, molecule: str, gas: str, rotation: Rotation) -> Widths:
    """Draw a parabola through the laboratory's values by J''; beyond the last J measured, its value there."""
    fit, last = _laboratory_fit(broadening_files(data, molecule)[0], molecule, gas)
    gamma = np.polynomial.polynomial.polyval(np.minimum(rotation.lower, last), np.asarray(fit))
    if molecule == "NH3":
        return gamma, np.full(gamma.size, NH3_EXPONENT[gas])
    j, n = np.transpose(CH4_EXPONENT[gas])
    return gamma, np.interp(rotation.lower, j, n)


@cache
def _laboratory_fit(file: Path, molecule: str, gas: str) -> tuple[tuple[float, ...], float]:
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        good = [r for r in rows if r["active"] == molecule and r["pert"] == gas and r["gamma"] and r["Jlow"]]
        good = [r for r in good if r["title"].startswith(LABORATORY[molecule])]
        j, gamma = np.array([[float(r["Jlow"]), float(r["gamma"])] for r in good]).T
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{file}: no laboratory half-widths of {molecule} in {gas} ({error})") from None
    return tuple(np.polynomial.polynomial.polyfit(j, gamma, 2)), float(j.max())


_LAW: dict[str, Callable[[Path, str, str, Rotation], Widths]] = {
    "H2O": _exomol,
    "CO": _exomol,
    "CO2": _carbon_dioxide,
    "H2S": _hydrogen_sulfide,
    "PH3": _phosphine,
    "CH4": _laboratory,
    "NH3": _laboratory,
}
