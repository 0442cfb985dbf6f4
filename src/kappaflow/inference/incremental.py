r"""Exact sampling from zuko's autoregressive flows with one pass's worth of work.

To sample, each transform \(y = f(x | c)\) is inverted. zuko does it in D passes of the whole hyper-network, each of
which settles one more feature. But the network is masked: feature i's spline parameters depend on the features
before it, and so does every hidden unit. A unit that depends on the first g features has its final value as soon
as those are known and never changes again. So sort the units of every layer by the generation at which they become
known and compute each once. The contribution of the context to the first layer is the same for all generations and
all draws of one spectrum: computed once. What remains of the D passes is one, with the zeros of the masks left out.

The generations are read off the masks alone, so any order (alternating, random), number of passes (coupling
included), adjacency matrix, activation, residual blocks and univariate transform are covered; splines take a shorter
way. Members of an ensemble with equal masks are stacked and go through together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from zuko.flows import MAF
from zuko.flows.autoregressive import MaskedAutoregressiveTransform
from zuko.nn import MaskedLinear, Residual
from zuko.utils import unpack

from kappaflow.inference.spline import BOUND, inverse_rows, solve, standard_splines

__all__ = ["IncrementalSampler", "same_masks"]

ROWS = 8192  # draws that go through together: what fits in the caches of one core


@dataclass(frozen=True)
class _Linear:
    """A stacked masked layer, its units and inputs sorted by generation, cut into the pieces of each generation."""

    weights: tuple[Tensor, ...]  # (M, new units, inputs known then), masked, one per generation
    bias: Tensor  # (M, units, 1)
    stops: tuple[int, ...]  # units known at generations 0, 1, ...: [0:stops[g]]
    activation: Callable[[Tensor], Any] | None = None  # in place

    def extend(self, x: Tensor, out: Tensor, g: int, constant: Tensor | None = None) -> None:
        """Fill the units that become known at generation `g`: out[new] = activation(W x + bias)."""
        start, stop, weight = self.stops[g - 1] if g else 0, self.stops[g], self.weights[g]
        if start == stop:
            return
        base, rows, known = self.bias if constant is None else constant, out[:, start:stop], weight.shape[-1]
        if known == 0:
            rows.copy_(base[:, start:stop])
        else:
            torch.baddbmm(base[:, start:stop], weight, x[:, :known], out=rows)
        if self.activation is not None:
            self.activation(rows)


def _pieces(weight: Tensor, stops: tuple[int, ...], needs: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Cut a layer (M, units, inputs) into what each generation computes."""
    starts = (0, *stops[:-1])
    return tuple(weight[:, a:b, :k].contiguous() for a, b, k in zip(starts, stops, needs, strict=True))


@dataclass(frozen=True)
class _Skip:
    """The end of a residual block: adds what came out `back` layers earlier."""

    back: int
    stops: tuple[int, ...]

    def extend(self, x: Tensor, earlier: Tensor, out: Tensor, g: int) -> None:
        """Fill the units that become known at generation `g`."""
        new = slice(self.stops[g - 1] if g else 0, self.stops[g])
        torch.add(x[:, new], earlier[:, new], out=out[:, new])


def _generations(adjacency: Tensor) -> Tensor:
    """Find the generation of each feature (D,) from who depends on whom (D, D)."""
    level = torch.zeros(len(adjacency), dtype=torch.long)
    for _ in range(len(adjacency)):
        level = torch.where(adjacency, level[None, :] + 1, 0).amax(dim=1)
    return level


def _cumulative(level: Tensor, total: int) -> tuple[int, ...]:
    return tuple(int((level <= g).sum()) for g in range(total))


