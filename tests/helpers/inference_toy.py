"""A linear-Gaussian toy whose posterior is known, for the tests of training and posteriors; also run as a program.

flux = 10 + A theta + noise of unit variance, theta uniform in [-1, 1]^2: the posterior is a Gaussian cut by the box.
"""

import sys

import numpy as np
import torch
from array_batches import ArrayBatches

from kappaflow.inference import Recipe, Trainer, plan_run, recipe, variant
from kappaflow.inference.recipes import NetworkSize
from kappaflow.spectra import Box

PIXELS = 32
BOX = Box(("a", "b"), (-1.0, -1.0), (1.0, 1.0))
MATRIX = 0.8 * np.random.default_rng(1).normal(size=(2, PIXELS))


def spectra(n, seed):
    theta = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    return theta, 10 + theta @ MATRIX


def batches(n=1500, seed=0, **options):
    theta, flux = spectra(n, seed)
    return ArrayBatches(theta, flux, np.ones_like(flux), box=BOX, seed=seed, **options)


def exact(flux):
    """Mean and covariance of the exact posterior before the box cuts it."""
    covariance = np.linalg.inv(MATRIX @ MATRIX.T)
    return covariance @ MATRIX @ (flux - 10), covariance


def exact_draws(flux, n, seed=0):
    """Draws (n, 2) of the exact posterior, and the share of the uncut Gaussian inside the box."""
    draws = np.random.default_rng(seed).multivariate_normal(*exact(flux), size=50 * n)
    inside = (np.abs(draws) < 1).all(axis=1)
    return draws[inside][:n], inside.mean()


def small(name="kappaflow", **training):
    """A recipe small enough for tests: every piece of it is there."""
    whole = recipe(name, NetworkSize(transforms=2, hidden=(32, 32), embedding=16)).model_dump()
    whole["embedding"].update(channels=(4, 8))
    if whole["embedding"]["kind"] == "projected":
        whole["embedding"].update(dense=64)
    whole["training"].update({"batch": 128, **training})
    return Recipe(**whole)


def trainer(folder, settings=None, *, data=None, seed=0, epochs=3, minutes=None):
    data = data or batches()
    run = plan_run(data, settings or small(), seed=seed, epochs=epochs, minutes=minutes)
    return Trainer(run, data, folder)


__all__ = ["BOX", "PIXELS", "batches", "exact", "exact_draws", "small", "spectra", "trainer", "variant"]

if __name__ == "__main__":  # python inference_toy.py FOLDER: train, saving after every step, to be killed
    import kappaflow.inference.training as training

    torch.set_num_threads(1)
    training.SAVE_EVERY = 0.0
    run = trainer(sys.argv[1])
    run.fit(resume=True, report=lambda note: print(run.state.step, flush=True))
