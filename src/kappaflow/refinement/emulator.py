"""A fast stand-in for the forward model near one posterior: what a chain walks on; exact spectra judge it afterwards.

F / R^2 = its linear expansion about the mode, exact, + what bends: that of the flux at a few wavenumbers (`thin.py`),
which have the same columns, temperatures and clouds, and that of powers of the velocities, which no wavenumber alone
knows of; with weights per pixel from least squares on exact spectra of the same posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from kappaflow.refinement.likelihood import Joint, ThinFluxes, ThinPredictor
from kappaflow.refinement.outer import Outer

__all__ = ["About", "Emulator", "Lessons"]

RIDGE = 1e-4  # of the weights, over the bends' root mean square
# Velocities, their powers, and whether they count from the mode: a spectrum changes with a shift and its square, and
# with the second and the fourth moment of a profile, none of which is linear in the coordinates.
VELOCITIES = (("v_r", 1, True), ("v_r", 2, True), ("v_sin_i", 2, False), ("v_sin_i", 4, False))
NEAR = 10.0  # standard deviations of the noise: spectra that bend by more count less, as those of clouds that appear


class Lessons(NamedTuple):
    """Exact spectra to learn from."""

    z: np.ndarray  # (m, size)
    flux: np.ndarray  # (m, n), over the plain factor

    def joined(self, other: Lessons) -> Lessons:
        """Return both."""
        return Lessons(np.concatenate([self.z, other.z]), np.concatenate([self.flux, other.flux]))


@dataclass(frozen=True, eq=False)
class About:
    """What is known exactly about a mode `z` (size,): its spectrum, with derivatives, on pixels and when thinned.

    Inputs are what the spectrum depends on but for its plain factor: smooth parameters and coefficients.
    """

    joint: Joint
    z: np.ndarray

    @cached_property
    def outer(self) -> Outer:
        """Where the coordinates are."""
        return Outer(self.joint)

    @cached_property
    def thin(self) -> ThinPredictor:
        """The model at a few wavenumbers."""
        return self.joint.predictor.thinned(self.joint.data.good)

    @property
    def count(self) -> int:
        """Number of smooth parameters: the first of the inputs."""
        return self.outer.smooth.size

    @property
    def centre(self) -> np.ndarray:
        """Inputs of the mode."""
        return self.z[self.outer.inputs]

    @cached_property
    def expanded(self) -> tuple[np.ndarray, np.ndarray]:
        """Spectrum (n,) over its plain factor, and its derivatives (inputs, n)."""
        joint, c = self.joint, self.joint.coordinates
        factor, point = float(self.outer.factor(self.z[None])[0]), c.point(self.z)
        made = joint.predictor.derivatives(point.theta[None], point.field[None])
        flux, of_theta, of_field = (a[..., joint.data.good] * np.exp(point.ln_scale) / factor for a in made)
        return flux[0], self.by_inputs(point.slope[None, c.free[self.outer.smooth]], of_theta, of_field)[0]

    @cached_property
    def white(self) -> np.ndarray:
        """One over the noise (n,) at the mode."""
        factor = float(self.outer.factor(self.z[None])[0])
        return 1 / np.sqrt(self.joint.variance(self.joint.coordinates.point(self.z), factor * self.expanded[0]))

    @cached_property
    def thinned(self) -> tuple[np.ndarray, np.ndarray]:
        """Fluxes (few,) at a few wavenumbers, and the derivatives (inputs, few) of these over themselves."""
        theta, slope, field = self.points(self.centre[None])
        flux, by_field = self.thin.at(theta).local(field)
        few = flux.shape[1]
        columns = self.thin.at(np.repeat(theta, few, axis=0))
        columns.local(np.repeat(field, few, axis=0))
        by_theta = columns.pulled(np.eye(few)).T[None]  # each flux by itself
        return flux[0], self.by_inputs(slope, by_theta, by_field)[0] / flux[0]

    def moved(self, inputs: np.ndarray) -> np.ndarray:
        """Bends (b, powers) of powers of the velocities at `inputs` (b, inputs)."""
        c = self.joint.coordinates
        names = [c.box.names[i] for i in c.free[self.outer.smooth]]
        theta, slope, _ = self.points(np.concatenate([self.centre[None], inputs]))
        bends = []
        for name, power, from_mode in VELOCITIES:
            if name not in names:
                continue
            i = names.index(name)
            place = c.free[self.outer.smooth[i]]
            v = theta[:, place] - (theta[0, place] if from_mode else 0.0)
            rate = power * v[0] ** (power - 1) * slope[0, i]
            unit = c.box.widths[place] ** power
            bends.append((v[1:] ** power - v[0] ** power - rate * (inputs[:, i] - self.centre[i])) / unit)
        return np.stack(bends, axis=1) if bends else np.zeros((len(inputs), 0))

    def points(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Parameters (b, D), their slopes (b, smooth) and coefficients (b, K) at `inputs` (b, inputs)."""
        c, smooth = self.joint.coordinates, self.joint.coordinates.free[self.outer.smooth]
        u = inputs[:, : self.count]
        theta = np.tile(c.point(self.z).theta, (len(inputs), 1))
        theta[:, smooth] = np.asarray(c.box.low)[smooth] + c.box.widths[smooth] * ndtr(u)
        slope = c.box.widths[smooth] * np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)
        field = np.zeros((len(inputs), np.size(c.sigma)))
        field[:, c.varied] = np.asarray(c.sigma)[c.varied] * inputs[:, self.count :]
        return theta, slope, field

    def by_inputs(self, slope: np.ndarray, of_theta: np.ndarray, of_field: np.ndarray) -> np.ndarray:
        """Return derivatives (b, inputs, m) from those by parameters (b, D, m) and coefficients (b, K, m)."""
        smooth = self.joint.coordinates.free[self.outer.smooth]
        return np.concatenate([of_theta[:, smooth] * slope[..., None], self.by_coefficients(of_field)], axis=1)

    def by_coefficients(self, of_field: np.ndarray) -> np.ndarray:
        """Return derivatives (b, varied, m) by coordinates of coefficients from those by all coefficients (b, K, m)."""
        c = self.joint.coordinates
        return of_field[:, c.varied] * np.asarray(c.sigma)[c.varied, None]


