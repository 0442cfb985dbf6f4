"""The estimator: features, embedding and bounded flow in one module, and its statistics on training data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from kappaflow.inference.embedding import EMBEDDINGS
from kappaflow.inference.features import Features, Prepared
from kappaflow.inference.flow import BoundedFlow
from kappaflow.inference.recipes import Recipe

__all__ = ["Estimator", "Familiarity"]


class Estimator(nn.Module):
    """p(theta | spectrum) on the unit cube of the prior box, for spectra on `pixels` pixels.

    The context of the flow is the embedding of the channels, beside the scalars of the recipe (SNR, flux scale) and,
    where the amplitude of the opacities' randomization varies within `dial`, that amplitude.
    """

    def __init__(self, recipe: Recipe, pixels: int, parameters: int, dial: tuple[float, float] | None = None) -> None:
        super().__init__()
        self.recipe, self.pixels, self.size = recipe, pixels, parameters
        self.features = Features(recipe.inputs, pixels, dial)
        self.embedding = EMBEDDINGS[recipe.embedding.kind](recipe.embedding, len(recipe.inputs.channels), pixels)
        self.flow = BoundedFlow(recipe.flow, parameters, recipe.embedding.features + self.features.width)

    def context(self, prepared: Prepared) -> Tensor:
        """Spectra -> context of the flow (b, E + S); the embedding is its first E columns."""
        return torch.cat((self.embedding(prepared.channels), prepared.scalars), dim=-1)

    def forward(self, channels: Tensor, scalars: Tensor, unit: Tensor) -> Tensor:
        """Log density ln p(unit | spectrum), (b,); `unit` (b, D) in the unit cube, where the prior is 0."""
        return self.flow(unit, self.context(Prepared(channels, scalars)))


@dataclass(frozen=True)
class Familiarity:
    """Where the embeddings of training spectra lie, to tell how far from them a new one is.

    The distance is Mahalanobis': with eigenvectors U and eigenvalues l of the training covariance,
    |(e - mean) U l^(-1/2)|. Its p-value is the share of validation spectra at least as far.
    """

    mean: np.ndarray  # (E,)
    whiten: np.ndarray  # (E, E), U l^(-1/2)
    distances: np.ndarray  # (q,), quantiles of the distance on validation spectra, ascending

    @classmethod
    def of(cls, training: np.ndarray, validation: np.ndarray, *, quantiles: int = 1001) -> Familiarity:
        """From embeddings of training (n, E) and validation (m, E) spectra."""
        training = training.astype(float)
        mean = training.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov(training.T).reshape(len(mean), len(mean)))
        # A direction that training never used has no scale of its own: it gets a small share of the mean one.
        floor = 1e-4 * max(values.mean(), 1e-30)
        whiten = vectors / np.sqrt(np.maximum(values, floor))
        far = np.linalg.norm((validation - mean) @ whiten, axis=-1)
        grid = np.linspace(0, 1, min(quantiles, len(far)))
        return cls(mean, whiten, np.quantile(far, grid))

    def distance(self, embedding: np.ndarray) -> np.ndarray:
        """Mahalanobis distance (...,) of embeddings (..., E) from training."""
        return np.linalg.norm((embedding - self.mean) @ self.whiten, axis=-1)

    def p_value(self, distance: np.ndarray) -> np.ndarray:
        """Share of validation spectra at least as far, never below one over their number plus one."""
        n = len(self.distances)
        return (1 + n - np.searchsorted(self.distances, distance, side="left")) / (1 + n)
