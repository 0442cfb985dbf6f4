"""A linear-Gaussian toy with a dial: theta (2,) seen through a nuisance whose size is drawn for each spectrum and told.

flux = 10 + theta M + amplitude * g * d + noise of unit variance, g standard normal: the posterior is a Gaussian whose
covariance is (M (I + amplitude^2 d d')^-1 M')^-1, cut by the box.
"""

import numpy as np
from array_batches import ArrayBatches

from kappaflow.randomness import generator
from kappaflow.spectra import Box, Card, Spectra

PIXELS, DIAL = 32, (0.0, 2.5)
BOX = Box(("C_O", "b"), (-1.0, -1.0), (1.0, 1.0))
_RNG = np.random.default_rng(4)
MATRIX = 0.8 * _RNG.normal(size=(2, PIXELS))
NUISANCE = 0.45 * MATRIX[0] + 0.1 * _RNG.normal(size=PIXELS)  # looks like the first parameter


def exact_draws(flux, amplitude, n=400):
    """Draws (k, 2) of the exact posterior of one spectrum (p,): a Gaussian, cut by the box."""
    weighed = np.linalg.solve(np.eye(PIXELS) + amplitude**2 * np.outer(NUISANCE, NUISANCE), MATRIX.T)
    covariance = np.linalg.inv(MATRIX @ weighed)
    mean = covariance @ weighed.T @ (flux - 10)
    draws = np.random.default_rng(0).multivariate_normal(mean, covariance, size=n)
    return draws[(np.abs(draws) < 1).all(axis=1)]


def observed(theta, amplitude, rng):
    """Spectra (b, p) of `theta` (b, 2) at `amplitude` (b,)."""
    nuisance = (amplitude * rng.standard_normal(len(theta)))[:, None] * NUISANCE
    flux = (10 + theta @ MATRIX + nuisance + rng.standard_normal((len(theta), PIXELS))).astype(np.float32)
    ones = np.ones_like(flux)
    return Spectra(flux, ones, ones > 0, np.ones(len(theta), bool), theta.astype(np.float32), amplitude=amplitude)


class DialBatches:
    """Training spectra, drawn afresh at every address; a fifth at amplitude 0, a fifth at 1."""

    def __init__(self, n=2560, dial=DIAL):
        self.card = Card("dial", "memory", np.linspace(2.87, 5.27, PIXELS), n - 256, 256, BOX, dial=dial)

    def _at(self, *address):
        rng = generator(*address)
        kind, size = rng.random(address[-1]), address[-1]
        drawn = np.where(kind < 0.2, 0.0, np.where(kind < 0.4, 1.0, rng.uniform(*DIAL, size)))
        return observed(rng.uniform(-1, 1, (size, 2)), drawn, rng)

    def train(self, epoch, index, size):
        return self._at("dial training", epoch, index, size)

    def validation(self, start, stop):
        return self._at("dial validation", start, stop - start)


def without_dial(n=600):
    """The same kind of data for a network that is told nothing."""
    rng = np.random.default_rng(0)
    theta = rng.uniform(-1, 1, (n, 2))
    flux = 10 + theta @ MATRIX
    return ArrayBatches(theta, flux, np.ones_like(flux), box=BOX)
