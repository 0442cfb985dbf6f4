"""Spectra that a posterior predicts, with noise as often as wanted, and how far any spectrum lies from them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kappaflow.parameters import INDEX
from kappaflow.simulation.noise import structure
from kappaflow.unmodelled import structure_shape

__all__ = ["Judge", "Replicates", "intraclass"]

GRID = 16  # values of f that the distance knows


@dataclass(frozen=True, eq=False)
class Replicates:
    """Noise-free spectra of posterior draws, each with its structure: s^2 = error^2 + (f shape flux)^2."""

    flux: np.ndarray  # (m, p)
    f: np.ndarray = field(default_factory=lambda: np.zeros(1))  # (m,); one zero where the model has no structure
    shape: np.ndarray = field(default_factory=lambda: np.ones((1, 1)))  # (m, p), see `unmodelled.py`

    @classmethod
    def of(cls, flux: np.ndarray, theta: np.ndarray, wavelength: np.ndarray) -> Replicates:
        """From spectra (m, p) [mJy at 10 pc] of the parameters (m, D)."""
        return cls(flux, structure(theta), structure_shape(flux, theta[:, INDEX["R"]], wavelength)[0])

    def scaled(self, factor: np.ndarray) -> Replicates:
        """Return them with another scale each, (m,)."""
        return Replicates(self.flux * factor[:, None], self.f, self.shape)

    def on(self, good: np.ndarray) -> Replicates:
        """Return them on the pixels `good`."""
        f, shape = np.broadcast_to(self.f, len(self.flux)), np.broadcast_to(self.shape, self.flux.shape)
        return Replicates(self.flux[:, good], f, shape[:, good])

    def rows(self, part: slice) -> Replicates:
        """Return some of them."""
        return Replicates(self.flux[part], self.f[part], self.shape[part])

    def noisy(self, error: np.ndarray, repeats: int, rng: np.random.Generator) -> np.ndarray:
        """Return each with fresh noise, `repeats` times: (repeats * m, p)."""
        sigma = np.sqrt(error**2 + (self.f[:, None] * self.shape * self.flux) ** 2)
        parts = [self.flux + sigma * rng.standard_normal(self.flux.shape) for _ in range(repeats)]
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Judge:
    """Distance from a cloud of spectra: T = (y - mu)' (S + N)^-1 (y - mu), N with the structure that y itself shows."""

    mean: np.ndarray  # (p,)
    axes: np.ndarray  # (m, p): axes' axes is the covariance S
    stated: np.ndarray  # (p,), error
    grid: np.ndarray  # values of f, ascending from 0
    usual: float  # f at which structure is looked for
    shape: np.ndarray  # (p,), of the structure

    @classmethod
    def of(cls, sample: Replicates, stated: np.ndarray, largest: float) -> Judge:
        """From noise-free spectra; f is looked for up to the `largest` of the model."""
        mean = sample.flux.mean(axis=0)
        axes = (sample.flux - mean) / np.sqrt(len(sample.flux) - 1)
        grid = np.concatenate([[0.0], np.geomspace(largest / 100, largest, GRID)]) if largest > 0 else np.zeros(1)
        return cls(mean, axes, stated, grid, float(np.median(sample.f)), sample.shape.mean(axis=0))

    def sigma(self, f: float) -> np.ndarray:
        """Noise (p,) with structure f."""
        return np.sqrt(self.stated**2 + (f * self.shape * self.mean) ** 2)

    def unexplained(self, points: np.ndarray, f: float) -> np.ndarray:
        """(S + N)^-1 (points - mean), in units of the noise, (k, p): what the cloud does not explain.

        (I + A'A)^-1 = I - A' (I + A A')^-1 A for the low-rank, whitened A (m, p): m x m, never p x p.
        """
        off, axes, explained = self._explained(points, f)
        return off - explained.T @ axes

    def _explained(self, points: np.ndarray, f: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        sigma = self.sigma(f)
        axes, off = self.axes / sigma, (points - self.mean) / sigma
        return off, axes, np.linalg.solve(np.eye(len(axes)) + axes @ axes.T, axes @ off.T)

    def expected(self) -> float:
        """Return the mean of `unexplained`^2 at f = 0 that noise alone gives: tr((I + A'A)^-1) over pixels, nearly."""
        axes = self.axes / self.stated
        values = np.linalg.eigvalsh(axes @ axes.T)
        return 1 - float((1 - (1 + np.maximum(values, 0)) ** -1.0).sum()) / self.mean.size

    def structure(self, points: np.ndarray) -> np.ndarray:
        """Place in `grid` of the f of each of `points` (k, p), from what is unexplained between neighbouring pixels.

        The smallest f whose noise is as large as these differences; white structure, not a smooth misfit.
        """
        if self.grid.size == 1:
            return np.zeros(len(points), int)
        jumps = np.diff(self.unexplained(points, self.usual) * self.sigma(self.usual), axis=1) ** 2
        variances = np.array([self.sigma(f) ** 2 for f in self.grid])
        ratio = jumps @ (1 / (variances[:, 1:] + variances[:, :-1])).T / jumps.shape[1]  # (k, grid), falling
        return np.minimum((ratio > 1).sum(axis=1), self.grid.size - 1)

    def distance(self, points: np.ndarray) -> np.ndarray:
        """T (k,) of `points` (k, p), each with its own structure."""
        chosen, found = self.structure(points), np.empty(len(points))
        for place in np.unique(chosen):
            rows = chosen == place
            off, axes, explained = self._explained(points[rows], float(self.grid[place]))
            found[rows] = (off**2).sum(axis=1) - ((axes @ off.T) * explained).sum(axis=0)
        return found

    def terms(self, point: np.ndarray) -> np.ndarray:
        """Return what each pixel (p,) adds to T of one spectrum (p,)."""
        f = float(self.grid[self.structure(point[None])[0]])
        return (point - self.mean) / self.sigma(f) * self.unexplained(point[None], f)[0]


def intraclass(values: np.ndarray) -> float:
    """Correlation, from 0 to 1, of values (repeats, classes) that share a class."""
    repeats, classes = values.shape
    if repeats < 2:
        return 1.0
    within = values.var(axis=0, ddof=1).mean()
    between = repeats * values.mean(axis=0).var(ddof=1)
    return float(np.clip((between - within) / max(between + (repeats - 1) * within, 1e-300), 0, 1))
