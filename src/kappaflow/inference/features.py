"""A noisy spectrum -> the numbers the network sees: channels on the pixels, and scalars for the context.

Training and retrieval go through this one door, and everything here is computed from flux, error and mask alone,
the SNR too, so that a telescope's spectrum cannot be prepared differently from a simulated one. No channel
carries the absolute flux: the scale enters only through the scalar `log_scale`, which can be withheld.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from kappaflow.errors import UserError
from kappaflow.inference.recipes import Inputs
from kappaflow.inference.rest_frame import WINDOWS, Rested, RestFrame
from kappaflow.parameters import SNR
from kappaflow.spectra import Box, Spectra

__all__ = ["CHANNELS", "SCALARS", "Features", "Prepared", "asinh"]

FLOOR = 1e-3  # of the median flux: where log flux stops; below it a pixel is noise
STEEP = 10.0  # over the median flux, of asinh


@dataclass(frozen=True)
class Prepared:
    """Spectra ready for the network."""

    channels: Tensor  # (b, C, p)
    scalars: Tensor  # (b, S)


@dataclass(frozen=True)
class _Cleaned:
    """Flux and error with masked pixels made harmless, and the two medians everything is measured against."""

    flux: Tensor  # (b, p); masked pixels hold the median of the good ones
    error: Tensor  # (b, p); masked pixels hold the mean of the good ones
    mask: Tensor  # (b, p), bool
    median: Tensor  # (b, 1) of the good flux, positive
    snr: Tensor  # (b, 1), median over good pixels of flux / error
    rest: Rested | None = None

    @property
    def at_rest(self) -> Rested:
        """The spectra at rest, where the inputs have them."""
        assert self.rest is not None, "inputs without a rest frame"
        return self.rest


def asinh(x: Tensor) -> Tensor:
    """Inverse hyperbolic sine through log1p, which torch vectorizes on a CPU, unlike its own `asinh`."""
    a = x.abs()
    return torch.copysign(torch.log1p(a + a * a / (1 + torch.sqrt(1 + a * a))), x)


def _log(s: _Cleaned) -> Tensor:
    return torch.log(torch.maximum(s.flux, FLOOR * s.median))


def _asinh_error(s: _Cleaned) -> Tensor:
    steep = STEEP / s.median
    return s.error * steep / torch.sqrt(1 + (steep * s.flux) ** 2)


def _log_flux(s: _Cleaned) -> Tensor:
    """Make the paper's channel: log flux, then each spectrum's own mean and standard deviation taken out."""
    log = _log(s)
    spread, mean = torch.std_mean(log, dim=-1, keepdim=True)
    return (log - mean) / (spread + 1e-6)


# name -> (spectra -> (b, p)); what masked pixels hold is decided by the fill, after scaling.
CHANNELS: dict[str, Callable[[_Cleaned], Tensor]] = {
    "log_flux": _log_flux,
    "asinh_snr": lambda s: asinh(s.flux / s.error),
    "asinh_flux": lambda s: asinh(STEEP * s.flux / s.median),
    "rest_flux": lambda s: s.at_rest.x,
    "log_error": lambda s: torch.log(s.error / s.median),
    "mask": lambda s: s.mask.to(s.flux.dtype),
}
UNSCALED = ("mask",)  # its zeros mean something
FILLED = ("rest_flux",)  # masked pixels hold what is expected there

_LOG_SNR = (math.log(SNR.low) + math.log(SNR.high)) / 2, (math.log(SNR.high) - math.log(SNR.low)) / 2

DIAL = 2  # columns of the amplitude in the context: itself, and whether it is exactly 0
# name -> number of columns in the context
SCALARS: dict[str, int] = {
    "snr": 1,
    "log_snr": 1,
    "log_scale": 2,
    "log_spread": 1,
    "scatter": WINDOWS,
    "velocity": 2,
}
AT_REST = {"rest_flux", "scatter", "velocity"}  # what needs spectra at rest
MOVING = "v_r"  # the parameter that turns directions


class Features(nn.Module):
    """The inputs of a recipe on `pixels` pixels, with the scaling fitted on training data.

    Where the amplitude of the opacities' randomization varies within `dial`, it is one of the scalars.
    """

    def __init__(self, inputs: Inputs, pixels: int, dial: tuple[float, float] | None = None) -> None:
        super().__init__()
        self.inputs, self.dial = inputs, dial
        self.width = sum(SCALARS[name] for name in inputs.scalars) + (DIAL if dial else 0)
        shape = (len(inputs.channels), pixels)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("spread", torch.ones(shape))
        self.register_buffer("scale", torch.tensor([0.0, 1.0]))  # mean and spread of ln median flux
        self.rest = RestFrame(pixels, inputs.directions) if AT_REST & {*inputs.channels, *inputs.scalars} else None
        self.mean: Tensor
        self.spread: Tensor
        self.scale: Tensor

    @torch.no_grad()
    def forward(self, flux: Tensor, error: Tensor, mask: Tensor, known: Tensor) -> Prepared:
        """Prepare spectra (b, p); `known` (b,) says whose absolute flux scale may be used."""
        spectra = self._seen(flux, error, mask)
        channels = torch.stack([CHANNELS[name](spectra) for name in self.inputs.channels], dim=1)
        channels = (channels - self.mean) / self.spread
        if self.inputs.fill == "zero":
            channels = channels * self._whole(spectra.mask)
        return Prepared(channels, self._scalars(spectra, known))

    def _whole(self, mask: Tensor) -> Tensor:
        """Which pixels of the channels (b, C, p) hold something: good ones, and those that are filled."""
        filled = torch.tensor([name in FILLED and self._knows_rest for name in self.inputs.channels])
        return mask[:, None] | filled[:, None]

    @property
    def _knows_rest(self) -> bool:
        """Whether it has been learnt what spectra look like at rest."""
        return self.rest is not None and self.rest.learned

    def _seen(self, flux: Tensor, error: Tensor, mask: Tensor) -> _Cleaned:
        """Clean spectra, and take them to rest."""
        s = _clean(flux, error, mask)
        if self.rest is None:
            return s
        steep = STEEP / s.median
        return replace(s, rest=self.rest(asinh(steep * s.flux), _asinh_error(s), s.mask))

    @torch.no_grad()
    def learn(self, flux: np.ndarray, theta: np.ndarray, box: Box, batches: Iterable[Spectra]) -> None:
        """Learn what spectra look like at rest, from noise-free training spectra (n, p) of theta (n, D)."""
        if self.rest is None:
            return
        clean = torch.as_tensor(flux, dtype=torch.float32)
        x = asinh(STEEP * clean / clean.median(dim=-1, keepdim=True).values)
        total, count = torch.zeros(x.shape[1]), torch.zeros(x.shape[1])
        for batch in batches:
            s = _clean(*(torch.as_tensor(a) for a in (batch.flux, batch.error, batch.mask)))
            total += torch.where(s.mask, _asinh_error(s), 0.0).sum(dim=0)
            count += s.mask.sum(dim=0)
        velocity = None
        if MOVING in box.names:
            i = box.names.index(MOVING)
            velocity = torch.as_tensor(2 * (theta[:, i] - box.low[i]) / box.widths[i] - 1, dtype=torch.float32)
        self.rest.learn(x, total / count.clamp_min(1), velocity)

    def prepare(self, spectra: Spectra) -> Prepared:
        """Prepare a batch of NumPy arrays."""
        flux, error = (
            torch.as_tensor(np.ascontiguousarray(a, dtype=np.float32)) for a in (spectra.flux, spectra.error)
        )
        mask, known = (torch.as_tensor(np.array(a, dtype=bool)) for a in (spectra.mask, spectra.scale_known))
        prepared = self(flux, error, mask, known)
        if self.dial is None:
            return prepared
        return Prepared(prepared.channels, torch.cat((prepared.scalars, self._turned(spectra.amplitude)), dim=-1))

    def _turned(self, amplitude: np.ndarray | None) -> Tensor:
        """Return the dial's columns (b, 2): the amplitude from -1 to 1, and whether everything is fixed.

        At exactly 0 the line lists are fixed, next to it they are not: a jump that the network need not learn.
        """
        assert self.dial is not None, "a network without a dial has no amplitude"
        if amplitude is None:
            raise UserError("spectra: no amplitude; this network has a dial and needs one for each spectrum")
        low, high = self.dial
        values = torch.as_tensor(np.asarray(amplitude, dtype=np.float32))
        return torch.stack(((2 * values - low - high) / (high - low), (values == 0).float()), dim=-1)

    @torch.no_grad()
    def fit(self, batches: Iterable[Spectra]) -> None:
        """Set the scaling from training data: mean and spread per channel and pixel over good pixels."""
        count, total, square = 0.0, torch.tensor(0.0), torch.tensor(0.0)
        scales = []
        for batch in batches:
            flux, error, mask = (torch.as_tensor(a) for a in (batch.flux, batch.error, batch.mask))
            spectra = self._seen(flux, error, mask)
            scales.append(torch.log(spectra.median[:, 0]).double())
            good = self._whole(spectra.mask).double()
            raw = torch.stack([CHANNELS[name](spectra) for name in self.inputs.channels], dim=1).double()
            count = count + good.sum(0)
            total = total + (good * raw).sum(0)
            square = square + (good * raw * raw).sum(0)
        spread, mean = torch.std_mean(torch.cat(scales))
        self.scale.copy_(torch.stack([mean, spread.clamp_min(1e-6)]))
        if self.inputs.standardize:
            seen = torch.as_tensor(count).clamp_min(1)
            mean = total / seen
            variance = (square / seen - mean * mean).clamp_min(0)
            # Pixels that never vary (a detector's gap) keep their spread at one instead of exploding.
            spread = torch.where(variance > 1e-10, variance.sqrt(), torch.ones_like(variance))
            fixed = torch.tensor([name in UNSCALED for name in self.inputs.channels])[:, None]
            self.mean.copy_(torch.where(fixed, 0.0, mean))
            self.spread.copy_(torch.where(fixed, 1.0, spread))

    def _scalars(self, s: _Cleaned, known: Tensor) -> Tensor:
        flags = known[:, None].to(s.flux.dtype)
        columns: dict[str, Callable[[], list[Tensor]]] = {
            "snr": lambda: [(s.snr - (SNR.low + SNR.high) / 2) / (SNR.width / 2)],
            "log_snr": lambda: [(torch.log(s.snr.clamp_min(1e-2)) - _LOG_SNR[0]) / _LOG_SNR[1]],
            "log_scale": lambda: [flags * (torch.log(s.median) - self.scale[0]) / self.scale[1], flags],
            "scatter": lambda: [s.at_rest.scatter],
            "velocity": lambda: [s.at_rest.velocity],
            "log_spread": lambda: [torch.log(_log(s).std(dim=-1, keepdim=True) + 1e-6)],  # what `log_flux` divides by
        }
        return torch.cat([c for name in self.inputs.scalars for c in columns[name]()], dim=-1)


def _clean(flux: Tensor, error: Tensor, mask: Tensor) -> _Cleaned:
    """Replace masked pixels, whatever they hold, by what is typical of the good ones; at least one must be good."""
    good = mask.sum(dim=-1, keepdim=True)
    typical = torch.where(mask, error, 0.0).sum(dim=-1, keepdim=True) / good
    median = _median(torch.where(mask, flux, torch.inf), good)
    # A spectrum drowned in noise can have a median below zero: its scale is then what the noise allows.
    median = torch.maximum(median, 1e-2 * typical)
    flux, error = torch.where(mask, flux, median), torch.where(mask, error, typical)
    snr = _median(torch.where(mask, flux / error, torch.inf), good)
    return _Cleaned(flux, error, mask, median, snr)


def _median(values: Tensor, good: Tensor) -> Tensor:
    """Median over the `good` (b, 1) finite pixels of each row, the bad ones being infinite; (b, p) -> (b, 1)."""
    # NumPy sorts single precision with vector instructions: ten times faster than torch's sort or nanmedian.
    ordered = torch.from_numpy(np.sort(values.numpy(), axis=-1))
    return (ordered.gather(-1, (good - 1) // 2) + ordered.gather(-1, good // 2)) / 2
