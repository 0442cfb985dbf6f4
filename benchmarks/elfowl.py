"""Our opacities and transfer against a Sonora Elf Owl model: its P, T and abundances in, its flux for comparison.

    python benchmarks/elfowl.py FILE.nc [FILE.nc ...] [--json] [--figure OUT.png] [--layers N]

No scale is fitted. Both spectra are brought to R = 2700 (Gaussian) and compared over 2.87-5.27 um.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from kappaflow.model.arrays import on_device
from kappaflow.model.line_terms import temperature_grid
from kappaflow.model.prepare import prepare_cia
from kappaflow.parameters import SPECIES
from kappaflow.physics.absorption import TemperatureGrid, temperature_weights
from kappaflow.physics.cloud import Air
from kappaflow.physics.continuum import CIATable
from kappaflow.physics.emission import cia_depth, column_density
from kappaflow.physics.transfer import emergent_flux, planck
from kappaflow.tables.cia import load_cia
from kappaflow.tables.opacity import load_opacity

BANDS = ((2.87, 3.2), (3.2, 3.6), (3.6, 4.0), (4.0, 4.4), (4.4, 4.8), (4.8, 5.27))  # um
POWER = 2700
WEIGHT = {"H2": 2.016, "He": 4.0026, "H": 1.008, "H2O": 18.015, "CH4": 16.043, "CO": 28.01, "CO2": 44.01}
WEIGHT |= {"NH3": 17.031, "N2": 28.014, "H2S": 34.08, "PH3": 33.998}


def read(path):
    """P [bar], T [K], mole fractions (layer,), gravity [cm s-2], wavelength [um] and flux [erg s-1 cm-2 / cm-1]."""
    with open(path, "rb") as stream:
        engine = "scipy" if stream.read(3) == b"CDF" else "h5netcdf"
    with xr.open_dataset(path, engine=engine) as file:
        order = np.argsort(file["pressure"].values)
        profile = {str(n): file[n].values[order].astype(float) for n in file.data_vars if file[n].dims == ("pressure",)}
        pressure = file["pressure"].values[order].astype(float)
        gravity = surface_gravity(path, file.attrs)
        wave, flux = file["wavelength"].values.astype(float), file["flux"].values.astype(float)
    order = np.argsort(wave)
    wave, flux = wave[order], flux[order]
    return pressure, profile, gravity, wave, flux * (wave * 1e-4) ** 2  # per cm of wavelength -> per cm-1


def surface_gravity(path, attributes):
    """Gravity [cm s-2] from the file's parameters or, without them, from `grav_G` [m s-2] in its name."""
    try:
        logg = json.loads(attributes["planet_params"])["logg"]
    except (KeyError, ValueError):
        named = re.search(r"grav_([\d.]+?)(?:_|\.nc)", Path(path).name)
        if named is None:
            raise SystemExit(f"{path}: neither planet_params nor the file name tell the gravity") from None
        return 100 * float(named[1])
    value, unit = (logg["value"], logg.get("unit", "")) if isinstance(logg, dict) else (float(logg), "")
    if "cm" not in unit and "m / s2" in unit:
        return 100 * value
    return 10**value if value < 10 else value


def ours(pressure, profile, gravity, layers):
    """Wavenumber [cm-1], emergent flux [erg s-1 cm-2 / cm-1] and the shares of layers clamped cold and hot."""
    table = load_opacity()
    level_log = np.log10(pressure)
    if layers:
        level_log = np.linspace(level_log[0], level_log[-1], layers + 1)
    layers = level_log.size - 1
    centre_log = 0.5 * (level_log[1:] + level_log[:-1])
    at = lambda log_p, y: np.interp(log_p, np.log10(pressure), y)  # noqa: E731
    mole = {n: np.exp(at(centre_log, np.log(np.maximum(profile[n], 1e-40)))) for n in WEIGHT if n in profile}
    temperature = at(centre_log, profile["temperature"])
    mu = sum(WEIGHT[n] * x for n, x in mole.items()) / sum(mole.values())
    ratio = np.diff(level_log) * np.log(10)
    air = Air(*(jnp.asarray(x) for x in (10**centre_log, ratio, temperature, mu)))
    ln_column = column_density(air, jnp.log10(gravity))
    ln_vmr = jnp.log(jnp.asarray([*(np.zeros(layers) + 1e-40 for _ in SPECIES), mole["H2"], mole["He"]]))
    cia = on_device(CIATable, prepare_cia(load_cia()))
    dtau = np.array(cia_depth(cia, air, ln_vmr, ln_column, jnp.asarray(table.nu)))
    grid = on_device(TemperatureGrid, temperature_grid(table.temperature))
    weights = np.asarray(temperature_weights(grid, jnp.asarray(temperature)))
    for species, names in table.lists.items():
        name = next(iter(names))
        for chunk in np.array_split(np.arange(layers), 8):  # a few layers at a time: all would be gigabytes
            ln_sigma = np.einsum("lt,ltn->ln", weights[chunk], table.ln_sigma(species, name, centre_log[chunk]))
            dtau[chunk] += np.exp(ln_sigma + np.asarray(ln_column)[chunk, None]) * mole[species][chunk, None]
    source = planck(jnp.asarray(table.nu), jnp.asarray(at(level_log, profile["temperature"])))
    flux = jax.jit(emergent_flux)(jnp.asarray(dtau), source)
    low, high = table.temperature[0], table.temperature[-1]
    return table.nu, np.asarray(flux), (float(np.mean(temperature < low)), float(np.mean(temperature > high)))


