"""Presets: the sizes of everything, frozen, in one table."""

from pydantic import BaseModel, ConfigDict

from kappaflow.errors import UserError

__all__ = ["PRESETS", "NetworkSize", "Preset", "preset"]


class Frozen(BaseModel):
    """A config: immutable, nothing unknown accepted."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NetworkSize(Frozen):
    """Sizes of the neural posterior estimator."""

    transforms: int
    hidden: tuple[int, ...]
    embedding: int = 128
    dense: int = 256  # width of the layers before the embedding, recipe `kappaflow`


class Preset(Frozen):
    """Grid, pixels, number of spectra and network that belong together."""

    name: str
    stride: int  # every stride-th point of the packaged 20,000-point modelling grid
    layers: int  # levels in pressure, log10(P/bar) from -5 to 3
    pixel_bin: int  # detector pixels averaged into one
    spectra: int
    network: NetworkSize


PRESETS: dict[str, Preset] = {
    p.name: p
    for p in (
        Preset(
            name="tiny",
            stride=20,
            layers=30,
            pixel_bin=18,
            spectra=512,
            network=NetworkSize(transforms=2, hidden=(32, 32), embedding=32, dense=64),
        ),
        Preset(
            name="laptop",
            stride=1,
            layers=60,
            pixel_bin=2,
            spectra=100_000,
            network=NetworkSize(transforms=5, hidden=(128, 128)),
        ),
        Preset(
            name="paper",
            stride=2,
            layers=60,
            pixel_bin=1,
            spectra=384_000,
            network=NetworkSize(transforms=10, hidden=(256, 256)),
        ),
    )
}


def preset(name: str) -> Preset:
    """Look up a preset by name."""
    try:
        return PRESETS[name]
    except KeyError:
        raise UserError(f"preset: unknown name {name!r}; expected one of {', '.join(PRESETS)}") from None
