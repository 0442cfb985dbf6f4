"""Does a spectrum look like any of the training set? A distance in the space of spectra, not of embeddings (NumPy).

ln F of the noise-free training spectra, each less its own mean, has a mean and principal components V with variances l.
A spectrum y is fitted by m = exp(c + mean + b V), b ~ N(0, l), by generalized least squares on its good pixels, with
noise s^2 = error^2 + (g m)^2; g, the scatter that neither errors nor components explain, is the likeliest. What is
left, z = (y - m) / s, and g give four numbers, each of which is larger where a spectrum is strange (`STATISTICS`).
Their null is the same numbers of validation spectra, noise, masks and structure as in training; the smallest of the
four p-values is compared with the smallest of validation spectra.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kappaflow.spectra import Spectra

__all__ = ["STATISTICS", "Resemblance"]

COMPONENTS = 100
RUN = 32  # pixels
STEPS = 6  # of the fit; the manifold is nearly straight
SCATTERS = np.geomspace(1e-3, 2.0, 48)  # values of g
# What is measured, and what a large value means.
STATISTICS = {
    "wave": "residuals run to one side over tens of pixels",
    "blur": "neighbouring pixels go together, as at a lower resolution",
    "scatter": "pixels scatter more than any structure in training",
    "faint": "faint pixels scatter more than their errors tell",
}


@dataclass(frozen=True, eq=False)
class Resemblance:
    """Principal components of a training set, and how far its own spectra lie from them."""

    mean: np.ndarray  # (p,), of ln F less its own mean
    components: np.ndarray  # (k, p), orthonormal
    variances: np.ndarray  # (k,)
    null: np.ndarray  # (n, 4), STATISTICS of validation spectra

    @classmethod
    def of(cls, clean: np.ndarray, validation: Iterable[Spectra]) -> Resemblance:
        """From noise-free training spectra (m, p), all positive, and observed validation spectra."""
        log = np.log(np.asarray(clean, dtype=float))
        log -= log.mean(axis=1, keepdims=True)
        mean = log.mean(axis=0)
        log -= mean
        count = min(COMPONENTS, log.shape[1] // 4, len(log) // 10)
        values, vectors = np.linalg.eigh(log.T @ log / len(log))
        # As stored: what is judged later is judged with the same numbers.
        components = vectors.T[::-1][:count].astype(np.float16).astype(float)
        variances = np.maximum(values[::-1][:count], 1e-8)
        bare = cls(mean, components, variances, np.empty((0, len(STATISTICS))))
        rows = [
            bare.statistics(*row) for part in validation for row in zip(part.flux, part.error, part.mask, strict=True)
        ]
        return cls(mean, components, variances, np.array(rows))

    def statistics(self, flux: np.ndarray, error: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the four numbers (4,) of one spectrum (p,)."""
        good = np.flatnonzero(np.asarray(mask, bool))
        left, scatter, model = self._fitted(np.asarray(flux, float)[good], np.asarray(error, float)[good], good)
        sums = np.concatenate([[0.0], np.cumsum(left)])
        width = min(RUN, len(left))
        wave = np.abs(sums[width:] - sums[:-width]).max() / np.sqrt(width)
        next_to = np.flatnonzero(np.diff(good) == 1)
        if len(next_to) < RUN:  # too few neighbours to tell anything
            return np.array([wave, 0.0, scatter, 0.0])
        blur = float(np.mean(left[next_to] * left[next_to + 1]))
        jumps = np.minimum((left[next_to + 1] - left[next_to]) ** 2 / 2, 25.0)  # one bad pixel is not a noise level
        order, third = np.argsort(model[next_to]), len(next_to) // 3
        faint = jumps[order[:third]].mean() / max(jumps[order[-third:]].mean(), 1e-3)
        return np.array([wave, blur, scatter, faint])

    def p_value(self, flux: np.ndarray, error: np.ndarray, mask: np.ndarray) -> tuple[float, str]:
        """Share of validation spectra at least as strange, and in which of STATISTICS it is strangest."""
        p = self._each(self.statistics(flux, error, mask))
        name = list(STATISTICS)[int(p.argmin())]
        return float((1 + (self._smallest <= p.min()).sum()) / (1 + len(self.null))), name

    def _each(self, values: np.ndarray) -> np.ndarray:
        """p-value (4,) of each number."""
        return (1 + (self.null >= values).sum(axis=0)) / (1 + len(self.null))

    @cached_property
    def _smallest(self) -> np.ndarray:
        """Return the smallest of the four p-values of each validation spectrum, judged by the others."""
        ranks = (self.null[None] >= self.null[:, None]).sum(axis=1)  # itself included, in the place of the one
        return ranks.min(axis=1) / (1 + len(self.null))

    def _fitted(self, flux: np.ndarray, error: np.ndarray, good: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        """Return what is left (n,) over the noise, g, and the model (n,) on the `good` pixels."""
        axes = np.vstack([np.ones(len(good)), self.components[:, good]])
        precision = np.concatenate([[1e-6], 1 / self.variances])
        # A spectrum drowned in noise can have a median below zero: its scale is then what the noise allows.
        level = max(float(np.median(flux)), 1e-2 * float(np.median(error)))
        place = np.zeros(len(axes))
        place[0] = np.log(level) - np.median(self.mean[good])
        scatter, model = 0.05, np.empty(0)
        for step in range(STEPS):
            model = np.exp(np.clip(self.mean[good] + place @ axes, -80, 80))
            noise = np.sqrt(error**2 + (scatter * model) ** 2)
            slopes = axes * (model / noise)
            towards = slopes @ ((flux - model) / noise) - precision * place
            move = np.linalg.solve(slopes @ slopes.T + np.diag(precision), towards)
            place = place + move * min(1.0, 3.0 / max(np.abs(move @ axes).max(), 1e-9))  # e^3 is far enough at once
            model = np.exp(np.clip(self.mean[good] + place @ axes, -80, 80))
            if step:
                variance = error**2 + (SCATTERS[:, None] * model) ** 2
                likely = -(np.log(variance) + (flux - model) ** 2 / variance).sum(axis=1)
                scatter = float(SCATTERS[likely.argmax()])
        return (flux - model) / np.sqrt(error**2 + (scatter * model) ** 2), scatter, model
