"""Coordinates that follow the parameters: brightness, structure and coefficients relative to their best given those.

At given parameters u the rest r of the posterior is nearly normal, and its spread hardly changes; its middle m(u)
does, along a curve, and a chain that steps in u and r has to step as finely as that curve is narrow. So chains walk in
u and r - P(u), P a cubic in u that has the values and the slopes of m at some places (`Follow.fitted`). A shear:
volumes stay, and any P is exact; a good one makes steps long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import combinations_with_replacement, permutations

import numpy as np

from kappaflow.refinement.emulated import EmulatedDensity
from kappaflow.refinement.outer import Completed

__all__ = ["Follow", "Followed", "Places", "places"]

FAR = 4.0  # standard deviations: a cubic goes wild beyond
RIDGE = 0.03  # on quadratic and cubic terms
EQUATIONS = 2.5  # per unknown, with which cubic terms are fitted, too
BEYOND = 1.0  # standard deviations farther out than anything seen: where the fence begins
LARGEST = 3.0  # of the way from a place to the middle given its parameters


@dataclass(frozen=True, eq=False)
class Places:
    """Where the posterior has been looked at: the middle of the rest given the parameters, and its slopes."""

    u: np.ndarray  # (a, n)
    middle: np.ndarray  # (a, r)
    slopes: np.ndarray  # (a, n, r)
    v: np.ndarray  # (a, k)
    information: np.ndarray  # (a, k, k)

    @staticmethod
    def joined(parts: Sequence[Places]) -> Places:
        """Concatenate."""
        return Places(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Places)))


def places(density: EmulatedDensity, v: np.ndarray) -> Places:
    """Look at `v` (a, k): a Newton step of the rest, parameters held."""
    n = density.outer.smooth.size
    information, force = density.information(v), density(v)[1]
    of_rest = information[:, n:, n:]
    step = np.linalg.solve(of_rest, force[:, n:, None])[..., 0]
    slopes = -np.linalg.solve(of_rest, information[:, n:, :n])
    middle = v[:, n:] + np.clip(step, -LARGEST, LARGEST)
    return Places(v[:, :n], middle, np.swapaxes(slopes, 1, 2), v, information)


@dataclass(frozen=True, eq=False)
class Follow:
    """P(u) = constant + linear(y) + quadratic(x, x) + cubic(x, x, x), y the whitened parameters, x = y bounded.

    The cubic is 0 where there are few places.
    """

    centre: np.ndarray  # (n,)
    back: np.ndarray  # (n, n): y = back (u - centre)
    constant: np.ndarray  # (r,)
    linear: np.ndarray  # (n, r)
    quadratic: np.ndarray  # (n, n, r), symmetric
    cubic: np.ndarray  # (n, n, n, r), symmetric
    radius: float  # of y, within which places were

    @classmethod
    def fitted(cls, at: Places) -> Follow:
        """Fit values and slopes at places by least squares, bends held back by a ridge."""
        n, r = at.u.shape[1], at.middle.shape[1]
        centre = at.u.mean(axis=0)
        root = np.linalg.cholesky(np.cov(at.u.T).reshape(n, n) + 1e-6 * np.eye(n))
        back = np.linalg.inv(root)
        y, x, dx = _bounded((at.u - centre) @ back.T)
        terms = _terms(n, 3)
        if len(at.u) * (n + 1) < EQUATIONS * len(terms):
            terms = _terms(n, 2)
        bends, by_x = _monomials(x, terms)  # (a, p), (a, p, n)
        a, p = bends.shape
        values = np.concatenate([np.ones((a, 1)), y, bends], axis=1)
        unit = np.tile(np.eye(n), (a, 1, 1))
        slopes = np.concatenate([np.zeros((a, n, 1)), unit, np.swapaxes(by_x * dx[:, None], 1, 2)], axis=2)
        design = np.concatenate([values, slopes.reshape(a * n, -1)])
        target = np.concatenate([at.middle, (root.T @ at.slopes).reshape(a * n, r)])
        ridge = np.concatenate([np.full(1 + n, 1e-8), np.full(p, RIDGE)])
        found = np.linalg.solve(design.T @ design + np.diag(ridge), design.T @ target)
        quadratic, cubic = (_symmetric(found[1 + n :], terms, n, order) for order in (2, 3))
        radius = float(np.linalg.norm(y, axis=1).max())
        return cls(centre, back, found[0], found[1 : 1 + n], quadratic, cubic, radius)

    @cached_property
    def _flat(self) -> tuple[np.ndarray, np.ndarray]:
        n = self.centre.size
        return self.quadratic.reshape(n, -1), self.cubic.reshape(n * n, -1)

    def __call__(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P (b, r) at u (b, n), and its slopes (b, n, r)."""
        y, x, dx = _bounded((u - self.centre) @ self.back.T)
        (b, n), r = x.shape, self.constant.size
        quadratic, cubic = self._flat
        twice = (x @ quadratic).reshape(b, n, r)
        thrice = ((x[:, :, None] * x[:, None]).reshape(b, n * n) @ cubic).reshape(b, n, r)
        value = self.constant + y @ self.linear + (x[:, None] @ (twice + thrice))[:, 0]
        return value, self.back.T @ (self.linear + dx[..., None] * (2 * twice + 3 * thrice))

    def fence(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ln of a factor (b,) that falls beyond where u (b, n) has been seen, and its gradient (b, n).

        Far out an emulator can invent modes. What lies there is not lost: it is drawn more seldom, and weighs more.
        """
        y = (u - self.centre) @ self.back.T
        far = np.linalg.norm(y, axis=1)
        over = np.maximum(far - self.radius - BEYOND, 0.0)
        return -0.5 * over**2, -((over / np.maximum(far, 1e-9))[:, None] * y) @ self.back


def _bounded(y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return `y`, the same bounded, and the slope of that."""
    x = FAR * np.tanh(y / FAR)
    return y, x, 1 - (x / FAR) ** 2


def _terms(n: int, highest: int) -> list[tuple[int, ...]]:
    """Which of n numbers are multiplied: all products of two and up to `highest` of them."""
    return [t for order in range(2, highest + 1) for t in combinations_with_replacement(range(n), order)]


def _monomials(x: np.ndarray, terms: list[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """Products (a, p) of x (a, n), and their derivatives (a, p, n)."""
    values, slopes = np.empty((len(x), len(terms))), np.zeros((len(x), len(terms), x.shape[1]))
    for i, term in enumerate(terms):
        values[:, i] = x[:, term].prod(axis=1)
        for j in range(len(term)):
            slopes[:, i, term[j]] += x[:, term[:j] + term[j + 1 :]].prod(axis=1)
    return values, slopes


def _symmetric(found: np.ndarray, terms: list[tuple[int, ...]], n: int, order: int) -> np.ndarray:
    """Symmetric tensor (n, ..., n, r) of the coefficients `found` (p, r) of the terms of `order`."""
    out = np.zeros((*(n,) * order, found.shape[1]))
    for row, term in zip(found, terms, strict=True):
        if len(term) == order:
            every = set(permutations(term))
            out[tuple(np.array(list(every)).T)] = row / len(every)
    return out


@dataclass(frozen=True, eq=False)
class Followed:
    """The emulated density in coordinates x = (u, r - P(u)), fenced in."""

    density: EmulatedDensity
    follow: Follow

    @property
    def count(self) -> int:
        """Number of parameters u."""
        return self.follow.centre.size

    def of(self, v: np.ndarray) -> np.ndarray:
        """Return x of v (b, k)."""
        x = v.copy()
        x[:, self.count :] -= self.follow(v[:, : self.count])[0]
        return x

    def back(self, x: np.ndarray) -> np.ndarray:
        """Return v of x (b, k)."""
        v = x.copy()
        v[:, self.count :] += self.follow(x[:, : self.count])[0]
        return v

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ln density (b,) and its gradient, of x (b, k)."""
        n = self.count
        middle, slopes = self.follow(x[:, :n])
        v = x.copy()
        v[:, n:] += middle
        value, force = self.density(v)
        factor, push = self.follow.fence(x[:, :n])
        force = force.copy()
        force[:, :n] += (slopes @ force[:, n:, None])[..., 0] + push
        return value + factor, force

    def root(self, at: Places) -> np.ndarray:
        """Return a square root (k, k) of the inverse of the mean information at places, in these coordinates."""
        n = self.count
        turn = np.tile(np.eye(at.v.shape[1]), (len(at.v), 1, 1))
        turn[:, n:, :n] = np.swapaxes(self.follow(at.u)[1], 1, 2)
        return np.linalg.cholesky(np.linalg.inv((np.swapaxes(turn, 1, 2) @ at.information @ turn).mean(axis=0)))

    def complete(self, x: np.ndarray, rng: np.random.Generator) -> Completed:
        """Draw radius, gains and sigma_cal for each of `x` (b, k)."""
        return self.density.complete(self.back(x), rng)
