r"""From the flow's unbounded variable onto the unit cube and back, with the Jacobian: never a clip.

A flow variable \(v \in R\) and a unit-cube variable \(t \in (0, 1)\), element by element. Under a uniform prior
the logistic map makes \(v\) logistic: 1.3 % of it lies outside [-5, 5], where zuko's splines are the identity and
the normal base has almost no mass. The probit map makes \(v\) standard normal, so that the identity flow is
exactly the prior.

Sampling evaluates the map in double precision. zuko's splines are the identity outside [-5, 5] and onto it
inside, so |v| <= max(5, |z|) for base noise z, and no normal draw a generator can make comes near the
saturation of either map (|v| of 36 and 8.2): draws are strictly inside the box without being pushed there.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["MAPS", "Logistic", "Map", "Probit"]


class Map(Protocol):
    """A monotone bijection of the real line onto (0, 1)."""

    def to_unit(self, v: Tensor) -> Tensor:
        """Take the flow variable to the unit interval."""
        ...

    def from_unit(self, t: Tensor) -> Tensor:
        """Take the unit interval to the flow variable."""
        ...

    def log_slope(self, v: Tensor) -> Tensor:
        """Logarithm of dt/dv at `v`."""
        ...


class Logistic:
    """t = 1 / (1 + exp(-v)): the paper's."""

    def to_unit(self, v: Tensor) -> Tensor:
        """Take the flow variable to the unit interval."""
        return torch.sigmoid(v)

    def from_unit(self, t: Tensor) -> Tensor:
        """Take the unit interval to the flow variable."""
        return torch.log(t) - torch.log1p(-t)

    def log_slope(self, v: Tensor) -> Tensor:
        """Logarithm of dt/dv at `v`."""
        return -torch.nn.functional.softplus(v) - torch.nn.functional.softplus(-v)


class Probit:
    """t = Phi(v), the normal distribution function: the identity flow is then the uniform prior."""

    def to_unit(self, v: Tensor) -> Tensor:
        """Take the flow variable to the unit interval."""
        return torch.special.ndtr(v)

    def from_unit(self, t: Tensor) -> Tensor:
        """Take the unit interval to the flow variable."""
        return torch.special.ndtri(t)

    def log_slope(self, v: Tensor) -> Tensor:
        """Logarithm of dt/dv at `v`."""
        return -0.5 * v.square() - 0.5 * math.log(2 * math.pi)


MAPS: dict[str, Map] = {"logistic": Logistic(), "probit": Probit()}
