"""The packaged perturbation prior: standard deviations of the Fourier coefficients, species by species."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

__all__ = ["perturbation_prior"]


def perturbation_prior() -> dict[str, dict[str, Any]]:
    """Return {species: {"const": s0, "modes": [s1, s2, s3, s4]}}, natural-log units."""
    return json.loads((resources.files("kappaflow.data") / "perturbation.json").read_text())["sigma"]
