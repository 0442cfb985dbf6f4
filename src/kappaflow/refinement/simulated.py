"""Simulated spectra as a telescope would give them, with the truth that made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.observe.spectrum import Spectrum
from kappaflow.simulation.config import load_model, make_config
from kappaflow.simulation.reader import Shards

__all__ = ["Simulated", "model_of", "parsed_rows", "simulated"]


@dataclass(frozen=True, eq=False)
class Simulated:
    """One spectrum of a set, observed once, and what made it."""

    row: int
    spectrum: Spectrum
    theta: np.ndarray  # (D,)
    field: np.ndarray  # (K,)
    amplitude: float
    lists: Mapping[str, str]

    def truth(self) -> dict[str, Any]:
        """Plain data."""
        columns = {"theta": self.theta.tolist(), "field": self.field.tolist()}
        return {"row": self.row, **columns, "amplitude": self.amplitude, "lists": dict(self.lists)}


def parsed_rows(text: str) -> tuple[int, ...]:
    """Rows of a set, "0:4" or "3,7,9" or both.

    Examples
    --------
    >>> parsed_rows("0:3,7")
    (0, 1, 2, 7)
    """
    rows: list[int] = []
    for word in text.split(","):
        first, sign, last = word.partition(":")
        if not (first.isdecimal() and (last.isdecimal() if sign else True)):
            raise UserError(f"--rows {text}: expected places in the set, as 0:4 or 3,7,9")
        rows += range(int(first), int(last)) if sign else [int(first)]
    if not rows or len(set(rows)) < len(rows):
        raise UserError(f"--rows {text}: expected at least one place, and none twice")
    return tuple(rows)


def simulated(path: str | Path, rows: Sequence[int], *, seed: int = 0) -> Iterator[Simulated]:
    """Yield the spectra at `rows` of the set in `path`: noise, error array and gains from `seed`, every pixel good."""
    shards = Shards(path)
    for row in rows:
        if not 0 <= row < len(shards):
            raise UserError(f"{path}: no spectrum {row}; the set has {len(shards)}")
    for row in rows:
        (seen,) = (shards.evaluation(1, seed, start=row),)
        meta = {"target": f"{Path(path).name} {row}", "scale_known": True}
        spectrum = Spectrum(shards.wavelength, seen.flux[0], seen.error[0], seen.mask[0], meta)
        assert seen.field is not None
        yield Simulated(
            row,
            spectrum,
            np.asarray(shards.theta[row], float),
            np.asarray(seen.field[0], float),
            float(shards.amplitude[row]),
            shards.combinations[int(shards.combination[row])],
        )


def model_of(path: str | Path) -> Any:
    """Return the forward model that made the set in `path`, with the packaged opacities."""
    shards = Shards(path)
    config = make_config(**shards.config["config"])
    if config.model != "forward":
        raise UserError(f"{path}: spectra of the made-up model {config.model!r}; expected a set of the forward model")
    model = load_model(config)
    told = shards.card.opacity
    if told is not None and told.digest != model.table_digest:
        raise UserError(f"{path}: made with another opacity table than the packaged one; simulate it again")
    return model
