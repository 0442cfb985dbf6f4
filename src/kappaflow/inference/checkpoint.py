"""A trained network in one file: safetensors, with everything else as JSON in its header.

Nothing in it can be executed: no pickle is ever read. The header carries format, version, recipe, data card, prior
box, metrics and a digest of all tensors, so that a truncated, altered, older or foreign file is refused in one line.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from kappaflow.errors import UserError
from kappaflow.inference.network import Estimator, Familiarity
from kappaflow.inference.recipes import Recipe
from kappaflow.inference.resemblance import Resemblance
from kappaflow.spectra import Box, Card, OpacityCard
from kappaflow.storage import digest_arrays, written_whole

__all__ = ["FILE", "Checkpoint", "read_tensors", "write_tensors"]

FILE = "network.safetensors"  # the name in a model's folder
_FORMAT, _VERSION = "kappaflow-network", 1
_RESEMBLANCE = {"mean": np.float32, "components": np.float16, "variances": np.float32, "null": np.float32}


def write_tensors(path: Path, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Write arrays and a JSON header whole, with a digest of the arrays."""
    arrays = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
    text = json.dumps({**header, "tensors": digest_arrays(arrays)}, allow_nan=False)
    with written_whole(path) as part:
        save_file(arrays, part, metadata={"kappaflow": text})
        part.chmod(0o644)  # safetensors writes for its owner alone


def read_tensors(path: Path, form: str, version: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `write_tensors` wrote, or say in one line what is wrong with the file."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; expected a network made by `kappaflow train`")
    try:
        with safe_open(path, framework="numpy") as stream:
            text = (stream.metadata() or {}).get("kappaflow")
            header = json.loads(text) if text else {}
            arrays = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path}: truncated, damaged or not a safetensors file ({str(error).splitlines()[0][:80]}); "
            "expected a network made by `kappaflow train` (pickles are never read)"
        ) from None
    if not isinstance(header, dict) or header.get("format") != form:
        raise UserError(f"{path}: a safetensors file, but not a {form}; expected one made by `kappaflow train`")
    if header.get("version") != version:
        raise UserError(
            f"{path}: {form} version {header.get('version')!r}; this kappaflow reads version {version}: "
            "train again, or use the kappaflow that made it"
        )
    if header.get("tensors") != digest_arrays(arrays):
        raise UserError(f"{path}: the digest of its tensors does not match its header: damaged; copy or train it again")
    return arrays, header


