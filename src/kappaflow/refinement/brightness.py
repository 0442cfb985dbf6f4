"""Coordinates for long chains: the funnel of radius, gains and sigma_cal straightened, exactly.

The data know B_d = R^2 (1 + sigma_cal g_d) of each detector to a fraction of a per cent and none of its factors. So in
place of radius (or free scale) and gains stand L, the mean of ln B_d, their difference D, and m, the mean of
ln(1 + sigma_cal g_d), in units of its prior's spread: m = sigma_cal mu / sqrt(2). Nothing is approximated: the
volume dz/dw is part of the density.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from kappaflow.refinement.coordinates import Coordinates

__all__ = ["Brightness", "Straightened"]

ROOT2 = np.sqrt(2.0)


class Straightened(NamedTuple):
    """What a place w means."""

    z: np.ndarray  # (size,)
    turn: np.ndarray  # (size, size), dz/dw
    ln_volume: float  # ln |det dz/dw|
    d_ln_volume: np.ndarray  # (size,), by w


class Brightness:
    """The map between z and w, which has L in the place of the radius or scale, D and mu in those of the gains.

    The same where there is no funnel: without gains, or without anything that they could be confused with.
    """

    def __init__(self, coordinates: Coordinates) -> None:
        self.coordinates = c = coordinates
        names = [c.box.names[i] for i in c.free]
        self.radius = names.index("R") if "R" in names else None
        self.calibration = names.index("sigma_cal") if "sigma_cal" in names else None
        some_gain = self.calibration is not None or c.point(np.zeros(c.size)).sigma_cal > 0
        self.straight = some_gain and (self.radius is not None or c.scale_free)
        self.level = c.places["scale"].start if self.radius is None else self.radius
        self.difference = c.places["gains"].start
        self.mean_gain = self.difference + 1

    def of(self, z: np.ndarray) -> np.ndarray:
        """Return w (size,) of z (size,)."""
        if not self.straight:
            return z.copy()
        point, w = self.coordinates.point(z), z.copy()
        ln_gain = np.log1p(point.sigma_cal * point.gains)
        if self.radius is None:
            ln_factor = point.ln_scale
        else:
            ln_factor = 2 * np.log(point.theta[self.coordinates.free[self.radius]])
        w[self.level] = ln_factor + ln_gain.mean()
        w[self.difference] = ln_gain[0] - ln_gain[1]
        w[self.mean_gain] = ROOT2 * ln_gain.mean() / point.sigma_cal
        return w

    def back(self, w: np.ndarray) -> Straightened | None:
        """Return z of w (size,), with the map's derivatives; None where the radius would leave its prior."""
        turn = np.eye(w.size)
        if not self.straight:
            return Straightened(w.copy(), turn, 0.0, np.zeros(w.size))
        c, z, d_volume = self.coordinates, w.copy(), np.zeros(w.size)
        sigma, slope = self._sigma(w)
        mu, half = w[self.mean_gain], 0.5 * w[self.difference] * np.array([1.0, -1.0])
        m, per_mu = sigma * mu / ROOT2, sigma / ROOT2
        per_s = mu * slope / ROOT2  # dm / d coordinate of sigma_cal
        gains = np.expm1(m + half) / sigma
        if not (np.isfinite(gains).all() and sigma > 0):
            return None
        z[[self.difference, self.mean_gain]] = gains
        # ln volume of the gains, 2 m - ln sigma, and of their unit.
        ln_volume = 2 * m - np.log(sigma) - 0.5 * np.log(2.0)
        d_volume[self.mean_gain] = 2 * per_mu
        rows, p = [self.difference, self.mean_gain], (1 + sigma * gains) / sigma
        turn[rows, self.difference] = p * np.array([0.5, -0.5])
        turn[rows, self.mean_gain] = p * per_mu
        if self.calibration is not None:
            turn[rows, self.calibration] = p * per_s - gains * slope / sigma
            d_volume[self.calibration] = 2 * per_s - slope / sigma
        a, more, d_more = 1.0, 0.0, 0.0
        if self.radius is not None:
            i = c.free[self.radius]
            radius = np.exp(0.5 * (w[self.level] - m))
            unit = (radius - c.box.low[i]) / c.box.widths[i]
            if not 1e-12 < unit < 1 - 1e-12:
                return None
            z[self.level] = ndtri(unit)
            more = 0.5 * (w[self.level] - m) + 0.5 * z[self.level] ** 2
            more += 0.5 * np.log(2 * np.pi) - np.log(2 * c.box.widths[i])
            a = np.exp(more)
            d_more = 0.5 + z[self.level] * a
        else:
            z[self.level] = w[self.level] - m
        for place, dm in ((self.mean_gain, per_mu), (self.calibration, per_s)):
            if place is not None:
                turn[self.level, place] = -a * dm
                d_volume[place] -= d_more * dm
        turn[self.level, self.level] = a
        d_volume[self.level] = d_more
        return Straightened(z, turn, float(ln_volume + more), d_volume)

    def _sigma(self, w: np.ndarray) -> tuple[float, float]:
        """Return sigma_cal and its derivative by its coordinate."""
        c = self.coordinates
        if self.calibration is None:
            return c.point(np.zeros(c.size)).sigma_cal, 0.0
        i, s = c.free[self.calibration], w[self.calibration]
        width = float(c.box.widths[i])
        return c.box.low[i] + width * float(ndtr(s)), width * float(np.exp(-0.5 * s**2)) / np.sqrt(2 * np.pi)

    def precision(self, z: np.ndarray, information: np.ndarray) -> np.ndarray:
        """Turn the information (size, size) about z (size,) into that of w."""
        here = self.back(self.of(z))
        if here is None:  # at a bound, in all digits
            return information
        return here.turn.T @ information @ here.turn
