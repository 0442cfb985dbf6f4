"""Moves of one parameter to anywhere it has been, the others following.

The posterior is bent, and stiff at some of its places only, as where a cloud is seen; trajectories that are fine enough
for these take long to cross it. A single proposal crosses it at once: one parameter is drawn anew, and all others are
moved along the curve on which they follow it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["Refresh"]

WIDER = (1.2, 3.0)  # the proposal's standard deviations over the posterior's: a mixture, for tails
SHARES = (0.7, 0.3)
FARTHEST = 3.0  # standard deviations up to which others follow
TINY = 1e-12
DEGREES = (0, 1, 3)  # of the curves, taken in turn at random


@dataclass(frozen=True, eq=False)
class Refresh:
    """Curves (parameter, degrees, highest + 1, k) of all coordinates along each parameter, the first coordinates."""

    centre: np.ndarray  # (k,)
    spread: np.ndarray  # (k,)
    curves: np.ndarray

    @classmethod
    def learnt(cls, path: np.ndarray, among: int) -> Refresh:
        """From places (n, k) of the posterior, of which the first `among` are parameters."""
        centre, spread = path.mean(axis=0), np.maximum(path.std(axis=0), TINY)
        curves = np.zeros((among, len(DEGREES), max(DEGREES) + 1, path.shape[1]))
        for i in range(among):
            powers = _powers((path[:, i] - centre[i]) / spread[i])
            for d, degree in enumerate(DEGREES):
                curves[i, d, : degree + 1] = np.linalg.lstsq(powers[:, : degree + 1], path, rcond=None)[0]
        return cls(centre, spread, curves)

    def __call__(
        self,
        ln_density: Callable[[np.ndarray], np.ndarray],
        at: np.ndarray,
        value: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Propose to every chain at (b, k), of ln density `value` (b,), a move of each parameter in turn.

        In any order, so that the moves together are reversible.
        """
        for i in rng.permutation(len(self.curves)):
            old = (at[:, i] - self.centre[i]) / self.spread[i]
            new = rng.choice(WIDER, len(at), p=SHARES) * rng.standard_normal(len(at))
            curve = self.curves[i, rng.integers(len(DEGREES), size=len(at))]
            there = at + ((_powers(new) - _powers(old))[:, None] @ curve)[:, 0]
            there[:, i] = self.centre[i] + self.spread[i] * new
            height = ln_density(there)
            odds = height - value + _ln_proposed(old) - _ln_proposed(new)
            moved = np.log(rng.random(len(at))) < np.where(np.isfinite(odds), odds, -np.inf)
            at, value = np.where(moved[:, None], there, at), np.where(moved, height, value)
        return at, value


def _ln_proposed(t: np.ndarray) -> np.ndarray:
    """Ln density (b,), but for a constant, with which t (b,) is proposed."""
    width = np.array(WIDER)
    return np.logaddexp.reduce(np.log(np.array(SHARES) / width) - 0.5 * (t[:, None] / width) ** 2, axis=1)


def _powers(t: np.ndarray) -> np.ndarray:
    return np.clip(t, -FARTHEST, FARTHEST)[:, None] ** np.arange(max(DEGREES) + 1)
