"""A fast stand-in for the forward model near one posterior: what a chain walks on; exact spectra judge it afterwards.

Over one posterior spectra are linear in nearly all directions of parameters and coefficients: of 68 only a handful bend
them by more than the noise. So: F / R^2 = its linear expansion about the mode + a Gaussian process of the few
directions y = Q u in which the derivatives change, conditioned on spectra and their derivatives at chosen points, with
length scales in proportion to how little they change; u are the warped coordinates of `warp.py`, whose bent part adds
what coefficients cannot mimic. Outputs are whitened by the noise and projected onto the directions that anything at
these points moves (some 150 of 1,800 pixels).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from kappaflow.refinement.coordinates import DETECTORS
from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.outer import Outer
from kappaflow.refinement.warp import Warp

Pull = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

__all__ = ["Design", "Emulator", "design"]

LENGTH = 20.0  # of the process, in standard deviations of the direction that bends most
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
    warp : the coordinates, about the first of the points
    made : points with exact spectra
    covariance : (size, size), of z about the posterior: sets the scale of every direction
    """

    def __init__(self, warp: Warp, made: Design, covariance: np.ndarray) -> None:
        self.warp, outer, data, white = warp, warp.outer, warp.joint.data, warp.white
        factor = float(outer.factor(made.z[:1])[0])
        inputs, early = made.z[:, outer.inputs], made.z[: len(made.slopes), outer.inputs]
        bent, bends = warp.bent(inputs), warp.bends(early)
        root = np.linalg.cholesky(covariance[np.ix_(outer.inputs, outer.inputs)])
        back = solve_triangular(root, np.eye(len(root)), lower=True)
        x = (inputs - warp.centre + np.pad(bent @ warp.mimic.T, ((0, 0), (warp.count, 0)))) @ back.T
        # With parameters moved and warped coefficients held, plain ones move by less what the bent part mimics.
        slopes = made.slopes - np.matmul(bends @ warp.mimic.T, made.slopes[:, warp.count :])
        left, slopes = warp.left * white, np.matmul(root.T, slopes) * white
        first, linear = made.flux[0] * white, slopes[0]
        rest = made.flux * white - first - x @ linear - bent @ left
        bends = slopes - linear - np.matmul(root.T, bends @ left)
        directions, relative = _active(bends * factor)
        bends = np.einsum("ak,nkp->nap", directions, bends)
        moved = np.concatenate([first[None], linear, rest, bent @ left, bends.reshape(-1, first.size)]) * factor
        onto, self.detector = _directions(moved, data.detector)
        self.onto = onto
        self.data = (data.flux * white) @ onto  # (r,)
        self.outside = float(((data.flux * white) ** 2).sum() - (self.data**2).sum()) - 2 * float(np.log(white).sum())
        self.first, self.left = first @ onto, left @ onto
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
        return (flux * self.warp.white) @ self.onto

    def __call__(self, inputs: np.ndarray, bent: np.ndarray) -> tuple[np.ndarray, Pull]:
        """Spectra (b, r) at warped `inputs` (b, inputs) with the `bent` part (b, values) of their columns.

        Also what gives the gradients (b, inputs) and (b, values) of a sum over them with weights (b, r). With y the
        active directions over the process's length and e = y - node, the process is near (v + e s), v the weights of
        values and s those of slopes.
        """
        turn, (g, a, r) = self.turn / LENGTH, self.of_slope.shape
        flat = self.of_slope.reshape(g * a, r)
        shift = inputs - self.warp.centre
        apart = (shift @ turn.T)[:, None] - self.nodes  # (b, m, a)
        near = np.exp(-0.5 * (apart**2).sum(axis=-1))
        early = apart[:, :g]
        tilted = (near[:, :g, None] * early).reshape(-1, g * a)
        value = self.first + shift @ self.linear + near @ self.of_value + tilted @ flat + bent @ self.left

        def pulled(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            of_node = weight @ self.of_value.T  # (b, m)
            of_tilt = (weight @ flat.T).reshape(-1, g, a)
            of_node[:, :g] += (early * of_tilt).sum(axis=-1)
            of_active = (near[:, :g, None] * of_tilt).sum(axis=1) - ((near * of_node)[:, None] @ apart)[:, 0]
            return weight @ self.linear.T + of_active @ turn, weight @ self.left.T

        return value, pulled


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
