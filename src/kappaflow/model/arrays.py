"""Prepared arrays, named by their place in `physics.emission.Tables` ("lines.basis"), and their way to the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

import jax
import numpy as np

__all__ = ["Arrays", "PreparedArrays", "on_device", "single"]

Arrays = Mapping[str, np.ndarray]
T = TypeVar("T")


@dataclass(frozen=True)
class PreparedArrays:
    """All that a forward model is made of."""

    arrays: Arrays  # float32 and int32
    names: Mapping[str, tuple[str, ...]]  # species -> its line lists, the base first
    meta: Mapping[str, Any]  # what decided the arrays


def on_device(kind: type[T], arrays: Arrays) -> T:
    """Gather `arrays` into the named tuple `kind`, whose parts may be named tuples themselves, on JAX's device.

    A processor takes arrays as they lie in memory (aligned to 64 bytes), without a copy: mapped files stay shared.
    """
    kinds = get_type_hints(kind)

    def part(name: str) -> Any:
        if name in arrays:
            return jax.device_put(single(arrays[name]))
        inner = {key.removeprefix(f"{name}."): a for key, a in arrays.items() if key.startswith(f"{name}.")}
        return on_device(kinds[name], inner)

    return kind(*(part(name) for name in kind._fields))  # type: ignore[attr-defined]


def single(array: np.ndarray) -> np.ndarray:
    """Single precision, also where another part of the program has switched JAX to double."""
    return np.asarray(array, np.float32 if array.dtype.kind == "f" else np.int32, order="C")
