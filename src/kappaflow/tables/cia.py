"""The packaged collision-induced absorption: H2-H2 and H2-He, two families, on one coarse (T, nu) grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from kappaflow.storage import digest_arrays
from kappaflow.tables.checked_file import TableFormat

__all__ = ["CIA", "FAMILIES", "PAIRS", "CIAFamilies", "load_cia", "save_cia"]

PAIRS = ("H2-H2", "H2-He")
FAMILIES = ("borysow", "petitradtrans")  # the first is the base


@dataclass(frozen=True)
class CIAFamilies:
    """log10 of the absorption coefficient [cm5 molecule-2]; each family is (pair, T, nu)."""

    nu: np.ndarray  # cm-1, even
    temperature: np.ndarray  # K
    families: Mapping[str, np.ndarray]
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Digest of every number in the table."""
        arrays = {f"families/{name}": values for name, values in self.families.items()}
        return digest_arrays({"nu": self.nu, "temperature": self.temperature, **arrays})


def _write(table: CIAFamilies, file: h5py.File) -> None:
    file["nu"], file["temperature"] = table.nu, table.temperature
    for name, values in table.families.items():
        file.create_dataset(f"families/{name}", data=values, compression="gzip", shuffle=True)


def _read(file: h5py.File, meta: dict[str, Any]) -> CIAFamilies:
    families = {name: np.asarray(file[f"families/{name}"]) for name in FAMILIES}
    return CIAFamilies(np.asarray(file["nu"]), np.asarray(file["temperature"]), families, meta)


CIA = TableFormat("CIA", "kappaflow opacity build", _write, _read)


def save_cia(table: CIAFamilies, path: str | Path) -> None:
    """Write `table` to `path`; see `TableFormat`."""
    CIA.save(table, path)


def load_cia(path: str | Path | None = None) -> CIAFamilies:
    """Read `path`, or the packaged table."""
    return CIA.load(path)
