"""The packaged equilibrium chemistry: log10 VMR over (C/O, [M/H], P, T), quantized to 16 bits.

Axes: C/O is uneven, dense around 0.96 where the last free oxygen goes; [M/H] and log10 P are even; T is even in
x = ln(T + 200 K). On disk each species is an integer number of steps of 0.001 dex (0.0002 for H2 and He), kept as
differences along C/O, which compress well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.interpolate import CubicSpline
from scipy.linalg import solve_banded

from kappaflow.constants import T_OFFSET
from kappaflow.errors import UserError
from kappaflow.parameters import GASES
from kappaflow.storage import digest_arrays, written_whole

__all__ = ["FLOOR", "ChemistryTable", "load_chemistry", "save_chemistry"]

SCHEMA = "kappaflow-chemistry/1"
STEPS = (0.001,) * 6 + (0.0002,) * 2  # dex
FLOOR = -20.0  # log10 VMR: below, nothing is told apart
NODES = ("co", "mh", "log_pressure", "temperature")


@dataclass(frozen=True)
class ChemistryTable:
    """Volume mixing ratios in gas-phase equilibrium; `steps` (co, mh, P, T, species) are int16 multiples of STEPS."""

    co: np.ndarray  # elemental C/O
    mh: np.ndarray  # [M/H], dex
    log_pressure: np.ndarray  # log10(P/bar)
    temperature: np.ndarray  # K
    steps: np.ndarray
    mass: np.ndarray  # u per H nucleus: H + He; heavy elements without C; C at C/O = 1 (last two at [M/H] = 0)
    he: float  # He/H
    meta: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def log_vmr(self) -> np.ndarray:
        """log10 VMR, shape (co, mh, P, T, species), float32."""
        return (self.steps * np.array(STEPS)).astype(np.float32)

    @property
    def digest(self) -> str:
        """Digest of every number in the table."""
        names = (*NODES, "steps", "mass")
        return digest_arrays({**{n: getattr(self, n) for n in names}, "he": np.array(self.he)})

    def at_layers(self, log_pressure: np.ndarray) -> dict[str, np.ndarray]:
        """Return the fields of `physics.chemistry.EquilibriumTable` at fixed `log_pressure` (log10 bar), float32.

        Cubic spline in log10 P; pressures outside the table take its edge.
        """
        wanted = np.asarray(log_pressure, dtype=float)
        if wanted.ndim != 1 or not np.all(np.isfinite(wanted)):
            raise UserError(f"chemistry: layer pressures have shape {wanted.shape}; expected one finite value a layer")
        wanted = np.clip(wanted, self.log_pressure[0], self.log_pressure[-1])
        values = CubicSpline(self.log_pressure, self.log_vmr, axis=2)(wanted)  # co, mh, layer, T, species
        coefficients = _spline_coefficients(_spline_coefficients(values, axis=1), axis=3)
        x = np.log(self.temperature + T_OFFSET)
        single = {
            "coefficients": coefficients,
            "co": self.co,
            "mh_grid": np.array([self.mh[0], self.mh[1] - self.mh[0]]),
            "x_grid": np.array([x[0], (x[-1] - x[0]) / (x.size - 1)]),
            "mass": self.mass,
            "he": np.array(self.he),
        }
        return {name: array.astype(np.float32) for name, array in single.items()}


def _spline_coefficients(values: np.ndarray, axis: int) -> np.ndarray:
    """Coefficients (n + 2) of the natural cubic B-spline through `values` (n) at even nodes along `axis`.

    (c[i-1] + 4 c[i] + c[i+1]) / 6 = v[i], and zero curvature at the ends.
    """
    rows = np.moveaxis(values, axis, 0)
    n = rows.shape[0]
    flat = rows.reshape(n, -1)
    inner = np.empty((n, flat.shape[1]))
    inner[0], inner[-1] = flat[0], flat[-1]  # zero curvature makes the end coefficient the end value
    right = 6.0 * flat[1:-1]
    right[0] -= flat[0]
    right[-1] -= flat[-1]
    bands = np.ones((3, n - 2))
    bands[1] = 4.0
    inner[1:-1] = solve_banded((1, 1), bands, right)
    first, last = 2.0 * inner[0] - inner[1], 2.0 * inner[-1] - inner[-2]
    padded = np.concatenate([first[None], inner, last[None]])
    return np.moveaxis(padded.reshape((n + 2, *rows.shape[1:])), 0, axis)


def quantized(log_vmr: np.ndarray) -> np.ndarray:
    """Nearest int16 multiples of STEPS to `log_vmr` (..., species), floored at FLOOR (H2 and He at -6)."""
    floors = np.where(np.array(STEPS) < 0.001, -6.0, FLOOR)
    return np.rint(np.maximum(log_vmr, floors) / np.array(STEPS)).astype(np.int16)


def save_chemistry(table: ChemistryTable, path: str | Path) -> None:
    """Write `table` to `path`, whole or not at all; the same table gives the same bytes."""
    differences = np.concatenate([table.steps[:1], np.diff(table.steps, axis=0)])  # wraps like int16, so does the sum
    try:
        with written_whole(path) as part, h5py.File(part, "w", track_order=True, libver="v110") as file:
            file.attrs["schema"] = SCHEMA
            file.attrs["digest"] = table.digest
            file.attrs["meta"] = json.dumps(table.meta, sort_keys=True)
            for name in NODES:
                file[name] = getattr(table, name)
            file["mass"] = table.mass
            file["he"] = table.he
            for s, species in enumerate(GASES):
                file.create_dataset(
                    f"steps/{species}",
                    data=np.ascontiguousarray(differences[..., s]),
                    chunks=(1, *differences.shape[1:4]),
                    compression="gzip",
                    compression_opts=9,
                    shuffle=True,
                )
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error}); give --out a file in a writable folder") from error


def load_chemistry(path: str | Path | None = None) -> ChemistryTable:
    """Read `path`, or the packaged table."""
    if path is None:
        path = Path(str(resources.files("kappaflow.data").joinpath("chemistry.h5")))
    if not Path(path).is_file():
        raise UserError(f"{path}: no such file; make it with `kappaflow chemistry build`")
    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("schema") != SCHEMA:
                raise UserError(
                    f"{path}: schema is {file.attrs.get('schema')!r}; expected {SCHEMA!r}, "
                    "as `kappaflow chemistry build` writes it"
                )
            parts = [np.asarray(file[f"steps/{species}"]) for species in GASES]
            table = ChemistryTable(
                **{name: np.asarray(file[name]) for name in NODES},
                steps=np.cumsum(np.stack(parts, axis=-1), axis=0, dtype=np.int16),
                mass=np.asarray(file["mass"]),
                he=float(np.asarray(file["he"])),
                meta=json.loads(str(file.attrs["meta"])),
            )
            stored = file.attrs["digest"]
    except (OSError, KeyError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{path}: not a chemistry table ({error}); make one with `kappaflow chemistry build`"
        ) from error
    if table.digest != stored:
        raise UserError(f"{path}: digest is {table.digest}, the file says {stored}; it is damaged: build it again")
    return table
