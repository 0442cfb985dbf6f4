"""The likelihood of one spectrum, said once, and what follows from it: derivatives and the best fit."""

from kappaflow.refinement.best_fit import BestFit, FitSettings, fit

__all__ = ["BestFit", "FitSettings", "fit"]
