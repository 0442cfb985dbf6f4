"""Where brightness and coefficients are likeliest, as a quadratic of the outer coordinates: where a search begins.

Learnt from places at which they have been found. With it goes a fence about what has been seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Lead", "tangent"]

FAR = 4.0  # standard deviations: a quadratic goes wild beyond
RIDGE = 3.0  # on quadratic terms
BEYOND = 1.0  # standard deviations farther out than anything seen: where the fence begins


@dataclass(frozen=True, eq=False)
class Lead:
    """Rest = shares(x) @ terms, shares 1, y and products of two bounded y; y the whitened outer coordinates."""

    centre: np.ndarray  # (k,)
    root: np.ndarray  # (k, k): x = centre + root y
    terms: np.ndarray  # (1 + k [+ k (k + 1) / 2], r)
    radius: float  # of y, within which places were

    @classmethod
    def fitted(cls, x: np.ndarray, middle: np.ndarray, covariance: np.ndarray) -> Lead:
        """From places x (a, k) at which the rest was found, `middle` (a, r)."""
        k = x.shape[1]
        centre, root = x.mean(axis=0), np.linalg.cholesky(covariance)
        y = np.linalg.solve(root, (x - centre).T).T
        shares = _shares(y)
        ridge = np.concatenate([np.full(1 + k, 1e-6), np.full(shares.shape[1] - 1 - k, RIDGE)])
        terms = np.linalg.solve(shares.T @ shares + np.diag(ridge), shares.T @ middle)
        radius = float(np.linalg.norm(y, axis=1).max())
        return cls(centre, root, terms, radius)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Rest (b, r) at x (b, k)."""
        shares = _shares(np.linalg.solve(self.root, (x - self.centre).T).T)
        return shares[:, : len(self.terms)] @ self.terms

    def fence(self, x: np.ndarray) -> np.ndarray:
        """Ln of a factor (b,) that falls beyond where x (b, k) has been seen.

        Far out an emulator can invent modes. What lies there is not lost: it is drawn more seldom, and weighs more.
        """
        far = np.linalg.norm(np.linalg.solve(self.root, (x - self.centre).T), axis=0)
        return -0.5 * np.maximum(far - self.radius - BEYOND, 0.0) ** 2


def tangent(x: np.ndarray, rest: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places (2 k, k) a standard deviation from `x` (k,) either way, and the rest (2 k, r) expected there.

    `covariance` (k + r, k + r) is that of x and rest in a normal density about them.
    """
    k = x.size
    root = np.linalg.cholesky(covariance[:k, :k])
    follow = np.linalg.solve(root, covariance[:k, k:])
    return np.concatenate([x + root.T, x - root.T]), np.concatenate([rest + follow, rest - follow])


def _shares(y: np.ndarray) -> np.ndarray:
    """Return 1, y (b, k) and all products of two of it, bounded."""
    x = FAR * np.tanh(y / FAR)
    one, two = np.triu_indices(y.shape[1])
    return np.concatenate([np.ones((len(y), 1)), y, x[:, one] * x[:, two]], axis=1)
