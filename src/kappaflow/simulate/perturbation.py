"""What is randomized in the opacities: 54 Gaussian coefficients a spectrum, and the combination of line lists a shard.

kappa_s(nu) -> kappa_s(nu) exp(c0 + sum_{m=1..4} [a_m cos 2 pi m u + b_m sin 2 pi m u]), with u the normalized log nu.
The coefficients of a species are c0, a_1..a_4, b_1..b_4; a_m and b_m share their standard deviation.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache

import numpy as np

from kappaflow.errors import UserError
from kappaflow.parameters import COEFFICIENTS, MODES, SPECIES
from kappaflow.simulate.keys import Stream
from kappaflow.simulate.prior import SHARD_SIZE
from kappaflow.tables.perturbation import perturbation_prior

__all__ = ["AXES", "PERTURB", "allowed_combinations", "combinations", "draw_coefficients", "sigma"]

AXES = ("H2O", "CH4")  # the paper's discrete mixture
# Which of the two axes a switch leaves on: (smooth field, discrete lists).
PERTURB = {"both": (True, True), "smooth": (True, False), "discrete": (False, True), "none": (False, False)}

Combination = tuple[tuple[str, str], ...]  # ((species, list), ...), in the order of the axes


@cache
def sigma() -> np.ndarray:
    """Return the standard deviations of the coefficients at amplitude 1, shape (6, 9), from the packaged table."""
    table = perturbation_prior()
    rows = [[table[s]["const"], *table[s]["modes"], *table[s]["modes"]] for s in SPECIES]
    values = np.array(rows, dtype=float)
    if values.shape != (len(SPECIES), COEFFICIENTS):
        raise ValueError(f"perturbation.json: expected {MODES} modes a species")
    values.setflags(write=False)
    return values


def draw_coefficients(perturb: str, amplitude: float, seed: int, shard: int) -> np.ndarray:
    """Return the field coefficients of one shard, shape (128, 54); exactly zero where the field is off.

    The unit normals depend on the seed and the shard only: sets of different amplitudes share them.
    """
    smooth, _ = PERTURB[perturb]
    shape = (SHARD_SIZE, len(SPECIES) * COEFFICIENTS)
    if not smooth:
        return np.zeros(shape)
    return amplitude * sigma().ravel() * Stream("coefficients", seed).at(shard).standard_normal(shape)


def combinations(lists: Mapping[str, tuple[str, ...]], axes: tuple[str, ...]) -> tuple[Combination, ...]:
    """All combinations of the lists of `axes`; the last axis runs fastest, so that 0 is the base everywhere."""
    for species in axes:
        if species not in lists:
            raise UserError(f"axes: no species {species!r}; the opacity table has {', '.join(lists)}")
    return tuple(
        tuple(zip(axes, names, strict=True)) for names in itertools.product(*(lists[species] for species in axes))
    )


def allowed_combinations(
    every: tuple[Combination, ...],
    perturb: str,
    *,
    pin: Mapping[str, str],
    exclude: tuple[tuple[str, str], ...] = (),
) -> tuple[int, ...]:
    """Positions in `every` that the shards cycle over.

    A pinned species keeps its pinned list; an excluded (species, list) never occurs; with the discrete axis
    off, a species that is not pinned keeps its base list.
    """
    _, discrete = PERTURB[perturb]
    base = dict(every[0])

    def allowed(choice: Combination) -> bool:
        for species, name in choice:
            if (species, name) in exclude:
                return False
            if species in pin:
                if name != pin[species]:
                    return False
            elif not discrete and name != base[species]:
                return False
        return True

    kept = tuple(i for i, choice in enumerate(every) if allowed(choice))
    if not kept:
        raise UserError(
            "lists: --pin, --exclude and --perturb together leave no combination; allow at least one list a species"
        )
    return kept
