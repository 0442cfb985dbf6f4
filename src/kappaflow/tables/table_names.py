"""Which opacity table: its digest and its line lists, read without its numbers, to refuse the wrong one by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import h5py

from kappaflow.errors import UserError
from kappaflow.spectra import OpacityCard

__all__ = ["TableName", "recorded_table", "table_name"]

USUAL = "borysow"  # the family of networks that record none


class TableName(NamedTuple):
    """What names a table in a sentence.

    Examples
    --------
    >>> print(TableName("8a3f", {"H2O": ("base", "mine"), "CO": ("base",)}))
    8a3f (H2O base+mine, CO base)
    """

    digest: str
    lists: Mapping[str, Sequence[str]]  # species -> its line lists, the base first
    cia: str = USUAL  # family of the collision-induced absorption used beside it

    def __str__(self) -> str:
        lists = ", ".join(f"{species} {'+'.join(names)}" for species, names in self.lists.items())
        return f"{self.digest} ({lists}{'' if self.cia == USUAL else f'; CIA {self.cia}'})"

    def same(self, other: TableName) -> bool:
        """Whether spectra made with the two have the same opacities."""
        return (self.digest, self.cia) == (other.digest, other.cia)


def table_name(path: str | os.PathLike[str] | None = None) -> TableName:
    """Digest and lists of the table in a file, or of the packaged one, as its header states them."""
    if path is None:
        with resources.as_file(resources.files("kappaflow.data") / "opacity.h5") as packaged:
            return table_name(packaged)
    if not Path(path).is_file():
        raise UserError(f"--opacity {path}: no such file; expected a table made by `kappaflow opacity build`")
    try:
        with h5py.File(path) as file:
            lists = {s: tuple(names) for s, names in file["lists"].items()}  # type: ignore[union-attr]
            return TableName(str(file.attrs["digest"]), lists)
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        raise UserError(f"--opacity {path}: not a table made by `kappaflow opacity build`") from None


def recorded_table(card: OpacityCard | None) -> TableName:
    """Name the table that a network or a data set was made with; the first release's, without a card, the packaged."""
    return table_name() if card is None else TableName(card.digest, card.lists, card.cia)
