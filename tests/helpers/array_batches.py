"""Spectra in memory, to train networks on: `Batches` without files."""

import numpy as np

from kappaflow.instrument import WINDOW
from kappaflow.randomness import generator
from kappaflow.spectra import Box, Card, Spectra
from kappaflow.storage import digest_arrays


class ArrayBatches:
    """Spectra in memory: noise-free flux plus Gaussian noise drawn at the address (seed, epoch, index).

    Parameters
    ----------
    theta : (n, D)
    flux : (n, p), noise-free
    error : (n, p), one standard deviation
    box : the prior; the fifteen parameters unless given
    masks : (k, p) bank of masks, one drawn at random for every spectrum; None keeps every pixel
    seed : of the noise

    The last tenth is the validation split.
    """

    def __init__(
        self,
        theta: np.ndarray,
        flux: np.ndarray,
        error: np.ndarray,
        *,
        box: Box | None = None,
        masks: np.ndarray | None = None,
        seed: int = 0,
    ) -> None:
        self._theta, self._flux, self._error = (np.asarray(a, dtype=np.float32) for a in (theta, flux, error))
        self._masks, self._seed = masks, seed
        n = len(theta)
        self._n_validation = max(n // 10, 1)
        arrays = {"theta": self._theta, "flux": self._flux, "error": self._error}
        self._card = Card(
            digest=digest_arrays(arrays),
            preset="memory",
            wavelength=np.linspace(*WINDOW, flux.shape[1]),
            n_train=n - self._n_validation,
            n_validation=self._n_validation,
            box=box or Box(),
            masked=masks is not None,
        )

    @property
    def card(self) -> Card:
        return self._card

    def clean(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return noise-free flux and parameters of `count` training spectra."""
        rows = slice(min(count, self.card.n_train))
        return self._flux[rows], self._theta[rows]

    def train(self, epoch: int, index: int, size: int) -> Spectra:
        order = generator("array order", self._seed, epoch).permutation(self.card.n_train)
        return self._batch(order[index * size : (index + 1) * size], generator("array noise", self._seed, epoch, index))

    def validation(self, start: int, stop: int) -> Spectra:
        rows = self.card.n_train + np.arange(start, min(stop, self._n_validation))
        parts = [
            self._batch(rows[i : i + 1], generator("array validation", self._seed, int(r))) for i, r in enumerate(rows)
        ]
        return Spectra.joined(parts)

    def _batch(self, rows: np.ndarray, rng: np.random.Generator) -> Spectra:
        flux, error = self._flux[rows], self._error[rows]
        noisy = flux + error * rng.standard_normal(flux.shape, dtype=np.float32)
        mask = np.ones(flux.shape, bool)
        if self._masks is not None:
            mask = self._masks[rng.integers(len(self._masks), size=len(rows))]
        return Spectra(noisy, error, mask, np.ones(len(rows), bool), self._theta[rows])
