"""Spectra seen at rest and whole: what they do not share with their velocity, their holes and the noise of others.

Noise-free spectra span few directions, and a Doppler shift turns all of them in a known way. On the scale x = asinh(10
F / median), pixel by pixel over the usual noise,

    x = middle + s o1 + s^2 o2 + b (P + s P1 + s^2 P2) + what is left,

s the velocity over half its prior, b a hundred numbers. P, P1, P2 are learnt from noise-free training spectra whose
velocity is known. A new spectrum is projected on these directions at some velocities; the least of what is left, a
parabola through its neighbours, tells its own: a matched filter that no network of this size finds by itself. Masked
pixels hold what the directions expect there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["RestFrame", "Rested"]

REACH = 1.2  # half priors of the velocity, to which nodes go
NODES = 17
ROUNDS = 4  # of learning directions and coefficients in turn
FILLS = 6  # steps that say what masked pixels hold
WINDOWS = 8  # stretches of pixels whose scatter is told


@dataclass(frozen=True)
class Rested:
    """A batch of spectra at rest."""

    x: Tensor  # (b, p), asinh scale; masked pixels hold what the others expect there
    velocity: Tensor  # (b, 2): over half its prior, and ln of its standard deviation; zeros where none is known
    scatter: Tensor  # (b, WINDOWS): ln rms of what is left, over the errors; 0 where a window has no good pixel


@dataclass(frozen=True)
class _Algebra:
    """Products of directions P(s) = sum s^m P_m and offsets o(s), in double precision."""

    nodes: Tensor  # (J,), velocities
    powers: Tensor  # (J, 3), of the nodes
    gram: Tensor  # (5, k, k), P(s) P(s)' by powers of s
    inverse: Tensor  # (J, k, k), of the roots of that at the nodes
    whole: Tensor  # (J, k, k), of that itself, in single precision
    onto: Tensor  # (J, k), o on P at the nodes
    offset: Tensor  # (J,), |o|^2 there
    shifted: Tensor  # (4, k), o on P by powers of s, from the first

    @classmethod
    def of(cls, parts: Tensor, offsets: Tensor) -> _Algebra:
        """From parts (3, k, p) and offsets (2, p)."""
        moving = bool((parts[1:] != 0).any())
        nodes = torch.linspace(-REACH, REACH, NODES if moving else 1, dtype=parts.dtype) + (0 if moving else REACH)
        products = torch.einsum("mkp,nlp->mnkl", parts, parts)
        gram = torch.stack([sum(products[m, j - m] for m in range(3) if 0 <= j - m < 3) for j in range(5)])  # type: ignore[arg-type]
        gram[0] += 1e-9 * gram[0].diagonal().mean().clamp_min(1e-9) * torch.eye(parts.shape[1], dtype=parts.dtype)
        own = torch.einsum("op,mkp->omk", offsets, parts)
        shifted = torch.stack([sum(own[o, j - o] for o in range(2) if 0 <= j - o < 3) for j in range(4)])  # type: ignore[arg-type]
        powers = torch.stack([nodes**k for k in range(5)], dim=1)
        root = torch.linalg.cholesky(torch.einsum("jm,mkl->jkl", powers, gram))
        inverse = torch.linalg.solve_triangular(root, torch.eye(parts.shape[1], dtype=parts.dtype), upper=False)
        offset = (powers[:, 1:3] @ offsets).square().sum(dim=1)
        whole = (inverse.mT @ inverse).float()
        return cls(nodes, powers[:, :3], gram, inverse, whole, powers[:, 1:] @ shifted, offset, shifted)


class RestFrame(nn.Module):
    """Directions of noise-free spectra on `pixels` pixels, at rest, and how they turn with velocity."""

    def __init__(self, pixels: int, components: int) -> None:
        super().__init__()
        count = min(components, max(pixels // 6, 1))
        self.register_buffer("middle", torch.zeros(pixels))
        self.register_buffer("weight", torch.ones(pixels))  # one over the usual noise, median 1
        self.register_buffer("offsets", torch.zeros(2, pixels))
        self.register_buffer("parts", torch.zeros(3, count, pixels))
        self.middle: Tensor
        self.weight: Tensor
        self.offsets: Tensor
        self.parts: Tensor
        self._known: tuple[tuple[int, ...], _Algebra] | None = None

    @torch.no_grad()
    def learn(self, clean: Tensor, noise: Tensor, s: Tensor | None = None) -> None:
        """Learn from noise-free spectra (n, p) on the asinh scale, the usual noise (p,), and velocities (n,)."""
        self.middle.copy_(clean.mean(dim=0))
        weight = 1 / noise.clamp_min(1e-6)
        self.weight.copy_(weight / weight.median())
        x = ((clean - self.middle) * self.weight).double()
        moving = s is not None
        v = s.double() if s is not None else x.new_zeros(len(x))
        slow = v.abs() <= v.abs().quantile(max(0.1, min(1.0, 4 * self.parts.shape[1] / len(x))))
        vectors = torch.linalg.eigh(x[slow].T @ x[slow])[1]
        b = x @ vectors[:, -self.parts.shape[1] :]
        powers = torch.stack([v**k for k in range(3 if moving else 1)], dim=1)
        for _ in range(ROUNDS if moving else 1):
            inputs = torch.cat([(powers[:, :, None] * b[:, None]).flatten(1), powers], dim=1)
            gram = inputs.T @ inputs
            gram += 1e-8 * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
            found = torch.linalg.solve(gram, inputs.T @ x).float()
            split = powers.shape[1] * b.shape[1]
            self.parts[: powers.shape[1]] = found[:split].unflatten(0, (powers.shape[1], -1))
            self.middle += found[split] / self.weight
            x -= found[split].double()
            self.offsets[: powers.shape[1] - 1] = found[split + 1 :]
            b = self._coefficients(x.float() @ self.parts.flatten(0, 1).T, v.float()).double()

    @property
    def learned(self) -> bool:
        """Whether there were noise-free spectra to learn from."""
        return bool(self.parts[0].any())

    def forward(self, x: Tensor, error: Tensor, mask: Tensor) -> Rested:
        """Spectra (b, p) on the asinh scale, their errors there, and which pixels are good."""
        if not self.learned:
            return Rested(torch.where(mask, x, 0.0), x.new_zeros(len(x), 2), x.new_zeros(len(x), WINDOWS))
        y = (x - self.middle) * self.weight
        filled = before = torch.where(mask, y, 0.0)
        for i in range(0 if bool(mask.all()) else FILLS):
            own = filled @ self.parts.flatten(0, 1).T
            s, _, _ = self._velocity(filled, own)
            expected = torch.where(mask, y, self._made(self._nearly(own, s), s))
            # Holes fill slowly, one step at a time; with momentum (Nesterov's) in a few.
            filled, before = expected + (i / (i + 3)) * (expected - before), expected
        own = filled @ self.parts.flatten(0, 1).T
        s, curvature, least = self._velocity(filled, own)
        b = self._coefficients(own, s)
        made = self._made(b, s)
        filled = torch.where(mask, y, made)
        moved = _powers(s, b)[:, b.shape[1] :] @ self.parts[1:].flatten(0, 1) + self._offset(s)
        rest = (filled - moved) / self.weight + self.middle
        left = torch.where(mask, (y - made) / self.weight / error, 0.0)
        return Rested(rest, _told(s, curvature, least, mask), _scatter(left, mask))

    def _offset(self, s: Tensor) -> Tensor:
        return torch.stack([s, s**2], dim=1) @ self.offsets

    def _velocity(self, y: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Velocity (b,) at which least is left of y (b, p), half the curvature of that, and the least itself.

        `own` (b, 3 k) is y on the directions.
        """
        known = self._algebra()
        nodes = known.nodes
        if len(nodes) == 1:
            zero = y.new_zeros(len(y))
            return zero, zero, zero
        along, size = (y @ self.offsets.T).double(), y.square().sum(dim=1, dtype=torch.double)
        there = torch.einsum("jm,bmk->jkb", known.powers, own.double().unflatten(1, (3, -1))) - known.onto[:, :, None]
        seen = torch.einsum("jkl,jlb->jkb", known.inverse, there).square().sum(dim=1)
        left = size - 2 * known.powers[:, 1:] @ along.T + known.offset[:, None] - seen  # (J, b)
        at = left.argmin(dim=0).clamp(1, len(nodes) - 2)
        low, here, high = (left.gather(0, (at + k)[None])[0] for k in (-1, 0, 1))
        step = float(nodes[1] - nodes[0])
        bend = (low - 2 * here + high).clamp_min(1e-12)
        s = nodes[at] + step * (0.5 * (low - high) / bend).clamp(-1, 1)
        return s.to(y.dtype), (bend / (2 * step**2)).to(y.dtype), left.min(dim=0).values.to(y.dtype)

    def _made(self, b: Tensor, s: Tensor) -> Tensor:
        """Spectra (b, p) of coefficients (b, k) at velocities (b,)."""
        return _powers(s, b) @ self.parts.flatten(0, 1) + self._offset(s)

    def _nearly(self, own: Tensor, s: Tensor) -> Tensor:
        """Coefficients as `_coefficients`, between those at the nodes on either side: no root per spectrum."""
        known = self._algebra()
        if len(known.nodes) == 1:
            return self._coefficients(own, s)
        place = ((s.double() - known.nodes[0]) / (known.nodes[1] - known.nodes[0])).clamp(0, NODES - 1 - 1e-9)
        low = place.long()
        inverse = torch.lerp(known.whole[low], known.whole[low + 1], (place - low).float()[:, None, None])
        return (inverse @ self._there(own, s).to(own.dtype)[..., None])[..., 0]

    def _there(self, own: Tensor, s: Tensor) -> Tensor:
        """Spectra less their offsets on the directions at velocities (b,), (b, k) in double precision."""
        powers = torch.stack([s.double() ** k for k in range(5)], dim=1)
        there = torch.einsum("bm,bmk->bk", powers[:, :3], own.double().unflatten(1, (3, -1)))
        return there - powers[:, 1:] @ self._algebra().shifted

    def _coefficients(self, own: Tensor, s: Tensor) -> Tensor:
        """Coefficients (b, k) at velocities (b,) of spectra on the directions (b, 3 k)."""
        known = self._algebra()
        powers = torch.stack([s.double() ** k for k in range(5)], dim=1)
        root = torch.linalg.cholesky((powers @ known.gram.flatten(1)).unflatten(1, known.gram.shape[1:]))
        return torch.cholesky_solve(self._there(own, s)[..., None], root)[..., 0].to(s.dtype)

    def _algebra(self) -> _Algebra:
        """Products of the directions with each other, anew when they have changed."""
        version = (self.parts._version, self.parts.data_ptr())
        if self._known is None or self._known[0] != version:
            self._known = version, _Algebra.of(self.parts.double(), self.offsets.double())
        return self._known[1]


