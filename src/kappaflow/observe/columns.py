"""Which column is which: a table of named columns with units becomes one segment of a spectrum."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.instrument import WINDOW
from kappaflow.observe.units import air_to_vacuum, is_flux, is_spectral, parse_unit, to_micron, to_mjy

__all__ = ["Columns", "Hints", "Segment", "segment_of"]

_ROLES = {
    "wavelength": "wavelength wavelengths wave waves wl wvl wlen lam lambda lamb wavelengthvac wavelengthair",
    "flux": "flux fluxes f flam flambda fnu fluxdensity spectrum spec",
    "error": (
        "error errors err fluxerror fluxerr errflux errorflux unc uncertainty fluxunc fluxuncertainty uncflux sigma "
        "sig eflux fluxe dflux ferr e noise std stdev fluxstd sd"
    ),
    "dq": "dq dataquality quality flag flags",
    "good": "good",
}
_NAMES = {name: role for role, names in _ROLES.items() for name in names.split()}
_LARGEST = 1e30  # mJy: beyond it (or an error below its inverse) squares overflow, and no telescope saw it
_DO_NOT_USE = 1  # bit 0 of JWST's DQ, the one that says so; the others only say what happened


@dataclass(frozen=True)
class Hints:
    """What the user knows and the file may not say; None means: take it from the file."""

    wavelength_unit: str | None = None
    flux_unit: str | None = None
    medium: str | None = None
    columns: Sequence[str] | None = None
    source: str | None = None
    detector_offset: float = 0.0
    mask: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            object.__setattr__(self, "columns", tuple(name.strip() for name in self.columns.split(",")))
        for flag, known in (("wavelength_unit", is_spectral), ("flux_unit", is_flux)):
            text = getattr(self, flag)
            if text is not None and not known(parse_unit(text)):
                example = "um, nm or Angstrom" if flag == "wavelength_unit" else "mJy, erg/s/cm2/um or W/m2/um"
                raise UserError(f"--{flag.replace('_', '-')}: cannot use {text!r}; expected a unit like {example}")
        if self.medium not in (None, "vacuum", "air"):
            raise UserError(f"--medium: {self.medium!r}; expected 'vacuum' or 'air'")
        if self.columns is not None and len(self.columns) != 3:
            raise UserError(f"--columns: {len(self.columns)} names; expected three: wavelength, flux, error")
        if not -0.5 <= self.detector_offset <= 0.5:
            raise UserError(f"--detector-offset: {self.detector_offset}; expected a fraction between -0.5 and 0.5")
        if isinstance(self.mask, str):
            object.__setattr__(self, "mask", (self.mask,))
        _ = self.left_out  # refused now, not at the first row

    @property
    def left_out(self) -> list[tuple[float, float]]:
        """Ranges [um] that the user masks."""
        found = []
        for text in self.mask or ():
            low, _, high = text.partition(":")
            try:
                pair = float(low), float(high)
            except ValueError:
                pair = (1.0, 0.0)
            if not 0 < pair[0] < pair[1] < math.inf:
                raise UserError(f"--mask {text[:24]}: expected LOW:HIGH in um, as 4.2:4.4")
            found.append(pair)
        return found


@dataclass(frozen=True)
class Columns:
    """Named columns as read: `units` by name where the file states them, `said` what else it states.

    `words` says, by name, which columns do not hold numbers, and why: an error only if the column is needed.
    """

    where: str
    values: dict[str, np.ndarray]
    units: dict[str, str] = field(default_factory=dict)
    said: dict[str, Any] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Segment:
    """A piece of a spectrum: wavelength [um, vacuum], flux and error [mJy], `good`; sorted, no repeats."""

    wavelength: np.ndarray
    flux: np.ndarray
    error: np.ndarray
    good: np.ndarray
    meta: dict[str, Any]

    def __len__(self) -> int:
        return self.wavelength.size


def segment_of(table: Columns, hints: Hints) -> Segment:
    """Find wavelength, flux and error in `table`, convert them, and mark what cannot be used."""
    roles = _roles(table, hints)
    for name in roles.values():
        if name in table.words:
            raise UserError(f"{table.where}: {table.words[name]}")
    raw = {role: table.values[name] for role, name in roles.items()}
    wavelength, wave_said, medium = _vacuum_micron(raw["wavelength"], table, roles["wavelength"], hints)
    flux_unit = _flux_unit(table, roles["flux"], hints)
    error_unit = _error_unit(table, roles["error"], hints) or flux_unit
    flux = to_mjy(raw["flux"], flux_unit, wavelength, f"{table.where}: column '{roles['flux']}'")
    error = to_mjy(raw["error"], error_unit, wavelength, f"{table.where}: column '{roles['error']}'")
    good, rows = _usable(wavelength, flux, error, raw)
    for low, high in hints.left_out:
        inside = (wavelength >= low) & (wavelength <= high)
        rows[f"in --mask {low:g}:{high:g}"] = int(inside.sum())
        good &= ~inside
    meta = {
        **table.said,
        "rows": rows,
        "wavelength_unit": wave_said,
        "flux_unit": str(flux_unit),
        "medium": medium,
    }
    if any(name.lower() == "mask" for name in table.values):
        meta["notes"] = ("column 'mask' was not used, as codes disagree on what it means: call it 'good' or 'dq'",)
    placed = np.isfinite(wavelength)
    if placed.sum() < 2:
        raise UserError(f"{table.where}: {int(placed.sum())} usable rows; expected a spectrum of at least two")
    if np.ptp(wavelength[placed]) == 0:
        raise UserError(f"{table.where}: every row has the same wavelength; expected a spectrum of at least two pixels")
    return _sorted(Segment(wavelength[placed], flux[placed], error[placed], good[placed], meta))


def _roles(table: Columns, hints: Hints) -> dict[str, str]:
    """Map each role to a column name; columns without names are taken in the order wavelength, flux, error."""
    names = list(table.values)
    if hints.columns is not None:
        chosen = [names[int(c) - 1] if c.isdigit() and 0 < int(c) <= len(names) else c for c in hints.columns]
        for name in chosen:
            if name not in table.values:
                raise UserError(f"{table.where}: no column {name!r}; it has {_listed(names)}; choose with --columns")
        return dict(zip(("wavelength", "flux", "error"), chosen, strict=True))
    roles: dict[str, str] = {}
    for name in names:
        role = _NAMES.get(re.sub(r"[^a-z]", "", name.lower()))
        if role is not None:
            roles.setdefault(role, name)
    missing = [role for role in ("wavelength", "flux", "error") if role not in roles]
    if missing:
        raise UserError(
            f"{table.where}: no column for {' or '.join(missing)}; it has {_listed(names)}; "
            "name three with --columns WAVELENGTH,FLUX,ERROR"
        )
    return roles


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(n[:24]) for n in names[:6])
    return f"{shown} and {len(names) - 6} more" if len(names) > 6 else shown or "none"


def _vacuum_micron(values: np.ndarray, table: Columns, name: str, hints: Hints) -> tuple[np.ndarray, str, str]:
    """Wavelength [um, vacuum], the unit it came in and the medium; a wrong unit is named, never guessed away."""
    stated = hints.wavelength_unit or table.units.get(name)
    unit = parse_unit(stated)
    if stated and not is_spectral(unit):
        raise UserError(
            f"{table.where}: column '{name}' has unit {stated!r}; expected um, nm or Angstrom: pass --wavelength-unit"
        )
    micron = to_micron(values, unit if unit is not None else parse_unit("um"))
    if not _overlaps(micron):
        for other in ("um", "nm", "Angstrom"):
            if _overlaps(to_micron(values, parse_unit(other))):
                said = f"stated as {stated}" if stated else "have no unit"
                raise UserError(
                    f"{table.where}: wavelengths run from {np.nanmin(values):g} to {np.nanmax(values):g} and {said}; "
                    f"that looks like {other}: pass --wavelength-unit {other}"
                )
    own = table.said.get("medium")
    if hints.medium and own in ("vacuum", "air") and own != hints.medium:
        raise UserError(f"{table.where}: states {own}, --medium says {hints.medium}; leave it out, or correct the file")
    medium = hints.medium or own or "vacuum"
    if medium not in ("vacuum", "air"):
        raise UserError(f"{table.where}: medium {str(medium)[:20]!r}; expected 'vacuum' or 'air': pass --medium")
    micron = air_to_vacuum(micron) if medium == "air" else micron
    how = medium if hints.medium or own else "vacuum (assumed)"
    return micron, str(unit) if unit is not None else "um (inferred from the range)", how


def _overlaps(micron: np.ndarray) -> bool:
    inside = (micron > WINDOW[0]) & (micron < WINDOW[1])
    return bool(inside.any())


def _flux_unit(table: Columns, name: str, hints: Hints) -> Any:
    stated = hints.flux_unit or table.units.get(name)
    if not stated:
        raise UserError(
            f"{table.where}: column '{name}' has no unit; say which with --flux-unit (mJy, Jy, erg/s/cm2/um, "
            "erg/s/cm2/Angstrom, W/m2/um)"
        )
    unit = parse_unit(stated)
    if unit is None or not is_flux(unit):
        raise UserError(
            f"{table.where}: column '{name}' has unit {stated[:40]!r}; expected a flux density (Jy, erg/s/cm2/um, "
            "W/m2/um); if the file is wrong, pass --flux-unit"
        )
    own = parse_unit(table.units.get(name))
    if is_flux(own) and own != unit:  # a catalogue's --flux-unit is for the files that are silent
        raise UserError(
            f"{table.where}: column '{name}' has unit '{own}', --flux-unit says '{unit}'; leave it out, or correct the "
            "file"
        )
    return unit


def _error_unit(table: Columns, name: str, hints: Hints) -> Any:
    """Return the error's own unit where the file states one; None: it is the flux's."""
    stated = table.units.get(name)
    if hints.flux_unit is not None or not stated:
        return None
    unit = parse_unit(stated)
    if unit is None:
        raise UserError(f"{table.where}: column '{name}' has unit {stated[:40]!r}, unknown; pass --flux-unit for both")
    return unit


def _usable(
    wavelength: np.ndarray, flux: np.ndarray, error: np.ndarray, raw: dict[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, int]]:
    """Which rows are good, and how many fall to each reason (a row may have several)."""
    flagged = np.zeros(flux.shape, bool)
    if "dq" in raw:
        dq = np.nan_to_num(raw["dq"], nan=_DO_NOT_USE, posinf=_DO_NOT_USE, neginf=_DO_NOT_USE)
        flagged |= (np.clip(dq, 0, 2**32 - 1).astype(np.int64) & _DO_NOT_USE) > 0
    if "good" in raw:
        flagged |= ~(raw["good"] > 0)
    with np.errstate(invalid="ignore"):
        bad = {
            "flux missing": ~np.isfinite(flux),
            "error missing": ~np.isfinite(error),
            "error not positive": np.isfinite(error) & (error <= 0),
            "beyond all sense": (np.abs(flux) > _LARGEST) | (error > _LARGEST) | ((error > 0) & (error < 1 / _LARGEST)),
            "flagged": flagged,
            "wavelength missing": ~np.isfinite(wavelength),
        }
    counts = {"read": int(flux.size)} | {reason: int(rows.sum()) for reason, rows in bad.items() if rows.any()}
    return ~np.logical_or.reduce(list(bad.values())), counts


def _sorted(segment: Segment) -> Segment:
    """Sort by wavelength and average rows at the same wavelength with inverse variance."""
    order = np.argsort(segment.wavelength, kind="stable")
    wave, flux, error, good = (a[order] for a in (segment.wavelength, segment.flux, segment.error, segment.good))
    unique, first, index = np.unique(wave, return_index=True, return_inverse=True)
    meta = dict(segment.meta)
    if unique.size < wave.size:
        meta["rows"] = {**meta["rows"], "same wavelength": int(wave.size - unique.size)}
        weight = np.zeros(wave.size)
        weight[good] = error[good] ** -2.0
        total = np.bincount(index, weight)
        seen = total > 0
        mean = np.bincount(index, np.where(good, flux, 0.0) * weight)[seen] / total[seen]
        flux, error = flux[first], error[first]
        flux[seen], error[seen], good = mean, total[seen] ** -0.5, seen
    return replace(segment, wavelength=unique, flux=flux, error=error, good=good, meta=meta)
