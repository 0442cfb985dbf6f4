"""Coordinates in which spectra are nearly linear: what chemistry and clouds bend is followed, not expanded.

Spectra depend on parameters through columns, temperatures and clouds of some sixty layers. Those are bent functions of
the parameters, cheap, and known exactly; what they do to a spectrum is nearly linear. And most of what they bend the
opacity field makes good: an abundance and a coefficient are much the same to a spectrum. So the posterior is a thin
curved sheet in parameters and coefficients c, and a nearly flat one in parameters and c' = c + M b, b the bent part
of the column's numbers about the mode and M what mimics their effect by coefficients. This shear keeps volumes.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.outer import Outer

__all__ = ["Warp"]


class Warp:
    """The shear about the mode `z` (size,), and what coefficients cannot mimic.

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
        self.column = joint.predictor.column
        self.count = self.outer.smooth.size
        self.centre = z[self.outer.inputs]
        self.first, self.linear = np.zeros(0), np.zeros((self.centre.size, 0))
        response = np.zeros((0, white.size))
        if self.column is not None:
            self.first = self.column.values(at.theta[None], at.field[None])[0]
            self.linear = self._jacobian(self.centre[None])[0]
            response = self.column.response(at.theta, at.field)[:, joint.data.good] * np.exp(at.ln_scale) / factor
        basis = slopes[self.count :] * white
        if self.column is not None:  # those that the column's numbers depend on stay as they are
            basis = basis * ~self.column.inside[joint.coordinates.varied, None]
        inner = factor**2 * (basis @ basis.T) + np.eye(len(basis))
        self.mimic = np.linalg.solve(inner, factor**2 * basis @ (response * white).T)  # (coefficients, values)
        self.left = response - self.mimic.T @ slopes[self.count :]  # (values, n)

    def _points(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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

    def bent(self, inputs: np.ndarray) -> np.ndarray:
        """Bent part (b, values) of the column's numbers at `inputs` (b, inputs)."""
        if self.column is None:
            return np.zeros((len(inputs), 0))
        theta, _, field = self._points(inputs)
        return self.column.values(theta, field) - self.first - (inputs - self.centre) @ self.linear

    def pulled(self, inputs: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Gradient (b, inputs) of the sum of `weight` (b, values) times `bent`."""
        if self.column is None:
            return np.zeros_like(inputs)
        theta, slope, field = self._points(inputs)
        of_theta, of_field = self.column.pulled(theta, field, weight)
        return self._by_inputs(slope, of_theta, of_field) - weight @ self.linear.T

    def bends(self, inputs: np.ndarray) -> np.ndarray:
        """Return the derivatives (b, inputs, values) of `bent`."""
        return self._jacobian(inputs) - self.linear

    def _jacobian(self, inputs: np.ndarray) -> np.ndarray:
        if self.column is None:
            return np.zeros((*inputs.shape, 0))
        theta, slope, field = self._points(inputs)
        return self._by_inputs(slope[..., None], *self.column.jacobian(theta, field))

    def _by_inputs(self, slope: np.ndarray, of_theta: np.ndarray, of_field: np.ndarray) -> np.ndarray:
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
        out = inputs.copy()
        out[:, self.count :] += sign * self.bent(inputs) @ self.mimic.T
        return out
