"""The figures of docs/chemistry.md, and the numbers of its comparisons with outside tables.

python benchmarks/chemistry_figures.py [--data ../shared/data] [--out docs/figures] [--json]
"""

import argparse
import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from kappaflow.build.sources.fastchem import Solver, find_data
from kappaflow.model.arrays import on_device
from kappaflow.model.prepare import prepare_chemistry
from kappaflow.parameters import SPECIES
from kappaflow.physics.composition import EquilibriumTable, equilibrium, quenched_composition
from kappaflow.tables.chemistry import load_chemistry
from kappaflow.tables.cia import PAIRS, load_cia

LABELS = dict(zip(SPECIES, ("H$_2$O", "CH$_4$", "CO", "CO$_2$", "NH$_3$", "H$_2$S"), strict=True))
COLOURS = dict(zip(SPECIES, ("#1f77b4", "#2ca02c", "#d62728", "#9467bd", "#ff7f0e", "#8c564b"), strict=True))
HILL = dict(zip(SPECIES, ("H2O1", "C1H4", "C1O1", "C1O2", "H3N1", "H2S1"), strict=True))
MATTERS = -8.0


def at_layers(log_pressure):
    return on_device(EquilibriumTable, prepare_chemistry(load_chemistry(), np.asarray(log_pressure)))


def lookup(log_pressure, temperature, co=0.55, mh=0.0):
    """log10 VMR (point, species) of single points, each at its own pressure; few at a time, or memory goes."""
    rows = []
    for start in range(0, len(temperature), 60):
        part = slice(start, start + 60)
        T = jnp.asarray(temperature[part], jnp.float32)
        ln, _ = equilibrium(at_layers(log_pressure[part]), T, jnp.float32(co), jnp.float32(mh))
        rows.append(np.asarray(ln).T / np.log(10.0))
    return np.concatenate(rows)


def summary(ours, theirs):
    """Median and 95th percentile of |difference| in dex, by species, where theirs exceeds 1e-8."""
    out = {}
    for s, name in enumerate(SPECIES):
        keep = theirs[:, s] > MATTERS
        if keep.any():
            d = ours[keep, s] - theirs[keep, s]
            out[name] = {
                "n": int(keep.sum()),
                "median_dex": round(float(np.median(d)), 4),
                "p95_abs_dex": round(float(np.quantile(np.abs(d), 0.95)), 4),
            }
    return out


def cliff(out):
    co = np.unique(np.concatenate([np.linspace(0.8, 1.1, 61), np.linspace(0.95, 0.97, 61)]))
    cases = ((1500.0, -2.0), (1000.0, -4.0), (2000.0, 0.0))
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), sharey=True, layout="constrained")
    data = find_data()
    for axis, (T, log_p) in zip(axes, cases, strict=True):
        table = at_layers([log_p])
        fine = np.linspace(0.8, 1.1, 1500)
        step = jax.jit(jax.vmap(lambda c, T=T, table=table: equilibrium(table, jnp.array([T]), c, 0.0)[0][:, 0]))
        curves = np.asarray(step(jnp.asarray(fine))) / np.log(10.0)
        live = np.array([Solver(data, c, 0.0).log_vmr(np.array([T]), np.array([10.0**log_p]))[0] for c in co])
        for s, name in enumerate(SPECIES):
            axis.plot(fine, curves[:, s], color=COLOURS[name], lw=1, label=LABELS[name])
            axis.plot(co, live[:, s], ".", color=COLOURS[name], ms=3)
        axis.set(title=f"{T:.0f} K, {10.0**log_p:g} bar, [M/H] = 0", xlabel="C/O", ylim=(-12, -2.5))
    axes[0].set_ylabel("log$_{10}$ VMR")
    axes[0].legend(fontsize=8, ncols=2)
    figure.suptitle("Table (lines) and live FastChem (dots) across the cliff at C/O = 0.96", fontsize=10)
    figure.savefig(out / "chemistry-cliff.png", dpi=130)


def read_visscher(path):
    with path.open() as file:
        names = file.readline().split()
        table = np.array([[float(v) for v in line.split()] for line in file])
    return {name: table[:, i] for i, name in enumerate(names)}


def visscher(data, out):
    grid = read_visscher(data / "chemistry" / "picaso_visscher" / "sonora_2121grid_feh0.0_co0.55.txt")
    T, log_p = grid["T(K)"], grid["P(bar)"]
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), sharey=True, layout="constrained")
    for axis, wanted in zip(axes, (-2.0, 0.0, 1.5), strict=True):
        level = np.unique(log_p)[np.abs(np.unique(log_p) - wanted).argmin()]
        keep = (log_p == level) & (T >= 150) & (T <= 3500)
        ours = lookup(log_p[keep], T[keep])
        for s, name in enumerate(SPECIES):
            axis.plot(T[keep], ours[:, s], color=COLOURS[name], lw=1, label=LABELS[name])
            axis.plot(T[keep], np.log10(grid[name][keep]), ".", color=COLOURS[name], ms=3)
        axis.set(title=f"{10.0**level:.3g} bar", xlabel="T [K]", ylim=(-12, -2.5), xlim=(150, 3500))
    axes[0].set_ylabel("log$_{10}$ VMR")
    axes[0].legend(fontsize=8, ncols=2)
    figure.suptitle("This table (lines), Visscher grid with rainout, C/O = 0.55 (dots)", fontsize=10)
    figure.savefig(out / "chemistry-visscher.png", dpi=130)
    keep = (T >= 300) & (T <= 2500) & (log_p >= -5) & (log_p <= 3)
    keep &= np.random.default_rng(0).uniform(size=T.size) < 300 / keep.sum()
    theirs = np.log10(np.stack([grid[name][keep] for name in SPECIES], axis=1))
    return summary(lookup(log_p[keep], T[keep]), theirs)


