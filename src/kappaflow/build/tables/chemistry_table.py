"""Build the equilibrium table: FastChem over (C/O, [M/H], P, T), two processes, resumable, the same bytes each time.

Two passes. The first covers the coarse C/O nodes at every (P, T). Near C/O = 0.96 the last oxygen that silicon and
aluminium leave free is taken by CO, and H2O, CO2, H2S and CH4 step by up to five decades within 0.001 in C/O. The
second pass adds dense nodes there, but only at the (P, T) where the first saw the step; elsewhere the fine nodes are
interpolated from the coarse ones.
"""

import multiprocessing
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from kappaflow.build.sources.fastchem import FastChemData, Solver, find_data
from kappaflow.constants import T_OFFSET
from kappaflow.errors import UserError
from kappaflow.parameters import GASES
from kappaflow.progress import progress
from kappaflow.storage import digest, written_whole
from kappaflow.tables.chemistry import ChemistryTable, quantized, save_chemistry

__all__ = ["FULL", "ChemistryGrid", "build_chemistry"]

STEP_SEEN = 0.2  # dex across the fine nodes: more, and FastChem is run at all of them
CITATIONS = (
    "Stock et al. 2018, MNRAS 479, 865 (FastChem)",
    "Stock et al. 2022, MNRAS 517, 4070 (FastChem 2)",
    "Kitzmann et al. 2024, MNRAS 527, 7263 (FastChem Cond)",
    "Asplund et al. 2009, ARA&A 47, 481 (solar abundances)",
)


@dataclass(frozen=True)
class ChemistryGrid:
    """Nodes: coarse and fine C/O (disjoint), [M/H], log10(P/bar), T [K] even in ln(T + 200 K)."""

    coarse: tuple[float, ...]
    fine: tuple[float, ...]
    mh: tuple[float, ...]
    log_pressure: tuple[float, ...]
    temperature: tuple[float, ...]

    @property
    def co(self) -> np.ndarray:
        """All C/O nodes, ascending."""
        return np.sort(np.array(self.coarse + self.fine))

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """T [K] and P [bar] of every (P, T) node, flat, T fastest."""
        p, t = np.meshgrid(10.0 ** np.array(self.log_pressure), np.array(self.temperature), indexing="ij")
        return t.ravel(), p.ravel()


def temperatures(low: float, high: float, n: int) -> tuple[float, ...]:
    """`n` temperatures [K] from `low` to `high`, even in ln(T + T_OFFSET)."""
    nodes = np.exp(np.linspace(np.log(low + T_OFFSET), np.log(high + T_OFFSET), n)) - T_OFFSET
    nodes[0], nodes[-1] = low, high
    return tuple(nodes.tolist())


def _even(low: float, high: float, n: int) -> tuple[float, ...]:
    return tuple(np.round(np.linspace(low, high, n), 6).tolist())


# fmt: off
FULL = ChemistryGrid(
    coarse=(0.1, 0.17, 0.26, 0.36, 0.46, 0.56, 0.65, 0.72, 0.78, 0.825, 0.86, 0.885, 0.903, 0.916, 0.925, 0.931, 0.937,
            0.942, 0.972, 0.977, 0.983, 0.99, 0.997, 1.005, 1.02, 1.04, 1.07, 1.11, 1.17, 1.25, 1.36, 1.5),
    fine=(0.946, 0.95, 0.953, 0.955, 0.9562, *_even(0.957, 0.962, 11), 0.963, 0.965, 0.968),
    mh=_even(-1.0, 1.5, 6),
    log_pressure=_even(-5.0, 3.0, 19),
    temperature=temperatures(150.0, 3500.0, 54),
)
# fmt: on


def _solve(data: FastChemData, job: tuple[float, float, np.ndarray, np.ndarray], path: Path) -> Path:
    """Solve one composition at flat (T, P) and leave the result in `path`; runs in a worker."""
    co, mh, temperature, pressure = job
    values = Solver(data, co, mh).log_vmr(temperature, pressure)
    with written_whole(path) as part, part.open("wb") as stream:
        np.save(stream, values)
    return path


class _Parts:
    """Finished compositions on disk, so that a killed build resumes; named by everything that decides them."""

    def __init__(self, folder: Path, data: FastChemData) -> None:
        self.folder, self.data = folder, data

    def path(self, job: tuple[float, float, np.ndarray, np.ndarray]) -> Path:
        co, mh, temperature, pressure = job
        name = digest([co, mh, temperature.tolist(), pressure.tolist(), self.data.versions])
        return self.folder / f"{name}.npy"

    def solve(self, what: str, jobs: list[tuple[float, float, np.ndarray, np.ndarray]], workers: int) -> np.ndarray:
        """log10 VMR, shape (job, point, species)."""
        paths = [self.path(job) for job in jobs]
        missing = [(job, path) for job, path in zip(jobs, paths, strict=True) if not path.exists()]
        with progress(what, len(jobs), unit="compositions", done=len(jobs) - len(missing)) as advance:
            for _ in self._run(missing, workers):
                advance()
        return np.stack([np.load(path) for path in paths])

    def _run(self, missing: list[Any], workers: int) -> Iterator[Path]:
        if workers == 1 or len(missing) < 2:
            for job, path in missing:
                yield _solve(self.data, job, path)
            return
        # spawn: a fork would copy the threads' locks of whatever the parent has loaded
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            for future in as_completed([pool.submit(_solve, self.data, job, path) for job, path in missing]):
                yield future.result()


