"""The packaged equilibrium chemistry: log10 VMR over (C/O, [M/H], P, T), quantized to 16 bits.

Axes: C/O is uneven, dense around 0.96 where the last free oxygen goes; [M/H] and log10 P are even; T is even in
x = ln(T + 200 K). On disk each species is an integer number of steps of 0.001 dex (0.0002 for H2 and He), kept as
differences along C/O, which compress well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from kappaflow.parameters import GASES
from kappaflow.storage import digest_arrays
from kappaflow.tables.checked_file import TableFormat

__all__ = ["CHEMISTRY", "FLOOR", "ChemistryTable", "load_chemistry", "quantized", "save_chemistry"]

STEPS = tuple(0.0002 if gas in ("H2", "He") else 0.001 for gas in GASES)  # dex
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


def quantized(log_vmr: np.ndarray) -> np.ndarray:
    """Nearest int16 multiples of STEPS to `log_vmr` (..., species), floored at FLOOR (H2 and He at -6)."""
    floors = np.where(np.array(STEPS) < 0.001, -6.0, FLOOR)
    return np.rint(np.maximum(log_vmr, floors) / np.array(STEPS)).astype(np.int16)


def _write(table: ChemistryTable, file: h5py.File) -> None:
    for name in (*NODES, "mass", "he"):
        file[name] = getattr(table, name)
    differences = np.concatenate([table.steps[:1], np.diff(table.steps, axis=0)])  # wraps like int16, so does the sum
    for s, species in enumerate(GASES):
        file.create_dataset(
            f"steps/{species}",
            data=np.ascontiguousarray(differences[..., s]),
            chunks=(1, *differences.shape[1:4]),
            compression="gzip",
            compression_opts=9,
            shuffle=True,
        )


def _read(file: h5py.File, meta: dict[str, Any]) -> ChemistryTable:
    parts = [np.asarray(file[f"steps/{species}"]) for species in GASES]
    return ChemistryTable(
        **{name: np.asarray(file[name]) for name in (*NODES, "mass")},
        steps=np.cumsum(np.stack(parts, axis=-1), axis=0, dtype=np.int16),
        he=float(np.asarray(file["he"])),
        meta=meta,
    )


CHEMISTRY = TableFormat("chemistry", "kappaflow chemistry build", _write, _read)


def save_chemistry(table: ChemistryTable, path: str | Path) -> None:
    """Write `table` to `path`; see `TableFormat`."""
    CHEMISTRY.save(table, path)


def load_chemistry(path: str | Path | None = None) -> ChemistryTable:
    """Read `path`, or the packaged table."""
    return CHEMISTRY.load(path)
