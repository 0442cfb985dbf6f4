"""What decides a set of spectra: a frozen recipe, the forward model it names, and the digest of both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
from pydantic import ValidationError

from kappaflow.config import Frozen, preset
from kappaflow.errors import UserError
from kappaflow.parameters import PARAMETERS, SPECIES
from kappaflow.simulate.perturbation import AXES, PERTURB, Combination, allowed_combinations, combinations, sigma
from kappaflow.simulate.prior import PRIORS, SHARD_SIZE
from kappaflow.storage import digest

__all__ = ["Model", "Plan", "Recipe", "load_model", "make_recipe", "make_plan"]

SCHEMA = "kappaflow-shards/1"


class Model(Protocol):
    """What a simulation asks of a forward model."""

    @property
    def wavelength(self) -> np.ndarray:
        """Pixels [micron], shape (p,)."""
        ...

    @property
    def digest(self) -> str:
        """Digest of tables and grids: equal digests mean equal spectra."""
        ...

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Line lists of every species, the base first."""
        ...

    def __call__(self, theta: Any, field: Any = None, lists: Any = None) -> np.ndarray:
        """Noise-free flux (n, p) of `theta` (n, 15), coefficients (n, 54) and one list a species."""
        ...


class Recipe(Frozen):
    """Everything that decides the spectra besides the seed; made by `make_recipe`, which checks it."""

    preset: str = "laptop"
    model: Literal["forward", "toy"] = "forward"
    prior: Literal["uniform", "sobol"] = "uniform"
    perturb: Literal["both", "smooth", "discrete", "none"] = "both"
    amplitude: float = 1.0
    axes: tuple[str, ...] = AXES
    pin: tuple[tuple[str, str], ...] = ()
    exclude: tuple[tuple[str, str], ...] = ()
    broadening: tuple[float, float] = (1.0, 0.0)


def make_recipe(**options: Any) -> Recipe:
    """Build a recipe, or say in one line which option is wrong.

    Examples
    --------
    >>> make_recipe(preset="tiny", perturb="smooth").axes
    ('H2O', 'CH4')
    """
    for name, known in (("perturb", PERTURB), ("prior", PRIORS)):
        if name in options and options[name] not in known:
            raise UserError(f"{name}: unknown {options[name]!r}; expected one of {', '.join(known)}")
    try:
        recipe = Recipe(**options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{where}: {first.get('input')!r}: {first['msg'].lower()}") from None
    preset(recipe.preset)  # raises with the names it knows
    if not (math.isfinite(recipe.amplitude) and recipe.amplitude >= 0):
        raise UserError(f"amplitude: {recipe.amplitude}; expected a number of at least 0 (1 is the packaged table)")
    scale, shift = recipe.broadening
    if not (math.isfinite(scale) and math.isfinite(shift) and scale > 0):
        raise UserError(f"broadening: {scale},{shift}; expected a positive scale and a shift, for example 1.30,-0.15")
    for species in (*recipe.axes, *(s for s, _ in (*recipe.pin, *recipe.exclude))):
        if species not in SPECIES:
            raise UserError(f"lists: unknown species {species!r}; expected one of {', '.join(SPECIES)}")
    if len({s for s, _ in recipe.pin}) < len(recipe.pin):
        raise UserError("pin: a species is pinned twice; give each species one list")
    if len(set(recipe.axes)) < len(recipe.axes):
        raise UserError("axes: a species is named twice")
    return recipe


class Plan(Frozen):
    """A recipe met with a model: what every shard of a set shares, and the digest that names it."""

    recipe: Recipe
    seed: int
    model_digest: str
    pixels: int
    combinations: tuple[Combination, ...]  # every combination of the axes; a stored index points in here
    allowed: tuple[int, ...]  # the ones shards cycle over

    @property
    def content(self) -> dict[str, Any]:
        """Everything that decides the bytes of a shard but its seed and its index."""
        return {
            "schema": SCHEMA,
            "recipe": self.recipe.model_dump(mode="json"),
            "model": self.model_digest,
            "pixels": self.pixels,
            "sigma": digest(sigma().tolist()),
            "prior": digest([[p.name, p.low, p.high] for p in PARAMETERS]),
            "combinations": [[f"{s}={name}" for s, name in choice] for choice in self.combinations],
            "allowed": list(self.allowed),
            "shard_size": SHARD_SIZE,
        }

    @property
    def digest(self) -> str:
        """Digest of the configuration, without the seed."""
        return digest(self.content)

    def combination(self, shard: int) -> int:
        """Index of the list combination of a shard: shards cycle over the allowed ones."""
        return self.allowed[shard % len(self.allowed)]


def make_plan(recipe: Recipe, seed: int, model: Model) -> Plan:
    """Check the recipe's lists against the model's and fix the combinations."""
    if not 0 <= seed < 2**63:
        raise UserError(f"seed: {seed}; expected a whole number from 0 to 2^63 - 1")
    lists = model.names
    for option, pairs in (("pin", recipe.pin), ("exclude", recipe.exclude)):
        for species, name in pairs:
            if name not in lists[species]:
                raise UserError(
                    f"{option}: {species} has no list {name!r}; expected one of {', '.join(lists[species])}"
                )
    # A pinned species needs a place in the combinations even where it is no axis.
    axes = recipe.axes + tuple(s for s, _ in recipe.pin if s not in recipe.axes)
    every = combinations(lists, axes)
    allowed = allowed_combinations(every, recipe.perturb, pin=dict(recipe.pin), exclude=recipe.exclude)
    return Plan(
        recipe=recipe,
        seed=seed,
        model_digest=model.digest,
        pixels=len(model.wavelength),
        combinations=every,
        allowed=allowed,
    )


def load_model(recipe: Recipe) -> Model:
    """Return the forward model that the recipe names."""
    if recipe.model == "toy":
        from kappaflow.simulate.toy import ToyModel

        return ToyModel()
    from kappaflow.forward import ForwardModel  # JAX: only when spectra are really computed

    return ForwardModel.load(preset=recipe.preset, broadening=recipe.broadening)
