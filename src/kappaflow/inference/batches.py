"""What training eats: a small protocol of NumPy batches, so that networks know nothing of files or of JAX.

Whoever stores spectra (`kappaflow.simulation` on disk) offers a `Card` that says what they are and hands out `Spectra`
for an address. The same address gives the same bytes, whoever asks and when.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from kappaflow.spectra import Card, Spectra

__all__ = ["Batches", "prefetched"]


class Batches(Protocol):
    """A training set and its validation split.

    The split belongs to the data, not to a training seed: members of an ensemble share it. Data that can also give
    `clean(count)`, noise-free flux (n, p) and parameters (n, D), let their networks see spectra at rest and tell
    whether one resembles them.
    """

    @property
    def card(self) -> Card:
        """What the data set is."""
        ...

    def train(self, epoch: int, index: int, size: int) -> Spectra:
        """Batch `index` of `epoch`: a fresh shuffle, fresh noise, gain and masks for every epoch."""
        ...

    def validation(self, start: int, stop: int) -> Spectra:
        """Return validation spectra `start:stop`, with noise, gain and masks that never change."""
        ...


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
