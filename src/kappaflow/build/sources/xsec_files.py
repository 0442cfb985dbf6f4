"""Cross sections that others computed: TauREx/ExoMolOP and petitRADTRANS 3 HDF5 files, onto the nodes of our table.

Both formats hold `xsecarr` (P, T, nu) [cm2/molecule] on `p`, `t` [K] and `bin_edges`, which despite its name is the
wavenumber of each value [cm-1] (Chubb et al. 2021, A&A 646, A21; Molliere et al. 2019, A&A 627, A67). Values are
interpolated, never averaged: ln sigma linearly in nu, then in ln T, then in ln P. On ExoMolOP's 100 K steps ln T is the
best compromise: T errs more below 300 K, 1/T above 500 K (docs/opacity-sources.md).
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from kappaflow.build.tables.opacity_table import FLOOR, Grid
from kappaflow.errors import UserError
from kappaflow.progress import progress

__all__ = ["read_cross_sections"]

BAR_PER = {
    "bar": 1.0,
    "bars": 1.0,
    "mbar": 1e-3,
    "millibar": 1e-3,
    "pa": 1e-5,
    "hpa": 1e-3,
    "atm": 1.01325,
    "dyn/cm2": 1e-6,
}
CM2 = {"cm2/molecule": 1.0, "cm2": 1.0, "cm2/molec": 1.0, "m2/molecule": 1e4, "m2": 1e4}
AXIS_NAMES = {"p": "pressures", "t": "temperatures", "bin_edges": "wavenumbers"}
MOST_VALUES = 200_000_000  # of one axis: beyond, the header is nonsense and reading it would only fill the memory


@dataclass(frozen=True)
class _Layout:
    """Axes of a file, ascending as stored: pressure [bar], temperature [K], wavenumber [cm-1]; unit of the values."""

    pressure: np.ndarray
    temperature: np.ndarray
    nu: np.ndarray
    cm2: float


def read_cross_sections(
    path: str | Path, species: str, grid: Grid, *, clamp: bool = False
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return ln sigma (P, T, nu), float32, on the nodes of `grid`, and where it came from.

    The file must cover the window and the temperatures of `grid`; with `clamp`, temperatures outside take the nearest
    one in the file. Pressures outside always do (below about 1e-5 bar lines are Doppler cores whatever the pressure).
    Either is written into the returned description.
    """
    path = Path(path)
    with _opened(path) as file:
        _check_molecule(path, file, species)
        layout = _layout(path, file)
        _check_cover(path, layout, grid, clamp)
        rows = []
        with progress(path.name, layout.pressure.size, unit="pressures") as advance:
            for p in range(layout.pressure.size):
                rows.append(_at_temperatures(path, file, layout, p, grid))
                advance()
        meta = _meta(path, file, layout, grid)
    left, share = _places(np.log(layout.pressure), np.log(grid.pressures))
    mixed = [(1 - np.float32(w)) * rows[i] + np.float32(w) * rows[i + 1] for i, w in zip(left, share, strict=True)]
    return np.stack(mixed), meta


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    """Open the file, and turn what HDF5 says of a damaged one into one line."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a TauREx/ExoMol or petitRADTRANS 3 cross-section file (HDF5)")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except UserError:
        raise
    # h5py answers a damaged file with any of these, depending on which bytes are wrong
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        said = " ".join(str(error).split())
        raise UserError(f"{path}: not a complete HDF5 file ({said}); download it again") from None


def _dataset(path: Path, file: h5py.File, name: str) -> h5py.Dataset:
    data = file.get(name)
    if isinstance(data, h5py.Dataset):
        return data
    if "kcoeff" in file:
        raise UserError(f"{path}: holds k-coefficients, not cross sections; expected a file named *.xsec.*")
    raise UserError(
        f"{path}: no dataset '{name}'; expected mol_name, p, t, bin_edges and xsecarr (found {_names(file)})"
    )


def _names(file: h5py.File) -> str:
    return ", ".join(sorted(file)[:12]) or "nothing"


def _text(file: h5py.File, name: str) -> str:
    """Text of a scalar or one-element dataset, empty where there is none."""
    data = file.get(name)
    if not isinstance(data, h5py.Dataset) or data.size is None or not 0 < data.size <= 16:
        return ""
    value = np.asarray(data[()]).ravel()[0]
    return value.decode(errors="replace").strip() if isinstance(value, bytes) else str(value).strip()


def formula(name: str) -> str:
    """Chemical formula of a species as the formats write it.

    Examples
    --------
    >>> [formula(n) for n in ("H2O", "1H2-16O", "12C-1H4__MM", "C-O2-NatAbund__HITEMP")]
    ['H2O', 'H2O', 'CH4', 'CO2']
    """
    parts = [p for p in name.split("__")[0].split("-") if p.lower() != "natabund"]
    if len(parts) == 1:
        return parts[0]
    return "".join(re.sub(r"^\d+(?=[A-Z])", "", p) for p in parts)


def _check_molecule(path: Path, file: h5py.File, species: str) -> None:
    name = _text(file, "mol_name") or _text(file, "key_iso_ll")
    if not name:
        _dataset(path, file, "xsecarr")  # a k-table or something else altogether: say that first
        raise UserError(f"{path}: no dataset 'mol_name'; cannot tell whether these are cross sections of {species}")
    if formula(name) != species:
        raise UserError(f"{path}: cross sections of {name}; expected {species}: give the file of {species}")


def _axis(path: Path, file: h5py.File, name: str) -> np.ndarray:
    data = _dataset(path, file, name)
    if data.ndim != 1 or not 2 <= data.shape[0] <= MOST_VALUES:
        raise UserError(f"{path}: '{name}' has shape {data.shape}; expected a list of {AXIS_NAMES[name]}")
    values = np.asarray(data[()], dtype=float)
    if not np.isfinite(values).all() or (values <= 0).any() or (np.diff(values) <= 0).any():
        raise UserError(f"{path}: '{name}' does not ascend through positive, finite {AXIS_NAMES[name]}")
    return values


def _unit(path: Path, data: h5py.Dataset, known: dict[str, float], default: str) -> float:
    unit = data.attrs.get("units", default)
    text = unit.decode(errors="replace") if isinstance(unit, bytes) else str(unit)
    key = re.sub(r"[\s^*(){}]|\*\*", "", text).lower()
    if key not in known:
        raise UserError(f"{path}: {data.name} is in {text!r}; expected one of {', '.join(known)}")
    return known[key]


def _layout(path: Path, file: h5py.File) -> _Layout:
    if _text(file, "temperature_grid_type") not in ("", "regular"):
        raise UserError(f"{path}: temperatures depend on pressure; expected the same temperatures at all pressures")
    values = _dataset(path, file, "xsecarr")
    pressure, temperature, nu = (_axis(path, file, name) for name in AXIS_NAMES)
    expected = (pressure.size, temperature.size, nu.size)
    if values.shape != expected:
        raise UserError(f"{path}: 'xsecarr' has shape {values.shape}; expected (p, t, bin_edges) = {expected}")
    bar = _unit(path, _dataset(path, file, "p"), BAR_PER, "bar")
    return _Layout(pressure * bar, temperature, nu, _unit(path, values, CM2, "cm2/molecule"))


def _check_cover(path: Path, layout: _Layout, grid: Grid, clamp: bool) -> None:
    low, high = grid.window
    if layout.nu[0] > low or layout.nu[-1] < high:
        raise UserError(
            f"{path}: covers {layout.nu[0]:g}-{layout.nu[-1]:g} cm-1; expected all of {low:g}-{high:g} cm-1"
        )
    cold, hot = grid.temperatures[[0, -1]]
    if not clamp and (layout.temperature[0] > cold or layout.temperature[-1] < hot):
        raise UserError(
            f"{path}: covers {layout.temperature[0]:g}-{layout.temperature[-1]:g} K; expected all of "
            f"{cold:g}-{hot:g} K: --clamp takes the nearest temperature beyond"
        )


def _places(nodes: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Left neighbour among `nodes` and share of the right one, for each of `wanted`; held at the ends."""
    left = np.clip(np.searchsorted(nodes, wanted, side="right") - 1, 0, nodes.size - 2)
    return left, np.clip((wanted - nodes[left]) / (nodes[left + 1] - nodes[left]), 0.0, 1.0)


