"""Small made-up opacity and chemistry tables, shaped like the packaged ones."""

import numpy as np

from kappaflow.parameters import SPECIES, TRACES
from kappaflow.tables.opacity import LineList, OpacityTable

LISTS = {s: ("base", "alternative") if s in ("H2O", "CH4", "CO", "CO2") else ("base",) for s in (*SPECIES, *TRACES)}
STRENGTH = {"H2O": 1e-20, "CH4": 1e-19, "CO": 1e-19, "CO2": 1e-18, "NH3": 3e-20, "H2S": 1e-21, "PH3": 1e-19}
VMR = (-3.3, -4.0, -3.5, -7.0, -5.0, -5.0, np.log10(0.84), np.log10(0.16))  # log10, in the order of COLUMNS


def opacity_table(points=1000, lines=300, seed=0):
    """Lines as random peaks in ln sigma, with a lower energy and a pressure dependence per point: exactly of rank 3."""
    rng = np.random.default_rng(seed)
    nu = np.geomspace(1850.0, 3550.0, points)
    log_pressure = np.linspace(-5.0, 3.0, 13)
    temperature = np.geomspace(150.0, 2000.0, 14)
    p, t = np.meshgrid(log_pressure, temperature, indexing="ij")
    functions = np.stack([-(1 / t - 1 / 296), 0.1 * p, np.log(296 / t)], axis=-1)

    def line_list(strength):
        peaks = np.zeros(points)
        centre = rng.uniform(1850, 3550, lines)
        for c, height in zip(centre, rng.uniform(0, 8, lines), strict=True):
            peaks = np.maximum(peaks, height / (1 + ((nu - c) / 0.5) ** 2))
        basis = np.stack([2000 * (1 - peaks / 10), 3 - peaks, np.full(points, 1.5)])
        return LineList(np.log(strength) + peaks - 5, functions, basis)

    lists = {s: {name: line_list(STRENGTH[s]) for name in names} for s, names in LISTS.items()}
    return OpacityTable(nu, log_pressure, temperature, lists, {"synthetic": True})


def chemistry_table(layers):
    """The same composition everywhere, in the shape that the lookup wants."""
    values = np.broadcast_to(np.array(VMR), (6, 8, layers, 10, 8)).copy()
    return {
        "coefficients": values,
        "co": np.linspace(0.1, 1.5, 6),
        "mh_grid": np.array([-1.0, 0.5]),
        "x_grid": np.array([np.log(350.0), 0.3]),
        "mass": np.array([1.34, 0.013, 0.007]),
        "he": np.array(0.085),
    }
