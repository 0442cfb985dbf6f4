"""The packaged opacities: cross sections of every line list, in a low-rank form over (pressure, temperature).

For each list, ln sigma(P, T, nu) = mean(nu) + sum_r coefficients[P, T, r] basis[r, nu]: sampled at the grid
points (never averaged), factorized by SVD, quantized to 16 bits. Between the tabulated pressures the coefficients are
interpolated by a cubic spline in log P.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.interpolate import CubicSpline

from kappaflow.errors import UserError
from kappaflow.storage import digest_arrays, written_whole

__all__ = ["T_REFERENCE", "LineList", "OpacityTable", "load_opacity", "save_opacity"]

SCHEMA = "kappaflow-opacity/1"
T_REFERENCE = 296.0  # K, HITRAN's reference temperature: half-widths are given there


@dataclass(frozen=True)
class LineList:
    """One list of one species, factorized; `coefficients` (P, T, rank), `basis` (rank, nu), `mean` (nu,)."""

    mean: np.ndarray
    coefficients: np.ndarray
    basis: np.ndarray
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OpacityTable:
    """Cross sections [cm2/molecule] of every list on one wavenumber grid [cm-1]."""

    nu: np.ndarray
    log_pressure: np.ndarray  # log10(P/bar), ascending
    temperature: np.ndarray  # K, ascending
    lists: Mapping[str, Mapping[str, LineList]]  # species -> name -> list; the first name is the base
    meta: Mapping[str, Any] = field(default_factory=dict)

    def line_list(self, species: str, name: str) -> LineList:
        """Look up one list, or say which there are."""
        if species not in self.lists:
            raise UserError(f"opacity: no species {species!r}; the table has {', '.join(self.lists)}")
        if name not in self.lists[species]:
            raise UserError(
                f"opacity: {species} has no list {name!r}; expected one of {', '.join(self.lists[species])}"
            )
        return self.lists[species][name]

    def ln_sigma(
        self,
        species: str,
        name: str,
        log_pressure: np.ndarray,
        *,
        stride: int = 1,
        broadening: tuple[float, float] = (1.0, 0.0),
    ) -> np.ndarray:
        """Return ln sigma, shape (layer, T, nu), float32, at `log_pressure` and at the table's temperatures.

        `broadening` is (scale, shift): every half-width times `scale`, every temperature exponent plus `shift`.
        A Lorentz width is gamma P (T_ref/T)^n, so this is the same table read at the pressure
        P scale (T_ref/T)^shift: exact, up to the interpolation in log P.
        """
        entry = self.line_list(species, name)
        scale, shift = broadening
        spline = CubicSpline(self.log_pressure, entry.coefficients, axis=0)
        offset = np.log10(scale) + shift * np.log10(T_REFERENCE / self.temperature)
        wanted = np.asarray(log_pressure, dtype=float)[:, None] + offset  # layer, T
        wanted = np.clip(wanted, self.log_pressure[0], self.log_pressure[-1])
        basis = entry.basis[:, ::stride].astype(np.float32)
        mean = entry.mean[::stride].astype(np.float32)
        coefficients = np.stack(
            [spline(wanted[:, t])[:, t] for t in range(self.temperature.size)], axis=1
        )  # layer, T, rank
        return coefficients.astype(np.float32) @ basis + mean

    @property
    def digest(self) -> str:
        """Digest of every number in the table."""
        arrays = {"nu": self.nu, "log_pressure": self.log_pressure, "temperature": self.temperature}
        for species, names in self.lists.items():
            for name, entry in names.items():
                for part in ("mean", "coefficients", "basis"):
                    arrays[f"{species}/{name}/{part}"] = getattr(entry, part)
        return digest_arrays(arrays)


def save_opacity(table: OpacityTable, path: str | Path) -> None:
    """Write `table` to `path`, whole or not at all; the same table gives the same bytes."""
    with written_whole(path) as part, h5py.File(part, "w", track_order=True) as file:
        file.attrs["schema"] = SCHEMA
        file.attrs["digest"] = table.digest
        file.attrs["meta"] = json.dumps(table.meta, sort_keys=True)
        for name in ("nu", "log_pressure", "temperature"):
            file[name] = getattr(table, name)
        for species, names in table.lists.items():
            for name, entry in names.items():
                group = file.create_group(f"lists/{species}/{name}", track_order=True)
                group.attrs["meta"] = json.dumps(entry.meta, sort_keys=True)
                _write_quantized(group, "mean", entry.mean, rowwise=False)
                _write_quantized(group, "basis", entry.basis, rowwise=True)
                group["coefficients"] = entry.coefficients
