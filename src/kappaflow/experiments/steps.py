"""The steps of the study: spectra, networks, draws; frozen descriptions, each named by a digest of all that decides it.

A step knows the steps it needs and nothing of files: `store` says where it lies, `making` how it is made.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import kappaflow
from kappaflow.inference.recipes import Recipe
from kappaflow.presets import Frozen, preset
from kappaflow.simulation.config import SpectraConfig
from kappaflow.storage import digest, file_digest

__all__ = ["DataSet", "Drawn", "Step", "TrainedNetwork", "code_digest"]

ROOT = Path(kappaflow.__file__).parent
# What decides a step besides its settings: packaged tables, and the code that its numbers go through.
TABLES = ("opacity.h5", "chemistry.h5", "cia.h5", "perturbation.json", "masks.json")
SPECTRA_CODE = (
    *("physics", "model", "parameters.py", "constants.py", "instrument.py", "randomness.py"),
    *(f"simulation/{name}.py" for name in ("prior", "opacity_draws", "shard")),
)
OBSERVED_CODE = tuple(f"simulation/{name}.py" for name in ("noise", "masks", "reader"))
NETWORK_CODE = tuple(
    f"inference/{name}.py"
    for name in ("features", "embedding", "box", "spline", "flow", "network", "training", "schedule")
)
DRAWS_CODE = ("inference/posterior.py", "inference/incremental.py", "evaluate/stress.py", "experiments/treatments.py")


class DataSet(Frozen):
    """`n` spectra of a config and a seed."""

    kind: ClassVar[str] = "data"
    name: str
    config: SpectraConfig
    n: int
    seed: int

    @property
    def needs(self) -> tuple[Step, ...]:
        """Nothing is needed first."""
        return ()

    @property
    def key(self) -> str:
        """Sixteen hex digits of all that decides the spectra."""
        sizes = preset(self.config.preset).model_dump(mode="json", include={"stride", "layers", "pixel_bin"})
        content = [self.config.model_dump(mode="json"), sizes, self.n, self.seed, _spectra_digest()]
        return digest([self.kind, *content])


class TrainedNetwork(Frozen):
    """A network trained on a data set, or on its first `limit` training spectra."""

    kind: ClassVar[str] = "network"
    name: str
    data: DataSet
    seed: int
    recipe: Recipe
    epochs: int
    masks: bool = False
    limit: int | None = None

    @property
    def needs(self) -> tuple[Step, ...]:
        """The data."""
        return (self.data,)

    @property
    def key(self) -> str:
        """Sixteen hex digits of all that decides the weights."""
        content = [self.data.key, self.seed, self.recipe.digest, self.epochs, self.masks, self.limit]
        return digest([self.kind, *content, code_digest(*OBSERVED_CODE, *NETWORK_CODE)])


class Drawn(Frozen):
    """Draws of one network for every object of a test set, shown to it after a treatment (`treatments`)."""

    kind: ClassVar[str] = "draws"
    network: TrainedNetwork
    data: DataSet
    draws: int  # per object
    path: str = "none"  # what is done to a spectrum
    masks: str = "none"  # the pixels that are lost
    files: tuple[str, ...] = ()  # real spectra whose masks are taken

    @property
    def name(self) -> str:
        """What it is called in a plan."""
        treated = "" if self.path == "none" else f", {self.path}" + (f" ({self.masks} masks)" * (self.masks != "none"))
        return f"{self.network.name} on {self.data.name}{treated}"

    @property
    def needs(self) -> tuple[Step, ...]:
        """The network and the test set."""
        return (self.network, self.data)

    @property
    def key(self) -> str:
        """Sixteen hex digits of all that decides the draws."""
        files = [file_digest(file) for file in self.files]
        content: list[Any] = [self.network.key, self.data.key, self.draws, self.path, self.masks, files]
        return digest([self.kind, *content, code_digest(*DRAWS_CODE)])


Step = DataSet | TrainedNetwork | Drawn


@cache
def code_digest(*names: str) -> str:
    """Sixteen hex digits of what modules of the package do: their syntax without comments and docstrings."""
    files = sorted(f for name in names for f in ((ROOT / name).rglob("*.py") if "." not in name else [ROOT / name]))
    return digest([[str(f.relative_to(ROOT).as_posix()), _syntax(f.read_text(encoding="utf-8"))] for f in files])


def _syntax(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:]
    return ast.dump(tree)


@cache
def _spectra_digest() -> str:
    tables = [file_digest(ROOT / "data" / name) for name in TABLES]
    return digest([tables, code_digest(*SPECTRA_CODE)])
