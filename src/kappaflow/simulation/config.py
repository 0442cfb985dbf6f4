"""What decides a set of spectra: a frozen config, the forward model it names, and the digest of both."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from kappaflow.errors import UserError
from kappaflow.parameters import ParameterSet, parameter_set
from kappaflow.presets import Frozen, preset
from kappaflow.simulation.opacity_draws import (
    PERTURB,
    SWAPPED,
    Combination,
    Dial,
    allowed_combinations,
    combinations,
    sigma_table,
    split_axis,
)
from kappaflow.simulation.prior import SEQUENCES, SHARD_SIZE
from kappaflow.spectra import Forward
from kappaflow.storage import digest

__all__ = ["ShardPlan", "SpectraConfig", "load_model", "make_config", "plan_shards"]

SCHEMA = "kappaflow-shards/3"


class SpectraConfig(Frozen):
    """Everything that decides the spectra besides the seed and the tables; made by `make_config`, which checks it."""

    preset: str = "laptop"
    parameters: str = "paper"
    model: Literal["forward", "toy"] = "forward"
    sequence: Literal["uniform", "sobol"] = "uniform"
    perturb: Literal["both", "smooth", "discrete", "none"] = "both"
    amplitude: float | tuple[float, float] | Dial = 1.0  # of the field; between two it is drawn, for each spectrum
    axes: tuple[str, ...] = SWAPPED  # species whose lists are swapped: "CH4", or "CH4=base+exomol" for some of them
    sigma: tuple[tuple[str, tuple[float, ...]], ...] = ()  # (species, (const, modes...)) in place of the packaged ones
    pin: tuple[tuple[str, str], ...] = ()
    exclude: tuple[tuple[str, str], ...] = ()
    broadening: tuple[tuple[float, float], ...] = ((1.0, 0.0),)  # (scale, shift) of the half-widths: shards cycle
    cia: str = "borysow"

    @property
    def amplitude_span(self) -> tuple[float, float]:
        """Smallest and largest amplitude."""
        if isinstance(self.amplitude, Dial):
            return self.amplitude.low, self.amplitude.high
        return self.amplitude if isinstance(self.amplitude, tuple) else (self.amplitude, self.amplitude)


def make_config(**options: Any) -> SpectraConfig:
    """Build a config, or say in one line which option is wrong.

    Examples
    --------
    >>> make_config(preset="tiny", perturb="smooth").axes
    ('H2O', 'CH4')
    """
    for name, known in (("perturb", PERTURB), ("sequence", SEQUENCES)):
        if name in options and options[name] not in known:
            raise UserError(f"{name}: unknown {options[name]!r}; expected one of {', '.join(known)}")
    for name in ("pin", "exclude", "sigma"):
        if isinstance(options.get(name), Mapping):
            options[name] = tuple(options[name].items())
    if options.get("amplitude") == "dial":
        options["amplitude"] = Dial()
    if "broadening" in options and len(np.shape(options["broadening"])) == 1:
        options["broadening"] = (options["broadening"],)
    try:
        config = SpectraConfig(**options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{where}: {first.get('input')!r}: {first['msg'].lower()}") from None
    preset(config.preset)  # raises with the names it knows
    species = parameter_set(config.parameters).species
    low, high = config.amplitude_span
    if not (math.isfinite(high) and 0 <= low <= high):
        raise UserError(
            f"amplitude: {low:g} to {high:g}; expected a number of at least 0 (1 is the packaged table), or two, the "
            "lower one first"
        )
    _refuse_wrong_dial(config)
    for scale, shift in config.broadening or ((0.0, 0.0),):
        if not (math.isfinite(scale) and math.isfinite(shift) and scale > 0):
            raise UserError(
                f"broadening: {scale},{shift}; expected a positive scale and a shift, for example 1.30,-0.15"
            )
    swapped = [split_axis(axis)[0] for axis in config.axes]
    for named in (*swapped, *(s for s, _ in (*config.pin, *config.exclude, *config.sigma))):
        if named not in species:
            raise UserError(f"lists: unknown species {named!r}; expected one of {', '.join(species)}")
    sigma_table(config.sigma, parameter_set(config.parameters))
    if len({s for s, _ in config.pin}) < len(config.pin):
        raise UserError("pin: a species is pinned twice; give each species one list")
    if len(set(swapped)) < len(swapped):
        raise UserError("axes: a species is named twice")
    return config


def _refuse_wrong_dial(config: SpectraConfig) -> None:
    if isinstance(config.amplitude, Dial):
        trouble = config.amplitude.wrong()
        if trouble is None and not PERTURB[config.perturb][0]:
            trouble = f"a dial, but --perturb {config.perturb} has no field to turn; expected both or smooth"
        if trouble:
            raise UserError(f"amplitude: {trouble}")


class ShardPlan(Frozen):
    """A config met with a model: what every shard of a set shares, and the digest that names it."""

    config: SpectraConfig
    seed: int
    model_digest: str
    pixels: int
    opacity: dict[str, Any]  # the fields of `OpacityCard`
    combinations: tuple[Combination, ...]  # every combination of the axes; a stored index points in here
    allowed: tuple[int, ...]  # the ones shards cycle over

    @property
    def parameters(self) -> ParameterSet:
        """What theta, the species and their coefficients are."""
        return parameter_set(self.config.parameters)

    @property
    def content(self) -> dict[str, Any]:
        """Everything that decides the bytes of a shard except its seed and its index."""
        return {
            "schema": SCHEMA,
            "config": self.config.model_dump(mode="json"),
            "model": self.model_digest,
            "opacity": self.opacity,
            "pixels": self.pixels,
            "prior": digest([[p.name, p.low, p.high] for p in self.parameters.parameters]),
            "combinations": [[f"{s}={name}" for s, name in choice] for choice in self.combinations],
            "allowed": list(self.allowed),
            "shard_size": SHARD_SIZE,
        }

    @property
    def digest(self) -> str:
        """Digest of the configuration, without the seed."""
        return digest(self.content)

    def combination(self, shard: int) -> int:
        """Index of the list combination of a shard: shards cycle over those allowed; the first where all is fixed."""
        if self._fixed(shard):
            return self.allowed[0]
        return self.allowed[shard % len(self.allowed)]

    def broadening(self, shard: int) -> tuple[float, float]:
        """Half-width scale and exponent shift of a shard: each goes through all combinations of lists in turn."""
        if self._fixed(shard):
            return 1.0, 0.0
        pairs = self.config.broadening
        return pairs[shard // len(self.allowed) % len(pairs)]

    def _fixed(self, shard: int) -> bool:
        """Whether a dial stands at 0 in this shard: no field, and neither lists nor half-widths vary."""
        return isinstance(self.config.amplitude, Dial) and self.config.amplitude.held(shard) == 0


def plan_shards(config: SpectraConfig, seed: int, model: Forward) -> ShardPlan:
    """Check the config's lists against the model's and fix the combinations."""
    if not 0 <= seed < 2**63:
        raise UserError(f"seed: {seed}; expected a whole number from 0 to 2^63 - 1")
    lists = model.names
    asked = [("axes", s, name) for s, names in map(split_axis, config.axes) for name in names]
    asked += [(option, *pair) for option in ("pin", "exclude") for pair in getattr(config, option)]
    for option, species, name in asked:
        if name not in lists[species]:
            raise UserError(f"{option}: {species} has no list {name!r}; expected one of {', '.join(lists[species])}")
    # A pinned species needs a place in the combinations even where it is not an axis.
    axes = config.axes + tuple(s for s, _ in config.pin if s not in [split_axis(axis)[0] for axis in config.axes])
    every = combinations(lists, axes)
    allowed = allowed_combinations(every, config.perturb, pin=dict(config.pin), exclude=config.exclude)
    opacity = {
        "digest": model.table_digest,
        "lists": {species: list(names) for species, names in lists.items()},
        "cia": config.cia,
        "sigma": sigma_table(config.sigma, parameter_set(config.parameters)).tolist(),
        "combinations": [dict(every[i]) for i in allowed],
        "broadening": [list(pair) for pair in config.broadening],
    }
    return ShardPlan(
        config=config,
        seed=seed,
        model_digest=model.digest,
        pixels=len(model.wavelength),
        opacity=opacity,
        combinations=every,
        allowed=allowed,
    )


def load_model(config: SpectraConfig, opacity: str | Path | None = None) -> Forward:
    """Return the forward model that the config names, with the opacity table of a file, or the packaged one."""
    if config.model == "toy":
        from kappaflow.simulation.toy import ToyModel

        return ToyModel(parameters=parameter_set(config.parameters))
    from kappaflow.model import ForwardModel  # JAX: only when spectra are really computed

    return ForwardModel.load(
        config.preset, opacity=opacity, broadening=config.broadening[0], cia=config.cia, parameters=config.parameters
    )
