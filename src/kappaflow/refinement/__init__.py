"""The likelihood of one spectrum, said once, and what follows from it: derivatives, the best fit, exact draws."""

from kappaflow.refinement.best_fit import BestFit, FitSettings, fit
from kappaflow.refinement.long_chains import Reference, ReferenceSettings, Running, reference
from kappaflow.refinement.refined import Refined, RefineSettings, refine

__all__ = [
    "BestFit",
    "FitSettings",
    "Reference",
    "ReferenceSettings",
    "RefineSettings",
    "Refined",
    "Running",
    "fit",
    "reference",
    "refine",
]
