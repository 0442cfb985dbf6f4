"""The smooth multiplicative field that stands for what the line lists do not know: its basis and its prior."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import numpy as np

from kappaflow.parameters import COEFFICIENTS, MODES

__all__ = ["fourier_basis", "perturbation_prior"]


def perturbation_prior() -> dict[str, dict[str, Any]]:
    """Return the standard deviations {species: {"const": s0, "modes": [s1, s2, s3, s4]}}, natural-log units."""
    return json.loads((resources.files("kappaflow.data") / "perturbation.json").read_text(encoding="utf-8"))["sigma"]


def fourier_basis(nu: np.ndarray) -> np.ndarray:
    """Nine functions of wavenumber, shape (9, nu): 1, cos 2 pi m u (m = 1..4), sin 2 pi m u (m = 1..4).

    u = ln(nu/nu_min) / ln(nu_max/nu_min) runs from 0 to 1 over the modelling grid. The opacity of a species is
    multiplied by exp(coefficients @ basis): zero coefficients add an exact 0 to ln kappa, so they change no bit.

    Examples
    --------
    >>> fourier_basis(np.geomspace(1850.0, 3550.0, 5))[1].round(3).tolist()
    [1.0, 0.0, -1.0, 0.0, 1.0]
    """
    u = np.log(nu / nu[0]) / np.log(nu[-1] / nu[0])
    phase = 2 * np.pi * np.arange(1, MODES + 1)[:, None] * u
    basis = np.concatenate([np.ones((1, nu.size)), np.cos(phase), np.sin(phase)])
    assert basis.shape[0] == COEFFICIENTS
    return basis
