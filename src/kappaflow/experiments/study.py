"""The study: every data set and network of the paper by its name, at the sizes of a preset.

All training sets share a seed, and so their parameters; all test sets share another, so that every column of a table is
of the same objects; the calibration half has a third.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kappaflow.experiments.sizes import Sizes, sizes_of
from kappaflow.experiments.steps import DataSet, Drawn, TrainedNetwork
from kappaflow.simulation.config import SpectraConfig, make_config

__all__ = ["AMPLITUDES", "HELD_OUT", "NETWORKS", "SETS", "NetworkKind", "Study"]

TRAINING_SEED, TEST_SEED, CALIBRATION_SEED = 0, 20260716, 20260717
AMPLITUDES = (0.43, 1.0, 1.43, 2.14)  # over the trained one
HELD_OUT = ("CH4", "exomol")  # the list withheld in training
BROADENED = (1.30, -0.15)  # half-widths times, temperature exponents plus

# How a set differs from the perturbed one.
SETS: dict[str, dict[str, Any]] = {
    "perturbed": {},
    "clean": {"perturb": "none"},
    "discrete": {"perturb": "discrete"},
    "smooth": {"perturb": "smooth"},
    "broadened": {"perturb": "smooth", "broadening": BROADENED},
    "lists of training": {"exclude": (HELD_OUT,)},
    "withheld list": {"pin": (HELD_OUT,)},
    **{f"amplitude {a:g}": {"amplitude": a} for a in AMPLITUDES if a != 1},
}


@dataclass(frozen=True)
class NetworkKind:
    """What a kind of network is trained on, and how."""

    data: str = "perturbed"
    recipe: str = "kappaflow"
    masks: bool = False
    small: bool = False


NETWORKS: dict[str, NetworkKind] = {
    "marginalized": NetworkKind(),
    "control": NetworkKind("clean"),
    "mask-augmented": NetworkKind(masks=True),
    "small marginalized": NetworkKind(small=True),
    "small control": NetworkKind("clean", small=True),
    "discrete": NetworkKind("discrete"),
    "smooth": NetworkKind("smooth"),
    "held-out": NetworkKind("lists of training"),
    "paper recipe": NetworkKind(recipe="paper"),
    "paper recipe control": NetworkKind("clean", recipe="paper"),
}


@dataclass(frozen=True)
class Study:
    """A preset, a set of parameters, and the real spectra to look at."""

    preset: str
    parameters: str = "paper"
    files: tuple[str, ...] = ()

    @cached_property
    def sizes(self) -> Sizes:
        """The sizes of the preset."""
        return sizes_of(self.preset)

    def config(self, changes: dict[str, Any]) -> SpectraConfig:
        """Return what decides the spectra of a set that differs from the perturbed one by `changes`."""
        options = {"preset": self.preset, "parameters": self.parameters, **changes}
        options["amplitude"] = self.sizes.amplitude * options.get("amplitude", 1.0)
        return make_config(**options)

    def training_set(self, name: str) -> DataSet:
        """Return a set to train on."""
        return DataSet(name=f"{name}, training", config=self.config(SETS[name]), n=self.sizes.train, seed=TRAINING_SEED)

    def test_set(self, name: str) -> DataSet:
        """Return a set to judge on; "calibration" is perturbed, and disjoint from it."""
        changes = SETS["perturbed"] if name == "calibration" else SETS[name]
        seed = CALIBRATION_SEED if name == "calibration" else TEST_SEED
        return DataSet(name=f"{name}, test", config=self.config(changes), n=self.sizes.test, seed=seed)

    def network(self, kind: str, seed: int = 0) -> TrainedNetwork:
        """Return one network of `NETWORKS`."""
        what, sizes = NETWORKS[kind], self.sizes
        epochs = sizes.epochs[what.recipe]
        # As many steps on fewer spectra: the two arms of the scaling differ in the data alone.
        small = round(epochs * 0.9 * sizes.train / sizes.small)
        return TrainedNetwork(
            name=f"{kind} {seed}",
            data=self.training_set(what.data),
            seed=seed,
            recipe=sizes.recipe(what.recipe, self.preset),
            epochs=small if what.small else epochs,
            masks=what.masks,
            limit=sizes.small if what.small else None,
        )

    def drawn(
        self,
        method: str,
        test: str = "perturbed",
        *,
        path: str = "none",
        masks: str = "none",
        members: int | None = None,
    ) -> tuple[Drawn, ...]:
        """Return the draws of a method on a test set: one network ("control"), or several ("control ensemble").

        Networks of an ensemble are drawn one by one, to be pooled when they are read: a network drawn for one table
        serves every other. As many are pooled of each kind, unless `members` says how many.
        """
        kind = method.removesuffix(" ensemble")
        count = members or (1 if kind == method else self.pooled(kind))
        return tuple(
            Drawn(
                network=self.network(kind, seed),
                data=self.test_set(test),
                draws=self.sizes.draws,
                path=path,
                masks=masks,
                files=self.files if masks == "real" else (),
            )
            for seed in range(count)
        )

    def pooled(self, kind: str) -> int:
        """Return how many networks of a kind are pooled in a comparison."""
        return min(3, self.sizes.masked) if kind == "mask-augmented" else self.sizes.pooled
