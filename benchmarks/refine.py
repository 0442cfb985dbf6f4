"""How exact is `kf.refine`, and how long does it take? On simulated spectra, whose truth is known, or on a file.

    python benchmarks/refine.py [--n 4] [--first 0] [--seed 16] [--fixed] [--file SPECTRUM]

Spectra are of the preset and prior of the packaged networks, opacity field and line lists varied, gains, structure and
noise as in training. Per spectrum a line of JSON: processor and wall seconds, diagnostics, C/O of networks, likelihood
and truth, and the rank of every true parameter. Compiled programs are kept where the command line keeps them.
"""

import argparse
import json
import time

import jax
import numpy as np

import kappaflow as kf
from kappaflow.inference import Posterior
from kappaflow.model.forward import ForwardModel
from kappaflow.simulation.noise import ErrorFamily, gain, with_structure
from kappaflow.simulation.opacity_draws import SWAPPED, coefficient_sigma, combinations, sigma_table
from kappaflow.storage import compiled_folder

C_O = 5


def simulated(model, seed, index):
    """Return spectrum `index` of `seed`, its parameters and its line lists."""
    rng = np.random.default_rng((seed, index))
    parameters = model.parameters
    low, high = np.asarray(parameters.low), np.asarray(parameters.high)
    theta = (low + (high - low) * rng.random(low.size))[None]
    field = rng.standard_normal(coefficient_sigma(sigma_table((), parameters)).size)[None]
    field = field * coefficient_sigma(sigma_table((), parameters)).ravel()
    choices = [dict(c) for c in combinations(model.names, SWAPPED)]
    lists = choices[index % len(choices)]
    flux = model(np.repeat(theta, 8, axis=0), np.repeat(field, 8, axis=0), lists)[:1]
    p = flux.shape[1]
    shape = ErrorFamily(model.wavelength).draw(
        flux, rng.random((1, ErrorFamily.UNIFORMS)), rng.standard_normal((1, ErrorFamily.NORMALS)), rng.random((1, p))
    )
    snr = rng.uniform(10, 200)
    error = shape * np.median(flux / shape) / snr
    noisy = flux * gain(theta, rng.standard_normal((1, 2)), model.wavelength)
    noisy = noisy + with_structure(error, flux, theta, model.wavelength) * rng.standard_normal((1, p))
    meta = {"distance_pc": 10.0}
    arrays = (model.wavelength, noisy[0].astype(float), error[0].astype(float), np.ones(p, bool))
    return kf.Spectrum(*arrays, meta=meta), theta[0], lists


def examined(spectrum, truth, posterior, model, settings):
    """Refine one spectrum; return a row."""
    steps = {}
    began, cpu = time.monotonic(), time.process_time()

    def advance(word):
        steps[word] = round(time.process_time() - cpu, 1)

    refined = kf.refine(spectrum, posterior=posterior, model=model, settings=settings, advance=advance)
    row = {"wall": time.monotonic() - began, "cpu": time.process_time() - cpu, "steps": steps}
    row |= refined.summary()
    row["snr"] = spectrum.snr
    row["rounds"] = [s.rounds for s in refined.sampled]
    row["each"] = [
        {"ess": s.ess, "raw": s.weights.ess, "k": s.pareto_k, "r_hat": s.r_hat, "ev": s.log_evidence}
        for s in refined.sampled
    ]
    row["laplace"] = [m.log_evidence for m in refined.modes]
    row["C_O"] = np.quantile(refined.draws[:, C_O], [0.05, 0.16, 0.5, 0.84, 0.95]).tolist()
    draws = posterior.sample(refined.best.spectrum, n=2000)
    row["network"] = np.quantile(draws[:, C_O], [0.05, 0.16, 0.5, 0.84, 0.95]).tolist()
    if truth is not None:
        row["truth"] = float(truth[C_O])
        row["ranks"] = dict(zip(refined.names, (refined.draws < truth).mean(axis=0).tolist(), strict=True))
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=4)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--file")
    given = parser.parse_args()
    folder = compiled_folder()
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
    posterior = Posterior.load()
    card = posterior.members[0].card
    model = ForwardModel.load(card.preset, parameters=card.parameters)
    settings = kf.RefineSettings(opacity="fixed" if given.fixed else "marginal")
    if given.file:
        cases = [(kf.read_spectrum(given.file), None, None)]
    else:
        cases = (simulated(model, given.seed, i) for i in range(given.first, given.first + given.n))
    for spectrum, truth, lists in cases:
        row = examined(spectrum, truth, posterior, model, settings)
        row["lists"] = lists
        print(json.dumps(row, default=float), flush=True)


if __name__ == "__main__":
    main()
