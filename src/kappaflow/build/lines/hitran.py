"""Line lists in HITRAN's 160-character format, with HAPI's extra columns where a `.header` lies beside the file.

Rothman et al. (2005, JQSRT 96, 139) define the format; partition functions are TIPS through `hapi`
(Kochanov et al. 2016; Gamache et al. 2021), which works offline.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kappaflow.constants import ATM, C2, H2_SHARE, HE_SHARE, T_REFERENCE
from kappaflow.errors import UserError

__all__ = [
    "MOLECULE",
    "Lines",
    "join_lines",
    "mixed_widths",
    "partition_ratio",
    "read_hitran",
    "read_quanta",
    "strength",
]

MOLECULE = {"H2O": 1, "CO2": 2, "CO": 5, "CH4": 6, "NH3": 11, "PH3": 28, "H2S": 31}  # HITRAN molecule numbers

# 0-based columns of the 160-character record.
_FIELDS = {
    "nu": slice(3, 15),
    "s": slice(15, 25),
    "gamma_air": slice(35, 40),
    "e_lower": slice(45, 55),
    "n_air": slice(55, 59),
}
_RECORD = 160


@dataclass(frozen=True)
class Lines:
    """Lines of one molecule, all arrays of shape (line,), sorted by wavenumber.

    `nu` [cm-1]; `s` [cm/molecule] at 296 K, natural abundance included; `e_lower` [cm-1]; `gamma` [cm-1/bar] half-width
    at 296 K and `n` its temperature exponent; `isotope` HITRAN's number within the molecule.
    """

    molecule: str
    nu: np.ndarray
    s: np.ndarray
    e_lower: np.ndarray
    gamma: np.ndarray
    n: np.ndarray
    isotope: np.ndarray

    def __len__(self) -> int:
        return self.nu.size

    def where(self, keep: np.ndarray) -> Lines:
        """Return the lines selected by a boolean mask or an index array."""
        arrays = {f.name: getattr(self, f.name)[keep] for f in fields(self) if f.name != "molecule"}
        return Lines(self.molecule, **arrays)


def join_lines(parts: Sequence[Lines]) -> Lines:
    """Concatenate lists of one molecule and sort by wavenumber."""
    names = [f.name for f in fields(Lines) if f.name != "molecule"]
    joined = Lines(parts[0].molecule, **{n: np.concatenate([getattr(p, n) for p in parts]) for n in names})
    return joined.where(np.argsort(joined.nu, kind="stable"))


@cache
def _hapi() -> Any:
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # hapi greets on import
            import hapi
    except ImportError:
        raise UserError("opacity: hitran-api is not installed; run pip install 'kappaflow[build]'") from None
    return hapi


def partition_ratio(molecule: str, isotope: int, temperature: float) -> float:
    """Q(296 K) / Q(T) of an isotopologue, from TIPS."""
    return partition_sum(molecule, isotope, T_REFERENCE) / partition_sum(molecule, isotope, temperature)


def partition_sum(molecule: str, isotope: int, temperature: float) -> float:
    """Q(T) of an isotopologue, from TIPS."""
    try:
        return float(_hapi().partitionSum(MOLECULE[molecule], isotope, temperature))
    except Exception as error:  # hapi raises bare Exceptions
        raise UserError(
            f"opacity: no partition function of {molecule} isotopologue {isotope} at {temperature:g} K ({error})"
        ) from None


def isotope_mass(molecule: str, isotope: int) -> float:
    """Molar mass [g/mol] of an isotopologue."""
    return float(_hapi().ISO[MOLECULE[molecule], isotope][3])


def isotope_abundance(molecule: str, isotope: int) -> float:
    """Terrestrial abundance of an isotopologue, as in HITRAN's strengths."""
    return float(_hapi().ISO[MOLECULE[molecule], isotope][2])


def isotope_name(molecule: str, isotope: int) -> str:
    """HITRAN's name of an isotopologue, such as `H2(16O)` or `HD(16O)`."""
    return str(_hapi().ISO[MOLECULE[molecule], isotope][1])


def strength(lines: Lines, temperature: float) -> np.ndarray:
    """Line strengths [cm/molecule] at `temperature`.

    S(T) = S Q(T0)/Q(T) exp(-c2 E (1/T - 1/T0)) (1 - exp(-c2 nu/T)) / (1 - exp(-c2 nu/T0)).
    """
    ratio = np.ones(len(lines))
    for isotope in np.unique(lines.isotope):
        ratio[lines.isotope == isotope] = partition_ratio(lines.molecule, int(isotope), temperature)
    boltzmann = np.exp(-C2 * lines.e_lower * (1 / temperature - 1 / T_REFERENCE))
    stimulated = np.expm1(-C2 * lines.nu / temperature) / np.expm1(-C2 * lines.nu / T_REFERENCE)
    return lines.s * ratio * boltzmann * stimulated


def read_hitran(path: str | Path, molecule: str, *, broadener: str = "air") -> Lines:
    """Read a HITRAN file of `molecule`; `broadener` is `air` or `h2he` (needs HAPI's gamma_h2 and gamma_he columns).

    `h2he` mixes 85 % H2 and 15 % He by number, the solar proportion.
    """
    path = Path(path)
    rows, record = _records(path)
    _check_molecule(path, record, molecule)
    columns = {name: _numbers(path, record[:, where], name) for name, where in _FIELDS.items()}
    if broadener == "air":
        gamma, n = columns["gamma_air"], columns["n_air"]
    else:
        gamma, n = _h2he_widths(path, rows)
    lines = Lines(
        molecule, columns["nu"], columns["s"], columns["e_lower"], gamma / ATM, n, _isotopes(path, record[:, 2])
    )
    return lines.where(np.argsort(lines.nu, kind="stable"))