def _at_temperatures(path: Path, file: h5py.File, layout: _Layout, p: int, grid: Grid) -> np.ndarray:
    """Return ln sigma (T, nu) at the file's pressure number `p`: one spectrum at a time, only the window."""
    first = max(int(np.searchsorted(layout.nu, grid.window[0], side="right")) - 1, 0)
    last = min(int(np.searchsorted(layout.nu, grid.window[1], side="left")) + 1, layout.nu.size)
    last = max(last, first + 2)
    left, share = _places(layout.nu[first:last], grid.nu)
    needed = np.clip(np.searchsorted(layout.temperature, grid.temperatures[[0, -1]]) + [-2, 2], 0, None)
    values, rows = _dataset(path, file, "xsecarr"), {}
    for t in range(*np.minimum(needed, layout.temperature.size)):
        sigma = np.asarray(values[p, t, first:last], dtype=float) * layout.cm2
        if not np.isfinite(sigma).all() or (sigma < 0).any():
            what = "negative" if np.isfinite(sigma).all() else "not finite"
            raise UserError(
                f"{path}: a cross section at {layout.pressure[p]:g} bar, {layout.temperature[t]:g} K is {what}; "
                "expected finite values, none negative: download it again"
            )
        below, above = np.log(sigma[left] + FLOOR), np.log(sigma[left + 1] + FLOOR)
        rows[t] = ((1 - share) * below + share * above).astype(np.float32)
    lower, weight = _places(np.log(layout.temperature), np.log(grid.temperatures))
    return np.stack(
        [(1 - np.float32(w)) * rows[i] + np.float32(w) * rows[i + 1] for i, w in zip(lower, weight, strict=True)]
    )


