"""Tables to arrays at the layers, one `prepare` per table: NumPy in, NumPy out, single precision."""

from __future__ import annotations

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.linalg import solve_banded

from kappaflow.constants import T_OFFSET
from kappaflow.errors import UserError
from kappaflow.model.arrays import Arrays, PreparedArrays, single
from kappaflow.model.detector_matrix import prepare_detector
from kappaflow.model.line_terms import prepare_lines
from kappaflow.parameters import KNOT_LOG_PRESSURE, PARAMETER_SETS, ParameterSet
from kappaflow.physics.composition import EquilibriumTable
from kappaflow.physics.continuum import CIATable
from kappaflow.physics.temperature import SPACING
from kappaflow.presets import Preset
from kappaflow.storage import digest_arrays
from kappaflow.tables.chemistry import ChemistryTable
from kappaflow.tables.cia import CIAFamilies
from kappaflow.tables.opacity import OpacityTable

__all__ = ["hermite", "layer_centres", "prepare", "prepare_chemistry", "prepare_cia", "prepare_layers"]

TOP, BOTTOM = -5.0, 3.0  # log10(P/bar)
VERSION = 2  # raise it when a change of the physics changes spectra


def prepare(
    opacity: OpacityTable,
    chemistry: Arrays,
    cia: Arrays,
    sizes: Preset,
    broadening: tuple[float, float] = (1.0, 0.0),
    parameters: ParameterSet = PARAMETER_SETS["paper"],
) -> PreparedArrays:
    """Bring every table to the layers, points and pixels of `sizes`.

    `chemistry` comes from `prepare_chemistry` at `layer_centres(sizes)`, `cia` from `prepare_cia`; `broadening` is as
    in `OpacityTable.ln_sigma`; the absorbers are those of `parameters`.
    """
    missing = [s for s in parameters.species if s not in opacity.lists]
    if missing:
        raise UserError(
            f"opacity: the table has no {missing[0]}, which the parameter set {parameters.name!r} needs; expected "
            f"{', '.join(parameters.species)}: build it with `kappaflow opacity build`, or take parameters 'paper'"
        )
    parts = {
        "layers": prepare_layers(sizes),
        "lines": prepare_lines(opacity, layer_centres(sizes), sizes.stride, broadening, parameters),
        "chemistry": chemistry,
        "cia": cia,
        "detector": prepare_detector(opacity.nu[:: sizes.stride], sizes.pixel_bin),
    }
    small = [chemistry[name] for name in EquilibriumTable._fields] + [cia[name] for name in CIATable._fields]
    meta = {
        "model": VERSION,
        "sizes": sizes.model_dump(include={"stride", "layers", "pixel_bin"}),
        "opacity": opacity.digest,
        "parameters": parameters.name,
        "broadening": list(broadening),
        "chemistry and cia": digest_arrays({f"{i:02d}": array for i, array in enumerate(small)}),
    }
    arrays = {f"{part}.{name}": single(array) for part, named in parts.items() for name, array in named.items()}
    return PreparedArrays(arrays, {s: tuple(opacity.lists[s]) for s in parameters.species}, meta)


def layer_centres(sizes: Preset) -> np.ndarray:
    """log10(P/bar) at the logarithmic centres of the layers, top first."""
    levels = np.linspace(TOP, BOTTOM, sizes.layers + 1)
    return 0.5 * (levels[1:] + levels[:-1])


def prepare_layers(sizes: Preset) -> dict[str, np.ndarray]:
    """Pressures [bar] and temperature interpolation: the fields of `Layers`."""
    levels, centres = np.linspace(TOP, BOTTOM, sizes.layers + 1), layer_centres(sizes)
    at = {"at_layer": hermite(centres), "at_level": hermite(levels)}
    return {
        "pressure": 10.0**centres,
        "log_ratio": np.diff(levels) * np.log(10.0),
        **{f"{place}.{name}": array for place, named in at.items() for name, array in named.items()},
    }


