"""What training eats: a small protocol of NumPy batches, so that networks know nothing of files or of JAX.

Whoever stores spectra (`kappaflow.simulate` on disk, `ArrayBatches` in memory) offers a `Card` that says what
they are and hands out a `Batch` for an address. The same address gives the same bytes, whoever asks and when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from kappaflow.errors import UserError
from kappaflow.parameters import PARAMETERS
from kappaflow.storage import digest_arrays

__all__ = ["ArrayBatches", "Batch", "Batches", "Box", "Card", "WithBox", "prefetched"]


@dataclass(frozen=True)
class Box:
    """Names and uniform prior bounds of the retrieved parameters; by default the fifteen."""

    names: tuple[str, ...] = tuple(p.name for p in PARAMETERS)
    low: tuple[float, ...] = tuple(p.low for p in PARAMETERS)
    high: tuple[float, ...] = tuple(p.high for p in PARAMETERS)

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
class Batch:
    """Noisy spectra with their parameters; `b` spectra on `p` pixels."""

    theta: np.ndarray  # (b, D), in the units of the box
    flux: np.ndarray  # (b, p), noise, gain and all
    error: np.ndarray  # (b, p), one standard deviation, the unit of `flux`
    mask: np.ndarray  # (b, p), True where the pixel is good
    snr: np.ndarray  # (b,), median per pixel


@dataclass(frozen=True)
class Card:
    """What a data set is: enough to refuse the wrong one and to describe a network trained on it."""

    digest: str  # of the configuration that made the spectra
    preset: str
    wavelength: np.ndarray  # (p,), micron
    n_train: int
    n_validation: int
    box: Box = field(default_factory=Box)
    masked: bool = False  # are masks drawn?
    seed: int | None = None  # of the parameters' draws, where they were drawn from one


class Batches(Protocol):
    """A training set and its validation split.

    The split belongs to the data, not to a training seed: members of an ensemble share it.
    """

    @property
    def card(self) -> Card:
        """What the data set is."""
        ...

    def train(self, epoch: int, index: int, size: int) -> Batch:
        """Batch `index` of `epoch`: a fresh shuffle, fresh noise, gain and masks for every epoch."""
        ...

    def validation(self, start: int, stop: int) -> Batch:
        """Return validation spectra `start:stop`, with noise, gain and masks that never change."""
        ...


class ArrayBatches:
    """Spectra in memory: noise-free flux plus Gaussian noise drawn at the address (seed, epoch, index).

    Parameters
    ----------
    theta : (n, D)
    flux : (n, p), noise-free
    error : (n, p), one standard deviation
    box : the prior; the fifteen parameters unless given
    masks : (k, p) bank of masks, one drawn at random for every spectrum; None keeps every pixel
    seed : of the noise

    The last tenth is the validation split.
    """

    def __init__(
        self,
        theta: np.ndarray,
        flux: np.ndarray,
        error: np.ndarray,
        *,
        box: Box | None = None,
        masks: np.ndarray | None = None,
        seed: int = 0,
    ) -> None:
        self._theta, self._flux, self._error = (np.asarray(a, dtype=np.float32) for a in (theta, flux, error))
        self._masks, self._seed = masks, seed
        n = len(theta)
        self._n_validation = max(n // 10, 1)
        arrays = {"theta": self._theta, "flux": self._flux, "error": self._error}
        self.card = Card(
            digest=digest_arrays(arrays),
            preset="memory",
            wavelength=np.linspace(2.87, 5.27, flux.shape[1]),
            n_train=n - self._n_validation,
            n_validation=self._n_validation,
            box=box or Box(),
            masked=masks is not None,
        )

    def train(self, epoch: int, index: int, size: int) -> Batch:
        """See `Batches.train`."""
        order = np.random.default_rng((self._seed, 1, epoch)).permutation(self.card.n_train)
        return self._batch(order[index * size : (index + 1) * size], (self._seed, 2, epoch, index))

    def validation(self, start: int, stop: int) -> Batch:
        """See `Batches.validation`."""
        rows = self.card.n_train + np.arange(start, min(stop, self._n_validation))
        parts = [self._batch(rows[i : i + 1], (self._seed, 3, int(r))) for i, r in enumerate(rows)]
        return Batch(*(np.concatenate([getattr(p, f) for p in parts]) for f in Batch.__dataclass_fields__))

    def _batch(self, rows: np.ndarray, address: tuple[int, ...]) -> Batch:
        rng = np.random.default_rng(address)
        flux, error = self._flux[rows], self._error[rows]
        noisy = flux + error * rng.standard_normal(flux.shape, dtype=np.float32)
        mask = np.ones(flux.shape, bool)
        if self._masks is not None:
            mask = self._masks[rng.integers(len(self._masks), size=len(rows))]
        snr = np.median(flux / error, axis=-1)
        return Batch(self._theta[rows], noisy, error, mask, snr)


class WithBox:
    """Batches of a reader whose card names no prior box: those of the fifteen parameters."""

    def __init__(self, reader: Any, box: Box | None = None) -> None:
        self._reader = reader
        told = {f: getattr(reader.card, f) for f in Card.__dataclass_fields__ if f != "box"}
        self.card = Card(**told, box=box or Box())

    def train(self, epoch: int, index: int, size: int) -> Batch:
        """See `Batches.train`."""
        return self._reader.train(epoch, index, size)

    def validation(self, start: int, stop: int) -> Batch:
        """See `Batches.validation`."""
        return self._reader.validation(start, stop)


T = TypeVar("T")
S = TypeVar("S")


def prefetched(make: Callable[[S], T], addresses: Iterator[S], *, depth: int = 2) -> Iterator[tuple[S, T]]:
    """Yield (address, make(address)) in order while the next `depth` are being made in another thread.

    Addressed randomness makes this safe: what a batch holds cannot depend on when it was made.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches") as pool:
        waiting: list[tuple[S, Future[T]]] = []
        try:
            for address in addresses:
                waiting.append((address, pool.submit(make, address)))
                if len(waiting) > depth:
                    done, future = waiting.pop(0)
                    yield done, future.result()
            for done, future in waiting:
                yield done, future.result()
        finally:
            for _, future in waiting:
                future.cancel()