@dataclass(frozen=True)
class Checkpoint:
    """A network with its provenance."""

    estimator: Estimator
    card: Card
    seed: int
    metrics: dict[str, Any] = field(default_factory=dict)
    familiarity: Familiarity | None = None
    resemblance: Resemblance | None = None

    @property
    def box(self) -> Box:
        """The prior box."""
        return self.card.box

    def save(self, path: str | os.PathLike[str], *, half: bool = False) -> Path:
        """Write to `path`: a .safetensors file, or a folder that gets one.

        `half` stores the weights (not the scaling) in half precision, for networks that travel with the package.
        """
        arrays = {f"weights.{k}": v.numpy() for k, v in _state(self.estimator).items()}
        if half:
            scaling = [k for k in arrays if k.startswith("weights.features") and not k.endswith("rest.parts")]
            arrays = {k: v if k in scaling else v.astype(np.float16) for k, v in arrays.items()}
        arrays["wavelength"] = np.asarray(self.card.wavelength, dtype=float)
        if self.familiarity is not None:
            for name in ("mean", "whiten", "distances"):
                arrays[f"familiarity.{name}"] = getattr(self.familiarity, name).astype(np.float32)
        if self.resemblance is not None:
            for name, kind in _RESEMBLANCE.items():
                arrays[f"resemblance.{name}"] = getattr(self.resemblance, name).astype(kind)
        header = {
            "format": _FORMAT,
            "version": _VERSION,
            "recipe": self.estimator.recipe.model_dump(mode="json"),
            "seed": self.seed,
            "data": {
                "digest": self.card.digest,
                "preset": self.card.preset,
                "n_train": self.card.n_train,
                "n_validation": self.card.n_validation,
                "masked": self.card.masked,
                "seed": self.card.seed,
                "parameters": self.card.parameters,
                "opacity": None if self.card.opacity is None else asdict(self.card.opacity),
                "dial": self.card.dial,
            },
            "box": {"names": self.box.names, "low": self.box.low, "high": self.box.high},
            "metrics": self.metrics,
        }
        target = _file(path)
        write_tensors(target, arrays, header)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Read a file, or the network in a folder made by `kappaflow train`."""
        target = _file(path)
        arrays, header = read_tensors(target, _FORMAT, _VERSION)
        try:
            recipe = Recipe.model_validate(header["recipe"])
            box = Box(*(tuple(header["box"][k]) for k in ("names", "low", "high")))
            told = dict(header["data"])
            opacity = told.pop("opacity", None)  # networks of the first release did not say
            opacity = None if opacity is None else OpacityCard(**opacity)
            dial = _range(told.pop("dial", None))
            card = Card(wavelength=arrays["wavelength"], box=box, opacity=opacity, dial=dial, **told)
            estimator = Estimator(recipe, len(card.wavelength), len(box), dial)
            weights = {k.removeprefix("weights."): v for k, v in arrays.items() if k.startswith("weights.")}
            _restore(estimator, weights)
            seed, metrics = int(header["seed"]), dict(header["metrics"])
        except (KeyError, TypeError, ValueError, ValidationError, RuntimeError, IndexError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{target}: its header and tensors do not fit together ({_short(error)})") from None
        names = [f"familiarity.{n}" for n in ("mean", "whiten", "distances")]
        known = Familiarity(*(arrays[n] for n in names)) if all(n in arrays for n in names) else None
        return cls(estimator.eval(), card, seed, metrics, known, _resemblance(target, arrays))


def _resemblance(path: Path, arrays: dict[str, np.ndarray]) -> Resemblance | None:
    """Read the components of the training set, where the network carries them."""
    stored = {name: arrays[f"resemblance.{name}"] for name in _RESEMBLANCE if f"resemblance.{name}" in arrays}
    if len(stored) < len(_RESEMBLANCE):
        return None
    pixels, count = arrays["wavelength"].size, stored["variances"].size
    if [stored[name].shape for name in ("mean", "components")] != [(pixels,), (count, pixels)]:
        raise UserError(f"{path}: its header and tensors do not fit together (components of other pixels)")
    return Resemblance(**{name: array.astype(float) for name, array in stored.items()})


def _file(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    return path if path.suffix == ".safetensors" else path / FILE


def _range(stated: Any) -> tuple[float, float] | None:
    """Return the dial of a header: two numbers, the lower one first, or None."""
    if stated is None:
        return None
    low, high = map(float, stated)
    if not 0 <= low < high < float("inf"):
        raise ValueError(f"a dial from {low} to {high}")
    return low, high


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}"


def _state(estimator: Estimator) -> dict[str, torch.Tensor]:
    """Weights and scaling; zuko's masks and orders follow from the recipe and are left out."""
    return {k: v.detach().cpu() for k, v in estimator.state_dict().items() if not k.endswith((".mask", ".order"))}


def _restore(estimator: Estimator, weights: dict[str, np.ndarray]) -> None:
    """Fill `estimator` with exactly the tensors it needs."""
    needed = _state(estimator)
    if needed.keys() != weights.keys():
        raise ValueError(f"tensors {sorted(needed.keys() ^ weights.keys())[:3]} missing or unexpected")
    with torch.no_grad():
        for name, tensor in estimator.state_dict(keep_vars=True).items():
            if name in weights:
                if tuple(tensor.shape) != weights[name].shape:
                    raise ValueError(f"tensor {name} has shape {weights[name].shape}, expected {tuple(tensor.shape)}")
                tensor.data.copy_(torch.from_numpy(weights[name].astype(np.float32)))
