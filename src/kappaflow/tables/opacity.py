"""The packaged opacities: cross sections of every line list, in a low-rank form over (pressure, temperature).

For each list, ln sigma(P, T, nu) = mean(nu) + sum_r coefficients[P, T, r] basis[r, nu]: sampled at the grid
points (never averaged), factorized by SVD, quantized to 16 bits. Between the tabulated pressures the coefficients are
interpolated by a cubic spline in log P.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.interpolate import CubicSpline

from kappaflow.constants import T_REFERENCE
from kappaflow.errors import UserError
from kappaflow.storage import digest_arrays, written_whole

__all__ = ["LineList", "OpacityTable", "factorize", "load_opacity", "save_opacity"]

SCHEMA = "kappaflow-opacity/1"
STEPS = 65535  # 16 bits


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
    """Write `table` to `path`, whole or not at all, rounded to 16 bits; the same table gives the same bytes."""
    with written_whole(path) as part, h5py.File(part, "w", track_order=True) as file:
        file.attrs["schema"] = SCHEMA
        file.attrs["meta"] = json.dumps(table.meta, sort_keys=True)
        for name in ("nu", "log_pressure", "temperature"):
            file[name] = getattr(table, name)
        for species, names in table.lists.items():
            for name, entry in names.items():
                group = file.create_group(f"lists/{species}/{name}", track_order=True)
                group.attrs["meta"] = json.dumps(entry.meta, sort_keys=True)
                _write_quantized(group, "mean", entry.mean)
                _write_quantized(group, "basis", entry.basis)
                group["coefficients"] = entry.coefficients
        file.attrs["digest"] = _read(file).digest  # of the rounded numbers, which are what a reader gets


def _write_quantized(group: h5py.Group, name: str, values: np.ndarray) -> None:
    """Write rows of `values` as 16-bit integers with an offset and a step each."""
    rows = np.atleast_2d(values)
    low, high = rows.min(axis=1), rows.max(axis=1)
    step = np.where(high > low, (high - low) / STEPS, 1.0).astype(np.float32)
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


def load_opacity(path: str | os.PathLike[str] | None = None) -> OpacityTable:
    """Load a table; with no `path`, the packaged one."""
    if path is None:
        with resources.as_file(resources.files("kappaflow.data") / "opacity.h5") as packaged:
            return _load(packaged)
    return _load(Path(path))


def _load(path: Path) -> OpacityTable:
    if not path.is_file():
        raise UserError(
            f"{path}: no such opacity table; make one with: kappaflow opacity build --data DIR --out {path}"
        )
    try:
        with h5py.File(path) as file:
            schema = file.attrs.get("schema")
            if schema != SCHEMA:
                raise UserError(
                    f"{path}: schema is {schema!r}; expected {SCHEMA!r}: rebuild it with kappaflow opacity build"
                )
            table = _read(file)
            expected = file.attrs["digest"]
    except (OSError, KeyError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not a complete opacity table ({error})") from None
    if table.digest != expected:
        raise UserError(
            f"{path}: digest is {table.digest}; expected {expected}: the file is damaged, rebuild or reinstall it"
        )
    return table


def _read(file: h5py.File) -> OpacityTable:
    lists = {
        species: {name: _load_list(group) for name, group in names.items()}
        for species, names in file["lists"].items()  # type: ignore[union-attr]
    }
    axes = [np.asarray(file[name]) for name in ("nu", "log_pressure", "temperature")]
    return OpacityTable(*axes, lists, json.loads(file.attrs["meta"]))  # type: ignore[arg-type]


def _load_list(group: h5py.Group) -> LineList:
    coefficients = np.asarray(group["coefficients"])
    meta = json.loads(group.attrs["meta"])  # type: ignore[arg-type]
    return LineList(_read_quantized(group, "mean"), coefficients, _read_quantized(group, "basis"), meta)
