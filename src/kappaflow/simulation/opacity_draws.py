"""What is randomized in the opacities: Gaussian coefficients per species, line lists and half-widths per shard.

kappa_s(nu, T) -> kappa_s(nu, T) exp(c0 + sum_{m=1..4} [a_m cos 2 pi m u + b_m sin 2 pi m u]) (T / 700 K)^slope, with u
the normalized log nu. The coefficients of a species are c0, a_1..a_4, b_1..b_4 and, in sets that have it, the slope;
a_m and b_m share their standard deviation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from kappaflow.errors import UserError
from kappaflow.parameters import MODES, PARAMETER_SETS, ParameterSet
from kappaflow.presets import Frozen
from kappaflow.randomness import Stream
from kappaflow.simulation.prior import SHARD_SIZE
from kappaflow.tables.field_prior import perturbation_prior

__all__ = [
    "PERTURB",
    "SWAPPED",
    "Combination",
    "Dial",
    "allowed_combinations",
    "combinations",
    "coefficient_sigma",
    "draw_amplitude",
    "draw_field",
    "sigma_table",
    "split_axis",
]

SWAPPED = ("H2O", "CH4")  # the paper's discrete mixture
# Which of the two axes a switch leaves on: (smooth field, discrete lists).
PERTURB = {"both": (True, True), "smooth": (True, False), "discrete": (False, True), "none": (False, False)}

Combination = tuple[tuple[str, str], ...]  # ((species, list), ...), in the order of the axes


def sigma_table(
    given: Sequence[tuple[str, Sequence[float]]] = (), parameters: ParameterSet = PARAMETER_SETS["paper"]
) -> np.ndarray:
    """Return standard deviations (species, 1 + MODES [+ 1]) of constant, modes and, where the set has it, slope.

    The packaged ones unless `given`; a row given without the slope keeps the packaged slope.
    """
    packaged, known = perturbation_prior(), dict(given)
    table = []
    for species in dict.fromkeys((*parameters.species, *known)):
        own = packaged[species]
        row = [*known.get(species, (own["const"], *own["modes"]))]
        if len(row) == 1 + MODES:
            row.append(own["slope"])
        if len(row) != 2 + MODES or not all(np.isfinite(v) and v >= 0 for v in row):
            raise UserError(
                f"prior: {species} has {list(known[species])}; expected {1 + MODES} standard deviations of at least "
                f"0, the constant and {MODES} modes, or one more, the slope, as `kappaflow opacity compare --out` "
                "writes them"
            )
        table.append(row if parameters.slopes else row[:-1])
    return np.array(table[: len(parameters.species)], dtype=float)


def coefficient_sigma(table: np.ndarray) -> np.ndarray:
    """Return the standard deviation of every coefficient, (species, 9 [+ 1]), from a `sigma_table`."""
    table = np.asarray(table)
    modes = table[:, 1 : 1 + MODES]
    return np.concatenate([table[:, :1], modes, modes, table[:, 1 + MODES :]], axis=1)  # a_m and b_m alike


class Dial(Frozen):
    """Amplitudes for a network that is told them: whole shards at 0 and at 1, in all others drawn for each spectrum.

    At exactly 0 everything is fixed (first allowed lists, nominal half-widths): the control of the same network. Which
    shards those are follows from their index: the multiples of the golden ratio, modulo 1, are spread evenly over any
    run of shards and over any cycle of lists and half-widths.
    """

    low: float = 0.0
    high: float = 2.5
    at_zero: float = 0.2  # share of shards
    at_one: float = 0.2

    def held(self, shard: int) -> float | None:
        """Return 0 or 1 where the whole shard is at it, else None."""
        place = shard * (math.sqrt(5) - 1) / 2 % 1
        if place < self.at_zero:
            return 0.0
        return 1.0 if place < self.at_zero + self.at_one else None

    def wrong(self) -> str | None:
        """Say what is wrong with it, in one line, or None."""
        if not 0 <= self.low < self.high < math.inf:
            return f"a dial from {self.low:g} to {self.high:g}; expected a range of at least 0, such as 0 to 2.5"
        if not (self.at_zero >= 0 and self.at_one >= 0 and self.at_zero + self.at_one <= 1):
            shares = f"{self.at_zero:g} and {self.at_one:g} of the shards at 0 and 1"
            return f"{shares}; expected two shares that sum up to 1 at most"
        if (self.at_zero and self.low > 0) or (self.at_one and not self.low <= 1 <= self.high):
            return f"shards at 0 and at 1 are asked for, outside the range {self.low:g} to {self.high:g}"
        return None


def draw_amplitude(amplitude: float | tuple[float, float] | Dial, seed: int, shard: int) -> np.ndarray:
    """Return the amplitudes (128,) of one shard's randomization: one number, uniform between two, or a dial's."""
    if isinstance(amplitude, Dial):
        held = amplitude.held(shard)
        amplitude = (amplitude.low, amplitude.high) if held is None else held
    low, high = amplitude if isinstance(amplitude, tuple) else (amplitude, amplitude)
    if low == high:
        return np.full(SHARD_SIZE, low)
    return low + (high - low) * Stream("amplitude", seed).at(shard).random(SHARD_SIZE)


def draw_field(scale: np.ndarray, amplitude: np.ndarray, seed: int, shard: int) -> np.ndarray:
    """Return the coefficients of one shard, shape (128, species * c); exactly zero where `scale` or `amplitude` is.

    `scale` (species, c) are their standard deviations at the amplitude 1. The unit normals depend on the seed and the
    shard only: sets of different amplitudes share them.
    """
    shape = (SHARD_SIZE, scale.size)
    if not (scale.any() and amplitude.any()):
        return np.zeros(shape)
    return amplitude[:, None] * scale.ravel() * Stream("coefficients", seed).at(shard).standard_normal(shape)


def split_axis(axis: str) -> tuple[str, tuple[str, ...]]:
    """Split "CH4" or "CH4=base+exomol" into the species and its lists, none meaning all.

    Examples
    --------
    >>> split_axis("CH4=base+exomol")
    ('CH4', ('base', 'exomol'))
    """
    species, _, names = axis.partition("=")
    return species, tuple(name for name in names.split("+") if name)


def combinations(lists: Mapping[str, tuple[str, ...]], axes: tuple[str, ...]) -> tuple[Combination, ...]:
    """All combinations of the lists of `axes`; the last axis runs fastest, so that 0 has the first list everywhere."""
    chosen = {}
    for species, names in map(split_axis, axes):
        if species not in lists:
            raise UserError(f"axes: no species {species!r}; the opacity table has {', '.join(lists)}")
        chosen[species] = names or lists[species]
    return tuple(tuple(zip(chosen, names, strict=True)) for names in itertools.product(*chosen.values()))


def allowed_combinations(
    every: tuple[Combination, ...],
    perturb: str,
    *,
    pin: Mapping[str, str],
    exclude: tuple[tuple[str, str], ...] = (),
) -> tuple[int, ...]:
    """Positions in `every` that the shards cycle over.

    A pinned species keeps its pinned list; an excluded (species, list) never occurs; with the discrete axis
    off, a species that is not pinned keeps its first list.
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
            "lists: --pin, --exclude and --perturb together leave no combination; allow at least one list per species"
        )
    return kept
