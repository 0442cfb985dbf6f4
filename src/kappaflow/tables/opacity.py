"""The packaged opacities: cross sections of every line list, in a low-rank form over (pressure, temperature).

For each list, ln sigma(P, T, nu) = mean(nu) + sum_r coefficients[P, T, r] basis[r, nu]: sampled at the grid
points (never averaged), factorized by SVD, quantized to at most 16 bits. Between the tabulated pressures the
coefficients are interpolated by a cubic spline in log P.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np

from kappaflow.constants import T_REFERENCE
from kappaflow.errors import UserError
from kappaflow.storage import digest_arrays
from kappaflow.tables.checked_file import TableFormat

__all__ = ["OPACITY", "LineList", "OpacityTable", "factorize", "load_opacity", "save_opacity"]

AXES = ("nu", "log_pressure", "temperature")
STEPS = 65535  # 16 bits
FINEST = 0.004  # of ln sigma: what a step of a row changes at most; small rows need few bits, and pack well


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
        from scipy.interpolate import CubicSpline  # slow to import, and who finds prepared arrays needs none

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
        arrays = {name: getattr(self, name) for name in AXES}
        for species, names in self.lists.items():
            for name, entry in names.items():
                for part in ("mean", "coefficients", "basis"):
                    arrays[f"{species}/{name}/{part}"] = getattr(entry, part)
        return digest_arrays(arrays)


def _write(table: OpacityTable, file: h5py.File) -> None:
    for name in AXES:
        file[name] = getattr(table, name)
    for species, names in table.lists.items():
        for name, entry in names.items():
            group = file.create_group(f"lists/{species}/{name}", track_order=True)
            group.attrs["meta"] = json.dumps(entry.meta, sort_keys=True)
            _write_quantized(group, "mean", entry.mean, np.ones(1))
            _write_quantized(group, "basis", entry.basis, np.abs(entry.coefficients).max(axis=(0, 1)))
            group["coefficients"] = entry.coefficients


def _write_quantized(group: h5py.Group, name: str, values: np.ndarray, weight: np.ndarray) -> None:
    """Write rows of `values` as integers with an offset and a step each; `weight` (row,) multiplies them at most."""
    rows = np.atleast_2d(values)
    low, high = rows.min(axis=1), rows.max(axis=1)
    finest = FINEST / np.where(weight > 0, weight, 1.0)
    step = np.where(high > low, np.maximum((high - low) / STEPS, finest), 1.0).astype(np.float32)
    codes = np.rint((rows - low[:, None].astype(np.float32)) / step[:, None]).clip(0, STEPS).astype(np.uint16)
    # shuffle before gzip: the high bytes of neighbours are alike
    data = group.create_dataset(name, data=codes.reshape(values.shape), compression="gzip", shuffle=True, chunks=True)
    data.attrs["low"] = low.astype(np.float32)
    data.attrs["step"] = step


def _read_quantized(group: h5py.Group, name: str) -> np.ndarray:
    data = group[name]
    assert isinstance(data, h5py.Dataset)
    codes = np.asarray(data, dtype=np.float32)
    low, step = np.asarray(data.attrs["low"]), np.asarray(data.attrs["step"])
    rows = np.atleast_2d(codes) * step[:, None] + low[:, None]
    return rows.reshape(codes.shape).astype(np.float32)


def factorize(
    ln_sigma: np.ndarray, *, rank: int, meta: Mapping[str, Any], weight: np.ndarray | None = None
) -> LineList:
    """Factorize ln sigma of shape (P, T, nu) to the given rank by SVD, and record the error it leaves.

    `weight` (P,) is what an error counts at each pressure; 1 everywhere if None.
    """
    n_p, n_t, n_nu = ln_sigma.shape
    flat = ln_sigma.reshape(n_p * n_t, n_nu).astype(np.float64)
    rows = np.repeat(np.ones(n_p) if weight is None else weight, n_t)[:, None]
    mean = (rows**2 * flat).sum(axis=0) / (rows**2).sum()
    centred = flat - mean
    _, vectors = np.linalg.eigh((rows * centred) @ (rows * centred).T)
    vectors = vectors[:, ::-1][:, : min(rank, flat.shape[0])]
    # The sign of an eigenvector is free: fix it, for the same bytes every time.
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])])
    basis = vectors.T @ (rows * centred)
    scale = np.abs(basis).max(axis=1, keepdims=True)
    scale = np.where(scale > 0, scale, 1.0)
    coefficients = vectors / rows * scale.T
    basis = basis / scale
    error = (rows * (centred - coefficients @ basis)) ** 2
    meta = {**meta, "rms error of ln sigma": float(f"{np.sqrt(error.sum() / (rows**2).sum() / n_nu):.2g}")}
    coefficients = coefficients.reshape(n_p, n_t, -1).astype(np.float32)
    return LineList(mean.astype(np.float32), coefficients, basis.astype(np.float32), meta)


def _read(file: h5py.File, meta: dict[str, Any]) -> OpacityTable:
    lists = {
        species: {name: _read_list(group) for name, group in names.items()}
        for species, names in file["lists"].items()  # type: ignore[union-attr]
    }
    nu, log_pressure, temperature = (np.asarray(file[name]) for name in AXES)
    return OpacityTable(nu, log_pressure, temperature, lists, meta)


def _read_list(group: h5py.Group) -> LineList:
    coefficients = np.asarray(group["coefficients"])
    meta = json.loads(group.attrs["meta"])  # type: ignore[arg-type]
    return LineList(_read_quantized(group, "mean"), coefficients, _read_quantized(group, "basis"), meta)


OPACITY = TableFormat("opacity", "kappaflow opacity build", _write, _read, rounds=True, libver=None)


def save_opacity(table: OpacityTable, path: str | os.PathLike[str]) -> None:
    """Write `table` to `path`, rounded to at most 16 bits; see `TableFormat`."""
    OPACITY.save(table, path)


def load_opacity(path: str | os.PathLike[str] | None = None) -> OpacityTable:
    """Read `path`, or the packaged table."""
    return OPACITY.load(path)
