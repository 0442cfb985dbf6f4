"""ExoMol cross sections read as super-lines: one line per bin, with an effective lower energy.

The files hold zero-pressure cross sections averaged over bins (Hill et al. 2013; Tennyson et al. 2020). A bin's
average times its width is the strength of the lines inside; the ratio of two temperatures gives the lower energy
that carries the strength between them, good to about 700 K.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.sparse import csr_array

from kappaflow.build.lines.envelope import Envelope, population
from kappaflow.build.lines.hitran import MOLECULE, Lines, strength
from kappaflow.constants import C2, T_REFERENCE
from kappaflow.errors import UserError
from kappaflow.randomness import philox

__all__ = ["BinnedCrossSection", "envelope", "find_exomol", "lower_energy", "read_exomol", "super_lines"]

ISOTOPOLOGUE = {
    "H2O": "1H2-16O",
    "CH4": "12C-1H4",
    "CO": "12C-16O",
    "CO2": "12C-16O2",
    "NH3": "14N-1H3",
    "H2S": "1H2-32S",
    "PH3": "31P-1H3",
}
NEARBY = 1.0  # cm-1 either way: how far the lines of one bin may stand in its neighbours in another file
E_BELOW, E_ABOVE = 800.0, 1500.0  # cm-1 from the lower energy nearby; beyond, the ratio of tiny numbers speaks
SMOOTHED = 12.0  # cm-1, standard deviation of the envelope's Gaussian


@dataclass(frozen=True)
class BinnedCrossSection:
    """Bin centres `nu` [cm-1], equally spaced by `step`, and averages `sigma` [cm2/molecule] at `temperature` [K]."""

    nu: np.ndarray
    sigma: np.ndarray
    step: float
    temperature: float


def find_exomol(folder: Path, molecule: str, temperature: int) -> Path:
    """Return the file `ISOTOPOLOGUE_RANGE_TK_STEP.sigma` of `molecule` at `temperature`, or say which there are."""
    pattern = re.compile(rf"{re.escape(ISOTOPOLOGUE[molecule])}_[\d-]+_(\d+)K_[\d.]+\.sigma")
    found = {int(m[1]): f for f in sorted(folder.glob("*.sigma")) if (m := pattern.fullmatch(f.name))}
    if temperature not in found:
        have = ", ".join(f"{t} K" for t in sorted(found)) or "none"
        raise UserError(f"{folder}: no ExoMol cross section of {molecule} at {temperature} K; there are: {have}")
    return found[temperature]


def read_exomol(path: Path, low: float, high: float) -> BinnedCrossSection:
    """Read the bins of a two-column file that lie in [low, high] cm-1."""
    match = re.search(r"_(\d+)K_", path.name)
    if match is None:
        raise UserError(
            f"{path}: the file name does not tell the temperature; expected ISOTOPOLOGUE_RANGE_TK_STEP.sigma"
        )
    try:
        nu, sigma = np.loadtxt(path, unpack=True, ndmin=2)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot read two columns, wavenumber and cross section ({error})") from None
    keep = (nu >= low) & (nu <= high)
    if keep.sum() < 2:
        raise UserError(f"{path}: covers {nu.min():g}-{nu.max():g} cm-1; expected {low:g}-{high:g}")
    steps = np.diff(nu[keep])
    if not np.allclose(steps, steps[0], rtol=1e-3) or (sigma[keep] < 0).any() or not np.isfinite(sigma[keep]).all():
        raise UserError(f"{path}: expected equal steps in wavenumber and finite cross sections, none negative")
    return BinnedCrossSection(nu[keep], sigma[keep], float(np.median(steps)), float(match[1]))


def envelope(molecule: str, known: Sequence[BinnedCrossSection], step: float = 1.0) -> Envelope:
    """Smooth the cross sections of several temperatures, coldest first, onto one even grid [cm-1]."""
    nu = np.arange(np.ceil(known[0].nu[0]), known[0].nu[-1], step)
    sigma = [np.interp(nu, b.nu, gaussian_filter1d(b.sigma, SMOOTHED / b.step)) for b in known]
    return Envelope(molecule, nu, np.array([b.temperature for b in known]), np.array(sigma))


def lower_energy(
    molecule: str, nu: np.ndarray, warm: tuple[np.ndarray, float], cool: tuple[np.ndarray, float]
) -> np.ndarray:
    """Lower energy [cm-1] that carries strengths between two temperatures; `warm` and `cool` are (strength, T)."""
    (hot, t_hot), (cold, t_cold) = warm, cool
    drop = np.log(hot / cold * population(molecule, nu, t_cold) / population(molecule, nu, t_hot))
    return drop / (C2 * (1 / t_cold - 1 / t_hot))


def super_lines(
    molecule: str,
    warm: BinnedCrossSection,
    cool: BinnedCrossSection,
    *,
    width: tuple[float, float],
    guide: Lines | None = None,
) -> Lines:
    """One line per bin of `warm`, lower energies from `warm` against `cool`, bounded by those nearby.

    `width` is the half-width [cm-1/bar] and its exponent. A line stands at the centroid of the lines of `guide` in its
    bin (weighted with their strength at the temperature of `warm`); where there are none, at a fixed pseudo-random
    place: a regular comb would beat against the modelling grid.
    """
    hot = warm.sigma * warm.step
    cold = _rebin(cool, warm)
    keep = hot > 0
    box = np.ones(2 * round(NEARBY / warm.step) + 1)
    around = [np.maximum(np.convolve(x, box, "same"), 1e-300)[keep] for x in (hot, cold)]
    nu, hot, cold = warm.nu[keep], hot[keep], np.maximum(cold[keep], 1e-300)
    times = warm.temperature, cool.temperature
    nearby = np.maximum(lower_energy(molecule, nu, (around[0], times[0]), (around[1], times[1])), 0.0)
    e_lower = lower_energy(molecule, nu, (hot, times[0]), (cold, times[1]))
    e_lower = np.clip(e_lower, np.maximum(nearby - E_BELOW, 0.0), nearby + E_ABOVE)
    boltzmann = np.exp(C2 * e_lower * (1 / warm.temperature - 1 / T_REFERENCE))
    reference = hot / population(molecule, nu, warm.temperature) * boltzmann
    places = nu + _offsets(molecule, nu, warm, guide)
    gamma, n = width
    size = nu.size
    lines = Lines(molecule, places, reference, e_lower, np.full(size, gamma), np.full(size, n), np.ones(size, np.int16))
    return lines.where(np.argsort(lines.nu, kind="stable"))


def _offsets(molecule: str, nu: np.ndarray, bins: BinnedCrossSection, guide: Lines | None) -> np.ndarray:
    """Place of each super-line within its bin, relative to the bin centre [cm-1]."""
    random = philox(MOLECULE[molecule])
    offset = (random.random(nu.size) - 0.5) * bins.step
    if guide is None:
        return offset
    index = np.rint((guide.nu - bins.nu[0]) / bins.step).astype(int)
    inside = (index >= 0) & (index < bins.nu.size)
    weight = strength(guide, bins.temperature)[inside]
    total = np.bincount(index[inside], weight, minlength=bins.nu.size)
    moment = np.bincount(index[inside], weight * (guide.nu[inside] - bins.nu[index[inside]]), minlength=bins.nu.size)
    at = np.rint((nu - bins.nu[0]) / bins.step).astype(int)
    known = total[at] > 0
    return np.where(known, moment[at] / np.where(known, total[at], 1.0), offset)


def _rebin(source: BinnedCrossSection, target: BinnedCrossSection) -> np.ndarray:
    """Strengths of `source` on the bins of `target`, shared out like the strength that `target` has there.

    Each bin of `source` splits over the bins of `target` that it overlaps, in proportion to overlap times the target's
    own average: the total is kept, and a line stays in the narrow bin that has it.
    """
    edges = np.append(target.nu - target.step / 2, target.nu[-1] + target.step / 2)
    low, high = source.nu - source.step / 2, source.nu + source.step / 2
    first = np.searchsorted(edges, low, side="right") - 1
    span = int(np.ceil(source.step / target.step)) + 1
    columns = np.clip(first[:, None] + np.arange(span), 0, target.nu.size - 1)
    overlap = np.minimum(high[:, None], edges[columns + 1]) - np.maximum(low[:, None], edges[columns])
    rows = np.broadcast_to(np.arange(source.nu.size)[:, None], columns.shape)
    valid = (
        (overlap > 1e-9) & (first[:, None] + np.arange(span) >= 0) & (first[:, None] + np.arange(span) < target.nu.size)
    )
    share = csr_array(
        (overlap[valid] * target.sigma[columns[valid]], (rows[valid], columns[valid])),
        shape=(source.nu.size, target.nu.size),
    )
    total = np.asarray(share.sum(axis=1)).ravel()
    scale = np.where(total > 0, source.sigma * source.step / np.where(total > 0, total, 1.0), 0.0)
    return share.T @ scale
