"""Widths of the opacity field from files: what `kappaflow opacity compare` measured between two lists."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kappaflow.errors import UserError
from kappaflow.simulation.opacity_draws import SWAPPED, sigma_table

__all__ = ["MeasuredPriors", "read_priors"]


@dataclass(frozen=True)
class MeasuredPriors:
    """Per species: the standard deviations of constant and modes, and the two lists they were measured between."""

    widths: dict[str, tuple[float, ...]] = field(default_factory=dict)
    pairs: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def sigma(self) -> tuple[tuple[str, tuple[float, ...]], ...]:
        """The widths as a config keeps them."""
        return tuple(self.widths.items())

    def axes(self, asked: str | None) -> tuple[str, ...]:
        """Return the species that swap lists: those `asked` for, else the paper's, the measured pairs in their place.

        Examples
        --------
        >>> MeasuredPriors(pairs={"H2O": ("base", "pokazatel")}).axes(None)
        ('H2O=base+pokazatel', 'CH4')
        """
        if asked is not None:
            return tuple(axis for axis in asked.split(",") if axis)
        axes = {species: species for species in SWAPPED}
        return tuple((axes | {s: f"{s}={a}+{b}" for s, (a, b) in self.pairs.items()}).values())


def read_priors(files: Sequence[str | Path]) -> MeasuredPriors:
    """Read the JSON files that `kappaflow opacity compare --out` writes, one species each."""
    found = MeasuredPriors()
    for path in files:
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            species, (first, second) = str(content["species"]), map(str, content["lists"])
            widths = (float(content["sigma"]["const"]), *map(float, content["sigma"]["modes"]))
        except OSError as error:
            raise UserError(f"--prior {path}: cannot be read ({error.strerror})") from None
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"--prior {path}: expected species, lists and sigma (const and modes), as `kappaflow opacity compare A "
                "B --out DIR` writes them"
            ) from None
        if species in found.widths:
            raise UserError(f"--prior {path}: {species} is measured by another file too; give each species once")
        try:
            sigma_table([(species, widths)])
        except UserError as error:
            raise UserError(f"--prior {path}: {error}") from None
        found.widths[species] = widths
        found.pairs[species] = (first, second)
    return found
