"""The likelihood of one spectrum, said once, and what follows from it: derivatives, the best fit, exact draws."""

from kappaflow.refinement.best_fit import BestFit, FitSettings, fit
from kappaflow.refinement.refined import Refined, RefineSettings, refine

__all__ = ["BestFit", "FitSettings", "RefineSettings", "Refined", "fit", "refine"]
