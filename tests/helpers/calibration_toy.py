"""Posteriors known in closed form, exact or spoiled on purpose: the arms of every calibration test."""

import numpy as np
from scipy.special import ndtr, ndtri

from kappaflow.calibrate import check_draws


def gaussian(n, s, p=1, *, stretch=1.0, shift=0.0, seed=0):
    """Prior N(0, 1), noise of a width that differs from object to object: posterior N(x/(1+v), v/(1+v)).

    `stretch` multiplies the posterior's deviation (above 1 too wide, below 1 too narrow), `shift` (scalar or (p,))
    displaces it, in exact deviations.
    """
    rng = np.random.default_rng(seed)
    noise = np.exp(rng.uniform(-2.0, 0.5, size=(n, 1))) * np.ones(p)
    truth = rng.normal(size=(n, p))
    seen = truth + noise * rng.normal(size=(n, p))
    mean, deviation = seen / (1 + noise**2), noise / np.sqrt(1 + noise**2)
    centre = mean + np.asarray(shift) * deviation
    draws = centre[:, None] + stretch * deviation[:, None] * rng.normal(size=(n, s, p))
    return truth, draws, centre, stretch * deviation


def boxed(n, s, noise, *, stretch=1.0, shift=0.0, seed=0):
    """Uniform prior on [0, 1], Gaussian noise (p,): the posterior is a normal cut at the box. Returns `Draws`."""
    rng = np.random.default_rng(seed)
    noise = np.asarray(noise, dtype=float)
    truth = rng.random((n, len(noise)))
    centre = (truth + noise * rng.normal(size=truth.shape) + np.asarray(shift) * noise)[:, None]
    low, high = ndtr(-centre / (stretch * noise)), ndtr((1 - centre) / (stretch * noise))
    level = low + (high - low) * rng.random((n, s, len(noise)))
    draws = np.clip(centre + stretch * noise * ndtri(np.clip(level, 1e-300, 1 - 1e-16)), 0.0, 1.0)
    names = [f"q{k}" for k in range(len(noise))]
    return check_draws(truth, draws, prior=(np.zeros(len(noise)), np.ones(len(noise))), names=names)


def covered_share(level, stretch=1.0, shift=0.0):
    """Coverage of the central interval of N(shift, stretch) for a truth of N(0, 1), in closed form."""
    z = ndtri(0.5 * (1 + np.asarray(level)))
    return ndtr(shift + stretch * z) - ndtr(shift - stretch * z)


# name, stretch, shift: the three arms, and the displaced one
ARMS = {"exact": (1.0, 0.0), "too wide": (1.4, 0.0), "too narrow": (0.6, 0.0), "displaced": (1.0, 0.6)}
