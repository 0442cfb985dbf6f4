"""The made-up forward model as the likelihood sees it, with derivatives by differences, and little effort."""

from dataclasses import dataclass, replace

import numpy as np
from whole_thin import WholeThin

from kappaflow.parameters import INDEX
from kappaflow.refinement import FitSettings, RefineSettings
from kappaflow.refinement.sampling import Effort
from kappaflow.retrieval import exactness
from kappaflow.simulation.toy import ToyModel

R = INDEX["R"]
QUICK = RefineSettings(
    fit=FitSettings(starts=4, screened=32, kept=1, steps=(4, 8, 30)),
    effort=Effort(rounds=(1, 3), places=(100, 300)),
)


@dataclass(frozen=True)
class ListedToy(ToyModel):
    """The toy with two lists of H2O alone, by number too, and with R^2 as a plain factor, as in the physics."""

    @property
    def names(self):
        return {species: ("base", "exomol") if species == "H2O" else ("base",) for species in self.parameters.species}

    def __call__(self, theta, field=None, lists=None):
        theta = np.array(theta, float)
        radius = theta[:, R].copy()
        theta[:, R] = self.parameters.low[R] + 0.9 * (self.parameters.high[R] - self.parameters.low[R])
        return 0.3 * radius[:, None] ** 2 * super().__call__(theta, field, lists)

    def list_indices(self, lists):
        return np.array([names.index(lists.get(species, names[0])) for species, names in self.names.items()])


@dataclass(frozen=True)
class ToyPredictor:
    """Stands for `ListedModel`: spectra and their derivatives by central differences."""

    model: ToyModel
    lists: tuple[int, ...]

    def __call__(self, theta, field):
        chosen = {s: names[i] for (s, names), i in zip(self.model.names.items(), self.lists, strict=True)}
        return np.asarray(self.model(theta, field, chosen), float)

    def thinned(self, good):
        return WholeThin(self)

    def derivatives(self, theta, field):
        theta, field = np.asarray(theta, float), np.asarray(field, float)
        low, high = np.asarray(self.model.parameters.low), np.asarray(self.model.parameters.high)
        steps = np.concatenate([4e-3 * (high - low), np.full(field.shape[1], 4e-3)])
        whole = np.concatenate([theta, field], axis=1)
        d = theta.shape[1]
        out = np.zeros((len(theta), steps.size, self.model.pixels))
        moving = [*range(6), 9, *range(d, steps.size, self.model.parameters.coefficients)]  # all else moves nothing
        for i in moving:
            shift = steps * (np.arange(steps.size) == i)
            ends = [self((whole + s * shift)[:, :d], (whole + s * shift)[:, d:]) for s in (1, -1)]
            out[:, i] = (ends[0] - ends[1]) / (2 * steps[i])
        return self(theta, field), out[:, :d], out[:, d:]


def refine_toys(monkeypatch, settings=QUICK):
    """Let retrievals of the toy be refined, with little effort."""
    real = exactness.refined_both

    def quick(native, posterior, model, distance, how):
        listed = ListedToy(model.pixels)
        return real(native, posterior, listed, distance, replace(settings, draws=how.draws, seed=how.seed))

    monkeypatch.setattr("kappaflow.refinement.posing.ListedModel", ToyPredictor)
    monkeypatch.setattr("kappaflow.retrieval.pipeline.refined_both", quick)
