"""What sees everything: networks scored on held-out spectra, and the networks that travel with the package."""

from kappaflow.experiments.score import score

__all__ = ["score"]
