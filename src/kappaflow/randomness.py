"""Random numbers with an address: the same address gives the same numbers, whatever was drawn before.

Every generator is made here, at an address (purpose, seed, place). Philox is a counter-based generator: a
stream is a place (key, counter), not a history. The key is a digest of the words of the address; the third word of the
counter is the index, so that each index has 2^128 numbers of its own.

References
----------
Salmon et al. (2011), "Parallel random numbers: as easy as 1, 2, 3", SC'11.
"""

from __future__ import annotations

import hashlib

import numpy as np

__all__ = ["Stream", "generator", "key", "philox", "torch_seed"]

# Purposes whose numbers are out in the world, in networks, draws and verdicts: they keep the generator they were drawn
# with, NumPy's default one seeded by (seed, these, place). A new purpose needs no entry.
_NUMBERED: dict[str, tuple[int, ...]] = {
    "posterior": (),  # place: member, row
    "array order": (1,),
    "array noise": (2,),
    "array validation": (3,),
    "batch order": (4,),
    "known scale": (5,),
    "predictive": (7,),
    "networks' masks": (2,),
    "bootstrap": (0xB007,),
    "halves": (0x5917,),
    "PIT": (0x917,),
    "TARP": (0x7A49,),
}


def generator(purpose: str, seed: int, *place: int) -> np.random.Generator:
    """Return the generator at an address.

    Examples
    --------
    >>> bool(generator("noise", 0, 17).random() == generator("noise", 0, 17).random())
    True
    """
    numbers = _NUMBERED.get(purpose)
    if numbers is None:
        return np.random.Generator(np.random.Philox(key=key(purpose, seed, *place)))
    return np.random.default_rng((seed, *numbers, *place))


def philox(number: int) -> np.random.Generator:
    """Return the generator whose key is one number: the packaged tables' statistical lines, one per molecule."""
    return np.random.Generator(np.random.Philox(key=number))


def torch_seed(purpose: str, seed: int, step: int = 0) -> int:
    """Return the 64-bit seed at an address, for torch's own generator."""
    return int(np.random.SeedSequence((seed, *purpose.encode(), step)).generate_state(1, np.uint64)[0])


def key(*words: str | int) -> np.ndarray:
    """Two 64-bit words that stand for the address `words`."""
    text = "/".join(str(word) for word in ("kappaflow", *words))
    return np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], dtype="<u8").copy()


class Stream:
    """The generators of one address, one for each index.

    A stream rewinds one generator instead of building one per index, which is seven times quicker; it
    therefore belongs to one thread, and the generator of `at(i)` is spent when `at(j)` is called.

    Examples
    --------
    >>> a, b = Stream("theta", 0), Stream("theta", 0)
    >>> _ = a.at(3).random(1000)
    >>> bool(a.at(17).random() == b.at(17).random())
    True
    """

    def __init__(self, *words: str | int) -> None:
        self._bits = np.random.Philox(key=key(*words))
        self._generator = np.random.Generator(self._bits)
        self._state = self._bits.state  # a copy, taken before any number is drawn

    def at(self, index: int) -> np.random.Generator:
        """Return the generator at the start of stream `index`."""
        self._state["state"]["counter"][2] = index
        self._bits.state = self._state
        return self._generator
