"""Unconstrained coordinates of everything that a spectrum depends on, in which the prior is standard normal.

A parameter with a uniform prior is low + width Phi(u), Phi the normal distribution function: bounds hold by
construction. A coefficient of the opacity field is its standard deviation times its coordinate, a gain
1 + sigma_cal g. Where the flux scale is unknown a factor exp(s), with a flat prior in s, multiplies the model: it takes
the place of the radius, which then stays at its prior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri

from kappaflow.constants import LN10
from kappaflow.errors import UserError
from kappaflow.spectra import Box

__all__ = ["STRUCTURE", "Coordinates", "Point"]

DETECTORS = 2
STRUCTURE = (-3.0, -0.7)  # log10 f, where the box does not say
WIDEST = 0.7  # of ln of the factor that is taken from the gains in one step
FARTHEST = 6.0  # of a coordinate of a parameter: Phi is within 1e-9 of its bound


@dataclass(frozen=True, eq=False)
class Point:
    """What the coordinates `z` mean."""

    theta: np.ndarray  # (D,), the forward model's parameters
    slope: np.ndarray  # (D,), d theta / d coordinate; 0 where it is held
    field: np.ndarray  # (K,), coefficients
    gains: np.ndarray  # (2,), standard normal: detector d is multiplied by 1 + sigma_cal gains[d]
    sigma_cal: float
    f: float  # structure: standard deviation over flux, but for its shape (`unmodelled.py`)
    ln_f_slope: float  # d ln f / d coordinate; 0 where f is held
    ln_scale: float
    radius: float  # 1 where it is no parameter


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Layout of z: free parameters, log f, coefficients with a positive sigma, two gains, ln scale.

    Parameters
    ----------
    box : names and bounds of the forward model's parameters (`log_f` may be one of them, or none)
    sigma : (K,), standard deviations of the coefficients; those of 0 are held at 0
    structure : is f free? Otherwise it is `f`
    scale_free : is the flux scale unknown?
    f : the structure where it is held
    held : parameters that are not fitted, with their values
    """

    box: Box
    sigma: np.ndarray
    structure: bool = True
    scale_free: bool = False
    f: float = 0.0
    held: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for name, value in self.held:
            if name not in self.box.names:
                raise UserError(f"held: no parameter {name!r}; expected some of {', '.join(self.box.names)}")
            i = self.box.names.index(name)
            if not self.box.low[i] <= value <= self.box.high[i]:
                raise UserError(f"held: {name} = {value:g}; expected in [{self.box.low[i]:g}, {self.box.high[i]:g}]")

    @cached_property
    def free(self) -> np.ndarray:
        """Indices (k,) into theta of the parameters that are fitted; `log_f` has its own place."""
        fixed = {name for name, _ in self.held} | {"log_f"}
        return np.array([i for i, name in enumerate(self.box.names) if name not in fixed], int)

    @cached_property
    def varied(self) -> np.ndarray:
        """Indices (c,) of the coefficients that are fitted."""
        return np.flatnonzero(np.asarray(self.sigma) > 0)

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where in z each kind of coordinate is."""
        sizes = {
            "theta": self.free.size,
            "structure": int(self.structure),
            "field": self.varied.size,
            "gains": DETECTORS,
            "scale": int(self.scale_free),
        }
        ends = np.cumsum(list(sizes.values())).tolist()
        return {kind: slice(end - size, end) for (kind, size), end in zip(sizes.items(), ends, strict=True)}

    @property
    def size(self) -> int:
        """Length of z."""
        return self.places["scale"].stop

    @cached_property
    def precision(self) -> np.ndarray:
        """Diagonal (size,) of the prior's inverse covariance: 1, and 0 for the flat ln scale."""
        ones = np.ones(self.size)
        ones[self.places["scale"]] = 0.0
        return ones

    @cached_property
    def sizing(self) -> np.ndarray:
        """Which coordinates (size,) only make the source larger: the radius, or the flux scale in its place."""
        out = np.zeros(self.size, bool)
        out[self.places["theta"]] = [self.box.names[i] == "R" for i in self.free]
        out[self.places["scale"]] = True
        return out

    @property
    def structure_bounds(self) -> tuple[float, float]:
        """Prior of log10 f."""
        if "log_f" not in self.box.names:
            return STRUCTURE
        i = self.box.names.index("log_f")
        return self.box.low[i], self.box.high[i]

    def with_structure(self, f: float) -> Coordinates:
        """Return the same with the structure held at `f`."""
        return replace(self, structure=False, f=f)

    def point(self, z: np.ndarray) -> Point:
        """Unpack z (size,)."""
        low, width = np.asarray(self.box.low), self.box.widths
        theta = low + 0.5 * width
        for name, value in self.held:
            theta[self.box.names.index(name)] = value
        u = z[self.places["theta"]]
        theta[self.free] = low[self.free] + width[self.free] * ndtr(u)
        slope = np.zeros(theta.size)
        slope[self.free] = width[self.free] * _density(u)
        f, ln_f_slope = (a[0] for a in self.structures(z[None, self.places["structure"]]))
        if "log_f" in self.box.names and f > 0:
            bottom, top = self.structure_bounds
            theta[self.box.names.index("log_f")] = np.clip(np.log10(f), bottom, top)
        field = np.zeros(np.size(self.sigma))
        field[self.varied] = np.asarray(self.sigma)[self.varied] * z[self.places["field"]]
        names = self.box.names
        sigma_cal = float(theta[names.index("sigma_cal")]) if "sigma_cal" in names else 0.0
        ln_scale = float(z[self.places["scale"]][0]) if self.scale_free else 0.0
        radius = float(theta[names.index("R")]) if "R" in names else 1.0
        gains = z[self.places["gains"]]
        return Point(theta, slope, field, gains, sigma_cal, float(f), float(ln_f_slope), ln_scale, radius)

    def structures(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return f (b,) of its coordinate u (b, 1), and d ln f / du; of (b, 0) where it is held."""
        if not self.structure:
            return np.full(len(u), self.f), np.zeros(len(u))
        bottom, top = self.structure_bounds
        return 10.0 ** (bottom + (top - bottom) * ndtr(u[:, 0])), np.log(10.0) * (top - bottom) * _density(u[:, 0])

    def at(self, theta: np.ndarray, *, f: float = 0.1, ln_scale: float = 0.0) -> np.ndarray:
        """Return z of parameters `theta` (D,), coefficients and gains at 0; values at a bound are drawn inwards."""
        z = np.zeros(self.size)
        unit = self.box.to_unit(np.asarray(theta, float))[self.free]
        z[self.places["theta"]] = ndtri(np.clip(unit, 0.01, 0.99))
        bottom, top = self.structure_bounds
        z[self.places["structure"]] = ndtri(np.clip((np.log10(max(f, 1e-9)) - bottom) / (top - bottom), 0.01, 0.99))
        z[self.places["scale"]] = ln_scale
        return z

    def balanced(self, z: np.ndarray) -> tuple[np.ndarray, float]:
        """Return `z` (size,) with brightness shared likeliest between radius and gains, and the factor on the flux.

        Flux times a, gains over a and f over a give the same data, whatever a: only their priors tell, so that a valley
        bent across the coordinates is left in one step. (z, 1) where there is no such valley.
        """
        names = [self.box.names[i] for i in self.free]
        point = self.point(z)
        if "R" not in names or not (self.structure or self.f == 0) or point.sigma_cal <= 0:
            return z, 1.0
        place, i = names.index("R"), self.box.names.index("R")
        radius, total = point.theta[i], 1 + point.sigma_cal * point.gains
        bottom, top = self.structure_bounds

        def moved(t: float) -> np.ndarray:
            out = z.copy()
            out[place] = _probit((radius * np.exp(t / 2) - self.box.low[i]) / self.box.widths[i])
            out[self.places["gains"]] = (total * np.exp(-t) - 1) / point.sigma_cal
            if self.structure:
                out[self.places["structure"]] = _probit((np.log10(point.f) - t / LN10 - bottom) / (top - bottom))
            return out

        found: Any = minimize_scalar(lambda t: float((moved(t) ** 2).sum()), bounds=(-WIDEST, WIDEST), method="bounded")
        there = moved(float(found.x))
        if (there**2).sum() >= (z**2).sum() or self._at_bound(there, place):
            return z, 1.0
        return there, float(np.exp(found.x))

    def _at_bound(self, z: np.ndarray, place: int) -> bool:
        """Whether the coordinate at `place`, or that of f, is as far out as it may be: the data would change."""
        return bool(max(abs(z[place]), np.abs(z[self.places["structure"]]).max(initial=0.0)) >= FARTHEST)

    def spread_held(self, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Spread parameters of `theta` (..., D) that are held over their priors: the data cannot tell them."""
        theta = theta.copy()
        for name, _ in self.held:
            i = self.box.names.index(name)
            theta[..., i] = self.box.low[i] + self.box.widths[i] * rng.random(theta.shape[:-1])
        return theta

    def inside(self, z: np.ndarray) -> np.ndarray:
        """Return z with no coordinate of a parameter farther out than where its bound is reached in all digits."""
        z = z.copy()
        for kind in ("theta", "structure"):
            z[..., self.places[kind]] = np.clip(z[..., self.places[kind]], -FARTHEST, FARTHEST)
        return z

    def moved(self, z: np.ndarray, other: Coordinates) -> np.ndarray:
        """Return `z` of these coordinates in `other` ones of the same parameters; what is new is at 0."""
        out = np.zeros(other.size)
        for kind, place in self.places.items():
            there = other.places[kind]
            if there.stop - there.start == place.stop - place.start:
                out[there] = z[place]
        return out


def _probit(unit: float) -> float:
    return float(np.clip(ndtri(np.clip(unit, 0.0, 1.0)), -FARTHEST, FARTHEST))


def _density(u: np.ndarray) -> np.ndarray:
    """Return the normal density."""
    return np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)