def read_quanta(path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Local quanta of the upper and the lower level, 15 characters each, in the order of `read_hitran`."""
    path = Path(path)
    _, record = _records(path)
    order = np.argsort(_numbers(path, record[:, _FIELDS["nu"]], "nu"), kind="stable")
    upper, lower = (np.ascontiguousarray(record[order, at : at + 15]).view("S15").ravel() for at in (97, 112))
    return upper, lower


def _records(path: Path) -> tuple[list[bytes], np.ndarray]:
    """Rows of a file, and their 160 characters as an array (line, character)."""
    try:
        rows = path.read_bytes().splitlines()
    except OSError as error:
        raise UserError(f"{path}: cannot read ({error.strerror})") from None
    if not rows:
        raise UserError(f"{path}: empty; expected HITRAN 160-character records")
    short = next((i for i, row in enumerate(rows) if len(row) < _RECORD), None)
    if short is not None:
        raise UserError(
            f"{path}: line {short + 1} has {len(rows[short])} characters; expected {_RECORD} (truncated file?)"
        )
    return rows, np.frombuffer(b"".join(row[:_RECORD] for row in rows), dtype="S1").reshape(len(rows), _RECORD)


def _check_molecule(path: Path, record: np.ndarray, molecule: str) -> None:
    if molecule not in MOLECULE:
        raise UserError(f"opacity: unknown molecule {molecule!r}; expected one of {', '.join(MOLECULE)}")
    found = _numbers(path, record[:, :2], "molecule").astype(int)
    wrong = np.flatnonzero(found != MOLECULE[molecule])
    if wrong.size:
        raise UserError(
            f"{path}: line {wrong[0] + 1} is of HITRAN molecule {found[wrong[0]]}; "
            f"expected {MOLECULE[molecule]} ({molecule})"
        )


def _isotopes(path: Path, column: np.ndarray) -> np.ndarray:
    """HITRAN writes isotopologues 1-9 as digits, 10 as `0`, 11 as `A`, 12 as `B`."""
    codes = {**{str(i).encode(): i for i in range(1, 10)}, b"0": 10, b"A": 11, b"B": 12}
    unknown = set(np.unique(column).tolist()) - set(codes)
    if unknown:
        raise UserError(f"{path}: unknown isotopologue code {sorted(unknown)[0].decode(errors='replace')!r}")
    return np.array([codes[c] for c in column.tolist()], dtype=np.int16)


def _numbers(path: Path, block: np.ndarray, name: str) -> np.ndarray:
    """Convert a block of single characters (line, width) to numbers, or name the line that is not one."""
    text = np.ascontiguousarray(block).view(f"S{block.shape[1]}").ravel()
    try:
        values = text.astype(float)
    except ValueError:
        values = np.full(text.size, np.nan)
        for i, cell in enumerate(text.tolist()):
            with contextlib.suppress(ValueError):
                values[i] = float(cell)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        cell = bytes(text[bad[0]]).decode(errors="replace")
        raise UserError(f"{path}: line {bad[0] + 1}: field '{name}' is {cell!r}; expected a number")
    return values


def mixed_widths(h2: tuple[np.ndarray, np.ndarray], he: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Half-width and temperature exponent in 85 % H2 + 15 % He from those in either gas."""
    (g_h2, n_h2), (g_he, n_he) = h2, he
    gamma = H2_SHARE * g_h2 + HE_SHARE * g_he
    return gamma, (H2_SHARE * g_h2 * n_h2 + HE_SHARE * g_he * n_he) / gamma


def _h2he_widths(path: Path, rows: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Half-width [cm-1/atm] and exponent for 85 % H2 + 15 % He from HAPI's extra columns."""
    header = path.with_suffix(".header")
    try:
        content = json.loads(header.read_text(encoding="utf-8"))
        names, separator = content["extra"], content["extra_separator"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path}: H2/He half-widths need HAPI's {header.name} beside it ({error})") from None
    wanted = ("gamma_h2", "n_h2", "gamma_he", "n_he")
    missing = [n for n in wanted if n not in names]
    if missing:
        raise UserError(f"{header}: no column {missing[0]!r}; expected {', '.join(wanted)}")
    table = np.empty((len(rows), len(wanted)))
    for i, row in enumerate(rows):
        cells = row[_RECORD:].decode(errors="replace").strip(separator + "\r\n ").split(separator)
        try:
            table[i] = [float(cells[names.index(n)].replace("#", "nan")) for n in wanted]  # HAPI writes '#' for unknown
        except (ValueError, IndexError):
            raise UserError(f"{path}: line {i + 1}: extra columns {cells} do not hold {', '.join(wanted)}") from None
    g_h2, n_h2, g_he, n_he = table.T
    if np.isnan(g_h2).any() or not np.isfinite(table).any(axis=0).all():
        raise UserError(f"{path}: 'gamma_h2' is missing for some lines, or a whole column is; cannot mix H2 and He")
    n_h2 = np.where(np.isnan(n_h2), np.nanmedian(n_h2), n_h2)
    g_he = np.where(np.isnan(g_he), g_h2 * np.nanmedian(g_he / g_h2), g_he)
    n_he = np.where(np.isnan(n_he), np.nanmedian(n_he), n_he)
    return mixed_widths((g_h2, n_h2), (g_he, n_he))
