r"""The monotone rational-quadratic spline of zuko's NSF, evaluated with fewer operations.

On two cores the flow of a small network costs more in dispatching tiny operations than in arithmetic. The numbers
are zuko's (`zuko.transforms.MonotonicRQSTransform`, bound 5, slope 1e-3); the gradient is written out by hand. The
samples are the last axis and the parameters of a spline the one before, so that every operation runs along memory.

With \(z = (x - x_0)/w\), \(q = z(1 - z)\), \(s = h/w\), in the bin that starts at \((x_0, y_0)\), of width \(w\),
height \(h\) and end slopes \(d_0, d_1\):

.. math::
    y = y_0 + h N/D, \quad N = s z^2 + d_0 q, \quad D = s + (d_0 + d_1 - 2 s) q

    dy/dx = s^2 M/D^2, \quad M = 2 s q + d_0 (1 - z)^2 + d_1 z^2

References
----------
Durkan et al. 2019, Neural Spline Flows, https://arxiv.org/abs/1906.04032
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from zuko.transforms import MonotonicRQSTransform

__all__ = ["BOUND", "SLOPE", "inverse_rows", "solve", "spline", "spline_inverse", "standard_splines"]

BOUND = 5.0  # the spline's domain and codomain are [-BOUND, BOUND]; outside it is the identity
SLOPE = 1e-3  # the smallest slope
_A = 1 / abs(math.log(SLOPE))


def standard_splines(transform: Any) -> bool:
    """Whether the univariate maps of a zuko transform are the ones written out here: bound 5, slope 1e-3."""
    make = transform.univariate
    return isinstance(make, partial) and make.func is MonotonicRQSTransform and make.keywords == {"slope": SLOPE}


def _knots(phi: Tensor, bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """Raw parameters (..., 3K - 1, n) -> softmax shares, knots in [0, 1] and soft-clip factors of widths and heights.

    Shapes (..., 2, K, n), (..., 2, K + 1, n), (..., 2, K, n).
    """
    raw = phi[..., : 2 * bins, :].unflatten(-2, (2, bins))
    factor = raw.abs().mul_(2 * _A).add_(1).reciprocal_()
    shares = torch.softmax(raw * factor, dim=-2)
    return shares, F.pad(shares.cumsum(-2), (0, 0, 1, 0)), factor


def _bin(phi: Tensor, knots: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Bin `k`: its corner and its size (..., 2, n), the raw and the true slopes at its two ends (..., 2, n)."""
    bins = knots.shape[-2] - 1
    both = torch.stack((k, k + 1), dim=-2)
    edges = knots.gather(-2, both[..., None, :, :].expand(*knots.shape[:-2], 2, k.shape[-1])).mul_(2 * BOUND)
    corner = edges[..., 0, :]
    ends = F.pad(phi[..., 2 * bins :, :], (0, 0, 1, 1)).gather(-2, both)
    slopes = torch.exp(ends / (ends.abs() * _A).add_(1))
    return corner - BOUND, edges[..., 1, :] - corner, ends, slopes


