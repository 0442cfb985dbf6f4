"""Embeddings: channels on the pixels (b, C, p) -> a vector (b, E)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kappaflow.errors import UserError
from kappaflow.inference.recipes import Embedding

__all__ = ["EMBEDDINGS", "PooledCNN", "Projected", "StridedCNN"]


def _conv(x: Tensor, conv: Any) -> Tensor:
    """`conv` on (b, C, 1, p), channels last: the layout oneDNN likes, a fifth to a half faster than Conv1d."""
    stride, padding = (1, conv.stride[0]), (0, int(conv.padding[0]))
    return F.conv2d(x, conv.weight[:, :, None], conv.bias, stride=stride, padding=padding)


def _patches(x: Tensor, conv: Any) -> Tensor:
    """`conv` on (b, C, p) as one matrix product over patches -> (b, C', 1, p'), channels last.

    For the first layer: few input channels make a convolution slow, and no gradient has to go back through it.
    """
    size, stride, padding = conv.kernel_size[0], conv.stride[0], int(conv.padding[0])
    patches = F.pad(x, (padding, padding)).unfold(2, size, stride).permute(0, 2, 1, 3)
    b, length = patches.shape[:2]
    y = F.linear(patches.reshape(b * length, -1), conv.weight.flatten(1), conv.bias)
    return y.view(b, 1, length, -1).permute(0, 3, 1, 2)


class PooledCNN(nn.Module):
    """The paper's: blocks of convolution, ReLU and max-pooling, then an average over what is left, then linear.

    The paper gives the kernel (7) and the embedding (128), not the widths of the blocks; those are the recipe's.
    """

    def __init__(self, config: Embedding, channels: int, pixels: int) -> None:
        super().__init__()
        if pixels >> len(config.channels) == 0:
            raise UserError(f"embedding: {pixels} pixels are too few for {len(config.channels)} blocks that halve them")
        widths = (channels, *config.channels)
        self.blocks = nn.ModuleList(
            nn.Conv1d(i, o, config.kernel, padding=config.kernel // 2)
            for i, o in zip(widths[:-1], widths[1:], strict=True)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.out = nn.Linear(widths[-1], config.features)

    def forward(self, x: Tensor) -> Tensor:
        """(b, C, p) -> (b, E)."""
        y = x[:, :, None].to(memory_format=torch.channels_last)
        for conv in self.blocks:
            y = F.relu(F.max_pool2d(_conv(y, conv), (1, 2)))  # ReLU after pooling: the same numbers, half the work
        return self.out(self.dropout(y.mean(dim=(-2, -1))))


class StridedCNN(nn.Module):
    """Strided convolutions kept in place: flattened, not averaged."""

    def __init__(self, config: Embedding, channels: int, pixels: int) -> None:
        super().__init__()
        widths = (channels, *config.channels)
        strides = [4 if k < 2 else 2 for k in range(len(config.channels))]
        self.blocks = nn.ModuleList(
            nn.Conv1d(i, o, config.kernel, stride=s, padding=config.kernel // 2)
            for i, o, s in zip(widths[:-1], widths[1:], strides, strict=True)
        )
        length = pixels
        for stride in strides:
            length = (length + 2 * (config.kernel // 2) - config.kernel) // stride + 1
        hidden = 2 * config.features
        self.flat = nn.Linear(widths[-1] * length, hidden)
        self.dropout = nn.Dropout(config.dropout)
        self.mix = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, config.features)

    def forward(self, x: Tensor) -> Tensor:
        """(b, C, p) -> (b, E)."""
        y = F.relu(_patches(x, self.blocks[0]))
        for conv in self.blocks[1:]:
            y = F.relu(_conv(y, conv))
        hidden = F.relu(self.mix(self.dropout(F.relu(self.flat(y.flatten(1))))))
        return self.out(self.dropout(hidden))


def _residual(width: int) -> nn.Sequential:
    """Make what a residual block adds: nothing, to begin with."""
    last = nn.Linear(width, width)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), last)


class Projected(nn.Module):
    """Projections of every channel on all pixels, then residual blocks.

    The first channel's projections begin as the principal components of noise-free training spectra (`begin`), each
    with unit variance over noisy ones, as in dingo's first layer; they are trained like all others.

    References
    ----------
    Green & Gair 2021, Mach. Learn.: Sci. Technol. 2, 03LT01; Dax et al. 2021, Phys. Rev. Lett. 127, 241103
    """

    def __init__(self, config: Embedding, channels: int, pixels: int) -> None:
        super().__init__()
        beside = config.components // 4 if channels > 1 else 0
        self.first = nn.Linear(pixels, config.components)
        self.others = nn.Linear((channels - 1) * pixels, beside) if beside else None
        self.widen = nn.Linear(config.components + beside, config.dense)
        self.blocks = nn.ModuleList(_residual(config.dense) for _ in config.channels)
        self.dropout = nn.Dropout(config.dropout)
        self.out = nn.Linear(config.dense, config.features)

    @torch.no_grad()
    def begin(self, clean: Tensor, noisy: Tensor) -> None:
        """Set the projections from the first channel (n, p) of noise-free spectra, their scale from `noisy` ones."""
        mean = clean.mean(dim=0)
        left = (clean - mean).double()
        _, vectors = torch.linalg.eigh(left.T @ left / len(left))
        count = min(self.first.out_features, vectors.shape[1])
        vectors = vectors[:, -count:].flip(1).float()
        # By their spread without noise the last of them would be nothing but noise, and large.
        spread = ((noisy - mean) @ vectors).std(dim=0).clamp_min(1e-6)
        self.first.weight[:count] = (vectors / spread).T
        self.first.bias.copy_(-self.first.weight @ mean)

    def forward(self, x: Tensor) -> Tensor:
        """(b, C, p) -> (b, E)."""
        parts = [self.first(x[:, 0])]
        if self.others is not None:
            parts.append(self.others(x[:, 1:].flatten(1)))
        y = self.widen(torch.cat(parts, dim=-1))
        for block in self.blocks:
            y = y + block(F.relu(y))
        return self.out(self.dropout(F.relu(y)))


EMBEDDINGS = {"pooled": PooledCNN, "strided": StridedCNN, "projected": Projected}