def _filled(log_vmr: np.ndarray) -> tuple[np.ndarray, int]:
    """Fill points that did not converge along T (last axis but one), linearly; return how many there were."""
    missing = np.asarray(np.isnan(log_vmr).any(axis=-1))
    count = int(missing.sum())
    if count > 0.01 * missing.size:
        raise UserError(
            f"chemistry build: FastChem did not converge at {count} of {missing.size} points; expected < 1 %"
        )
    out = log_vmr.copy()
    for index in np.argwhere(missing.any(axis=-1)):
        row, bad = out[tuple(index)], missing[tuple(index)]
        nodes = np.arange(bad.size)
        for s in range(row.shape[-1]):
            row[bad, s] = np.interp(nodes[bad], nodes[~bad], row[~bad, s])
    return out, count


def _steps(grid: ChemistryGrid, coarse: np.ndarray) -> np.ndarray:
    """(P, T) mask: where an absorber that matters steps between the coarse nodes on either side of the fine ones."""
    left = int(np.searchsorted(grid.coarse, min(grid.fine))) - 1
    below, above = coarse[left], coarse[left + 1]  # mh, P, T, species
    matters = np.maximum(below, above)[..., :6] > -9.0
    return ((np.abs(above - below)[..., :6] > STEP_SEEN) & matters).any(axis=(0, -1))


def _solve_grid(grid: ChemistryGrid, parts: _Parts, workers: int) -> tuple[np.ndarray, int]:
    """log10 VMR, shape (co, mh, P, T, species), and the number of points filled in."""
    t, p = grid.points()
    shape = (len(grid.mh), len(grid.log_pressure), len(grid.temperature), len(GASES))
    jobs = [(co, mh, t, p) for co in grid.coarse for mh in grid.mh]
    coarse, holes = _filled(parts.solve("chemistry, coarse", jobs, workers).reshape(len(grid.coarse), *shape))
    if not grid.fine:
        return coarse, holes
    mask = _steps(grid, coarse).ravel()
    fine = PchipInterpolator(np.log(grid.coarse), coarse, axis=0)(np.log(grid.fine))
    if mask.any():
        jobs = [(co, mh, t[mask], p[mask]) for co in grid.fine for mh in grid.mh]
        exact = parts.solve("chemistry, fine", jobs, workers)
        flat = fine.reshape(len(grid.fine), len(grid.mh), -1, len(GASES))
        flat[:, :, mask] = exact.reshape(len(grid.fine), len(grid.mh), -1, len(GASES))
        fine, more = _filled(flat.reshape(fine.shape))
        holes += more
    order = np.argsort(np.array(grid.coarse + grid.fine))
    return np.concatenate([coarse, fine])[order], holes


def build_chemistry(out: str | Path, *, grid: ChemistryGrid = FULL, workers: int | None = None) -> ChemistryTable:
    """Compute the table and write it to `out`; finished compositions wait in `OUT.parts` until all are there."""
    out = Path(out)
    data = find_data()
    folder = out.with_name(out.name + ".parts")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error}); give --out a file in a writable folder") from error
    count = workers or min(2, os.cpu_count() or 1)
    log_vmr, holes = _solve_grid(grid, _Parts(folder, data), count)
    mass, he = Solver(data, 0.5, 0.0).masses()
    table = ChemistryTable(
        co=grid.co,
        mh=np.array(grid.mh),
        log_pressure=np.array(grid.log_pressure),
        temperature=np.array(grid.temperature),
        steps=quantized(log_vmr),
        mass=mass,
        he=he,
        meta=_meta(grid, data, holes),
    )
    save_chemistry(table, out)
    shutil.rmtree(folder)
    return table


def _meta(grid: ChemistryGrid, data: FastChemData, holes: int) -> dict[str, Any]:
    """Provenance: what made the table, from what, where it holds."""
    return {
        "what": "gas-phase chemical equilibrium, no condensates, no ions removed; log10 volume mixing ratios",
        "code": f"pyfastchem {data.versions['pyfastchem']}",
        "constants": f"FastChem logK.dat, as installed by exogibbs {data.versions['exogibbs']}",
        "abundances": "Asplund et al. 2009 (asplund_2009.dat, same source)",
        "recipe": "elements heavier than He times 10^[M/H]; O as such; C = C/O times O",
        "citations": list(CITATIONS),
        "validity": {
            "T [K]": [grid.temperature[0], grid.temperature[-1]],
            "log10 P [bar]": [grid.log_pressure[0], grid.log_pressure[-1]],
            "C/O": [float(grid.co[0]), float(grid.co[-1])],
            "[M/H]": [grid.mh[0], grid.mh[-1]],
        },
        "points not converged, interpolated in T": holes,
    }
