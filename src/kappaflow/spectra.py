"""What stations hand each other: spectra, the prior box, the card of a data set, the forward model's protocol; NumPy.

The signal-to-noise ratio, said once: **SNR is the median over good pixels of flux/error, per pixel**.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from kappaflow.errors import UserError
from kappaflow.parameters import PARAMETER_SETS, ParameterSet

__all__ = ["Box", "Card", "Forward", "OpacityCard", "Spectra", "masked_median", "median_snr", "same_pixels"]


def masked_median(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Median of each row over its good pixels, (b, p) -> (b,); NaN for a row without any."""
    ordered = np.sort(np.where(mask, values, np.inf), axis=1)
    count = mask.sum(axis=1)
    rows = np.arange(len(values))
    low = ordered[rows, np.maximum(count - 1, 0) // 2]
    high = ordered[rows, np.minimum(count // 2, values.shape[1] - 1)]
    return np.where(count > 0, (low + high) / 2, np.nan)


def median_snr(flux: np.ndarray, error: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Signal-to-noise ratio, (b, p) -> (b,): the median over good pixels of flux/error, per pixel.

    Examples
    --------
    >>> flux, error = np.array([[1.0, 2.0, 30.0]]), np.ones((1, 3))
    >>> median_snr(flux, error, np.array([[True, True, False]])).tolist()
    [1.5]
    """
    return masked_median(
        np.divide(flux, error, out=np.zeros(np.shape(flux), np.result_type(flux, error)), where=mask), mask
    )


def same_pixels(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays of wavelengths are the same pixels."""
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-5))


@dataclass(frozen=True, eq=False)
class Spectra:
    """Observed spectra, `b` of them on `p` pixels; of simulated ones also what made them."""

    flux: np.ndarray  # (b, p), mJy; any value where masked
    error: np.ndarray  # (b, p), one standard deviation, the unit of `flux`
    mask: np.ndarray  # (b, p), True where good
    scale_known: np.ndarray  # (b,), True where `flux` is on the forward model's scale (10 pc), which measures R
    theta: np.ndarray | None = None  # (b, D), the parameters
    field: np.ndarray | None = None  # (b, species * 9), coefficients of the opacity field
    combination: np.ndarray | None = None  # (b,), which of the set's combinations of line lists
    amplitude: np.ndarray | None = None  # (b,), of the opacities' randomization: 1 is the packaged prior
    index: np.ndarray | None = None  # (b,), place in the set

    def __len__(self) -> int:
        return len(self.flux)

    def __getitem__(self, rows: slice | np.ndarray) -> Spectra:
        """Pick some of them."""
        arrays = (getattr(self, f.name) for f in fields(self))
        return Spectra(*(None if a is None else a[rows] for a in arrays))  # type: ignore[arg-type]

    @property
    def truth(self) -> np.ndarray:
        """The parameters (b, D) of simulated spectra."""
        if self.theta is None:
            raise UserError("spectra: their parameters are not known; expected simulated ones")
        return self.theta

    @cached_property
    def snr(self) -> np.ndarray:
        """Signal-to-noise ratio of each, (b,)."""
        return median_snr(self.flux, self.error, self.mask)

    @staticmethod
    def joined(parts: Sequence[Spectra]) -> Spectra:
        """Concatenate batches that hold the same arrays."""
        columns = ([getattr(part, f.name) for part in parts] for f in fields(Spectra))
        return Spectra(*(None if c[0] is None else np.concatenate(c) for c in columns))  # type: ignore[arg-type]

    @classmethod
    def checked(
        cls, flux: np.ndarray, error: np.ndarray, mask: np.ndarray, scale_known: bool | np.ndarray, pixels: int
    ) -> Spectra:
        """Refuse wrong shapes; mask what is not a number or has no positive error."""
        flux, error, mask = np.asarray(flux), np.asarray(error), np.asarray(mask, dtype=bool)
        expected = (len(flux) if flux.ndim else 0, pixels)
        for name, array in (("flux", flux), ("error", error), ("mask", mask)):
            if array.shape != expected:
                raise UserError(
                    f"spectrum: {name} has shape {array.shape}; expected (spectra, {pixels}): the network's own "
                    "pixels, `posterior.wavelength`"
                )
        with np.errstate(invalid="ignore"):
            mask = mask & np.isfinite(flux) & np.isfinite(error) & (error > 0)
        if not mask.any(axis=-1).all():
            row = int(np.flatnonzero(~mask.any(axis=-1))[0])
            raise UserError(f"spectrum {row}: no good pixel; expected finite flux and positive error somewhere")
        return cls(flux, error, mask, np.broadcast_to(np.asarray(scale_known, dtype=bool), (len(flux),)))


@dataclass(frozen=True)
class Box:
    """Names and uniform prior bounds of the retrieved parameters; by default the paper's fifteen."""

    names: tuple[str, ...] = PARAMETER_SETS["paper"].names
    low: tuple[float, ...] = tuple(PARAMETER_SETS["paper"].low.tolist())
    high: tuple[float, ...] = tuple(PARAMETER_SETS["paper"].high.tolist())

    @classmethod
    def of(cls, parameters: ParameterSet) -> Box:
        """Return the box of a parameter set."""
        return cls(parameters.names, tuple(parameters.low.tolist()), tuple(parameters.high.tolist()))

    def __post_init__(self) -> None:
        sizes = {len(self.names), len(self.low), len(self.high)}
        if len(sizes) != 1 or any(not low < high for low, high in zip(self.low, self.high, strict=False)):
            raise UserError("prior box: expected as many names as bounds, each with low < high")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def widths(self) -> np.ndarray:
        """Prior widths, shape (D,)."""
        return np.subtract(self.high, self.low)

    def to_unit(self, theta: np.ndarray) -> np.ndarray:
        """Parameters (..., D) -> unit cube (..., D)."""
        return (theta - np.asarray(self.low)) / self.widths


@dataclass(frozen=True)
class OpacityCard:
    """Which opacities spectra were made with, and how they were randomized."""

    digest: str  # of the opacity table
    lists: Mapping[str, Sequence[str]]  # species -> its line lists, the base first
    cia: str  # family of the collision-induced absorption
    sigma: Sequence[Sequence[float]]  # (species, 1 + modes [+ slope]), standard deviations at amplitude 1
    combinations: Sequence[Mapping[str, str]]  # of line lists, all equally likely
    broadening: Sequence[Sequence[float]] = ((1.0, 0.0),)  # (scale, shift) of the half-widths, all equally likely


@dataclass(frozen=True)
class Card:
    """What a data set is: enough to refuse the wrong one and to describe a network trained on it."""

    digest: str  # of the configuration that made the spectra
    preset: str
    wavelength: np.ndarray  # (p,), um
    n_train: int
    n_validation: int
    box: Box = Box()
    masked: bool = False  # are masks drawn?
    seed: int | None = None  # of the parameters' draws, where they were drawn from one
    parameters: str = "paper"  # name of the parameter set
    opacity: OpacityCard | None = None  # None where it was not recorded
    dial: tuple[float, float] | None = None  # range of the amplitude where it varies, and networks are told it


class Forward(Protocol):
    """What a forward model offers: its parameters, pixels, line lists, its digest, and spectra [mJy at 10 pc]."""

    @property
    def parameters(self) -> ParameterSet:
        """What theta, the species and their coefficients are."""
        ...

    @property
    def wavelength(self) -> np.ndarray:
        """Pixel centres [um], shape (p,)."""
        ...

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Species -> its line lists, the base first."""
        ...

    @property
    def digest(self) -> str:
        """Digest of tables and grids: equal digests mean equal spectra."""
        ...

    @property
    def table_digest(self) -> str:
        """Digest of the opacity table."""
        ...

    def __call__(self, theta: Any, field: Any = None, lists: Any = None) -> np.ndarray:
        """Noise-free spectra (n, p) of `theta` (n, D), coefficients `field` and a choice of `lists`."""
        ...

    def broadened(self, broadening: tuple[float, float]) -> Forward:
        """Return the same model with every half-width scaled and every temperature exponent shifted."""
        ...
