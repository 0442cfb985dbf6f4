"""The coordinates that draws are made in: parameters, and the two brightnesses that the detectors measure.

Radius, gains and sigma_cal are a funnel: the data know R^2 (1 + gain) of each detector to a fraction of a per cent and
none of its factors. So draws are made in the mean L and the difference D of ln R^2 (1 + gain) of the detectors; radius,
gains and sigma_cal follow from these by their priors (`Outer.complete`). A free flux scale stands for R^2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from kappaflow.errors import UserError
from kappaflow.refinement.likelihood import Joint

__all__ = ["Completed", "Outer"]

NODES = 16  # of sigma_cal
SOFT = 0.025  # how far beyond R's bounds the brightness may be, in ln R^2
LEAST = 1e-5  # of sigma_cal


class Completed(NamedTuple):
    """Draws with everything in them."""

    z: np.ndarray  # (b, size)
    gains: np.ndarray  # (b, 2), relative
    ln_odds: np.ndarray  # (b,), ln of prior density over that of the draw, for all that was completed


class Outer:
    """Places of the outer coordinates w = (smooth parameters, L, D) in z, and the way back."""

    def __init__(self, joint: Joint) -> None:
        self.coordinates = c = joint.coordinates
        names = [c.box.names[i] for i in c.free]
        theta = np.arange(c.size)[c.places["theta"]]
        self.radius = names.index("R") if "R" in names else None
        self.calibration = names.index("sigma_cal") if "sigma_cal" in names else None
        self.smooth = theta[[i for i in range(theta.size) if i not in (self.radius, self.calibration)]]
        self.field = np.arange(c.size)[c.places["field"]]
        self.gains = np.arange(c.size)[c.places["gains"]]
        self.structure = np.arange(c.size)[c.places["structure"]]
        self.inputs = np.concatenate([self.smooth, self.field])  # what the flux depends on otherwise
        self.bright = c.scale_free or self.radius is not None
        if not self.bright and c.point(np.zeros(c.size)).sigma_cal > 0:
            raise UserError("refine: gains without a radius or a free flux scale; hold sigma_cal at 0")
        self.size = self.smooth.size + 2 * self.bright
        self.sigma, self.ln_sigma = self._calibration(NODES)

    def _calibration(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Nodes of sigma_cal, denser towards 0, and ln of their weights in its prior."""
        c = self.coordinates
        if self.calibration is None:
            return np.maximum(np.array([c.point(np.zeros(c.size)).sigma_cal]), LEAST), np.zeros(1)
        i = c.free[self.calibration]
        t, weight = np.polynomial.legendre.leggauss(n)
        t, weight = 0.5 * (t + 1), 0.5 * weight
        return np.maximum(c.box.low[i] + c.box.widths[i] * t**2, LEAST), np.log(2 * t * weight)

    @property
    def bounds(self) -> tuple[float, float]:
        """Of ln R^2; none where the scale is free."""
        if self.radius is None:
            return -np.inf, np.inf
        i = self.coordinates.free[self.radius]
        return 2 * np.log(self.coordinates.box.low[i]), 2 * np.log(self.coordinates.box.high[i])

    def factor(self, z: np.ndarray) -> np.ndarray:
        """Plain factor (b,) of the noise-free flux: R^2, or the scale."""
        if self.radius is None:
            place = self.coordinates.places["scale"]
            return np.exp(z[:, place.start]) if self.coordinates.scale_free else np.ones(len(z))
        i = self.coordinates.free[self.radius]
        return (self.coordinates.box.low[i] + self.coordinates.box.widths[i] * ndtr(z[:, self.radius])) ** 2

    def of(self, z: np.ndarray) -> np.ndarray:
        """Return w (b, outer) of z (b, size)."""
        if not self.bright:
            return z[:, self.smooth]
        cal = np.array([self.coordinates.point(row).sigma_cal for row in z])
        ln = np.log(self.factor(z))[:, None] + np.log1p(cal[:, None] * z[:, self.gains])
        return np.column_stack([z[:, self.smooth], ln.mean(axis=1), ln[:, 0] - ln[:, 1]])

    def covariance(self, z: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """Covariance of w, structure and coefficients, from that of all coordinates about z (size,)."""
        step = 1e-5 * np.eye(z.size)
        slope = (self.of(z + step) - self.of(z - step)).T / 2e-5  # (outer, size)
        slope = np.concatenate([slope, np.eye(z.size)[np.concatenate([self.structure, self.field])]])
        return slope @ covariance @ slope.T

    def prior(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ln prior density (b,) of w, of smooth parameters without the constant, and its slope (b, 0 or 1) by L."""
        value = -0.5 * (w[:, : self.smooth.size] ** 2).sum(axis=1)
        if not self.bright:
            return value, np.zeros((len(w), 0))
        ln_level, slope = self._level(w[:, -2])
        return value + np.logaddexp.reduce(self._shares(w[:, -1]), axis=1) + ln_level, slope[:, None]

    def _shares(self, difference: np.ndarray) -> np.ndarray:
        """Ln density (b, nodes) of D with each sigma_cal: normal, of variance 2 sigma^2."""
        d = difference[:, None]
        return self.ln_sigma - 0.25 * d**2 / self.sigma**2 - 0.5 * np.log(4 * np.pi * self.sigma**2)

    def _level(self, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ln density of L and its slope: flat in R with soft ends; flat where the scale is free."""
        if self.radius is None:
            return np.zeros(level.size), np.zeros(level.size)
        low, high = self.bounds
        width = self.coordinates.box.widths[self.coordinates.free[self.radius]]
        up, down = (level - low) / SOFT, (high - level) / SOFT
        value = 0.5 * level - np.log(2 * width) + log_ndtr(up) + log_ndtr(down)
        slope = 0.5 + (np.exp(_ln_density(up) - log_ndtr(up)) - np.exp(_ln_density(down) - log_ndtr(down))) / SOFT
        return value, slope

    def complete(self, w: np.ndarray, z: np.ndarray, rng: np.random.Generator) -> Completed:
        """Put `w` (b, outer) into z (b, size); draw radius, gains and sigma_cal given L and D."""
        z = z.copy()
        z[:, self.smooth] = w[:, : self.smooth.size]
        if not self.bright:
            return Completed(z, np.zeros((len(z), 2)), np.zeros(len(z)))
        level, difference = w[:, -2], w[:, -1]
        ln_share = self._shares(difference)
        ln_share = ln_share - np.logaddexp.reduce(ln_share, axis=1, keepdims=True)
        node = (rng.random((len(w), 1)) > np.cumsum(np.exp(ln_share), axis=1)).sum(axis=1).clip(0, self.sigma.size - 1)
        spread = self.sigma / np.sqrt(2)  # of ln R^2 about L
        low, high = self.bounds
        ends = [ndtr((edge - level[:, None]) / spread) for edge in (low, high)]
        room = np.maximum(ends[1] - ends[0], 1e-300)
        rows = np.arange(len(w))
        unit = ends[0][rows, node] + rng.random(len(w)) * room[rows, node]
        ln_factor = np.clip(level + spread[node] * ndtri(np.clip(unit, 1e-300, 1 - 1e-16)), low, high)
        off = (ln_factor - level)[:, None] / spread
        ln_drawn = np.logaddexp.reduce(ln_share + _ln_density(off) - np.log(spread) - np.log(room), axis=1)
        sign = np.array([0.5, -0.5])
        gains = np.expm1(level[:, None] + difference[:, None] * sign - ln_factor[:, None])
        sigma, ln_prior = self._of_gains(gains, rng)
        if self.radius is not None:
            i = self.coordinates.free[self.radius]
            box = self.coordinates.box
            unit = (np.exp(0.5 * ln_factor) - box.low[i]) / box.widths[i]
            z[:, self.radius] = ndtri(np.clip(unit, 1e-12, 1 - 1e-12))
            ln_prior = ln_prior + 0.5 * ln_factor - np.log(2 * box.widths[i])
        else:
            z[:, self.coordinates.places["scale"].start] = ln_factor
        z[:, self.gains] = gains / sigma[:, None]
        if self.calibration is not None:
            i = self.coordinates.free[self.calibration]
            unit = (sigma - self.coordinates.box.low[i]) / self.coordinates.box.widths[i]
            z[:, self.calibration] = ndtri(np.clip(unit, 1e-12, 1 - 1e-12))
        return Completed(z, gains, ln_prior - ln_drawn)

    def _of_gains(self, gains: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw sigma_cal (b,) given the gains, and ln of the gains' prior density in d L d D."""
        sigma, ln_weight = self._calibration(4 * NODES)
        ln = ln_weight - 0.5 * (gains**2).sum(axis=1)[:, None] / sigma**2 - np.log(2 * np.pi * sigma**2)
        both = np.logaddexp.reduce(ln, axis=1)
        share = np.cumsum(np.exp(ln - both[:, None]), axis=1)
        node = (rng.random((len(gains), 1)) > share).sum(axis=1).clip(0, sigma.size - 1)
        return sigma[node], both + np.log1p(gains).sum(axis=1)


def _ln_density(x: np.ndarray) -> np.ndarray:
    """Ln of the normal density."""
    return -0.5 * x**2 - 0.5 * np.log(2 * np.pi)
