"""Coordinates in which spectra are nearly linear: what chemistry and clouds bend is followed, not expanded.

Spectra depend on parameters through columns, temperatures and clouds of some sixty layers. Those are bent functions of
the parameters, cheap, and known exactly; what they do to a spectrum is nearly linear. And most of what they bend the
opacity field makes good: an abundance and a coefficient are much the same to a spectrum. So the posterior is a thin
curved sheet in parameters and coefficients c, and a nearly flat one in parameters and c' = c + M b, b the bent part
of the column's numbers about the mode and M what mimics their effect by coefficients, bounded: a cloud that appears is
no coefficient. This shear keeps volumes.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.outer import Outer

__all__ = ["Warp"]

MOST = 3.0  # of a coefficient's shift, in standard deviations of its prior


class Warp:
    """The shear about the mode `z` (size,).

    `inputs` are smooth parameters and coefficients, plain or warped: what the shear depends on is the same in both.

    Parameters
    ----------
    joint : whose spectra these are
    z : (size,), the mode
    flux : (n,), the spectrum there over its plain factor
    slopes : (inputs, n), its derivatives
    """

    def __init__(self, joint: Joint, z: np.ndarray, flux: np.ndarray, slopes: np.ndarray) -> None:
        self.joint, self.outer, self.mode = joint, Outer(joint), z
        factor = float(self.outer.factor(z[None])[0])
        at = joint.coordinates.point(z)
        self.white = white = 1 / np.sqrt(joint.data.error**2 + (at.f * factor * flux) ** 2)
        self.thin = joint.predictor.thinned(joint.data.good)
        self.count = self.outer.smooth.size
        self.centre = z[self.outer.inputs]
        self.first = self.thin.at(at.theta[None], at.field[None]).numbers[0]
        slope = at.slope[joint.coordinates.free][self.outer.smooth]
        made = self.thin.slopes(at.theta[None], at.field[None])
        by_numbers, by_flux = (
            self.by_inputs(slope[None, :, None], *parts)[0]
            for parts in ((made.numbers_by_theta, made.numbers_by_field), (made.flux_by_theta, made.flux_by_field))
        )
        self.linear = by_numbers  # (inputs, values)
        self.unit, self.bends = made.flux[0], by_flux / made.flux[0]  # (few,), (inputs, few)
        response = self.thin.response(at.theta, at.field)[:, joint.data.good] * np.exp(at.ln_scale) / factor
        # Coefficients that the column's numbers depend on stay as they are.
        basis = slopes[self.count :] * white * ~self.thin.inside[joint.coordinates.varied, None]
        inner = factor**2 * (basis @ basis.T) + np.eye(len(basis))
        self.mimic = np.linalg.solve(inner, factor**2 * basis @ (response * white).T)  # (coefficients, values)

    def points(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Parameters (b, D), their slopes (b, smooth) and coefficients (b, K) at plain or warped `inputs`."""
        c = self.joint.coordinates
        at = c.point(self.mode)
        smooth = c.free[self.outer.smooth]
        u = inputs[:, : self.count]
        theta = np.tile(at.theta, (len(inputs), 1))
        theta[:, smooth] = np.asarray(c.box.low)[smooth] + c.box.widths[smooth] * ndtr(u)
        slope = c.box.widths[smooth] * np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)
        field = np.zeros((len(inputs), np.size(c.sigma)))
        field[:, c.varied] = np.asarray(c.sigma)[c.varied] * inputs[:, self.count :]
        return theta, slope, field

    def bent(self, inputs: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return the bent part of the column's `numbers` (b, values) at `inputs` (b, inputs)."""
        return numbers - self.first - (inputs - self.centre) @ self.linear

    def shift(self, inputs: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """By how much coefficients (b, coefficients) are sheared at `inputs`, and its slope by M b."""
        bounded = np.tanh(self.bent(inputs, numbers) @ self.mimic.T / MOST)
        return MOST * bounded, 1 - bounded**2

    def by_inputs(self, slope: np.ndarray, of_theta: np.ndarray, of_field: np.ndarray) -> np.ndarray:
        """Return the derivatives by inputs from those by parameters (b, D, ...) and coefficients (b, K, ...)."""
        c = self.joint.coordinates
        sigma = np.asarray(c.sigma)[c.varied].reshape(-1, *[1] * (of_field.ndim - 2))
        return np.concatenate([of_theta[:, c.free[self.outer.smooth]] * slope, of_field[:, c.varied] * sigma], axis=1)

    def plain(self, inputs: np.ndarray) -> np.ndarray:
        """Plain inputs of warped ones."""
        return self._sheared(inputs, -1.0)

    def warped(self, inputs: np.ndarray) -> np.ndarray:
        """Warped inputs of plain ones."""
        return self._sheared(inputs, 1.0)

    def _sheared(self, inputs: np.ndarray, sign: float) -> np.ndarray:
        theta, _, field = self.points(inputs)
        out = inputs.copy()
        out[:, self.count :] += sign * self.shift(inputs, self.thin.at(theta, field).numbers)[0]
        return out
