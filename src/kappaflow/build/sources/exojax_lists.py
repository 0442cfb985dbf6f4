"""Line lists from ExoJAX's databases: ExoMol, HITEMP and HITRAN, downloaded by ExoJAX or already in a folder.

ExoJAX (Kawahara et al. 2022, ApJS 258, 31; 2025, ApJ 985, 263) finds, downloads and reads the lines. The profiles are
then summed by the code that makes every other list here, so that two lists differ by their lines and nothing else; it
agrees with ExoJAX's own cross sections within 1 % (benchmarks/voigt.py).

A folder holds, as ExoJAX lays it out, `H2O/1H2-16O/POKAZATEL/1H2-16O__POKAZATEL.def` and its sisters for ExoMol, and
`CO/05_HITEMP2019.par` (unpacked) or `CO/*.par`, `CO/*.data` for HITEMP and HITRAN.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kappaflow.build.identity import code_identity
from kappaflow.build.lines.comb import comb_cross_sections
from kappaflow.build.lines.hitran import MOLECULE, Lines, partition_ratio, strength
from kappaflow.build.lines.voigt import cross_section
from kappaflow.build.sources.databases import Database, open_database
from kappaflow.build.tables.line_lists import CUT
from kappaflow.build.tables.opacity_table import FLOOR, Grid
from kappaflow.errors import UserError
from kappaflow.progress import progress
from kappaflow.storage import digest, written_whole

__all__ = ["FOLDER", "exojax_cross_sections"]

FOLDER = Path(".database")  # where ExoJAX's own examples keep theirs
SEGMENT = 200.0  # cm-1 of lines in memory at once
MANY = 300_000  # lines of a segment: more are laid on a comb instead of summed one by one


def exojax_cross_sections(
    species: str,
    database: str,
    grid: Grid,
    *,
    folder: str | Path | None = None,
    clamp: bool = False,
    work: str | Path | None = None,
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return ln sigma (P, T, nu), float32, on the nodes of `grid`, and where it came from.

    `database` is `ExoMol/NAME` (`ExoMol/POKAZATEL`), `HITEMP` or `HITRAN` (an edition after it, as in `HITRAN2020`, is
    only written down: ExoJAX fetches the current one). Files are looked for in `folder`, and what is missing is
    downloaded there. With `clamp`, temperatures where the list does not hold take the nearest where it does. Segments
    finished are kept in `work`, where one is given, and not computed again by the same code from the same files.
    """
    if species not in MOLECULE:
        raise UserError(f"opacity: unknown molecule {species!r}; expected one of {', '.join(MOLECULE)}")
    low, high = grid.window
    source = open_database(species, database, Path(folder or FOLDER).expanduser(), (low - CUT, high + CUT))
    temperatures = _valid_temperatures(source, grid, clamp)
    count = max(int(np.ceil((high - low) / SEGMENT)), 1)
    parts = np.array_split(np.arange(grid.points), count)
    name = digest([species, database, source.meta, repr(grid), temperatures.tolist(), code_identity()])
    kept = None if work is None else Path(work)
    found, rows = _Found(), []
    with progress(f"{species} {database}", count * temperatures.size, unit="spectra") as advance:
        for number, part in enumerate(parts):
            file = None if kept is None else kept / f"{species}-{name}-{number:03d}.npz"
            rows.append(_segment(source, grid, part, temperatures, (file, found, advance)))
    if not found.lines:
        raise UserError(f"{database}: no line of {species} between {low:g} and {high:g} cm-1; expected some")
    return np.concatenate(rows, axis=2), _meta(source, grid, temperatures, found)


@dataclass
class _Found:
    """How many lines were used, and their extent [cm-1]."""

    lines: int = 0
    low: float = np.inf
    high: float = -np.inf

    def add(self, lines: int, low: float, high: float) -> None:
        self.lines, self.low, self.high = self.lines + lines, min(self.low, low), max(self.high, high)


def _valid_temperatures(source: Database, grid: Grid, clamp: bool) -> np.ndarray:
    """Temperatures to compute at: the grid's, moved to where the list holds if `clamp` allows it."""
    low, high = source.temperature
    cold, hot = grid.temperatures[[0, -1]]
    if not clamp and (cold < low or hot > high):
        raise UserError(
            f"{source.name}: holds from {low:g} to {high:g} K; expected {cold:g}-{hot:g} K: "
            "--clamp takes the nearest temperature beyond"
        )
    return np.clip(grid.temperatures, low, high)


def _segment(
    source: Database,
    grid: Grid,
    part: np.ndarray,
    temperatures: np.ndarray,
    keeping: tuple[Path | None, _Found, Callable[..., None]],
) -> np.ndarray:
    """Return ln sigma (P, T, nu) of the grid points numbered `part`, computed or read back."""
    file, found, advance = keeping
    if file is not None and file.exists():
        with np.load(file) as saved:
            if json.loads(str(saved["files"])).items() <= _stamps(source.folder).items():
                found.add(int(saved["lines"]), *saved["extent"].tolist())
                advance(temperatures.size)
                return saved["ln_sigma"]
    nu = grid.nu[part]
    lines = source.load(float(nu[0]) - CUT, float(nu[-1]) + CUT)
    end = grid.nu[min(part[-1] + 1, grid.points - 1)]
    inside = lines.nu[(lines.nu >= nu[0]) & (lines.nu < end)]
    count, extent = inside.size, (float(inside.min(initial=np.inf)), float(inside.max(initial=-np.inf)))
    ln_sigma = np.empty((grid.pressures.size, temperatures.size, nu.size), np.float32)
    for t, temperature in enumerate(temperatures):
        sigma = _sigma(source, lines, nu, float(temperature), grid.pressures)
        ln_sigma[:, t] = np.log(sigma + FLOOR)
        advance()
    found.add(count, *extent)
    if file is not None:
        with written_whole(file) as whole, whole.open("wb") as stream:
            files = json.dumps(_stamps(source.folder))
            np.savez(stream, ln_sigma=ln_sigma, lines=count, extent=extent, files=files)
    return ln_sigma


def _stamps(folder: Path) -> dict[str, str]:
    """Size and time of every file of a database, taken after reading it, when all that was downloaded is there.

    Not digests of the contents: a transition file can have tens of gigabytes.
    """
    files = sorted(f for f in folder.rglob("*") if f.is_file())
    return {str(f.relative_to(folder)): f"{(s := f.stat()).st_size} {s.st_mtime_ns}" for f in files}


def _sigma(source: Database, lines: Lines, nu: np.ndarray, temperature: float, pressures: np.ndarray) -> np.ndarray:
    """Cross sections [cm2/molecule] (P, nu) of one segment at one temperature."""
    if not len(lines):
        return np.zeros((pressures.size, nu.size))
    s = strength(lines, temperature)
    if source.partition is not None:  # the list's own partition function instead of TIPS
        s *= source.partition(temperature) / partition_ratio(lines.molecule, 1, temperature)
    if len(lines) > MANY:
        return comb_cross_sections(lines, s, nu, temperature, pressures, cut=CUT)
    return np.stack([cross_section(lines, nu, temperature, float(p), cut=CUT, s=s) for p in pressures])


def _meta(source: Database, grid: Grid, temperatures: np.ndarray, found: _Found) -> dict[str, Any]:
    meta = {
        **source.meta,
        "lines": found.lines,
        "lines between [cm-1]": [found.low, found.high],
        "wings cut at [cm-1]": CUT,
    }
    moved = grid.temperatures[temperatures != grid.temperatures]
    if moved.size:
        meta["temperatures clamped to the list's validity [K]"] = [round(float(t), 2) for t in moved]
    return meta
