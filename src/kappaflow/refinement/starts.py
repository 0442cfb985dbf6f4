"""Where fits begin: the network's draws and some of the prior, screened, and far from each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.observe.spectrum import Spectrum
from kappaflow.refinement.coordinates import Coordinates
from kappaflow.refinement.likelihood import Joint, log_likelihood
from kappaflow.spectra import Box, same_pixels

__all__ = ["candidates", "screened"]

SCREEN = 0.1  # structure that the screening allows: a wrong draw must not be judged by its narrow lines
SHORT_LIST = 4  # times as many as are wanted, among which those far from each other are taken


def candidates(spectrum: Spectrum, box: Box, posterior: Any, *, n: int, seed: int) -> np.ndarray:
    """Parameters (n, D): three of four from the network `posterior`, the rest spread over the prior.

    All from the prior where there is no network, or one of other pixels. A parameter that the network does not have is
    spread over its prior.
    """
    from scipy.stats import qmc  # half a second to import

    scramble: dict[str, Any] = {"seed": seed}  # SciPy 1.15 also calls it rng
    unit = qmc.Sobol(d=len(box), scramble=True, **scramble).random(_power(n))[:n]
    theta = np.asarray(box.low) + box.widths * (0.02 + 0.96 * unit)
    if posterior is None or not same_pixels(posterior.wavelength, spectrum.wavelength):
        return theta
    draws = posterior.sample(spectrum, n=max(1, 3 * n // 4), seed=seed)
    for column, name in enumerate(posterior.names):
        if name in box.names:
            i = box.names.index(name)
            theta[: len(draws), i] = np.clip(draws[:, column], box.low[i], box.high[i])
    return theta


def _power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def screened(joint: Joint, theta: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the coordinates of `count` of `theta` (n, D): the likeliest, and of the next best those far from it.

    The flux scale of each is fitted: with a known distance by its radius, else by the free scale.
    """
    c, data = joint.coordinates, joint.data
    if count < 1:
        raise UserError(f"starts: {count}; expected at least 1")
    made = joint.predictor(theta, np.zeros((len(theta), np.size(c.sigma))))[:, data.good]
    scale = _scales(made, joint)
    theta, ln_scale, scale = _rescaled(c, theta, scale)
    made = made * scale[:, None]
    value = log_likelihood(data.flux - made, data.error**2 + (SCREEN * made) ** 2)
    z = np.stack([c.at(row, f=SCREEN, ln_scale=s) for row, s in zip(theta, ln_scale, strict=True)])
    order = np.argsort(-value)[: SHORT_LIST * count]
    chosen = [int(order[0])]
    where = z[:, c.places["theta"]]
    while len(chosen) < min(count, len(order)):
        distance = np.min([np.linalg.norm(where[order] - where[i], axis=1) for i in chosen], axis=0)
        chosen.append(int(order[np.argmax(distance)]))
    return [z[i] for i in chosen]


def _scales(made: np.ndarray, joint: Joint) -> np.ndarray:
    """Factors (n,) that bring the spectra `made` (n, p) closest to the data."""
    weight = 1 / (joint.data.error**2 + (SCREEN * joint.data.flux) ** 2)
    factor = (made * joint.data.flux * weight).sum(axis=1) / (made**2 * weight).sum(axis=1)
    return np.maximum(factor, 1e-12)


def _rescaled(c: Coordinates, theta: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parameters whose radius makes the spectra brighter by `scale`, or ln of the free scale; and what was possible."""
    if c.scale_free or "R" not in c.box.names:
        scale = scale if c.scale_free else np.ones(len(theta))
        return theta, np.log(scale), scale
    i = c.box.names.index("R")
    radius = np.clip(theta[:, i] * np.sqrt(scale), c.box.low[i], c.box.high[i])
    scale = (radius / theta[:, i]) ** 2
    theta = theta.copy()
    theta[:, i] = radius
    return theta, np.zeros(len(theta)), scale
