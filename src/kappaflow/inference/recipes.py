"""Recipes: everything that decides a network besides its data and its seed, frozen, one row per piece.

`paper` is the appendix of the paper; `kappaflow` is ours. An ablation is another row (`variant`), not a flag.
"""

from typing import Any, Literal

from pydantic import Field

from kappaflow.errors import UserError
from kappaflow.presets import Frozen, NetworkSize
from kappaflow.storage import digest

__all__ = ["RECIPES", "VARIANTS", "Embedding", "Flow", "Inputs", "Recipe", "Training", "recipe", "variant"]

Width = Field(ge=1, le=65_536)  # a checkpoint from elsewhere must not be able to ask for all the memory


class Inputs(Frozen):
    """How a spectrum becomes numbers for the network; names are those of `features.CHANNELS` and `SCALARS`."""

    channels: tuple[str, ...]
    scalars: tuple[str, ...]
    fill: Literal["median", "zero"]  # masked pixels: the median of the good ones, or zero after scaling
    standardize: bool  # per pixel, over the training set
    directions: int = Field(default=64, ge=1, le=1024)  # of noise-free spectra: how they are taken to rest
    scale_dropout: float = Field(default=0.0, ge=0, lt=1)  # share of training spectra whose flux scale is withheld


class Embedding(Frozen):
    """Spectrum -> vector; `kind` is a row of `embedding.EMBEDDINGS`."""

    kind: Literal["pooled", "strided", "projected"]
    channels: tuple[int, ...]  # widths of the convolutions; of `projected`, one entry per residual block
    kernel: int = Field(default=7, ge=1, le=65)
    dense: int = Field(default=0, ge=0, le=65_536)  # of `projected`: width of its layers
    components: int = Field(default=192, ge=4, le=4096)  # of `projected`: projections of the first channel
    features: int = Width
    dropout: float = Field(default=0.0, ge=0, lt=1)


class Flow(Frozen):
    """Neural spline flow of zuko and the map from its variable onto the prior box (`box.MAPS`)."""

    transforms: int = Field(ge=1, le=64)
    hidden: tuple[int, ...]
    bins: int = Field(default=8, ge=2, le=64)
    standard: int = Field(default=0, ge=0, le=65_536)  # width of the layer that says where and how wide; 0: none
    box: Literal["logistic", "probit"]


class Training(Frozen):
    """Optimizer, schedule and stopping."""

    batch: int = Width
    learning_rate: float = Field(gt=0)
    weight_decay: float = Field(ge=0)
    epochs: int = Field(ge=1)
    schedule: Literal["constant", "cosine"]
    clip: float | None = None  # of the gradient's norm
    ema: float | None = Field(default=None, gt=0, lt=1)  # decay of the moving average of weights
    patience: int | None = Field(default=None, ge=1)  # epochs without a better validation loss before stopping
    fresh_noise: bool = True  # new noise, gain and masks every epoch


class Recipe(Frozen):
    """A network and its training, apart from data and seed."""

    name: str
    inputs: Inputs
    embedding: Embedding
    flow: Flow
    training: Training

    @property
    def digest(self) -> str:
        """Sixteen hex digits that name these settings."""
        return digest(self.model_dump(mode="json"))


def _paper(size: NetworkSize) -> Recipe:
    return Recipe(
        name="paper",
        inputs=Inputs(channels=("log_flux",), scalars=("snr",), fill="median", standardize=False),
        embedding=Embedding(kind="pooled", channels=(16, 32, 64, 64, 128), features=size.embedding),
        flow=Flow(transforms=size.transforms, hidden=size.hidden, box="logistic"),
        training=Training(batch=64, learning_rate=1e-4, weight_decay=1e-4, epochs=60, schedule="constant"),
    )


def _kappaflow(size: NetworkSize) -> Recipe:
    return Recipe(
        name="kappaflow",
        inputs=Inputs(
            channels=("rest_flux", "mask"),
            scalars=("log_snr", "log_scale", "log_spread", "scatter", "velocity"),
            fill="zero",
            standardize=True,
            scale_dropout=0.25,
        ),
        embedding=Embedding(kind="projected", channels=(size.dense,) * 3, dense=size.dense, features=size.embedding),
        flow=Flow(transforms=size.transforms, hidden=size.hidden, box="probit", standard=max(size.embedding, 64)),
        training=Training(
            batch=128,
            learning_rate=6e-4,
            weight_decay=0.02,
            epochs=60,
            schedule="cosine",
            clip=5.0,
            ema=0.999,
            patience=20,
        ),
    )


RECIPES = {"paper": _paper, "kappaflow": _kappaflow}

# What can stand in the place of a piece of `kappaflow`: the arms of the ablation.
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "four channels": {
        "inputs": {
            "channels": ("asinh_snr", "asinh_flux", "log_error", "mask"),
            "scalars": ("log_snr", "log_scale"),
            "standardize": True,
        }
    },
    "moving spectra": {
        "inputs": {"channels": ("asinh_flux", "mask"), "scalars": ("log_snr", "log_scale", "log_spread", "scatter")}
    },
    "no velocity": {"inputs": {"scalars": ("log_snr", "log_scale", "log_spread", "scatter")}},
    "splines alone": {"flow": {"standard": 0}},
    "no spread": {"inputs": {"scalars": ("log_snr", "log_scale", "scatter", "velocity")}},
    "no scatter": {"inputs": {"scalars": ("log_snr", "log_scale", "log_spread", "velocity")}},
    "wider layers": {"embedding": {"channels": (512,) * 3, "dense": 512, "components": 128}},
    "log error as well": {"inputs": {"channels": ("rest_flux", "log_error", "mask")}},
    "no mask channel, median fill": {"inputs": {"channels": ("asinh_flux",), "fill": "median"}},
    "not standardized per pixel": {"inputs": {"standardize": False}},
    "no flux scale": {"inputs": {"scalars": ("log_snr", "log_spread", "scatter", "velocity"), "scale_dropout": 0.0}},
    "pooled CNN": {"embedding": {"kind": "pooled", "channels": (16, 32, 64, 64, 128)}},
    "strided CNN on log flux": {
        "inputs": {
            "channels": ("log_flux", "mask"),
            "scalars": ("log_snr", "log_scale", "log_spread"),
            "standardize": False,
        },
        "embedding": {"kind": "strided", "channels": (32, 64, 64)},
        "flow": {"standard": 0},
    },
    "dropout 0.2": {"embedding": {"dropout": 0.2}},
    "weight decay 1e-4": {"training": {"weight_decay": 1e-4}},
    "logistic box": {"flow": {"box": "logistic"}},
    "noise drawn once": {"training": {"fresh_noise": False}},
    "constant rate": {"training": {"schedule": "constant"}},
    "no EMA": {"training": {"ema": None}},
    "no gradient clipping": {"training": {"clip": None}},
}


def recipe(name: str, size: NetworkSize) -> Recipe:
    """Look up a recipe by name, with the sizes of a preset."""
    try:
        return RECIPES[name](size)
    except KeyError:
        raise UserError(f"recipe: unknown name {name!r}; expected one of {', '.join(RECIPES)}") from None


def variant(whole: Recipe, name: str) -> Recipe:
    """`whole` with one row of `VARIANTS` in the place of its own."""
    if name not in VARIANTS:
        raise UserError(f"recipe: no variant {name!r}; expected one of {', '.join(VARIANTS)}")
    settings = whole.model_dump()
    for section, changes in VARIANTS[name].items():
        settings[section].update(changes)
    return Recipe(**{**settings, "name": f"{whole.name}, {name}"})
