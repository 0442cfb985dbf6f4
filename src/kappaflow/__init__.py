"""kappaflow: retrievals whose C/O error bars include the line lists.

Names are loaded on first use, so that `import kappaflow` costs neither JAX nor torch.
"""

from __future__ import annotations

import importlib
from typing import Any

from kappaflow.parameters import PARAMETERS, SNR, SPECIES

__version__ = "0.1.0"

_LAZY: dict[str, str] = {
    "Posterior": "kappaflow.inference",
    "ForwardModel": "kappaflow.model.forward",
    "simulate": "kappaflow.simulation",
    "coverage": "kappaflow.calibrate",
    "Spectrum": "kappaflow.observe",
    "read_spectrum": "kappaflow.observe",
    "resample": "kappaflow.observe",
}

__all__ = [
    "ForwardModel",
    "PARAMETERS",
    "Posterior",
    "SNR",
    "SPECIES",
    "Spectrum",
    "read_spectrum",
    "resample",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'kappaflow' has no attribute {name!r}")
