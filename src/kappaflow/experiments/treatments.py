"""What a network is shown of a test set: the spectra as drawn, or after one of the paths of `evaluate.stress`.

Kinds of masks: `drawn` as the augmentation draws them; the others are never drawn in training: `bands` (bad bands of
any width pile up anywhere), `comb` (every so many pixels a run is lost), `real` (those of real spectra).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from kappaflow.build.tables.networks import band_masks
from kappaflow.errors import UserError
from kappaflow.evaluate.stress import PATHS, assign_masks, real_masks
from kappaflow.observe.example import example_spectrum
from kappaflow.observe.read import read_spectrum
from kappaflow.observe.spectrum import Spectrum
from kappaflow.randomness import generator
from kappaflow.simulation import Shards
from kappaflow.spectra import Spectra

__all__ = ["MASKS", "readable_spectra", "shown"]

OBSERVED = 0  # seed of noise, gain and masks of every test set
GOOD = (0.30, 0.64)  # shares of good pixels that a comb leaves, around the paper's median of 0.47

MaskMaker = Callable[[Shards, int, Sequence[str]], np.ndarray]


def shown(shards: Shards, path: str, masks: str, files: Sequence[str] = ()) -> Spectra:
    """Return all spectra of a test set as a network is to see them after `path`, with pixels lost as `masks` say."""
    drawn = shards.evaluation(seed=OBSERVED)
    lost = MASKS[masks](shards, len(drawn), files)
    rng = generator("paper stress", OBSERVED)
    return PATHS[path](shards.flux(slice(None)), drawn, lost, rng)


def _whole(shards: Shards, n: int, files: Sequence[str]) -> np.ndarray:
    return np.ones((n, len(shards.wavelength)), dtype=bool)


def _as_in_training(shards: Shards, n: int, files: Sequence[str]) -> np.ndarray:
    """Masks of the augmentation; a spectrum that would keep every pixel gets its neighbour's."""
    masks = Shards(shards.path, masks=True).evaluation(seed=OBSERVED).mask
    lossy = np.flatnonzero(~masks.all(axis=1))
    nearest = lossy[np.minimum(np.searchsorted(lossy, np.arange(n)), len(lossy) - 1)]
    return masks[nearest]


def _bands(shards: Shards, n: int, files: Sequence[str]) -> np.ndarray:
    return band_masks((n, len(shards.wavelength)), generator("paper bands", OBSERVED))


def _comb(shards: Shards, n: int, files: Sequence[str]) -> np.ndarray:
    rng, pixels = generator("paper comb", OBSERVED), len(shards.wavelength)
    period = np.exp(rng.uniform(np.log(3.0), np.log(pixels / 8), n))[:, None]
    phase, share = rng.random((n, 1)), rng.uniform(*GOOD, (n, 1))
    return (np.arange(pixels) / period + phase) % 1.0 < share


def _real(shards: Shards, n: int, files: Sequence[str]) -> np.ndarray:
    spectra, _ = readable_spectra(files)
    masks = real_masks([spectrum for _, spectrum in spectra], shards.wavelength)
    return assign_masks(masks, n, generator("paper real masks", OBSERVED))


MASKS: dict[str, MaskMaker] = {
    "none": _whole,
    "drawn": _as_in_training,
    "bands": _bands,
    "comb": _comb,
    "real": _real,
}


def readable_spectra(files: Sequence[str]) -> tuple[list[tuple[str, Spectrum]], list[str]]:
    """Read the packaged spectrum and those in `files`: (name, spectrum), and a line for each that is none."""
    spectra, refused = [("wolf1130c", example_spectrum())], []
    for file in files:
        try:
            spectra.append((Path(file).stem, read_spectrum(file)))
        except UserError as error:
            refused.append(str(error))
    return spectra, refused
