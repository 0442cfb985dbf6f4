"""What every judge is given: truths, posterior draws, names and the prior box, checked once at the edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from kappaflow.errors import UserError

__all__ = ["LEVELS", "Draws", "check_draws", "check_levels"]

LEVELS = (0.5, 0.68, 0.9, 0.95)


@dataclass(frozen=True, eq=False)
class Draws:
    """Posterior draws of `n` objects beside their truths; every value is finite and every truth inside the prior.

    `truth` (n, p), `draws` (n, s, p), `names` of the p parameters, `low` and `high` (p,) the uniform prior's
    bounds, both None where no prior was given.
    """

    truth: np.ndarray
    draws: np.ndarray
    names: tuple[str, ...]
    low: np.ndarray | None = None
    high: np.ndarray | None = None

    @property
    def prior_width(self) -> np.ndarray | None:
        """Widths of the prior, (p,), or None without a prior."""
        return None if self.low is None or self.high is None else self.high - self.low

    def objects(self, index: np.ndarray) -> Draws:
        """Return the objects `index` alone."""
        return replace(self, truth=self.truth[index], draws=self.draws[index])

    def outside_prior(self) -> np.ndarray | None:
        """Fraction of draws outside the prior box, (p,): leakage, a finding about the posterior."""
        if self.low is None or self.high is None:
            return None
        slack = _slack(self.low, self.high)
        columns = (self.draws[..., k] for k in range(self.truth.shape[1]))
        pairs = zip(columns, self.low - slack, self.high + slack, strict=True)
        return np.array([np.mean((column < low) | (column > high)) for column, low, high in pairs])


def check_draws(
    truth: ArrayLike,
    draws: ArrayLike,
    *,
    prior: tuple[ArrayLike, ArrayLike] | None = None,
    names: Sequence[str] | None = None,
) -> Draws:
    """Return `Draws`, or raise `UserError` saying which array is wrong, how, and what was expected.

    `truth` is (n, p) and `draws` (n, s, p); `prior` is (low, high), each (p,). Single precision is kept as it is.
    """
    t, d = _numbers("truth", truth), _numbers("draws", draws)
    if t.ndim != 2 or 0 in t.shape:
        raise UserError(f"truth: shape {t.shape}; expected (n, p), one row per object, one column per parameter")
    n, p = t.shape
    if d.ndim != 3 or d.shape[0] != n or d.shape[2] != p:
        raise UserError(f"draws: shape {d.shape}; expected (n, s, p) = ({n}, s, {p}) to match truth {t.shape}")
    if d.shape[1] < 2:
        raise UserError(f"draws: {d.shape[1]} draws per object; expected at least 2 (hundreds to be useful)")
    labels = tuple(str(name) for name in names) if names is not None else tuple(f"theta{k}" for k in range(p))
    if len(labels) != p or len(set(labels)) != p:
        raise UserError(f"names: {len(set(labels))} different names for {p} parameters; give one name per column")
    _finite("truth", t, labels)
    _finite("draws", d, labels)
    if prior is None:
        return Draws(t, d, labels)
    low, high = _box(prior, p, labels)
    _inside(t, low, high, labels)
    return Draws(t, d, labels, low, high)


def check_levels(levels: Sequence[float], draws: int) -> np.ndarray:
    """Return the nominal levels as an array, or raise where one is not a probability or `draws` cannot resolve it.

    The end of a central interval at level L lies at rank (1 - L)/2 * (s + 1): below 1 there is no draw there.
    """
    values = np.atleast_1d(_numbers("levels", levels))
    if values.ndim != 1 or not values.size or not ((values > 0) & (values < 1)).all():
        raise UserError(f"levels: {list(np.ravel(values))}; expected probabilities strictly between 0 and 1")
    if len(np.unique(values)) != len(values):
        raise UserError(f"levels: {list(values)} repeats a level; give each once")
    need = int(np.ceil(2.0 / (1.0 - values.max()) - 1e-9)) - 1
    if draws < need:
        raise UserError(
            f"draws: {draws} per object cannot resolve level {values.max():g}, whose ends lie outside them; "
            f"draw at least {need} or ask for a lower level"
        )
    return values


def _numbers(what: str, values: ArrayLike) -> np.ndarray:
    try:
        array = np.asarray(values)
        if array.dtype != np.float32:
            array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        raise UserError(f"{what}: not an array of numbers; expected floats in a regular array") from None
    return array


def _finite(what: str, array: np.ndarray, names: tuple[str, ...]) -> None:
    for k, name in enumerate(names):  # by column: a mask of all the draws would be a large temporary
        bad = ~np.isfinite(array[..., k])
        if bad.any():
            first = int(np.argwhere(bad)[0, 0])
            raise UserError(
                f"{what}: {int(bad.sum())} NaN or infinite values of {name}, the first in object {first}; "
                "a posterior that fails must be counted, not dropped: repair it or leave the object out yourself"
            )


def _slack(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return 1e-6 * (high - low)  # single precision may round a bound outwards


def _box(prior: tuple[ArrayLike, ArrayLike], p: int, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    try:
        low, high = (np.asarray(side, dtype=float) for side in prior)
    except (TypeError, ValueError):
        raise UserError("prior: expected a pair (low, high) of arrays of numbers") from None
    if low.shape != (p,) or high.shape != (p,):
        raise UserError(f"prior: low has shape {low.shape}, high {high.shape}; expected ({p},), one per parameter")
    for name, a, b in zip(names, low, high, strict=True):
        if not (np.isfinite(a) and np.isfinite(b) and a < b):
            raise UserError(f"prior: {name} has bounds [{a:g}, {b:g}]; expected finite, low below high")
    return low, high


def _inside(truth: np.ndarray, low: np.ndarray, high: np.ndarray, names: tuple[str, ...]) -> None:
    slack = _slack(low, high)
    for k, name in enumerate(names):
        bad = (truth[:, k] < low[k] - slack[k]) | (truth[:, k] > high[k] + slack[k])
        if bad.any():
            raise UserError(
                f"truth: {name} = {truth[bad, k][0]:g} is outside its prior [{low[k]:g}, {high[k]:g}] "
                f"({int(bad.sum())} of {len(truth)} objects); test objects must come from the prior: correct the "
                "bounds, or give no prior to judge objects from elsewhere"
            )
