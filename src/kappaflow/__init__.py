"""kappaflow: retrievals whose C/O error bars include the line lists.

Names are loaded on first use, so that `import kappaflow` costs neither JAX nor torch.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from kappaflow.parameters import PARAMETERS, SNR, SPECIES

if TYPE_CHECKING:
    from kappaflow.calibrate import coverage
    from kappaflow.inference import Posterior
    from kappaflow.model.forward import ForwardModel
    from kappaflow.observe import Spectrum, read_spectrum, resample
    from kappaflow.refinement import (
        BestFit,
        Reference,
        ReferenceSettings,
        Refined,
        RefineSettings,
        fit,
        reference,
        refine,
    )
    from kappaflow.retrieval.result import Retrieval, RetrievalSettings
    from kappaflow.retrieval.retriever import Retriever, retrieve
    from kappaflow.simulation import simulate

_LAZY: dict[str, str] = {
    "BestFit": "kappaflow.refinement",
    "ForwardModel": "kappaflow.model.forward",
    "Posterior": "kappaflow.inference",
    "Reference": "kappaflow.refinement",
    "ReferenceSettings": "kappaflow.refinement",
    "RefineSettings": "kappaflow.refinement",
    "Refined": "kappaflow.refinement",
    "Retrieval": "kappaflow.retrieval.result",
    "RetrievalSettings": "kappaflow.retrieval.result",
    "Retriever": "kappaflow.retrieval.retriever",
    "Spectrum": "kappaflow.observe",
    "coverage": "kappaflow.calibrate",
    "fit": "kappaflow.refinement",
    "read_spectrum": "kappaflow.observe",
    "reference": "kappaflow.refinement",
    "refine": "kappaflow.refinement",
    "resample": "kappaflow.observe",
    "retrieve": "kappaflow.retrieval.retriever",
    "simulate": "kappaflow.simulation",
}

__all__ = [
    "PARAMETERS",
    "SNR",
    "SPECIES",
    "BestFit",
    "ForwardModel",
    "Posterior",
    "Reference",
    "ReferenceSettings",
    "RefineSettings",
    "Refined",
    "Retrieval",
    "RetrievalSettings",
    "Retriever",
    "Spectrum",
    "coverage",
    "fit",
    "read_spectrum",
    "reference",
    "refine",
    "resample",
    "retrieve",
    "simulate",
]

try:
    __version__ = version("kappaflow")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+source"


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
        return value
    raise AttributeError(f"module 'kappaflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
