"""A line list in ExoMol's own format, `.states.bz2` and `.trans.bz2` (Tennyson et al. 2020), as lines."""

import bz2
import io
from pathlib import Path

import numpy as np

from kappaflow.build.lines.broadening import Rotation, half_widths
from kappaflow.build.lines.hitran import Lines, isotope_abundance, partition_sum
from kappaflow.constants import C2, T_REFERENCE, C
from kappaflow.errors import UserError

__all__ = ["read_exomol_lines"]


def read_exomol_lines(states: Path, transitions: Path, molecule: str, data: Path) -> Lines:
    """Lines of the main isotopologue of `molecule`, half-widths from the data folder.

    S = A g' / (8 pi c nu^2) exp(-c2 E''/T) (1 - exp(-c2 nu/T)) / Q(T) at 296 K, times the terrestrial abundance as in
    HITRAN; nu is the difference of the energies.
    """
    number, energy, weight, j = _columns(states, (0, 1, 2, 3))
    upper, lower, einstein = _columns(transitions, (0, 1, 2))
    place = np.full(int(number.max()) + 1, -1)
    place[number.astype(int)] = np.arange(number.size)
    try:
        up, low = place[upper.astype(int)], place[lower.astype(int)]
    except IndexError:
        up = low = np.array([-1])
    if min(up.min(), low.min()) < 0:
        raise UserError(f"{transitions}: names a state that {states.name} does not have; expected a matching pair")
    nu = energy[up] - energy[low]
    keep = nu > 0
    up, low, einstein, nu = up[keep], low[keep], einstein[keep], nu[keep]
    boltzmann = np.exp(-C2 * energy[low] / T_REFERENCE) * -np.expm1(-C2 * nu / T_REFERENCE)
    s = einstein * weight[up] / (8 * np.pi * C * nu**2) * boltzmann / partition_sum(molecule, 1, T_REFERENCE)
    s *= isotope_abundance(molecule, 1)
    gamma, n = half_widths(data, molecule, Rotation(j[low], j[up], np.zeros(nu.size)))
    lines = Lines(molecule, nu, s, energy[low], gamma, n, np.ones(nu.size, np.int16))
    return lines.where(np.argsort(nu, kind="stable"))


def _columns(path: Path, columns: tuple[int, ...]) -> np.ndarray:
    """Read columns of numbers, shape (column, row)."""
    try:
        text = bz2.decompress(path.read_bytes()).decode("utf-8")
        return np.loadtxt(io.StringIO(text), usecols=columns, unpack=True, ndmin=2)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot read the ExoMol file ({error}); expected .states.bz2 and .trans.bz2") from None
