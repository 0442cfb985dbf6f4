"""The fixed part of the detector's chain as arrays: rotation rule, line-spread function and pixels on a grid."""

from __future__ import annotations

import numpy as np
from scipy.special import erf

from kappaflow.instrument import on_nrs2, pixel_grid, resolving_power
from kappaflow.physics.detector import KM, Detector

__all__ = ["matrix_of_file", "prepare_detector", "rotation_rule"]

LIMB_DARKENING = 0.6  # linear coefficient of the rotation profile (Gray 2005, ch. 18)
ROTATION_POINTS = 5
REACH = 4.5  # standard deviations of the line-spread function kept on either side
V_MAX = 131.0  # km/s: |v_r| + v sin i of the prior, and a margin
GROUP = 32  # pixels per dense block of the line-spread matrix


def prepare_detector(nu: np.ndarray, binning: int) -> dict[str, np.ndarray]:
    """Prepare the chain for the grid `nu` [cm-1], ascending, uniform in log, and pixels averaged by `binning`.

    Returns the fields of `Detector`.
    """
    log_wave = -np.log(nu) + np.log(1e4)  # um
    step = (log_wave[0] - log_wave[-1]) / (nu.size - 1)
    low, high = pixel_grid(binning)
    taps = int(np.ceil(V_MAX / KM / step + 1.5))
    centre = 0.5 * (low + high)
    sigma = _line_spread(centre, step)
    # No group straddles the gap: its window would be as wide as the gap.
    groups = [part for chip in (False, True) for part in _cut(np.flatnonzero(on_nrs2(centre) == chip))]
    extents = [_extent(log_wave, low[g], high[g], sigma[g]) for g in groups]
    width = max(count for _, count in extents)
    firsts = [min(first, nu.size - width) for first, _ in extents]
    matrix = np.zeros((len(groups), width, GROUP))
    place = np.zeros(centre.size, int)
    for i, (g, first) in enumerate(zip(groups, firsts, strict=True)):
        index = np.arange(first, first + width)
        matrix[i, :, : g.size] = _weights(log_wave[index], np.log(low[g]), np.log(high[g]), sigma[g])
        place[g] = i * GROUP + np.arange(g.size)
    return {
        "wavelength": centre,
        "step": np.asarray(step),
        "offsets": np.arange(-taps, taps + 1),
        "rotation": np.stack(rotation_rule()),
        "first": np.asarray(firsts),
        "matrix": matrix,
        "place": place,
    }


def matrix_of_file(
    detector: Detector, nu: np.ndarray, source: np.ndarray, shares: tuple[np.ndarray, ...], width: float
) -> np.ndarray:
    """Return `Detector.matrix` for pixels that are means over a file's own pixels, of the same shape.

    Parameters
    ----------
    detector : as prepared for the grid `nu`
    nu : cm-1, ascending, uniform in log
    source : (n, 2), edges of the file's pixels [um]
    shares : indices (m,) of the file's pixels and of the detector's, and the weight (m,) of the one in the other
    width : of the line-spread function over that of `resolving_power`; at most 1
    """
    i, j, share = shares
    log_wave, step = np.log(1e4) - np.log(nu), float(detector.step)
    sigma = _line_spread(source.mean(axis=1), step, width)
    group, column = np.divmod(np.asarray(detector.place), GROUP)
    matrix = np.array(detector.matrix, float)
    for n, first in enumerate(np.asarray(detector.first)):
        here = group[j] == n
        own, row = np.unique(i[here], return_inverse=True)
        if not own.size:
            continue
        index = np.arange(first, first + matrix.shape[1])
        low, high = np.log(source[own]).T
        mean = np.zeros((own.size, GROUP))
        mean[row, column[j[here]]] = share[here]
        covered = mean.any(axis=0)
        matrix[n][:, covered] = (_weights(log_wave[index], low, high, sigma[own]) @ mean)[:, covered]
    return matrix


def _line_spread(wavelength: np.ndarray, step: float, width: float = 1.0) -> np.ndarray:
    """Return the standard deviation of the line-spread function in ln(wavelength), `width` times the nominal one.

    What the sub-step spreading of the Doppler kernel adds is taken off, down to a floor that a coarse grid sets.
    """
    sigma = width / (resolving_power(wavelength) * np.sqrt(8 * np.log(2)))
    return np.sqrt(np.maximum(sigma**2 - step**2 / 4, (0.3 * step) ** 2))


def _cut(pixels: np.ndarray) -> list[np.ndarray]:
    return [pixels[i : i + GROUP] for i in range(0, pixels.size, GROUP)]


def _extent(log_wave: np.ndarray, low: np.ndarray, high: np.ndarray, sigma: np.ndarray) -> tuple[int, int]:
    """First index and number of grid points within reach of the pixels low..high [um]."""
    reach = REACH * sigma.max() + log_wave[0] - log_wave[1]
    inside = (log_wave > np.log(low.min()) - reach) & (log_wave < np.log(high.max()) + reach)
    return int(np.argmax(inside)), int(inside.sum())


def _weights(log_wave: np.ndarray, low: np.ndarray, high: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Gaussian of `sigma` averaged over each pixel [low, high], at the points, (point, pixel); columns sum to 1."""
    scale = np.sqrt(2) * sigma
    weights = erf((high - log_wave[:, None]) / scale) - erf((low - log_wave[:, None]) / scale)
    weights[weights < 1e-7 * weights.max(axis=0)] = 0.0
    return weights / weights.sum(axis=0)


def rotation_rule(points: int = ROTATION_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Gauss nodes in (-1, 1) and weights (sum 1) of the rotation profile of a limb-darkened disc.

    G(x) = [2 (1 - e) sqrt(1 - x^2) + (pi e / 2) (1 - x^2)] / [pi (1 - e/3)], x = velocity / v sin i (Gray 2005,
    eq. 18.14). The line-spread function is wider than the fastest rotation of the prior, so that five shifts with these
    weights (right in the first nine moments) are the profile itself.
    """
    theta = (np.arange(400) + 0.5) * np.pi / 400  # Chebyshev nodes: fine enough to be the continuous measure
    x = np.cos(theta)
    e = LIMB_DARKENING
    density = (2 * (1 - e) * np.sin(theta) + np.pi * e / 2 * np.sin(theta) ** 2) / (np.pi * (1 - e / 3))
    mass = density * np.sin(theta)
    mass /= mass.sum()
    off = np.zeros(points - 1)  # Stieltjes: recurrence of the orthogonal polynomials; odd moments vanish by symmetry
    previous, current = np.zeros_like(x), np.ones_like(x)
    for i in range(points - 1):
        following = x * current - (off[i - 1] ** 2 if i else 0.0) * previous
        off[i] = np.sqrt((mass * following**2).sum() / (mass * current**2).sum())
        previous, current = current, following
    nodes, vectors = np.linalg.eigh(np.diag(off, 1) + np.diag(off, -1))
    return nodes, vectors[0] ** 2
