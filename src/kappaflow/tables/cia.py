"""The packaged collision-induced absorption: H2-H2 and H2-He, two families, on one coarse (T, nu) grid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from kappaflow.errors import UserError
from kappaflow.storage import digest_arrays, written_whole

__all__ = ["FAMILIES", "PAIRS", "CIAFamilies", "load_cia", "save_cia"]

SCHEMA = "kappaflow-cia/1"
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

    def arrays(self, family: str = "borysow") -> dict[str, np.ndarray]:
        """Return the fields of `physics.continuum.CIATable` for one family, float32."""
        if family not in self.families:
            raise UserError(f"cia: no family {family!r}; expected one of {', '.join(self.families)}")
        return {
            "ln_coefficient": (np.log(10.0) * self.families[family]).astype(np.float32),
            "ln_temperature": np.log(self.temperature).astype(np.float32),
            "nu_grid": np.array([self.nu[0], self.nu[1] - self.nu[0]], np.float32),
        }


def save_cia(table: CIAFamilies, path: str | Path) -> None:
    """Write `table` to `path`, whole or not at all; the same table gives the same bytes."""
    try:
        with written_whole(path) as part, h5py.File(part, "w", track_order=True, libver="v110") as file:
            file.attrs["schema"] = SCHEMA
            file.attrs["digest"] = table.digest
            file.attrs["meta"] = json.dumps(table.meta, sort_keys=True)
            file["nu"], file["temperature"] = table.nu, table.temperature
            for name, values in table.families.items():
                file.create_dataset(f"families/{name}", data=values, compression="gzip", shuffle=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error}); name a file in a writable folder") from error


def load_cia(path: str | Path | None = None) -> CIAFamilies:
    """Read `path`, or the packaged table."""
    if path is None:
        path = Path(str(resources.files("kappaflow.data").joinpath("cia.h5")))
    if not Path(path).is_file():
        raise UserError(f"{path}: no such file; make it with `kappaflow opacity build`")
    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("schema") != SCHEMA:
                raise UserError(f"{path}: schema is {file.attrs.get('schema')!r}; expected {SCHEMA!r}")
            table = CIAFamilies(
                nu=np.asarray(file["nu"]),
                temperature=np.asarray(file["temperature"]),
                families={name: np.asarray(file[f"families/{name}"]) for name in FAMILIES},
                meta=json.loads(str(file.attrs["meta"])),
            )
            stored = file.attrs["digest"]
    except (OSError, KeyError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not a CIA table ({error}); make one with `kappaflow opacity build`") from error
    if table.digest != stored:
        raise UserError(f"{path}: digest is {table.digest}, the file says {stored}; it is damaged: build it again")
    return table
