"""A fast stand-in for the forward model near one posterior: what a chain walks on; exact spectra judge it afterwards.

Over one posterior spectra are linear in nearly all directions of parameters and coefficients: of 68 only a handful bend
them by more than the noise. So: F / R^2 = its linear expansion about the mode + a Gaussian process of the few
directions y = Q z in which the derivatives change, conditioned on spectra and their derivatives at chosen points, with
length scales in proportion to how little they change. Outputs are whitened by the noise and projected onto the
directions that anything at these points moves (some 150 of 1,800 pixels).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from kappaflow.refinement.coordinates import DETECTORS
from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.outer import Outer

__all__ = ["Design", "Emulator", "design"]

LENGTH = 12.0  # of the process, in standard deviations of the direction that bends most
ACTIVE = (0.02, 24)  # a direction counts that changes a derivative by this much noise; at most so many
KEPT = 0.03  # noise: what is moved by less is not followed
NUGGET = 1e-8  # of the process's variance: the model is in single precision, its tables have kinks


@dataclass(frozen=True, eq=False)
class Design:
    """Points with exact spectra; the first is the mode, those that have derivatives come first."""

    z: np.ndarray  # (m, size)
    flux: np.ndarray  # (m, n), over the plain factor
    slopes: np.ndarray  # (g, inputs, n) of the first g, per unit of z

    def joined(self, other: Design) -> Design:
        """Return both, those with derivatives first."""
        a, b = len(self.slopes), len(other.slopes)

        def mixed(one: np.ndarray, two: np.ndarray) -> np.ndarray:
            return np.concatenate([one[:a], two[:b], one[a:], two[b:]])

        return Design(mixed(self.z, other.z), mixed(self.flux, other.flux), np.concatenate([self.slopes, other.slopes]))


def design(joint: Joint, z: np.ndarray, flux: np.ndarray | None = None) -> Design:
    """Compute the spectra and derivatives at z (b, size); with `flux` (b, n) only that is kept, without derivatives."""
    outer, c = Outer(joint), joint.coordinates
    factor = outer.factor(z)[:, None]
    if flux is not None:
        return Design(z, flux / factor, np.empty((0, outer.inputs.size, flux.shape[1])))
    points = [c.point(row) for row in z]
    made = joint.predictor.derivatives(np.stack([p.theta for p in points]), np.stack([p.field for p in points]))
    scale = np.exp([p.ln_scale for p in points])[:, None, None]
    of_theta, of_field = (a[:, :, joint.data.good] * scale for a in made[1:])
    slope = np.stack([p.slope for p in points])[:, c.free, None]
    sigma = np.asarray(c.sigma)[c.varied, None]
    of_inputs = np.concatenate([(of_theta[:, c.free] * slope)[:, outer.smooth], of_field[:, c.varied] * sigma], axis=1)
    return Design(z, made[0][:, joint.data.good] * scale[:, 0] / factor, of_inputs / factor[..., None])


class Emulator:
    """Whitened and projected spectra (b, r) over their plain factor, with derivatives, from a `Design`.

    Parameters
    ----------
    joint : whose spectra these are
    made : points with exact spectra
    covariance : (size, size), of z about the posterior: sets the scale of every direction
    f : structure with which the noise whitens
    """

    def __init__(self, joint: Joint, made: Design, covariance: np.ndarray, f: float) -> None:
        outer, data = Outer(joint), joint.data
        factor = float(outer.factor(made.z[:1])[0])
        self.centre = made.z[0, outer.inputs]
        root = np.linalg.cholesky(covariance[np.ix_(outer.inputs, outer.inputs)])
        back = solve_triangular(root, np.eye(len(root)), lower=True)
        white = 1 / np.sqrt(data.error**2 + (f * factor * made.flux[0]) ** 2)
        x = (made.z[:, outer.inputs] - self.centre) @ back.T
        slopes = np.einsum("jk,njp->nkp", root, made.slopes) * white
        first, linear = made.flux[0] * white, slopes[0]
        rest = made.flux * white - first - x @ linear
        bends = slopes - linear
        directions, relative = _active(bends * factor)
        bends = np.einsum("ak,nkp->nap", directions, bends)
        moved = np.concatenate([first[None], linear, rest, bends.reshape(-1, first.size)]) * factor
        onto, self.detector = _directions(moved, data.detector)
        self.white, self.onto = white, onto
        self.data = (data.flux * white) @ onto  # (r,)
        self.outside = float(((data.flux * white) ** 2).sum() - (self.data**2).sum()) - 2 * float(np.log(white).sum())
        self.first = first @ onto
        self.linear = back.T @ (linear @ onto)  # (inputs, r)
        self.turn = (directions * relative[:, None]) @ back  # (a, inputs)
        self.nodes = x @ (directions * relative[:, None]).T / LENGTH
        self._condition(rest @ onto, bends @ onto / relative[:, None])

    def _condition(self, rest: np.ndarray, bends: np.ndarray) -> None:
        """Solve for the process's weights: of values at all nodes, and of derivatives at the first of them."""
        g, a = bends.shape[:2]
        kernel = _kernel(self.nodes, g)
        right = np.concatenate([rest, (bends * LENGTH).reshape(g * a, -1)])
        weights = cho_solve(cho_factor(kernel + NUGGET * np.eye(len(kernel)), lower=True), right)
        self.of_value = weights[: len(self.nodes)]  # (m, r)
        self.of_slope = weights[len(self.nodes) :].reshape(g, a, -1)

    def project(self, flux: np.ndarray) -> np.ndarray:
        """Spectra (b, n), as those of the emulator: (b, r)."""
        return (flux * self.white) @ self.onto

    def __call__(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Spectra (b, r) and derivatives (b, inputs, r) at `inputs` (b, inputs)."""
        shift = inputs - self.centre
        apart = (shift @ self.turn.T / LENGTH)[:, None] - self.nodes  # (b, m, a)
        near = np.exp(-0.5 * (apart**2).sum(axis=-1))
        g, a, r = self.of_slope.shape
        tilts = np.matmul(np.moveaxis(apart[:, :g], 1, 0), self.of_slope)  # (g, b, r)
        tilts *= near[:, :g].T[..., None]
        value = self.first + shift @ self.linear + near @ self.of_value + tilts.sum(axis=0)
        weighted = np.moveaxis(near[..., None] * apart, 1, 2)  # (b, a, m)
        slope = (near[:, :g] @ self.of_slope.reshape(g, a * r)).reshape(-1, a, r)
        slope -= np.matmul(weighted, self.of_value)
        slope -= np.matmul(np.moveaxis(apart[:, :g], 1, 2), np.moveaxis(tilts, 0, 1))
        return value, self.linear + np.matmul(self.turn.T / LENGTH, slope)

    def bending(self, inputs: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Gradient (b, inputs) of sum_kr weight_kr d F_r / d input_k, of `inputs` and `weight` (b, inputs, r) held.

        Only the process bends: with y the active directions over its length and e = y - node, its second derivatives
        are near [(e e' - 1) v - e s' - s e'], s the weights of slopes and v those of values plus e s.
        """
        turn = self.turn / LENGTH
        apart = ((inputs - self.centre) @ turn.T)[:, None] - self.nodes  # (b, m, a)
        near = np.exp(-0.5 * (apart**2).sum(axis=-1))
        along = np.matmul(turn, weight)  # (b, a, r)
        g = len(self.of_slope)
        early = np.moveaxis(apart[:, :g], 1, 0)  # (g, b, a)
        both = np.matmul(self.of_value, np.swapaxes(along, 1, 2))  # (b, m, a)
        tilts = np.matmul(early, self.of_slope)  # (g, b, r)
        both[:, :g] += np.matmul(np.moveaxis(tilts, 0, 1), np.swapaxes(along, 1, 2))
        out = (near * (apart * both).sum(axis=-1))[..., None] * apart - near[..., None] * both
        # Terms with one slope: e s' and s e'.
        mixed = np.matmul(apart[:, :g], along)  # (b, g, r)
        crossed = np.matmul(np.moveaxis(mixed, 1, 0), np.swapaxes(self.of_slope, 1, 2))  # (g, b, a)
        plain = along.reshape(len(along), -1) @ self.of_slope.reshape(g, -1).T  # (b, g)
        out[:, :g] -= near[:, :g, None] * (np.moveaxis(crossed, 0, 1) + plain[..., None] * apart[:, :g])
        return out.sum(axis=1) @ turn


def _directions(moved: np.ndarray, detector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal directions (n, r) that hold the rows of `moved` (m, n), of one detector each, and which (r,)."""
    found, which = [], []
    for d in range(DETECTORS):
        here = np.flatnonzero(detector == d)
        values, vectors = np.linalg.eigh(moved[:, here].T @ moved[:, here])
        kept = vectors[:, values > KEPT**2]
        whole = np.zeros((detector.size, kept.shape[1]))
        whole[here] = kept
        found.append(whole)
        which += [d] * kept.shape[1]
    return np.concatenate(found, axis=1), np.array(which)


def _active(bends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal directions (a, inputs) in which derivatives (n, inputs, p) change, and how much over the most."""
    values, vectors = np.linalg.eigh(np.einsum("njp,nkp->jk", bends, bends) / max(len(bends) - 1, 1))
    size = np.sqrt(np.maximum(values[::-1], 0))
    count = int(np.clip((size > ACTIVE[0]).sum(), 1, ACTIVE[1]))
    return vectors[:, ::-1][:, :count].T, np.maximum(size[:count] / max(size[0], 1e-12), 1e-6)


def _kernel(nodes: np.ndarray, g: int) -> np.ndarray:
    """Covariance of values at `nodes` (m, a) and of derivatives at the first `g` of them; unit variance and length."""
    m, a = nodes.shape
    apart = nodes[:, None] - nodes[None]
    near = np.exp(-0.5 * (apart**2).sum(axis=-1))
    cross = near[:, :g, None] * apart[:, :g]  # value at the one, derivative at the other
    both = near[:g, :g, None, None] * (np.eye(a) - apart[:g, :g, :, None] * apart[:g, :g, None, :])
    cross = cross.reshape(m, g * a)
    return np.block([[near, cross], [cross.T, np.moveaxis(both, 2, 1).reshape(g * a, g * a)]])
