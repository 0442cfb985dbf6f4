"""Whom the tables stand on, read from their headers without their numbers."""

import json
import os
from collections.abc import Mapping, Sequence

import h5py

from kappaflow.tables.chemistry import CHEMISTRY
from kappaflow.tables.cia import CIA
from kappaflow.tables.opacity import OPACITY

__all__ = ["cited_sources"]


def cited_sources(
    path: str | os.PathLike[str] | None, lists: Mapping[str, Sequence[str]], cia: str
) -> dict[str, list[str]]:
    """Return what to cite, as the tables say it: one entry per line list ("CH4 base"), for "chemistry" and "CIA".

    Parameters
    ----------
    path
        The opacity table; the packaged one if None.
    lists
        Species -> line lists that were used.
    cia
        Family of the collision-induced absorption.
    """
    found: dict[str, list[str]] = {}
    with h5py.File(OPACITY.path(path)) as file:
        for species, names in lists.items():
            for name in names:
                group = file.get(f"lists/{species}/{name}")
                said = json.loads(str(group.attrs.get("meta", "{}"))) if isinstance(group, h5py.Group) else {}
                found[f"{species} {name}"] = [part.strip() for part in str(said.get("citation", "")).split(";")]
    for kind, table in (("chemistry", CHEMISTRY), ("CIA", CIA)):
        with h5py.File(table.path()) as file:
            said = json.loads(str(file.attrs["meta"]))["citations"]
        found[kind] = list(said.get(cia, []) if isinstance(said, dict) else said)
    return found
