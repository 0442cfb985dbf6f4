"""Spectra in memory: the table that `kappaflow.simulate(n=...)` returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.simulate.prior import SHARD_SIZE
from kappaflow.simulate.recipe import Model, Recipe, load_model, make_plan, make_recipe
from kappaflow.simulate.shard import COLUMNS, draw_shard

__all__ = ["Table", "simulate_table"]


@dataclass(frozen=True)
class Table:
    """Noise-free spectra with everything that made them, `n` rows."""

    theta: np.ndarray  # (n, 15)
    coefficients: np.ndarray  # (n, 54); all zero where the smooth field is off
    lists: np.ndarray  # (n,), index into `combinations`
    snr: np.ndarray  # (n,)
    flux: np.ndarray  # (n, p)
    wavelength: np.ndarray  # (p,), micron
    combinations: tuple[dict[str, str], ...]  # species -> line list

    def __len__(self) -> int:
        return len(self.theta)

    @property
    def columns(self) -> np.ndarray:
        """The parameter table, shape (n, 71), in the order of `kappaflow.simulate.COLUMNS`."""
        return np.column_stack([self.theta, self.coefficients, self.lists, self.snr])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of `columns`."""
        return COLUMNS


def simulate_table(
    n: int = 1024,
    *,
    seed: int = 0,
    load: Callable[[Recipe], Model] = load_model,
    **recipe: Any,
) -> Table:
    """Simulate `n` noise-free spectra and return them: the first `n` rows that a directory of the same recipe holds.

    Parameters
    ----------
    n : number of spectra
    seed : of the draws; the same seed gives the same parameters whatever the opacities
    load : makes the forward model; the packaged one by default
    recipe : preset, prior, perturb, amplitude, axes, pin, exclude, broadening, as on the command line

    Examples
    --------
    >>> import kappaflow as kf
    >>> table = kf.simulate(n=4, perturb="none", model="toy")
    >>> table.theta.shape, table.coefficients.shape, bool(table.coefficients.any())
    ((4, 15), (4, 54), False)
    """
    if n < 1:
        raise UserError(f"n: {n}; expected at least 1 spectrum")
    for option in ("pin", "exclude"):
        if isinstance(recipe.get(option), dict):
            recipe[option] = tuple(recipe[option].items())
    settings = make_recipe(**recipe)
    model = load(settings)
    plan = make_plan(settings, seed, model)
    shards = [draw_shard(plan, model, i) for i in range(-(-n // SHARD_SIZE))]

    def rows(name: str) -> np.ndarray:
        return np.concatenate([getattr(shard, name) for shard in shards])[:n]

    return Table(
        theta=rows("theta"),
        coefficients=rows("coefficients"),
        lists=rows("combination"),
        snr=rows("snr"),
        flux=rows("flux"),
        wavelength=shards[0].wavelength,
        combinations=tuple(dict(choice) for choice in plan.combinations),
    )
