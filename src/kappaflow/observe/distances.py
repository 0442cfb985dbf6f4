"""A distance with its error, checked once for the command line, the table of targets and Python."""

import math
from typing import Any, NamedTuple

from kappaflow.errors import UserError

__all__ = ["Distance", "as_distance", "stated_distance"]

NEAREST, FARTHEST = 0.1, 1e5  # pc
LARGEST_ERROR = 0.25  # of the distance: beyond it R is not measured, and a normal draw could fall below zero


class Distance(NamedTuple):
    """Distance and its standard error, in pc."""

    pc: float
    error: float = 0.0


def as_distance(
    value: float | tuple[float, float] | Distance | None, error: float | None = None, *, where: str = "--distance"
) -> Distance | None:
    """Check a distance [pc], alone, with its error as a pair, or with `error` beside it; None stays None.

    Examples
    --------
    >>> as_distance((5.71, 0.06))
    Distance(pc=5.71, error=0.06)
    """
    if value is None:
        if error is not None:
            raise UserError(f"{where}: an error of {error:g} pc without a distance; give both, or neither")
        return None
    pc, own = value if isinstance(value, tuple) else (value, 0.0)
    found = Distance(float(pc), float(own if error is None else error))
    if not NEAREST <= found.pc <= FARTHEST:  # nan is outside too
        raise UserError(f"{where}: {found.pc:g} pc; expected between {NEAREST:g} and {FARTHEST:,.0f}")
    if not (math.isfinite(found.error) and 0 <= found.error <= LARGEST_ERROR * found.pc):
        raise UserError(
            f"{where}-error: {found.error:g} pc of {found.pc:g}; expected between 0 and {LARGEST_ERROR:.0%} of it: "
            "without a better distance leave it out, and the flux scale is not used"
        )
    return found


def stated_distance(meta: Any) -> Distance | None:
    """Distance that a file states in its meta, as `distance_pc` and `distance_error_pc`; None where it does not."""
    pc, error = (meta.get(key) for key in ("distance_pc", "distance_error_pc"))
    if isinstance(pc, bool) or not isinstance(pc, int | float):
        return None
    return as_distance(pc, error if isinstance(error, int | float) else None, where="distance_pc")
