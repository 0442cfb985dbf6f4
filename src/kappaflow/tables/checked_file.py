"""One way in and out for tables: HDF5 with a schema, the digest of every number, and where they come from."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import h5py

from kappaflow.errors import UserError
from kappaflow.storage import written_whole

__all__ = ["TableFormat"]


class StoredTable(Protocol):
    """What every table offers."""

    @property
    def meta(self) -> Mapping[str, Any]:
        """Provenance and citations."""
        ...

    @property
    def digest(self) -> str:
        """Digest of every number in the table."""
        ...


T = TypeVar("T", bound=StoredTable)


@dataclass(frozen=True)
class TableFormat(Generic[T]):
    """How one kind of table is kept; the packaged one is `data/KIND.h5`."""

    kind: str
    made_by: str  # the command that makes one
    write: Callable[[T, h5py.File], None]  # the numbers into an open file
    read: Callable[[h5py.File, dict[str, Any]], T]  # and back, with the meta
    rounds: bool = False  # does writing round? Then the digest is of what a reader gets
    libver: str | None = "v110"  # of HDF5's layout; None is the oldest

    @property
    def schema(self) -> str:
        """What the file says it is."""
        return f"kappaflow-{self.kind.lower()}/1"

    def path(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Return `path`, or that of the packaged table; it must exist."""
        packaged = resources.files("kappaflow.data") / f"{self.kind.lower()}.h5"
        found = Path(str(packaged) if path is None else path)
        if not found.is_file():
            raise UserError(f"{found}: no such {self.kind} table; make one with `{self.made_by}`")
        return found

    def save(self, table: T, path: str | os.PathLike[str]) -> None:
        """Write `table` to `path`, whole or not at all; the same table gives the same bytes."""
        try:
            with written_whole(path) as part, h5py.File(part, "w", track_order=True, libver=self.libver) as file:
                file.attrs["schema"] = self.schema
                if not self.rounds:
                    file.attrs["digest"] = table.digest
                file.attrs["meta"] = json.dumps(table.meta, sort_keys=True)
                self.write(table, file)
                if self.rounds:
                    file.attrs["digest"] = self.read(file, {}).digest
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error}); name a file in a writable folder") from error

    def load(self, path: str | os.PathLike[str] | None = None) -> T:
        """Read `path`, or the packaged table, and check it against its digest."""
        found = self.path(path)
        try:
            with h5py.File(found, "r") as file:
                schema = file.attrs.get("schema")
                if schema != self.schema:
                    raise UserError(
                        f"{found}: schema is {schema!r}; expected {self.schema!r}, as `{self.made_by}` writes it"
                    )
                table = self.read(file, json.loads(str(file.attrs["meta"])))
                stored = file.attrs["digest"]
        except UserError:
            raise
        except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:  # h5py's, by kind of damage
            raise UserError(
                f"{found}: not a complete {self.kind} table ({error}); make one with `{self.made_by}`"
            ) from error
        if table.digest != stored:
            raise UserError(f"{found}: digest is {table.digest}, the file says {stored}; it is damaged: build it again")
        return table