def _powers(s: Tensor, b: Tensor) -> Tensor:
    """Coefficients (b, k) by powers of s, (b, 3 k)."""
    return torch.cat([b, s[:, None] * b, (s**2)[:, None] * b], dim=1)


def _told(s: Tensor, curvature: Tensor, least: Tensor, mask: Tensor) -> Tensor:
    """Velocity and ln of its standard deviation (b, 2), by how much is left per pixel."""
    noise = least.clamp_min(1e-12) / mask.sum(dim=1)
    spread = 0.5 * torch.log(noise / (2 * curvature.clamp_min(1e-12)))
    return torch.stack([s, torch.where(curvature > 0, spread.clamp(-8, 2), 0.0)], dim=1)


def _scatter(left: Tensor, mask: Tensor) -> Tensor:
    """Ln rms (b, WINDOWS) of the good pixels of each window."""
    count = [part.sum(dim=-1) for part in mask.to(left.dtype).tensor_split(WINDOWS, dim=-1)]
    total = [part.square().sum(dim=-1) for part in left.tensor_split(WINDOWS, dim=-1)]
    mean = [torch.where(n > 0, t / n.clamp_min(1), 1.0) for n, t in zip(count, total, strict=True)]
    return torch.log(torch.stack(mean, dim=-1).clamp_min(1e-3)) / 2
