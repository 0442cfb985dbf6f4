"""Build the packaged opacity table: every list at every (P, T) node, factorized, written with its provenance.

Each (list, temperature) is one task; finished tasks are kept beside the output until the table is written, so a killed
build goes on where it stopped. They are named by all that decides them, so that it never goes on with anything else.
"""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kappaflow.build.identity import code_identity, data_digest
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
    work = out.with_name(f"{out.name}.work")
    work.mkdir(parents=True, exist_ok=True)
    tasks = [_Task(data, recipe, grid, _stem(work, data, recipe, grid)) for recipe in recipes]
    _compute(tasks, workers or min(multiprocessing.cpu_count(), 8))
    lists: dict[str, dict[str, LineList]] = {}
    for task in tasks:
        source = task.recipe.maker.assemble(data, grid.temperatures)
        parts = [np.load(task.part(t)) for t in range(grid.temperatures.size)]
        meta = {"provenance": source.provenance, "citation": source.citation}
        entry = _factorized(np.stack(parts, axis=1), grid, meta)
        lists.setdefault(task.recipe.species, {})[task.recipe.name] = entry
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
    entry = _factorized(ln_sigma, Grid.of(table), meta)
    lists = {s: {**names, name: entry} if s == species else dict(names) for s, names in table.lists.items()}
    return OpacityTable(table.nu, table.log_pressure, table.temperature, lists, table.meta)


def _factorized(ln_sigma: np.ndarray, grid: Grid, meta: Mapping[str, object]) -> LineList:
    """Factorize a list, packaged or a user's, with the rank and the weights of `grid`."""
    return factorize(ln_sigma, rank=grid.rank, meta=meta, weight=_weight(grid.pressures))


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


@dataclass(frozen=True)
class _Task:
    """One list; `stem` is the path of its finished parts without the number of the temperature."""

    data: Path
    recipe: ListRecipe
    grid: Grid
    stem: Path

    def part(self, t: int) -> Path:
        return self.stem.with_name(f"{self.stem.name}-{t:02d}.npy")


def _stem(work: Path, data: Path, recipe: ListRecipe, grid: Grid) -> Path:
    """Name the parts of a list by its files, its recipe, the grid, the code and the libraries that sum it."""
    files = {file.name: data_digest(file) for file in recipe.maker.files(data)}
    nodes = [grid.points, *grid.window, *grid.log_pressure, *grid.temperature]  # not the rank: it comes after
    return work / f"{recipe.species}-{recipe.name}-{digest([repr(recipe), files, nodes, code_identity()])}"


def _compute(lists: Sequence[_Task], workers: int) -> None:
    """Evaluate all missing (list, temperature) tasks, several processes at once."""
    tasks = [(task, t) for task in lists for t in range(task.grid.temperatures.size)]
    missing = [(task, t) for task, t in tasks if not task.part(t).exists()]
    with progress("cross sections", len(tasks), unit="tables", done=len(tasks) - len(missing)) as advance:
        for _ in _run(missing, workers):
            advance()


def _run(missing: Sequence[tuple[_Task, int]], workers: int) -> Iterator[None]:
    if workers == 1:
        for task, t in missing:
            yield _solve(task, t)
        return
    # spawn: a forked numba or JAX may hang on its own threads
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_one_thread) as pool:
        for job in as_completed([pool.submit(_solve, task, t) for task, t in missing]):
            yield job.result()


def _one_thread() -> None:
    import numba

    numba.set_num_threads(1)


_assembled: dict[Path, SourceList] = {}


def _solve(task: _Task, t: int) -> None:
    """Ln sigma of one list at one temperature for all pressures, kept as a file."""
    grid = task.grid
    if task.stem not in _assembled:
        _assembled.clear()  # one list at a time in memory
        _assembled[task.stem] = task.recipe.maker.assemble(task.data, grid.temperatures)
    source, temperature = _assembled[task.stem], float(grid.temperatures[t])
    rows = [source.cross_section(grid.nu, temperature, float(p)) for p in grid.pressures]
    with written_whole(task.part(t)) as part, part.open("wb") as stream:
        np.save(stream, np.log(np.asarray(rows) + FLOOR).astype(np.float32))


FLOOR = 1e-34  # cm2: opaque nowhere in any atmosphere here, and keeps the logarithm of nothing out of the factorization