def smooth(wave, flux, centres):
    """Mean of `flux` under a Gaussian of FWHM = lambda / POWER at `centres`; `wave` ascending, any spacing."""
    width = np.gradient(np.log(wave))
    sigma = 1 / (POWER * np.sqrt(8 * np.log(2)))
    out = np.empty(centres.size)
    for i, c in enumerate(centres):
        first, last = np.searchsorted(wave, [c * (1 - 5 * sigma), c * (1 + 5 * sigma)])
        kernel = np.exp(-0.5 * (np.log(wave[first:last] / c) / sigma) ** 2) * width[first:last]
        out[i] = (kernel * flux[first:last]).sum() / kernel.sum()
    return out


def compare(path, layers):
    """Numbers and curves for one file."""
    pressure, profile, gravity, wave, flux = read(path)
    nu, emergent, clamped = ours(pressure, profile, gravity, layers)
    centres = np.exp(np.arange(np.log(2.87), np.log(5.27), 0.5 / POWER))
    mine, theirs = smooth(1e4 / nu[::-1], emergent[::-1], centres), smooth(wave, flux, centres)
    ln_ratio = np.log(mine / theirs)
    bands = {}
    for low, high in BANDS:
        inside = ln_ratio[(centres >= low) & (centres < high)]
        bands[f"{low}-{high}"] = {"rms": float(np.sqrt((inside**2).mean())), "median": float(np.exp(np.median(inside)))}
    numbers = {
        "file": Path(path).name,
        "rms": float(np.sqrt((ln_ratio**2).mean())),
        "median_ratio": float(np.exp(np.median(ln_ratio))),
        "bands": bands,
        "layers": layers or pressure.size - 1,
        "points": int(nu.size),
        "layers_colder_than_table": clamped[0],
        "layers_hotter_than_table": clamped[1],
    }
    return numbers, (centres, mine, theirs)


def draw(curves, path):
    """One panel of spectra and one of ratios per file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2 * len(curves), 1, figsize=(8, 4.2 * len(curves)), sharex=True, layout="constrained")
    for (numbers, (wave, mine, theirs)), top, bottom in zip(curves, axes[::2], axes[1::2], strict=True):
        top.plot(wave, theirs, lw=0.7, color="0.45", label="Sonora Elf Owl")
        top.plot(wave, mine, lw=0.7, color="C3", label="kappaflow opacity and transfer")
        top.set(yscale="log", ylabel=r"flux [erg s$^{-1}$ cm$^{-2}$ / cm$^{-1}$]")
        top.set_title(f"{numbers['file']}: rms ln ratio {numbers['rms']:.3f}", fontsize=8)
        top.legend(fontsize=8, frameon=False)
        bottom.plot(wave, np.log(mine / theirs), lw=0.6, color="C0")
        bottom.axhline(0, color="0.5", lw=0.8)
        bottom.set(ylabel="ln ratio", ylim=(-1, 1))
    axes[-1].set_xlabel(r"wavelength [$\mu$m]")
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="Sonora Elf Owl netCDF files")
    parser.add_argument("--json", action="store_true", help="one JSON object per file")
    parser.add_argument("--figure", help="write spectra and ratios to this PNG")
    parser.add_argument("--layers", type=int, default=0, help="even layers in log P; 0: the file's own levels")
    options = parser.parse_args()
    curves = [compare(path, options.layers) for path in options.files]
    for numbers, _ in curves:
        if options.json:
            print(json.dumps(numbers))
            continue
        print(
            f"{numbers['file']}\n  rms ln(flux ratio) {numbers['rms']:.4f}   median ratio {numbers['median_ratio']:.4f}"
        )
        for band, value in numbers["bands"].items():
            print(f"  {band:>9} um   rms {value['rms']:.3f}   median ratio {value['median']:.3f}")
        cold, hot = numbers["layers_colder_than_table"], numbers["layers_hotter_than_table"]
        print(f"  layers clamped to the table's temperatures: {100 * cold:.0f} % cold, {100 * hot:.0f} % hot")
    if options.figure:
        draw(curves, options.figure)


if __name__ == "__main__":
    main()