def hermite(log_pressure: np.ndarray) -> dict[str, np.ndarray]:
    """Weights of knots and slopes at `log_pressure` [log10 bar]: the fields of `Hermite`, for `profile`.

    Examples
    --------
    >>> weights = hermite(np.array([0.0]))["value"]  # midway between the knots at 0.1 and 10 bar
    >>> weights.tolist()
    [[0.0, 0.0, 0.5, 0.5, 0.0]]
    """
    knots = np.array(KNOT_LOG_PRESSURE)
    interval = np.clip(np.searchsorted(knots, log_pressure, side="right") - 1, 0, knots.size - 2)
    t = (np.asarray(log_pressure) - knots[interval]) / SPACING
    value = np.zeros((t.size, knots.size))
    tangent = np.zeros_like(value)
    rows = np.arange(t.size)
    value[rows, interval] = (1 + 2 * t) * (1 - t) ** 2
    value[rows, interval + 1] = t**2 * (3 - 2 * t)
    tangent[rows, interval] = t * (1 - t) ** 2 * SPACING
    tangent[rows, interval + 1] = t**2 * (t - 1) * SPACING
    return {"value": value, "tangent": tangent}


def prepare_chemistry(table: ChemistryTable, log_pressure: np.ndarray) -> dict[str, np.ndarray]:
    """Bring `table` to fixed `log_pressure` [log10 bar]: the fields of `EquilibriumTable`, float32.

    Cubic spline in log10 P; pressures outside the table take its edge.
    """
    wanted = np.asarray(log_pressure, dtype=float)
    if wanted.ndim != 1 or not np.all(np.isfinite(wanted)):
        raise UserError(f"chemistry: layer pressures have shape {wanted.shape}; expected one finite value per layer")
    wanted = np.clip(wanted, table.log_pressure[0], table.log_pressure[-1])
    values = CubicSpline(table.log_pressure, table.log_vmr, axis=2)(wanted)  # co, mh, layer, T, species
    x = np.log(table.temperature + T_OFFSET)
    fields = {
        "coefficients": _spline_coefficients(_spline_coefficients(values, axis=1), axis=3),
        "co": table.co,
        "mh_grid": np.array([table.mh[0], table.mh[1] - table.mh[0]]),
        "x_grid": np.array([x[0], (x[-1] - x[0]) / (x.size - 1)]),
        "mass": table.mass,
        "he": np.array(table.he),
    }
    return {name: array.astype(np.float32) for name, array in fields.items()}


def _spline_coefficients(values: np.ndarray, axis: int) -> np.ndarray:
    """Coefficients (n + 2) of the natural cubic B-spline through `values` (n) at even nodes along `axis`.

    (c[i-1] + 4 c[i] + c[i+1]) / 6 = v[i], and zero curvature at the ends.
    """
    rows = np.moveaxis(values, axis, 0)
    n = rows.shape[0]
    flat = rows.reshape(n, -1)
    inner = np.empty((n, flat.shape[1]))
    inner[0], inner[-1] = flat[0], flat[-1]  # zero curvature makes the end coefficient the end value
    right = 6.0 * flat[1:-1]
    right[0] -= flat[0]
    right[-1] -= flat[-1]
    bands = np.ones((3, n - 2))
    bands[1] = 4.0
    inner[1:-1] = solve_banded((1, 1), bands, right)
    first, last = 2.0 * inner[0] - inner[1], 2.0 * inner[-1] - inner[-2]
    padded = np.concatenate([first[None], inner, last[None]])
    return np.moveaxis(padded.reshape((n + 2, *rows.shape[1:])), 0, axis)


def prepare_cia(table: CIAFamilies, family: str = "borysow") -> dict[str, np.ndarray]:
    """One family of `table`: the fields of `CIATable`, float32."""
    if family not in table.families:
        raise UserError(f"cia: no family {family!r}; expected one of {', '.join(table.families)}")
    return {
        "ln_coefficient": (np.log(10.0) * table.families[family]).astype(np.float32),
        "ln_temperature": np.log(table.temperature).astype(np.float32),
        "nu_grid": np.array([table.nu[0], table.nu[1] - table.nu[0]], np.float32),
    }
