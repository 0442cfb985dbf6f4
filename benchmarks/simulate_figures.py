"""The figures of docs/simulate.md: real masks and error arrays beside drawn ones.

    python benchmarks/simulate_figures.py SPECTRA OUT

SPECTRA is the folder of real spectra (../shared/data/spectra), OUT the folder of the figures.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from kappaflow.build.tables.mask_statistics import read_spectra
from kappaflow.instrument import GAP
from kappaflow.simulation.masks import MaskModel
from kappaflow.simulation.noise import ErrorFamily, statistics
from kappaflow.spectra import masked_median

LABELS = {
    "CWISEP_J1935": "CWISEP J1935",
    "WISEA_J0825": "WISEA J0825",
    "WISE_J0146": "WISE J0146B",
    "WISE_J0535": "WISE J0535",
    "WISE_J1541": "WISE J1541",
    "seda_2M0415": "2MASS J0415",
    "ucdmcmc": "Wolf 1130C",
}


def label(name):
    return next(text for start, text in LABELS.items() if name.startswith(start))


def positive(spectrum):
    """Flux without noise and holes, as a stand-in for a simulated one."""
    flux = np.interp(spectrum.wavelength, spectrum.wavelength[spectrum.good], spectrum.flux[spectrum.good])
    smooth = np.convolve(np.pad(flux, 7, mode="edge"), np.ones(15) / 15, "valid")
    return np.clip(smooth, 1e-2 * np.median(smooth), None).astype(np.float32)


def drawn(spectra, each, seed=0):
    """Masks (on the forward model's pixels, which leave the gap out) and errors for the fluxes of the real spectra."""
    rng = np.random.default_rng(seed)
    ladder = spectra[0].wavelength
    outside = (ladder < GAP[0]) | (ladder > GAP[1])
    wavelength = ladder[outside]
    masks, arrays = [], []
    for spectrum in spectra:
        flux = np.tile(positive(spectrum)[outside], (each, 1))
        uniform = rng.random((each, MaskModel.UNIFORMS), dtype=np.float32)
        kinds = rng.random((each, ErrorFamily.UNIFORMS), dtype=np.float32)
        normal = rng.standard_normal((each, ErrorFamily.NORMALS), dtype=np.float32)
        model = MaskModel(wavelength)
        mask = model.draw(flux, uniform, rng.random(flux.shape, dtype=np.float32))
        error = ErrorFamily(wavelength).draw(flux, kinds, normal, rng.random(flux.shape, dtype=np.float32))
        snr = statistics()["snr"][len(arrays)]
        good = np.broadcast_to(spectrum.good[outside], flux.shape)
        arrays.append(error * (masked_median(flux / error, good) / snr)[:, None])
        error *= (masked_median(flux / error, mask) / snr)[:, None]
        clipped = model.clip(mask, flux + error * rng.standard_normal(flux.shape, dtype=np.float32), uniform)
        masks.append(np.zeros((each, ladder.size), bool))
        masks[-1][:, outside] = clipped
    return np.concatenate(masks), arrays, outside


def image(axes, wavelength, masks, names):
    axes.imshow(
        ~masks,
        aspect="auto",
        interpolation="nearest",
        cmap="Greys",
        extent=(wavelength[0], wavelength[-1], len(masks), 0),
        vmin=0,
        vmax=1.2,
    )
    axes.set_yticks(np.arange(len(masks)) + 0.5, names)
    axes.tick_params(axis="y", length=0)
    for i in range(1, len(masks)):
        axes.axhline(i, color="white", lw=1.5)


def mask_figure(spectra, out):
    wavelength = spectra[0].wavelength
    masks, _, outside = drawn(spectra, 400)
    fraction = masks[:, outside].mean(axis=1)
    rng = np.random.default_rng(3)
    rows = rng.choice(np.flatnonzero(fraction < 1), 14, replace=False)
    rows = rows[np.argsort(-fraction[rows])]
    figure, (top, middle, bottom) = plt.subplots(
        3, 1, figsize=(8, 8.2), height_ratios=(7, 14, 9), constrained_layout=True
    )
    image(top, wavelength, np.array([s.good for s in spectra]), [label(s.name) for s in spectra])
    top.set_title("real masks (black: bad or absent)", loc="left", fontsize=10)
    image(middle, wavelength, masks[rows], [f"{f:.2f}" for f in fraction[rows]])
    middle.set_title("drawn masks, with their good fraction", loc="left", fontsize=10)
    middle.set_xlabel("wavelength (µm)")
    bins = np.linspace(0.3, 1.0, 36)
    bottom.hist(fraction, bins=bins, color="0.75", weights=np.full(fraction.size, 1 / fraction.size))
    median = np.median(fraction[fraction < 1])
    bottom.axvline(median, color="C0", label=f"median of the drawn masks: {median:.3f}")
    bottom.axvline(0.468, color="C3", ls="--", label="median of the paper's 105 real masks: 0.468")
    real = [s.good[outside].mean() for s in spectra]
    bottom.plot(real, np.full(len(real), 0.012), "kv", ms=6, label="the seven real spectra above")
    bottom.set_xlabel("good fraction of the pixels outside the gap")
    bottom.set_ylabel("share of spectra")
    bottom.legend(frameon=False, fontsize=9)
    figure.savefig(out / "simulate-masks.png", dpi=130)


def error_figure(spectra, out):
    _, arrays, outside = drawn(spectra, 1500)
    figure, axes = plt.subplots(4, 2, figsize=(9, 9.5), sharex=True, sharey=True, constrained_layout=True)
    axes = axes.ravel()
    for spectrum, errors, axis in zip(spectra, arrays, axes, strict=False):
        good, w = spectrum.good, spectrum.wavelength
        flux = positive(spectrum)
        scale = np.median(flux[good]) / np.median((spectrum.flux / spectrum.error)[good])
        relative = errors / scale
        bands = np.full((5, w.size), np.nan)
        bands[:, outside] = np.quantile(relative, (0.01, 0.16, 0.5, 0.84, 0.99), axis=0)
        bands[:, (w < w[good][0]) | (w > w[good][-1])] = np.nan  # no real flux to draw for
        axis.fill_between(w, bands[0], bands[4], color="C0", alpha=0.18, lw=0, label="drawn, 1 to 99 %")
        axis.fill_between(w, bands[1], bands[3], color="C0", alpha=0.35, lw=0, label="drawn, 16 to 84 %")
        axis.plot(w, bands[2], color="C0", lw=1, label="drawn, median")
        axis.plot(w[good], (spectrum.error / scale)[good], "k,", alpha=0.6)
        axis.plot([], [], "k.", ms=3, label="real")
        axis.set_title(
            f"{label(spectrum.name)}, SNR {np.median((spectrum.flux / spectrum.error)[good]):.0f}", fontsize=9
        )
        axis.set_yscale("log")
        axis.set_ylim(0.06, 6)
    axes[-1].axis("off")
    axes[-1].legend(*axes[0].get_legend_handles_labels(), frameon=False, loc="center")
    for axis in (axes[5], axes[6]):
        axis.set_xlabel("wavelength (µm)")
        axis.tick_params(labelbottom=True)
    for axis in axes[:7:2]:
        axis.set_ylabel("error / (median flux / SNR)")
    figure.savefig(out / "simulate-errors.png", dpi=130)


if __name__ == "__main__":
    found = read_spectra(sys.argv[1])
    mask_figure(found, Path(sys.argv[2]))
    error_figure(found, Path(sys.argv[2]))