def _meta(path: Path, file: h5py.File, layout: _Layout, grid: Grid) -> dict[str, Any]:
    """Provenance of an imported list."""
    kind = "petitRADTRANS 3" if "petitRADTRANS" in path.name + _text(file, "Date_ID") else "TauREx/ExoMolOP"
    cold, hot = layout.temperature[[0, -1]]
    inside = layout.nu[(layout.nu >= grid.window[0]) & (layout.nu <= grid.window[1])]
    list_name = _text(file, "key_iso_ll") or path.name.split(".")[0]
    papers = {"petitRADTRANS 3": "Molliere et al. 2019", "TauREx/ExoMolOP": "Chubb et al. 2021"}
    doi = _text(file, "DOI")
    resolution = float(np.median(inside[:-1] / np.diff(inside))) if inside.size > 1 else 0.0
    ours = (grid.points - 1) / np.log(grid.window[1] / grid.window[0])
    meta: dict[str, Any] = {
        "provenance": f"{kind} cross sections {path.name} ({list_name}), interpolated to the grid points",
        "citation": f"{papers[kind]}; {doi}" if doi else papers[kind],
        "resolution of the file": round(resolution),
        "temperature of the file [K]": [float(cold), float(hot)],
        "pressure of the file [bar]": [float(layout.pressure[0]), float(layout.pressure[-1])],
    }
    if resolution < 0.99 * ours:
        meta["coarser than the grid"] = f"R = {ours:.0f} there: lines between the points of the file are not seen"
    held = grid.temperatures[(grid.temperatures < cold) | (grid.temperatures > hot)]
    if held.size:
        meta["temperatures clamped to the file [K]"] = [round(float(t), 2) for t in held]
    low, high = layout.pressure[[0, -1]] * (1 - 1e-9, 1 + 1e-9)
    held = grid.pressures[(grid.pressures < low) | (grid.pressures > high)]
    if held.size:
        meta["pressures held at the edge of the file [bar]"] = [float(f"{p:.4g}") for p in held]
    return meta