def read_fastchem(path):
    with path.open() as file:
        names = [n.strip() for n in file.readline().lstrip("#").split("\t")]
        table = np.array([[float(v) for v in line.split()] for line in file if line.strip()])
    column = {name: i for i, name in enumerate(names) if name}
    vmr = np.stack([table[:, column[HILL[s]]] for s in SPECIES], axis=1)
    return np.log10(table[:, 0]), table[:, 1], np.log10(np.maximum(vmr, 1e-99))


def benchmarks(data, out):
    folder = data / "chemistry" / "fastchem_benchmarks"
    files = (
        ("Brown dwarf, Sonora", "Brown_dwarf_Sonora_chemistry.dat", "Brown_dwarf_Sonora_chemistry_rainout.dat"),
        ("Gliese 229 B", "Gliese_229b_chemistry.dat", None),
    )
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    result = {}
    for axis, (title, file, rainout) in zip(axes, files, strict=True):
        log_p, T, theirs = read_fastchem(folder / file)
        inside = (log_p >= -5) & (log_p <= 3) & (T >= 150) & (T <= 3500)
        log_p, T, theirs = log_p[inside], T[inside], theirs[inside]
        ours = lookup(log_p, T, co=10 ** (8.46 - 8.69))
        result[file] = summary(ours, theirs)
        for s, name in enumerate(SPECIES):
            axis.plot(ours[:, s], log_p, color=COLOURS[name], lw=1, label=LABELS[name])
            axis.plot(theirs[:, s], log_p, ".", color=COLOURS[name], ms=3)
        if rainout:
            log_p, T, rained = read_fastchem(folder / rainout)
            result[rainout] = summary(lookup(log_p, T, co=10 ** (8.46 - 8.69)), rained)
            for s, name in enumerate(SPECIES):
                axis.plot(rained[:, s], log_p, ":", color=COLOURS[name], lw=1.2)
        axis.set(title=title, xlabel="log$_{10}$ VMR", xlim=(-12, -2.5))
        axis.invert_yaxis()
    axes[0].set_ylabel("log$_{10}$ P [bar]")
    axes[0].legend(fontsize=8)
    figure.suptitle("This table (lines), FastChem's own outputs (dots: gas phase; dotted: with rainout)", fontsize=10)
    figure.savefig(out / "chemistry-benchmarks.png", dpi=130)
    return result


def quenching(out):
    log_p = np.linspace(-4.95, 2.95, 80)
    T = jnp.asarray(np.interp(log_p, [-5, -3, -1, 1, 3], [450.0, 500.0, 750.0, 1400.0, 2400.0]), jnp.float32)
    table = at_layers(log_p)
    ln_p = jnp.asarray(log_p * np.log(10.0), jnp.float32)
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), sharey=True, layout="constrained")
    for axis, kzz in zip(axes, (6.0, 9.0), strict=True):
        free = np.asarray(equilibrium(table, T, 0.55, 0.0)[0]) / np.log(10.0)
        mixed = np.asarray(quenched_composition(table, T, ln_p, (0.55, 0.0, kzz, 5.0))[0]) / np.log(10.0)
        for s, name in enumerate(SPECIES):
            axis.plot(free[s], log_p, ":", color=COLOURS[name], lw=1)
            axis.plot(mixed[s], log_p, color=COLOURS[name], lw=1.5, label=LABELS[name])
        axis.set(title=f"log kzz = {kzz:g}, log g = 5", xlabel="log$_{10}$ VMR", xlim=(-12, -2.5))
    axes[0].invert_yaxis()
    axes[0].set_ylabel("log$_{10}$ P [bar]")
    axes[0].legend(fontsize=8, loc="upper left")
    figure.suptitle("Equilibrium (dotted) and quenched (solid), T = 450 to 2400 K", fontsize=10)
    figure.savefig(out / "chemistry-quench.png", dpi=130)


def continuum(out):
    table = load_cia()
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, (pair, name) in zip(axes, enumerate(PAIRS), strict=True):
        for colour, T in zip(("#1f77b4", "#2ca02c", "#d62728", "black"), (300.0, 600.0, 1000.0, 2000.0), strict=True):
            t = int(np.flatnonzero(table.temperature == T)[0])
            axis.plot(table.nu, table.families["borysow"][pair, t], color=colour, label=f"{T:.0f} K")
            axis.plot(table.nu, table.families["petitradtrans"][pair, t], "--", color=colour)
        axis.set(title=f"{name}: Borysow (solid), petitRADTRANS (dashed)", xlabel="wavenumber [cm$^{-1}$]")
    axes[0].set_ylabel("log$_{10}$ k [cm$^5$ molecule$^{-2}$]")
    axes[0].legend(fontsize=8)
    figure.savefig(out / "chemistry-cia.png", dpi=130)
    ratio = 10.0 ** (table.families["petitradtrans"].astype(float) - table.families["borysow"])
    return {
        name: {
            f"{T:.0f} K": [round(float(v), 2) for v in np.quantile(ratio[pair, t], (0.0, 0.5, 1.0))]
            for t, T in enumerate(table.temperature)
            if T in (300.0, 500.0, 700.0, 1000.0, 1500.0, 2000.0, 3000.0)
        }
        for pair, name in enumerate(PAIRS)
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("KAPPAFLOW_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=default)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    cliff(options.out)
    quenching(options.out)
    result = {
        "visscher": visscher(options.data, options.out),
        **benchmarks(options.data, options.out),
        "cia ratio, petitradtrans over borysow (min, median, max)": continuum(options.out),
    }
    print(json.dumps(result, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
