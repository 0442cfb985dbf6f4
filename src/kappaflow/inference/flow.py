"""The density: zuko's neural spline flow on the prior box, and its fast evaluation."""

from __future__ import annotations

import math

import torch
import zuko
from torch import Tensor, nn
from zuko.flows import NSF
from zuko.nn import MaskedLinear

from kappaflow.errors import UserError
from kappaflow.inference.box import MAPS
from kappaflow.inference.recipes import Flow
from kappaflow.inference.spline import spline, standard_splines

__all__ = ["BoundedFlow", "log_density"]

# Truths are stored in single precision and can round onto a wall of the box, where the flow variable is
# infinite: they are read half a step of that precision inside it.
WALL = 2.0**-25
FARTHEST, STEADY = 3.5, 6.5  # of a middle; what is off the middle of the box is narrower by exp(-|middle| / 6.5)
BEGIN = 3.0  # widths begin at exp(-softplus(-3)) = 0.95


def log_density(nsf: NSF, v: Tensor, context: Tensor, spread: float = 1.0) -> Tensor:
    """Log density of zuko's NSF, ln p(v | context): `nsf(context).log_prob(v)`, with fewer and larger operations.

    `spread` is the standard deviation of its base noise.

    The context's share of the first layers of all transforms is one matrix product; masks are applied in one call.

    Parameters
    ----------
    v : (b, D); context : (b, C)
    """
    layers = [[t.hyper[i] for i in (0, 2, 4)] for t in nsf.transform.transforms]  # type: ignore[union-attr,index]
    flat = [layer for three in layers for layer in three]
    masks = [layer.mask.to(layer.weight.dtype) for layer in flat]
    weights = torch._foreach_mul([layer.weight for layer in flat], masks)
    d, hidden = v.shape[-1], flat[0].out_features
    from_context = torch.cat([w[:, d:] for w in weights[::3]])
    biases = torch.cat([three[0].bias for three in layers])[:, None]
    shares = torch.addmm(biases, from_context, context.t()).split(hidden)
    v, total = v.t(), v.new_zeros(len(v))
    for i, (_, second, third) in enumerate(layers):  # units first, samples last: see `spline`
        one, two, three = weights[3 * i : 3 * i + 3]
        h = torch.relu(torch.addmm(shares[i], one[:, :d], v))
        h = torch.relu(torch.addmm(second.bias[:, None], two, h))
        phi = torch.addmm(third.bias[:, None], three, h).unflatten(0, (d, -1))
        v, ladj = spline(v, phi)
        total = total + ladj.sum(0)
    return total - 0.5 * (v / spread).square().sum(0) - d * math.log(spread * math.sqrt(2 * math.pi))


def _refuse_another_layout(nsf: NSF) -> None:
    """Stop where zuko's NSF is not what `log_density` evaluates, rather than return a wrong density."""
    for transform in nsf.transform.transforms:  # type: ignore[union-attr]
        masked = [isinstance(layer, MaskedLinear) for layer in transform.hyper]  # type: ignore[union-attr,arg-type]
        if masked != [True, False, True, False, True] or not standard_splines(transform):
            raise UserError(
                f"zuko {zuko.__version__}: its neural spline flow is not built like that of the versions kappaflow "
                "evaluates; run `python -m pip install 'zuko>=1.6,<1.7'`"
            )


class Standard(nn.Module):
    """Where each parameter is and how wide, by the context: splines then have what is left, of width one.

    A parameter known to a hundredth of its prior is a needle among eight bins, and moving it is hard work for splines.
    Both are bounded so that the map onto the box stays strictly inside (`box.py`): |middle| + 8 width < 8.2.
    """

    def __init__(self, features: int, context: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(context, hidden)
        self.out = nn.Linear(hidden, 2 * features)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Middle and ln width (..., D) of the flow variable."""
        middle, narrow = self.out(torch.relu(self.hidden(context))).chunk(2, dim=-1)
        middle = FARTHEST * torch.tanh(middle / FARTHEST)
        return middle, -nn.functional.softplus(narrow - BEGIN) - middle.abs() / STEADY


class BoundedFlow(nn.Module):
    """p(t | context) on the unit cube of D parameters: NSF of the flow variable, mapped with its Jacobian."""

    def __init__(self, config: Flow, features: int, context: int) -> None:
        super().__init__()
        self.config = config
        self.map = MAPS[config.box]
        self.nsf = NSF(features, context, bins=config.bins, transforms=config.transforms, hidden_features=config.hidden)
        self.standard = Standard(features, context, config.standard) if config.standard else None
        self._fast = len(config.hidden) == 2 and features > 1
        if self._fast:
            _refuse_another_layout(self.nsf)

    def variable(self, t: Tensor) -> Tensor:
        """Take the unit cube to the flow variable, in the precision of the network."""
        inside = t.double().clamp(WALL, 1 - WALL)
        return self.map.from_unit(inside).to(next(self.parameters()).dtype)

    def forward(self, t: Tensor, context: Tensor, spread: float = 1.0) -> Tensor:
        """Log density ln p(t | context), with t (b, D) in the unit cube, context (b, C) -> (b,).

        `spread` is the standard deviation of the base noise.
        """
        v = self.variable(t)
        slope = self.map.log_slope(v).sum(-1)
        if self.standard is not None:
            middle, ln_width = self.standard(context)
            v = (v - middle) * torch.exp(-ln_width)
            slope = slope + ln_width.sum(-1)
        if self._fast:
            return log_density(self.nsf, v, context, spread) - slope
        z, ladj = self.nsf(context).transform.call_and_ladj(v)
        base = 0.5 * (z / spread).square().sum(-1) + v.shape[-1] * math.log(spread * math.sqrt(2 * math.pi))
        return ladj - base - slope

    def to_unit(self, v: Tensor, context: Tensor) -> Tensor:
        """Draws (b, n, D) of the splines -> unit cube in double precision: strictly inside for any draw (see `box`)."""
        v = v.double()
        if self.standard is not None:
            middle, ln_width = (part.double()[:, None] for part in self.standard(context))
            v = middle + torch.exp(ln_width) * v
        return self.map.to_unit(v)
