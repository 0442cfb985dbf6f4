"""One more list for an existing table: from ExoJAX's databases, or from a file of cross sections."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kappaflow.build.tables.opacity_table import Grid, with_list
from kappaflow.errors import UserError
from kappaflow.parameters import SPECIES
from kappaflow.tables.opacity import OpacityTable, load_opacity, save_opacity

__all__ = ["ListSource"]


@dataclass(frozen=True)
class ListSource:
    """A list of `species`, to be called `name`, from `source`: `exojax` or a file of cross sections."""

    source: str
    species: str | None
    name: str | None
    database: str | None = None  # of ExoJAX: ExoMol/NAME, HITEMP or HITRAN
    data: Path | None = None  # folder of ExoJAX's databases
    clamp: bool = False  # beyond the temperatures of the source, use its nearest

    def added_to(self, into: Path | None, out: Path) -> OpacityTable:
        """Write the table `into` (the packaged one if None) with this list to `out`, and return it."""
        if self.species not in SPECIES:
            raise UserError(f"opacity build: --species is {self.species!r}; expected one of {', '.join(SPECIES)}")
        if not self.name:
            raise UserError("opacity build: --name is missing; expected what to call the list, such as pokazatel")
        table = load_opacity(into)
        if self.name in table.lists.get(self.species, {}):  # before the hour of computing, not after
            raise UserError(f"opacity build: {self.species} has a list {self.name!r} already; choose another --name")
        work = out.with_name(f"{out.name}.work")
        ln_sigma, meta = self._cross_sections(self.species, Grid.of(table), work)
        grown = with_list(table, self.species, self.name, ln_sigma, meta)
        save_opacity(grown, out)
        shutil.rmtree(work, ignore_errors=True)  # only ExoJAX's lists leave unfinished work
        return grown

    def _cross_sections(self, species: str, grid: Grid, work: Path) -> tuple[np.ndarray, dict[str, Any]]:
        if self.source != "exojax":
            from kappaflow.build.sources.xsec_files import read_cross_sections

            return read_cross_sections(Path(self.source), species, grid, clamp=self.clamp)
        from kappaflow.build.sources.exojax_lists import exojax_cross_sections

        if not self.database:
            raise UserError("opacity build: --database is missing; expected ExoMol/NAME, HITEMP or HITRAN")
        return exojax_cross_sections(species, self.database, grid, folder=self.data, clamp=self.clamp, work=work)
