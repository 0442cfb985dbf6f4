"""Spectra and networks of a made-up forward model, for the tests of retrievals."""

import numpy as np
import torch
from array_batches import ArrayBatches
from inference_toy import small, trainer

from kappaflow.inference import Posterior
from kappaflow.instrument import PIXEL
from kappaflow.observe import Spectrum
from kappaflow.parameters import PARAMETERS, bounds
from kappaflow.simulation.opacity_draws import coefficient_sigma, sigma_table
from kappaflow.simulation.toy import ToyModel

MODEL = ToyModel()
SNR = 40.0


def simulated(n, seed, vary):
    rng = np.random.default_rng(seed)
    low, high = bounds()
    theta = low + (high - low) * rng.random((n, len(PARAMETERS)))
    field = rng.standard_normal((n, 54)) * coefficient_sigma(sigma_table()).ravel() if vary else None
    flux = MODEL(theta, field)
    return theta, flux, np.median(flux, axis=1, keepdims=True) / SNR * np.ones_like(flux)


def train_networks(folder):
    """Two marginalized networks, m0 and m1, and a control, c0."""
    torch.set_num_threads(1)
    for name, seed, vary in (("m0", 0, True), ("m1", 1, True), ("c0", 0, False)):
        data = ArrayBatches(*simulated(1500, 5, vary), seed=5)
        trainer(folder / name, small(), data=data, seed=seed, epochs=3).fit()
    return folder


def observed(seed=11, snr=SNR):
    theta, flux, error = simulated(1, seed, False)
    error = error * SNR / snr
    noisy = flux + error * np.random.default_rng(seed).standard_normal(flux.shape)
    return theta[0], Spectrum(MODEL.wavelength, noisy[0], error[0], np.ones(MODEL.pixels, bool), {"files": ("x",)})


def posteriors(networks):
    return Posterior.load(networks / "m0", networks / "m1"), Posterior.load(networks / "c0")


def write_text(path, spectrum):
    rows = zip(spectrum.wavelength, spectrum.flux, spectrum.error, strict=True)
    text = "\n".join(f"{w:.8f} {f:.8e} {e:.8e}" for w, f, e in rows)
    path.write_text("# wave(um) flux(mJy) err(mJy)\n" + text, encoding="utf-8")
    return path


def fine_text(seed):
    """A made-up spectrum on the detector's own pixels, as text."""
    _, coarse = observed(seed)
    wave = np.arange(coarse.wavelength[0], coarse.wavelength[-1], PIXEL)
    flux, error = (np.interp(wave, coarse.wavelength, values) for values in (coarse.flux, coarse.error))
    rows = "\n".join(f"{w:.6f} {f:.6e} {3 * e:.6e}" for w, f, e in zip(wave, flux, error, strict=True))
    return f"# wave(um) flux(mJy) err(mJy)\n{rows}\n".encode()