class Emulator:
    """Spectra over their plain factor, whitened by the noise at the mode: sums of `rows` (m, n).

    Rows are the mode's spectrum, its derivatives by the inputs, and what the bend at each of a few wavenumbers and of
    each power of a velocity does.
    """

    def __init__(self, about: About, lessons: Lessons) -> None:
        self.about = about
        flux, slopes = about.expanded
        inputs = lessons.z[:, about.outer.inputs]
        theta, _, field = about.points(inputs)
        shares, _ = self.shares(inputs, about.thin.at(theta), field)
        known = np.concatenate([flux[None], slopes]) * about.white
        bent, few = shares[:, len(known) :], shares.shape[1] - len(known)
        rest = lessons.flux * about.white - shares[:, : len(known)] @ known
        weights = _ridge(bent, rest) if len(inputs) else np.zeros((few, flux.size))
        self.rows = np.concatenate([known, weights])

    def shares(self, inputs: np.ndarray, columns: ThinFluxes, field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shares (b, m) of the rows at `inputs`, and the derivatives (b, coefficients, bends) of what bends."""
        about = self.about
        unit, bends = about.thinned
        flux, by_field = columns.local(field)
        shift = inputs - about.centre
        bent, moved = flux / unit - 1 - shift @ bends, about.moved(inputs)
        by_coefficient = about.by_coefficients(by_field) / unit - bends[about.count :]
        return (
            np.concatenate([np.ones((len(inputs), 1)), shift, bent, moved], axis=1),
            np.concatenate([by_coefficient, np.zeros((*by_coefficient.shape[:2], moved.shape[1]))], axis=2),
        )


def _ridge(bent: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Weights (few, n) with which `bent` (m, few) gives `rest` (m, n)."""
    count = 1 / np.maximum(1.0, np.linalg.norm(rest, axis=1, keepdims=True) / NEAR)
    bent, rest = bent * count, rest * count
    least = len(bent) * RIDGE**2 * (bent**2).mean() + 1e-30
    return np.linalg.solve(bent.T @ bent + least * np.eye(bent.shape[1]), bent.T @ rest)
