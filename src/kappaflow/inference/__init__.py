"""Shards -> networks -> posteriors: recipes, training, exact fast sampling, ensembles (torch, never JAX)."""

from kappaflow.inference.batches import Batches
from kappaflow.inference.checkpoint import Checkpoint
from kappaflow.inference.devices import place
from kappaflow.inference.incremental import IncrementalSampler
from kappaflow.inference.network import Estimator, Familiarity
from kappaflow.inference.posterior import Posterior, packaged
from kappaflow.inference.recipes import RECIPES, VARIANTS, Recipe, recipe, variant
from kappaflow.inference.training import Diverged, Trainer, plan_run

__all__ = [
    "RECIPES",
    "VARIANTS",
    "Batches",
    "Checkpoint",
    "Diverged",
    "Estimator",
    "Familiarity",
    "IncrementalSampler",
    "Posterior",
    "Recipe",
    "Trainer",
    "packaged",
    "place",
    "plan_run",
    "recipe",
    "variant",
]