class _Spline(torch.autograd.Function):
    """(x, phi) -> (y, ln dy/dx)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        bins = (phi.shape[-2] + 1) // 3
        shares, knots, factor = _knots(phi, bins)
        k = (knots[..., 0, 1:, :] * (2 * BOUND) - BOUND < x[..., None, :]).sum(-2)
        inside = (x > -BOUND) & (k < bins)
        k = k.clamp_max_(bins - 1)
        corner, size, ends, slopes = _bin(phi, knots, k)
        (x0, y0), (w, h), (d0, d1) = corner.unbind(-2), size.unbind(-2), slopes.unbind(-2)
        s = h / w
        z = torch.where(inside, (x - x0) / w, 0.5)
        one = 1 - z
        q = z * one
        top = s * z * z + d0 * q
        bottom = s + (d0 + d1 - 2 * s) * q
        middle = 2 * s * q + d0 * one * one + d1 * z * z
        y = torch.where(inside, torch.addcmul(y0, h, top / bottom), x)
        ladj = torch.where(inside, torch.log(middle * (s / bottom).square()), 0.0)
        ctx.save_for_backward(shares, factor, k, inside, corner, size, ends, slopes, z)
        return y, ladj

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gy: Tensor, gl: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        shares, factor, k, inside, corner, size, ends, slopes, z = ctx.saved_tensors
        (w, h), (d0, d1) = size.unbind(-2), slopes.unbind(-2)
        s, one = h / w, 1 - z
        q, tilt = z * one, one - z
        bend = d0 + d1 - 2 * s
        bottom = s + bend * q
        middle = 2 * s * q + d0 * one * one + d1 * z * z
        ratio = (s * z * z + d0 * q) / bottom
        gl = torch.where(inside, gl, 0.0)
        gyi = torch.where(inside, gy, 0.0)
        # The gradient with respect to z, s, d0, d1 taken as independent ...
        a, m, c = gyi * h / bottom, gl / middle, 2 * gl / bottom
        gz = a * s * middle / bottom + m * 2 * (s * tilt - d0 * one + d1 * z) - c * bend * tilt
        gs = a * (z * z - ratio * (1 - 2 * q)) + 2 * gl / s + m * 2 * q - c * (1 - 2 * q)
        common = (a * ratio + c) * q
        gd0 = a * q + m * one * one - common
        gd1 = m * z * z - common
        # ... and then with respect to the corner and the size of the bin.
        gzw, gsw = gz / w, gs / w
        g_corner = torch.stack((-gzw, gyi), dim=-2)
        g_size = torch.stack((-gsw * s - gzw * z, gyi * ratio + gsw), dim=-2)
        g_ends = torch.stack((gd0, gd1), dim=-2) * slopes / (1 + ends.abs() * _A).square()
        return torch.where(inside, gzw, gy), _to_phi(shares, factor, k, (corner, size), (g_corner, g_size, g_ends))


def _to_phi(
    shares: Tensor, factor: Tensor, k: Tensor, at: tuple[Tensor, Tensor], grads: tuple[Tensor, Tensor, Tensor]
) -> Tensor:
    """Gradients of corner, size and end slopes of bin `k` -> gradient of the raw parameters (..., 3K - 1, n)."""
    (corner, size), (g_corner, g_size, g_ends) = at, grads
    bins, n = shares.shape[-2:]
    index = torch.arange(bins, device=k.device)[:, None]
    before, here = index < k[..., None, :], index == k[..., None, :]
    mean = g_corner * (corner + BOUND) + g_size * size
    g = torch.where(before[..., None, :, :], g_corner[..., None, :], 0.0)
    g = torch.where(here[..., None, :, :], g_size[..., None, :], g).mul_(2 * BOUND).sub_(mean[..., None, :])
    g_raw = g.mul_(shares).mul_(factor).mul_(factor)
    g_inner = shares.new_zeros(*k.shape[:-1], bins + 1, n)
    g_inner.scatter_(-2, torch.stack((k, k + 1), dim=-2), g_ends)
    return torch.cat((g_raw.flatten(-3, -2), g_inner[..., 1:-1, :]), dim=-2)


def spline(x: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
    """Transform `x` (..., n) by splines with raw parameters `phi` (..., 3K - 1, n) -> y and ln dy/dx, each (..., n)."""
    return _Spline.apply(x, phi)  # type: ignore[return-value]


def inverse_rows(rows: Tensor, bins: int) -> Tensor:
    """Arrange rows that make a spline's parameters, (..., 3K - 1, m) -> (..., 3K + 1, m), for `spline_inverse`.

    The fixed end slopes become rows of zeros, and the slopes' rows are halved so that one soft clip serves all
    parameters: done once for the weights instead of at every step of a sampler.
    """
    return torch.cat((rows[..., : 2 * bins, :], F.pad(0.5 * rows[..., 2 * bins :, :], (0, 0, 1, 1))), dim=-2)


def spline_inverse(y: Tensor, phi: Tensor) -> Tensor:
    """Find the x whose spline is `y` (..., n); `phi` (..., 3K + 1, n) from `inverse_rows`. No gradient."""
    inside = y.abs() < BOUND
    knots = y.new_zeros(*y.shape[:-1], 2, (phi.shape[-2] + 2) // 3, y.shape[-1])
    return torch.where(inside, solve(torch.where(inside, y, 0.0) + BOUND, phi, knots), y)


def solve(above: Tensor, phi: Tensor, knots: Tensor) -> Tensor:
    """Invert the splines at `above` (..., n) = y + BOUND, all inside (0, 2 BOUND), with `phi` as in `spline_inverse`.

    Solves a z^2 + b z - c = 0 for the place z in the bin, written so that nothing cancels (b and c are never negative).
    `knots` (..., 2, K + 1, n) is room to work in whose first row is zero: a sampler uses it again and again.
    """
    bins = knots.shape[-2] - 1
    clipped = phi / phi.abs().mul_(2 * _A).add_(1)
    shares = torch.softmax(clipped[..., : 2 * bins, :].unflatten(-2, (2, bins)), dim=-2)
    torch.cumsum(shares, dim=-2, out=knots[..., 1:, :])
    above = above * (0.5 / BOUND)  # in units of the domain
    k = (knots[..., 1, 1:-1, :] < above[..., None, :]).sum(-2, keepdim=True)
    ends = torch.cat((k, k + 1), dim=-2)
    edges = knots.gather(-2, ends[..., None, :, :].expand(*knots.shape[:-2], 2, k.shape[-1]))
    d0, d1 = clipped[..., 2 * bins :, :].gather(-2, ends).mul_(2).exp_().unbind(-2)
    low, high = edges.unbind(-2)
    x0, y0 = low.unbind(-2)
    w, h = (high - low).unbind(-2)
    s = h / w
    rise = above - y0
    bend = torch.add(d0 + d1, s, alpha=-2).mul_(rise)
    a = torch.addcmul(bend, h, s - d0)
    minus_b = torch.addcmul(bend, h, d0, value=-1)
    c = rise.mul_(s)
    root = (minus_b * minus_b).addcmul_(a, c, value=4).clamp_min_(0).sqrt_()
    return torch.addcdiv(x0, c.mul_(w), root.sub_(minus_b), value=2).mul_(2 * BOUND).sub_(BOUND)
