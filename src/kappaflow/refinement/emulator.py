"""A fast stand-in for the forward model near one posterior: what a chain walks on; exact spectra judge it afterwards.

F / R^2 = its linear expansion about the mode, exact, + what bends: that of the flux at a few wavenumbers (`thin.py`),
which have the same columns, temperatures and clouds, with weights per pixel from least squares on exact spectra of the
same posterior.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.outer import Outer
from kappaflow.refinement.warp import Warp

Pull = Callable[[np.ndarray, np.ndarray], np.ndarray]

__all__ = ["Emulator", "Lessons", "expansion"]

RIDGE = 1e-4  # of the weights, over the bends' root mean square
PRECISION = np.float32  # a thousandth of a nat, and half the time
NEAR = 10.0  # standard deviations of the noise: spectra that bend by more count less, as those of clouds that appear


class Lessons(NamedTuple):
    """Exact spectra to learn from."""

    z: np.ndarray  # (m, size)
    flux: np.ndarray  # (m, n), over the plain factor

    def joined(self, other: Lessons) -> Lessons:
        """Return both."""
        return Lessons(np.concatenate([self.z, other.z]), np.concatenate([self.flux, other.flux]))


def expansion(joint: Joint, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Spectrum (n,) over its plain factor at z (size,), and its derivatives (inputs, n)."""
    outer, c = Outer(joint), joint.coordinates
    factor, point = float(outer.factor(z[None])[0]), c.point(z)
    made = joint.predictor.derivatives(point.theta[None], point.field[None])
    flux, of_theta, of_field = (a[0][..., joint.data.good] * np.exp(point.ln_scale) / factor for a in made)
    sigma = np.asarray(c.sigma)[c.varied, None]
    return flux, np.concatenate(
        [(of_theta[c.free] * point.slope[c.free, None])[outer.smooth], of_field[c.varied] * sigma]
    )


class Emulator:
    """Spectra over their plain factor, whitened by the noise at the mode, at warped inputs, with gradients.

    Parameters
    ----------
    warp : the inputs
    flux, slopes : (n,) and (inputs, n), the spectrum and its derivatives at the mode
    lessons : exact spectra about it
    """

    def __init__(self, warp: Warp, flux: np.ndarray, slopes: np.ndarray, lessons: Lessons) -> None:
        self.warp = warp
        self.first, self.linear = (flux * warp.white).astype(PRECISION), (slopes * warp.white).astype(PRECISION)
        inputs = lessons.z[:, warp.outer.inputs]
        theta, _, field = warp.points(inputs)
        shift = inputs - warp.centre
        bent = warp.thin.at(theta, field).flux(field) / warp.unit - 1 - shift @ warp.bends
        rest = lessons.flux * warp.white - flux * warp.white - shift @ (slopes * warp.white)
        self.weights = _ridge(bent, rest).astype(PRECISION)  # (few, n)

    def __call__(self, warped: np.ndarray) -> tuple[np.ndarray, np.ndarray, Pull]:
        """Plain inputs (b, inputs) and spectra (b, n) of `warped` inputs.

        Also what gives the gradient (b, inputs) of sums over both, with weights (b, inputs) and (b, n).
        """
        warp, n = self.warp, self.warp.count
        theta, slope, field = warp.points(warped)
        at = warp.thin.at(theta, field)
        plain = warped.copy()
        moved, turned = warp.shift(warped, at.numbers)
        plain[:, n:] -= moved
        shift = plain - warp.centre
        bent = at.flux(warp.points(plain)[2]) / warp.unit - 1 - shift @ warp.bends
        value = self.first + shift.astype(PRECISION) @ self.linear + bent.astype(PRECISION) @ self.weights

        def pulled(of_plain: np.ndarray, of_value: np.ndarray) -> np.ndarray:
            of_bent = of_value @ self.weights.T
            of_field = at.pulled_flux(of_bent / warp.unit)
            out = of_plain + of_value @ self.linear.T - of_bent @ warp.bends.T
            out += warp.by_inputs(slope, np.zeros_like(theta), of_field)
            of_numbers = -(out[:, n:] * turned) @ warp.mimic
            return out + warp.by_inputs(slope, *at.pulled_columns(of_numbers)) - of_numbers @ warp.linear.T

        return plain, value, pulled

    def slopes(self, warped: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Spectra (b, n), their derivatives (b, inputs, n) and those of the plain inputs (b, inputs, inputs)."""
        warp, n = self.warp, self.warp.count
        theta, slope, field = warp.points(warped)
        moved, turned = warp.shift(warped, warp.thin.at(theta, field).numbers)
        plain = warped.copy()
        plain[:, n:] -= moved
        made = warp.thin.slopes(theta, warp.points(plain)[2])
        numbers = warp.by_inputs(slope[..., None], made.numbers_by_theta, made.numbers_by_field)
        few = warp.by_inputs(slope[..., None], made.flux_by_theta, made.flux_by_field) / warp.unit
        turn = np.tile(np.eye(warped.shape[1]), (len(warped), 1, 1))
        turn[:, :, n:] -= (numbers - warp.linear) @ warp.mimic.T * turned[:, None]
        shift = plain - warp.centre
        value = self.first + shift @ self.linear + (made.flux / warp.unit - 1 - shift @ warp.bends) @ self.weights
        return value, turn @ (self.linear + (few - warp.bends) @ self.weights), turn


def _ridge(bent: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Weights (few, n) with which `bent` (m, few) gives `rest` (m, n)."""
    count = 1 / np.maximum(1.0, np.linalg.norm(rest, axis=1, keepdims=True) / NEAR)
    bent, rest = bent * count, rest * count
    least = len(bent) * RIDGE**2 * (bent**2).mean() + 1e-30
    return np.linalg.solve(bent.T @ bent + least * np.eye(bent.shape[1]), bent.T @ rest)
