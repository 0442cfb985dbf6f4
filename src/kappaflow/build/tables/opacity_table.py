"""Build the packaged opacity table: every list at every (P, T) node, factorized, written with its provenance.

Each (list, temperature) is one task; finished tasks are kept beside the output until the table is written, so a killed
build goes on where it stopped.
"""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kappaflow.build.tables.line_lists import PACKAGED_LISTS, ListRecipe, SourceList
from kappaflow.errors import UserError
from kappaflow.progress import progress
from kappaflow.storage import digest, written_whole
from kappaflow.tables.opacity import LineList, OpacityTable, factorize, load_opacity, save_opacity

__all__ = ["GRID", "Grid", "build_opacity", "with_list"]


@dataclass(frozen=True)
class Grid:
    """Nodes of the table: wavenumber [cm-1] equal in log, log10(P/bar), temperature [K] equal in log."""

    points: int = 20_000
    window: tuple[float, float] = (1850.0, 3550.0)
    log_pressure: tuple[float, float, int] = (-5.5, 3.5, 19)  # half a dex beyond the layers, for broadening stress
    temperature: tuple[float, float, int] = (150.0, 2000.0, 18)
    rank: int = 56

    @classmethod
    def of(cls, table: OpacityTable) -> Grid:
        """Return the nodes of an existing table."""
        log_p, temperature = table.log_pressure, table.temperature
        rank = max(entry.basis.shape[0] for names in table.lists.values() for entry in names.values())
        return cls(
            table.nu.size,
            (float(table.nu[0]), float(table.nu[-1])),
            (float(log_p[0]), float(log_p[-1]), log_p.size),
            (float(temperature[0]), float(temperature[-1]), temperature.size),
            rank,
        )

    @property
    def nu(self) -> np.ndarray:
        """Wavenumbers, shape (points,)."""
        return np.geomspace(*self.window, self.points)

    @property
    def pressures(self) -> np.ndarray:
        """Pressures [bar], ascending."""
        return 10.0 ** np.linspace(*self.log_pressure)

    @property
    def temperatures(self) -> np.ndarray:
        """Temperatures [K], ascending."""
        return np.geomspace(*self.temperature)


GRID = Grid()


def build_opacity(
    data: Path,
    out: Path,
    *,
    grid: Grid = GRID,
    recipes: Sequence[ListRecipe] = PACKAGED_LISTS,
    workers: int | None = None,
) -> OpacityTable:
    """Compute every list of `recipes` from the data folder and write the table to `out`."""
    if not data.is_dir():
        raise UserError(f"{data}: no such folder; give the folder with linelists, xsec-exomol and ktables")
    work = out.with_name(f"{out.name}.work-{digest([repr(grid), [(r.species, r.name) for r in recipes]])}")
    work.mkdir(parents=True, exist_ok=True)
    _compute(data, work, grid, recipes, workers or min(multiprocessing.cpu_count(), 8))
    lists: dict[str, dict[str, LineList]] = {}
    for recipe in recipes:
        source = recipe.assemble(data, grid.temperatures)
        parts = [np.load(_part(work, recipe, t)) for t in range(grid.temperatures.size)]
        meta = {"provenance": source.provenance, "citation": source.citation}
        entry = factorize(np.stack(parts, axis=1), rank=grid.rank, meta=meta, weight=_weight(grid.pressures))
        lists.setdefault(recipe.species, {})[recipe.name] = entry
    table = OpacityTable(grid.nu, np.log10(grid.pressures), grid.temperatures, lists, _meta(grid))
    save_opacity(table, out)
    shutil.rmtree(work)
    return load_opacity(out)


def with_list(
    table: OpacityTable, species: str, name: str, ln_sigma: np.ndarray, meta: Mapping[str, object]
) -> OpacityTable:
    """Return `table` with one more list; `ln_sigma` (P, T, nu) at its nodes."""
    if name in table.lists[species]:
        raise UserError(f"opacity build: {species} has a list {name!r} already; choose another --name")
    entry = factorize(ln_sigma, rank=Grid.of(table).rank, meta=meta)
    lists = {s: {**names, name: entry} if s == species else dict(names) for s, names in table.lists.items()}
    return OpacityTable(table.nu, table.log_pressure, table.temperature, lists, table.meta)


def _weight(pressure: np.ndarray) -> np.ndarray:
    """Weigh pressures in the factorization: fully below 0.01 bar, ever less above it, where little flux is made."""
    return np.clip(pressure / 0.01, 1e-4, 1.0) ** 0.25


def _meta(grid: Grid) -> Mapping[str, object]:
    low, high, _ = grid.temperature
    return {
        "what": "molecular cross sections [cm2/molecule] sampled at the grid points",
        "made by": "kappaflow opacity build",
        "valid temperature [K]": [low, high],
        "valid log10 pressure [bar]": list(grid.log_pressure[:2]),
        "outside": "temperatures beyond the range are clamped by the forward model, and counted",
        "not for": "high resolution beyond R of about 10,000, other wavelengths, or temperatures above 2000 K",
    }


def _part(work: Path, recipe: ListRecipe, t: int) -> Path:
    return work / f"{recipe.species}-{recipe.name}-{t:02d}.npy"


def _compute(data: Path, work: Path, grid: Grid, recipes: Sequence[ListRecipe], workers: int) -> None:
    """Evaluate all missing (list, temperature) tasks, several processes at once."""
    tasks = [(i, t) for i, r in enumerate(recipes) for t in range(grid.temperatures.size)]
    missing = [(i, t) for i, t in tasks if not _part(work, recipes[i], t).exists()]
    with progress("cross sections", len(tasks), unit="tables", done=len(tasks) - len(missing)) as advance:
        for _ in _run(data, work, grid, recipes, missing, workers):
            advance()


def _run(
    data: Path, work: Path, grid: Grid, recipes: Sequence[ListRecipe], missing: list[tuple[int, int]], workers: int
) -> Iterator[None]:
    if workers == 1:
        for i, t in missing:
            yield _task(data, work, grid, recipes[i], t)
        return
    # spawn: a forked numba or JAX may hang on its own threads
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_one_thread) as pool:
        jobs = [
            pool.submit(_packaged_task, data, work, grid, (recipes[i].species, recipes[i].name), t) for i, t in missing
        ]
        for job in as_completed(jobs):
            yield job.result()


def _one_thread() -> None:
    import numba

    numba.set_num_threads(1)


def _packaged_task(data: Path, work: Path, grid: Grid, which: tuple[str, str], t: int) -> None:
    """Run one task of the packaged recipes, found by name: their closures do not pickle."""
    recipe = next(r for r in PACKAGED_LISTS if (r.species, r.name) == which)
    _task(data, work, grid, recipe, t)


_assembled: dict[tuple[str, str], SourceList] = {}


def _task(data: Path, work: Path, grid: Grid, recipe: ListRecipe, t: int) -> None:
    """Ln sigma of one list at one temperature for all pressures, kept as a file."""
    key = (recipe.species, recipe.name)
    if key not in _assembled:
        _assembled.clear()  # one list at a time in memory
        _assembled[key] = recipe.assemble(data, grid.temperatures)
    source, temperature = _assembled[key], float(grid.temperatures[t])
    rows = [source.cross_section(grid.nu, temperature, float(p)) for p in grid.pressures]
    with written_whole(_part(work, recipe, t)) as part, part.open("wb") as stream:
        np.save(stream, np.log(np.asarray(rows) + FLOOR).astype(np.float32))


FLOOR = 1e-34  # cm2: opaque nowhere in any atmosphere here, and keeps the logarithm of nothing out of the factorization
