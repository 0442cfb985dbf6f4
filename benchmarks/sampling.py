"""Sampling noise of the modelling grid at R = 2700 against 160,000 points, and what more points would cost.

    python benchmarks/sampling.py [--layers 16] [--share 0.2] [--json]
    python benchmarks/sampling.py --cost [--batch 16] [--json]

Noise: the two Sonora Elf Owl atmospheres, base lists summed line by line at 160,000 points in even stretches that make
up `--share` of the detector's range. The flux at a point depends on no other, so a coarser grid is every 2nd to 16th of
the points; the stretches' edges are left out. Beside the finest grid, each is compared with the one twice finer: what
the two comparisons differ by tells how much the last one misses.

Cost: processor time and memory of the forward model, parameter set `full`, 60 layers. A larger grid is made of the
packaged one's blocks, repeated: the spectra mean nothing, the work is that of so many points. Then fewer functions of
temperature per list (the first ones are the best of that number) at 20,000 points: cost, and error against 14.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import time
from types import SimpleNamespace
from unittest import mock

import elfowl
import jax
import jax.numpy as jnp
import numpy as np
import opacity

from kappaflow.build.tables.opacity_table import GRID
from kappaflow.model.arrays import on_device
from kappaflow.model.detector_matrix import prepare_detector
from kappaflow.model.forward import ForwardModel
from kappaflow.physics.detector import Detector
from kappaflow.physics.emission import spectra
from kappaflow.tables.opacity import load_opacity

FINEST = 160_000
POINTS = (10_000, 20_000, 40_000, 80_000)
STRETCH = 20.0  # cm-1
WAVES = (2.87, 5.27)  # um, the detector's ends
EDGE = 2.8  # cm-1: five standard deviations of the line-spread function at 3484 cm-1, 2.87 um
TERMS = (12, 10, 8)


def stretches(share):
    """Return the fine grid and the indices of `share` of what the detector sees, one array per stretch of 20 cm-1."""
    nu = dataclasses.replace(GRID, points=FINEST).nu
    first, last = 1e4 / WAVES[1] - EDGE, 1e4 / WAVES[0] + EDGE
    count = int((last - first) / STRETCH)
    chosen = np.flatnonzero(np.diff(np.floor(np.arange(count) * share), prepend=-1.0) > 0)
    return nu, [np.arange(*np.searchsorted(nu, first + STRETCH * np.array([i, i + 1]))) for i in chosen]


def fine_flux(path, layers, nu):
    """Emergent flux at the points `nu`, from line-by-line cross sections at them."""
    table = load_opacity()
    nodes = table.temperature.size
    pressure, profile, gravity, *_ = elfowl.read(path)
    with mock.patch.object(opacity, "GRID", SimpleNamespace(nu=nu, temperatures=GRID.temperatures)):
        exact = opacity.exact_tables(pressure, profile, layers)

    def line_by_line(self, species, name, log_pressure):
        rows = np.stack([exact[species][round(float(p), 9)] for p in log_pressure])
        return np.broadcast_to(rows[:, None], (rows.shape[0], nodes, rows.shape[1]))

    with (
        mock.patch.object(elfowl, "load_opacity", return_value=dataclasses.replace(table, nu=nu)),
        mock.patch.object(type(table), "ln_sigma", line_by_line),
    ):
        return elfowl.ours(pressure, profile, gravity, layers)[1]


def noise(path, layers, share):
    """Rms and median of ln(flux ratio) at R = 2700 for every size of grid."""
    nu, parts = stretches(share)
    index = np.concatenate(parts)
    flux = np.zeros(nu.size)
    flux[index] = fine_flux(path, layers, nu[index])
    smooth = {points: [] for points in (*POINTS, FINEST)}
    for part in parts:
        low, high = nu[part[0]] + EDGE, nu[part[-1]] - EDGE
        wave = np.exp(np.arange(np.log(1e4 / high), np.log(1e4 / low), 0.5 / elfowl.POWER))
        for points, found in smooth.items():
            step = FINEST // points
            own = part[part % step == 0][::-1]
            found.append(elfowl.smooth(1e4 / nu[own], flux[own], wave))
    ln = {points: np.log(np.concatenate(found)) for points, found in smooth.items()}
    numbers = {"file": path.name, "centres": int(ln[FINEST].size)}
    for points in POINTS:
        error, step = ln[points] - ln[FINEST], ln[points] - ln[2 * points]
        numbers[f"rms at {points}"] = round(float(np.sqrt((error**2).mean())), 4)
        numbers[f"median at {points}"] = round(float(np.median(error)), 4)
        numbers[f"rms at {points} against twice as many"] = round(float(np.sqrt((step**2).mean())), 4)
    return numbers


def sized(tables, points, terms):
    """Repeat the blocks of `tables` up to `points`, with the base lists alone and `terms` functions of temperature."""
    lines = tables.lines
    first = np.asarray(lines.first)
    packaged = np.asarray(lines.basis)
    count = -(-points // packaged.shape[-1])
    block = np.arange(count) % packaged.shape[0]
    basis = np.empty((count, packaged.shape[1], first.size, terms, packaged.shape[-1]), np.float32)
    for to, source in enumerate(block):
        basis[to] = packaged[source][:, first, :terms]
    changed = lines._replace(
        first=jnp.arange(first.size),
        loading=lines.loading[first][..., :terms],
        basis=jnp.asarray(basis),
        fourier=lines.fourier[block],
        nodes=lines.nodes[block],
    )
    nu = dataclasses.replace(GRID, points=points).nu
    return tables._replace(lines=changed, detector=on_device(Detector, prepare_detector(nu, 2)))


def cost(batch):
    """Processor milliseconds per spectrum and memory against points and terms, one run on one machine."""
    model = ForwardModel.load(parameters="full")
    chosen = model.parameters
    rng = np.random.default_rng(0)
    theta = rng.uniform(chosen.low, chosen.high, (batch, chosen.low.size)).astype(np.float32)
    field = np.zeros((batch, len(chosen.species), chosen.coefficients), np.float32)
    lists = np.zeros(len(chosen.species), np.int32)
    run = jax.jit(spectra)
    rows = sum(len(names) for names in model.names.values())

    def measure(points, terms):
        tables = sized(model.tables, points, terms)
        flux, spent = np.asarray(run(theta, field, lists, tables)), []
        for _ in range(2):
            start = time.process_time()
            np.asarray(run(theta, field, lists, tables))
            spent.append(time.process_time() - start)
        return flux, 1e3 * min(spent) / batch, tables.lines.basis.nbytes * rows / len(lists) / 1e9

    out = {"batch": batch, "points": {}, "terms": {}}
    reference = None
    for points in POINTS:
        flux, spent, size = measure(points, 14)
        reference = flux if points == GRID.points else reference
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        out["points"][points] = {"core ms": spent, "tables of all lists, GB": size, "peak GB": peak}
    for terms in TERMS:
        flux, spent, _ = measure(GRID.points, terms)
        error = np.sqrt((np.log(flux / reference) ** 2).mean(axis=1))
        quantiles = dict(zip(("median", "p95", "worst"), np.quantile(error, (0.5, 0.95, 1.0)).tolist(), strict=True))
        out["terms"][terms] = {"core ms": spent, **{f"rms, {name}": value for name, value in quantiles.items()}}
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--share", type=float, default=0.2, help="of the range; 1 takes five times as long")
    parser.add_argument("--cost", action="store_true", help="time and memory instead of the noise")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.cost:
        print(json.dumps(cost(options.batch), indent=None if options.json else 2))
        return
    for path in sorted((opacity.DATA / "models").glob("*.nc")):
        numbers = noise(path, options.layers, options.share)
        show = json.dumps(numbers) if options.json else "\n  ".join(f"{k}: {v}" for k, v in numbers.items())
        print(show, flush=True)


if __name__ == "__main__":
    main()
