"""How large the study is at each preset: one row each, as data."""

from typing import Any

from kappaflow.errors import UserError
from kappaflow.inference.recipes import Recipe, recipe
from kappaflow.presets import Frozen, preset

__all__ = ["SIZES", "Sizes", "sizes_of"]


class Sizes(Frozen):
    """Spectra, networks and draws of one preset."""

    train: int  # spectra of a training set, a tenth of them for validation
    small: int  # training spectra of the small arm of `scaling`
    test: int  # objects of every test set, and of the calibration half
    draws: int  # per object and network, as in the paper
    marginalized: int  # members trained
    control: int
    masked: int
    epochs: dict[str, int]  # of a recipe on the large training set
    amplitude: float = 1.0  # of the field, over the packaged one
    training: dict[str, Any] = {}  # in place of the recipe's own settings
    bootstraps: int = 1000
    references: int = 50  # of TARP, per object
    repeats: int = 20  # of a timing

    @property
    def pooled(self) -> int:
        """Members of the ensembles that are compared: as many of either kind, the paper's three at most."""
        return min(3, self.control, self.marginalized)

    def recipe(self, name: str, preset_name: str) -> Recipe:
        """Return a recipe with the preset's network, and this row's settings of the training."""
        whole = recipe(name, preset(preset_name).network)
        if not self.training:
            return whole
        return Recipe(**{**whole.model_dump(), "training": {**whole.training.model_dump(), **self.training}})


SIZES: dict[str, Sizes] = {
    # For tests: seconds per network. Four times the field, and a rate that a few hundred steps can use, so that the
    # effect of the opacities shows although such networks learn little.
    "tiny": Sizes(
        train=2048,
        small=1024,
        test=256,
        draws=100,
        marginalized=3,
        control=2,
        masked=1,
        epochs={"kappaflow": 10, "paper": 2},
        amplitude=4.0,
        training={"batch": 64, "learning_rate": 4e-3, "ema": 0.98},
        bootstraps=200,
        references=20,
        repeats=1,
    ),
    # An hour and a half on two quiet cores: seven minutes per network on one thread of the machine this was written on.
    "laptop": Sizes(
        train=32_000,
        small=8_000,
        test=2048,
        draws=400,
        marginalized=5,
        control=3,
        masked=3,
        epochs={"kappaflow": 14, "paper": 5},
    ),
    # The paper's own: 3,000 shards, the small arm 800.
    "paper": Sizes(
        train=384_000,
        small=92_160,
        test=2048,
        draws=400,
        marginalized=5,
        control=3,
        masked=3,
        epochs={"kappaflow": 60, "paper": 60},
    ),
}


def sizes_of(name: str) -> Sizes:
    """Look up the sizes of a preset."""
    if name not in SIZES:
        raise UserError(f"--preset {name}: unknown; expected one of {', '.join(SIZES)}")
    return SIZES[name]