class _Transform:
    """One autoregressive transform of every member, ready to be inverted generation by generation."""

    def __init__(self, members: Sequence[MaskedAutoregressiveTransform], features: int) -> None:
        first = members[0]
        self.features, self.total = features, first.total
        self.univariate, self.shapes, self.splines = first.univariate, first.shapes, standard_splines(first)
        flat = [_flatten(m.hyper) for m in members]
        reach = _reach(flat[0])  # (outputs, inputs): what really depends on what, through all layers
        depends = reach[:, :features].view(features, self.total, features).any(dim=1)
        generation = _generations(depends)
        self.count = int(generation.max()) + 1
        self.order = torch.argsort(generation, stable=True)  # features, sorted by generation
        self.ends = _cumulative(generation, self.count)
        self.layers: list[_Linear | _Skip] = []
        # Features are known one generation after they are solved for; the context from the start.
        level, order = generation[self.order] + 1, self.order
        self.context_weight: Tensor | None = None
        self._build(flat, level, order)

    def _build(self, flat: list[list[Any]], level: Tensor, order: Tensor) -> None:
        """Sort units layer by layer; `level`, `order`: generation and original index of the previous layer's units."""
        marks: list[tuple[int, Tensor, Tensor]] = []
        for i, layer in enumerate(flat[0]):
            if isinstance(layer, MaskedLinear):
                masks: Any = layer.mask
                mask = masks[:, : self.features] if i == 0 else masks
                new = torch.where(mask[:, order], level[None, :], 0).amax(dim=1)
                if i == len(flat[0]) - 1:
                    new = self._outputs(new)
                rank = torch.argsort(new, stable=True)
                stacked = [f[i] for f in flat]
                weights = torch.stack([(m.mask * m.weight).detach() for m in stacked])[:, rank]
                if i == 0 and weights.shape[-1] > self.features:
                    self.context_weight = weights[..., self.features :].contiguous()
                bias = torch.stack([m.bias.detach() for m in stacked])[:, rank, None]
                if i == len(flat[0]) - 1 and self.splines:
                    weights, bias, new = self._for_splines(weights, bias, new[rank])
                stops, needs = _cumulative(new, self.count), _cumulative(level, self.count)
                self.layers.append(_Linear(_pieces(weights[..., order], stops, needs), bias, stops))
                level, order = new[rank], rank
            elif layer == "open":
                marks.append((len(self.layers), level, order))
            elif layer == "close":
                level, order = self._close(marks.pop(), level, order)
            else:
                # An activation belongs to the layer before it: applied in place, as units become known.
                self.layers[-1] = replace(self.layers[-1], activation=_in_place(layer))  # type: ignore[call-arg]

    def _for_splines(self, weights: Tensor, bias: Tensor, level: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of the last layer as `spline_inverse` wants them."""
        bins, old = (self.total + 1) // 3, self.total
        weights, bias = (inverse_rows(r.unflatten(1, (-1, old)), bins).flatten(1, 2) for r in (weights, bias))
        self.total = 3 * bins + 1
        return weights, bias, level[::old].repeat_interleave(self.total)

    def _outputs(self, level: Tensor) -> Tensor:
        """All parameters of a feature are wanted when that feature is solved for."""
        generation = torch.empty(self.features, dtype=torch.long)
        starts = (0, *self.ends)
        for g in range(self.count):
            generation[self.order[starts[g] : starts[g + 1]]] = g
        wanted = generation.repeat_interleave(self.total)
        if (level > wanted).any():  # cannot happen: it would be a flow that is not autoregressive
            raise ValueError("the masks of this flow are not autoregressive")
        return wanted

    def _close(self, mark: tuple[int, Tensor, Tensor], level: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """End of a residual block: unit i is known when both the block's and the skipped one are."""
        at, old_level, old_order = mark
        inner = torch.empty_like(level)
        inner[order] = level
        outer = torch.empty_like(old_level)
        outer[old_order] = old_level
        if (outer > inner).any() or (old_order.argsort() != order.argsort()).any():
            raise ValueError("residual blocks of this shape are not supported")
        self.layers.append(_Skip(len(self.layers) - at, _cumulative(level, self.count)))
        return level, order

    def constant(self, context: Tensor) -> Tensor | None:
        """Compute the context's share of the first layer, bias included: (M, B, C) -> (M, units, B)."""
        if self.context_weight is None:
            return None
        return torch.baddbmm(self.layers[0].bias, self.context_weight, context.mT)  # type: ignore[union-attr]

    def inverse(self, y: Tensor, constant: Tensor | None) -> Tensor:
        """Solve f(x) = y for x, each (M, D, N); `constant` (M, units, N) or (M, units, 1)."""
        y = y[:, self.order]
        x = torch.empty_like(y)
        members, samples = len(y), y.shape[-1]
        buffers = [x, *(y.new_empty(members, layer.stops[-1], samples) for layer in self.layers)]
        solved = self._solver(y)
        start = 0
        for g, stop in enumerate(self.ends):
            for i, layer in enumerate(self.layers):
                if isinstance(layer, _Skip):
                    layer.extend(buffers[i], buffers[i - layer.back], buffers[i + 1], g)
                else:
                    layer.extend(buffers[i], buffers[i + 1], g, constant if i == 0 else None)
            phi = buffers[-1][:, start * self.total : stop * self.total]
            x[:, start:stop] = solved(phi.unflatten(1, (stop - start, self.total)), slice(start, stop))
            start = stop
        out = torch.empty_like(x)
        out[:, self.order] = x
        return out

    def _solver(self, y: Tensor) -> Callable[[Tensor, slice], Tensor]:
        """Inverse of the univariate transforms, (phi (M, k, total, N), which of the D rows of `y`) -> x (M, k, N)."""
        if not self.splines:
            return lambda phi, rows: self.univariate(*unpack(phi.mT, self.shapes)).inv(y[:, rows])  # type: ignore
        inside = y.abs() < BOUND
        everything = bool(inside.all())  # nearly always: one normal draw in two million is outside
        above = (y if everything else torch.where(inside, y, 0.0)) + BOUND
        widest = max(b - a for a, b in zip((0, *self.ends), self.ends, strict=False))
        knots = y.new_zeros(len(y), widest, 2, (self.total - 1) // 3 + 1, y.shape[-1])

        def by_splines(phi: Tensor, rows: slice) -> Tensor:
            x = solve(above[:, rows], phi, knots[:, : phi.shape[1]])
            return x if everything else torch.where(inside[:, rows], x, y[:, rows])

        return by_splines


def _in_place(activation: nn.Module) -> Callable[[Tensor], Any]:
    if isinstance(activation, nn.ReLU):
        return torch.relu_
    return lambda x: x.copy_(activation(x))


def _flatten(hyper: nn.Module) -> list[Any]:
    """Layers of a hyper-network in a row, residual blocks between "open" and "close"."""
    flat: list[Any] = []
    for layer in hyper.children():
        if isinstance(layer, Residual):
            flat += ["open", *_flatten(layer), "close"]
        else:
            flat.append(layer)
    return flat


def _reach(flat: list[Any]) -> Tensor:
    """Which output depends on which input, through all masks (and around residual blocks)."""
    reach: Tensor | None = None
    marks = []
    for layer in flat:
        if isinstance(layer, MaskedLinear):
            mask: Tensor = layer.mask.float()  # type: ignore[operator,assignment]
            reach = mask if reach is None else ((mask @ reach) > 0).float()
        elif layer == "open":
            marks.append(reach)
        elif layer == "close":
            reach = ((reach + marks.pop()) > 0).float()
    assert reach is not None
    return reach > 0


def same_masks(a: MAF, b: MAF) -> bool:
    """Whether two flows can be stacked: equal layers and equal masks."""
    one, other = dict(a.named_buffers()), dict(b.named_buffers())
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


class IncrementalSampler:
    """Sampler of one flow, or of the members of an ensemble whose masks are equal.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> from zuko.flows import NSF
    >>> flow, context, noise = NSF(3, 4), torch.randn(4), torch.randn(100, 3)
    >>> fast = IncrementalSampler([flow])(context[None, None], noise[None, None])[0, 0]
    >>> torch.allclose(fast, flow(context).transform.inv(noise), atol=1e-4)
    True
    """

    def __init__(self, flows: Sequence[MAF]) -> None:
        if not all(same_masks(flows[0], flow) for flow in flows[1:]):
            raise ValueError("flows with different masks cannot be stacked: make one sampler each")
        features = flows[0].base().event_shape[0]
        lists = [list(flow.transform.transforms) for flow in flows]  # type: ignore[union-attr,arg-type]
        self.transforms = [_Transform(members, features) for members in zip(*lists, strict=True)]

    @torch.no_grad()
    def __call__(self, context: Tensor, noise: Tensor) -> Tensor:
        """Turn base noise (M, B, n, D) and contexts (M, B, C) of M members and B spectra into draws (M, B, n, D)."""
        m, b, n, d = noise.shape
        group = max(1, ROWS // (n * m))
        parts = []
        for i in range(0, b, group):
            rows, some = noise[:, i : i + group], context[:, i : i + group]
            x = rows.reshape(m, -1, d).mT.contiguous()
            for transform in reversed(self.transforms):
                constant = transform.constant(some)
                if constant is not None and some.shape[1] > 1:
                    constant = constant.repeat_interleave(n, dim=-1)
                x = transform.inverse(x, constant)
            parts.append(x.mT.reshape(rows.shape))
        return torch.cat(parts, dim=1)
