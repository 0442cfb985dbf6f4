"""Bad pixels: a generative model of real masks, and masks that the user brings.

A mask is made in this order; unless said otherwise the numbers come from real spectra
(`kappaflow.build.tables.mask_statistics`):

1. one spectrum in ten keeps every pixel (the paper masks nine in ten);
2. edges: nothing below and above two wavelengths drawn around the real ones;
3. the detector gap, in the share of spectra that have it, at a jittered place;
4. single bad pixels and clusters, at rates around the real ones;
5. a whole detector missing (a choice: 12 % without NRS1, 12 % without NRS2; segments are delivered one by one);
6. thinning down to a good fraction drawn from 0.3 to 1 with the median of the paper's 105 real masks (0.468): the
   pixels that go first are the faint ones (clipped troughs), blocks (clusters) or any, in drawn proportions;
7. clipping: in the share of spectra that show it, pixels whose noisy flux is not positive are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from kappaflow.errors import UserError
from kappaflow.instrument import PIXEL, WINDOW, on_nrs2
from kappaflow.simulation.noise import statistics

__all__ = ["LOWEST_GOOD_FRACTION", "MaskModel", "read_masks"]

LOWEST_GOOD_FRACTION = 0.3
WHOLE_SHARE = 0.1  # spectra that keep every pixel
MISSING_DETECTOR = 0.12  # share without NRS1, and the same again without NRS2
USER_SHARE = 0.5  # of the masked spectra, where the user brought masks
LONGEST_CLUSTER = 9  # detector pixels, the longest run found outside the gap
LONGEST_BLOCK = 512  # detector pixels, a seventh of the window (a choice: prepares for wide gaps)


@dataclass(frozen=True)
class MaskModel:
    """Masks on the pixels `wavelength` [micron]; `user` (k, p) holds the user's own, True where good."""

    wavelength: np.ndarray
    user: np.ndarray | None = None

    UNIFORMS = 17  # numbers each spectrum needs, besides one uniform per pixel

    @cached_property
    def pixel_bin(self) -> float:
        """Detector pixels in one pixel of this grid."""
        return float(np.median(np.diff(self.wavelength)) / PIXEL)

    def draw(self, flux: np.ndarray, uniform: np.ndarray, pixel: np.ndarray) -> np.ndarray:
        """Return masks (b, p), True where good, before clipping.

        `flux` (b, p) is noise-free; `uniform` (b, 17) decides for the spectrum, `pixel` (b, p) for each pixel.
        """
        good = self._edges_and_gap(uniform[:, 1:6])
        good &= ~self.defects(uniform[:, 6], pixel)
        good = self._without_a_detector(good, uniform[:, 7])
        good = self._thinned(good, flux, uniform[:, [8, 9, 10, 11, 12, 16]], pixel)
        if self.user is not None:
            chosen = uniform[:, 13] < USER_SHARE
            which = (uniform[:, 14] * len(self.user)).astype(int)
            good[chosen] = self.user[which[chosen]]
        good[uniform[:, 0] < WHOLE_SHARE] = True
        return good

    def clip(self, good: np.ndarray, flux: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Drop the non-positive pixels of the noisy `flux` in the share of spectra that were clipped.

        A spectrum that would fall below the lowest good fraction keeps its mask.
        """
        clipped = good & (flux > 0)
        enough = clipped.mean(axis=1) >= LOWEST_GOOD_FRACTION
        whole = uniform[:, 0] < WHOLE_SHARE
        chosen = (uniform[:, 15] < statistics()["clipped"]["share"]) & enough & ~whole
        return np.where(chosen[:, None], clipped, good)

    def _edges_and_gap(self, u: np.ndarray) -> np.ndarray:
        edges, gap = statistics()["edges"], statistics()["gap"]
        # The real edges cluster; a spread around them up to the window's own ends covers other extractions.
        low = WINDOW[0] + u[:, 0] * 2 * (np.median(edges["low"]) - WINDOW[0])
        high = WINDOW[1] - u[:, 1] * 1.2 * (WINDOW[1] - np.median(edges["high"]))
        w = self.wavelength
        good = (w > low[:, None]) & (w < high[:, None])
        # Uniform over the range found, widened by its own half on either side.
        start = _widened(gap["low"], u[:, 2])
        stop = _widened(gap["high"], u[:, 3])
        inside = (w > start[:, None]) & (w < stop[:, None]) & (u[:, 4] < gap["share"])[:, None]
        return good & ~inside

    def defects(self, u: np.ndarray, pixel: np.ndarray) -> np.ndarray:
        """Single bad pixels and clusters (b, p), True where bad, from uniform `u` (b,) and `pixel` (b, p)."""
        found = statistics()["defects"]
        # From none to twice the highest rate found; a run spans detector pixels, so a binned pixel meets more of them.
        rate = 2 * max(found["runs_per_pixel"]) * u * self.pixel_bin
        bad = pixel < rate[:, None]
        rows, columns = np.nonzero(bad)
        rank = pixel[rows, columns] / rate[rows]  # uniform in [0, 1) where hit: it says how long the run is
        stay = 1 - 1 / (found["cluster_mean_length"] - 1)  # beyond two, geometric
        extra = np.log((1 - rank) / (1 - found["single_share"])) / np.log(stay)
        length = np.where(rank < found["single_share"], 1, 2 + np.floor(extra))
        length = np.ceil(np.minimum(length, LONGEST_CLUSTER) / self.pixel_bin)
        for j in range(1, int(np.ceil(LONGEST_CLUSTER / self.pixel_bin))):
            long = (length > j) & (columns + j < bad.shape[1])
            bad[rows[long], columns[long] + j] = True
        return bad

    def _without_a_detector(self, good: np.ndarray, u: np.ndarray) -> np.ndarray:
        blue = ~on_nrs2(self.wavelength)
        for lost, members in ((u < MISSING_DETECTOR, blue), (u > 1 - MISSING_DETECTOR, ~blue)):
            without = good & ~members
            enough = without.mean(axis=1) >= LOWEST_GOOD_FRACTION
            good = np.where((lost & enough)[:, None], without, good)
        return good

    def _thinned(self, good: np.ndarray, flux: np.ndarray, u: np.ndarray, pixel: np.ndarray) -> np.ndarray:
        """Lose the lowest-scored pixels until the drawn fraction is left."""
        n = good.shape[1]
        keep = np.minimum(np.ceil(_good_fraction(u[:, 0]) * n), good.sum(axis=1)).astype(int)
        span = np.maximum(np.exp(u[:, 1] * np.log(LONGEST_BLOCK)) / self.pixel_bin, 1)
        nth = np.arange(n, dtype=np.float32) / span[:, None] + u[:, 5, None]  # the first block is cut anywhere
        # Counted from the far end: not the numbers that decide about the pixels next to it.
        block = n - 1 - np.minimum(nth.astype(np.int32), n - 1)
        blocks = np.take_along_axis(pixel, block, axis=1)
        faint = np.log(flux)
        faint -= faint.mean(axis=1, keepdims=True)
        faint /= np.maximum(faint.std(axis=1, keepdims=True), 1e-6)
        # A third of the spectra ignore faintness, a third ignore blocks: each kind occurs alone and mixed.
        by_faintness, by_block = np.maximum(1.5 * u[:, 2:4] - 0.5, 0).T[:, :, None]
        score = by_faintness * faint + 3 * by_block * blocks + u[:, 4, None] * pixel
        score = np.where(good, score, -np.inf).astype(np.float32)
        threshold = np.sort(score, axis=1)[np.arange(len(score)), n - keep]
        return good & (score >= threshold[:, None])


def _widened(values: list[float], u: np.ndarray) -> np.ndarray:
    """Uniform over the range of `values` and half of that range beyond either end."""
    low, high = min(values), max(values)
    return low - (high - low) / 2 + 2 * (high - low) * u


def _good_fraction(u: np.ndarray) -> np.ndarray:
    """Good fraction at the quantile `u`: from 0.3 over the paper's median and the real spectra here up to 1.

    The quantile of the paper's median is moved so that it is the median of all masked spectra, those without a
    detector and those clipped included.
    """
    found = statistics()["good_fraction"]
    real = sorted(found["real"])
    quantiles = [0.0, 0.43, 0.8, 1.0]
    return np.interp(u, quantiles, [LOWEST_GOOD_FRACTION, found["paper_median"], real[len(real) // 2], 1.0])


def read_masks(folder: str | Path, wavelength: np.ndarray) -> np.ndarray:
    """Read a folder of masks, one text file each, onto the pixels `wavelength` [micron]; (k, p), True where good.

    A file has two columns: wavelength [micron] and 1 (good) or 0 (bad). A pixel is good where every row inside
    it is good and at least one row lies in it; beyond the rows it is bad.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; --masks expects a folder of two-column text files")
    files = sorted(p for p in folder.iterdir() if p.suffix in {".txt", ".csv", ".dat"})
    if not files:
        raise UserError(
            f"{folder}: no masks (.txt, .csv, .dat) found; expected wavelength [um] and 1 (good) or 0 (bad)"
        )
    masks = np.stack([_on_pixels(*_mask_columns(path), wavelength) for path in files])
    for path, mask in zip(files, masks, strict=True):
        if not mask.any():
            raise UserError(f"{path}: no good pixel between {wavelength[0]:.3f} and {wavelength[-1]:.3f} um")
    return masks


def _rows(path: Path) -> Iterator[list[float]]:
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        words = line.split("#")[0].replace(",", " ").split()
        if not words:
            continue
        try:
            yield [float(words[0]), float(words[1])]
        except (ValueError, IndexError):
            if number > 1:  # the first line may name the columns
                raise UserError(
                    f"{path}, line {number}: {line.strip()!r}; expected wavelength [um] and 1 (good) or 0 (bad)"
                ) from None


def _mask_columns(path: Path) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(list(_rows(path)))
    if len(table) < 2 or not np.isin(table[:, 1], (0, 1)).all() or not (np.diff(table[:, 0]) > 0).all():
        raise UserError(f"{path}: expected rows of ascending wavelength [um] and 1 (good) or 0 (bad)")
    return table[:, 0], table[:, 1] > 0


def _on_pixels(rows: np.ndarray, good: np.ndarray, wavelength: np.ndarray) -> np.ndarray:
    middles = (wavelength[1:] + wavelength[:-1]) / 2
    edges = np.concatenate([[2 * wavelength[0] - middles[0]], middles, [2 * wavelength[-1] - middles[-1]]])
    first = np.searchsorted(rows, edges[:-1])
    last = np.searchsorted(rows, edges[1:])
    bad_before = np.concatenate([[0], np.cumsum(~good)])
    # A finer grid than the mask's: take the nearest row, if it is no farther than the mask's own step.
    nearest = np.clip(np.searchsorted((rows[1:] + rows[:-1]) / 2, wavelength), 0, rows.size - 1)
    close = np.abs(rows[nearest] - wavelength) <= np.median(np.diff(rows))
    return np.where(last > first, bad_before[last] == bad_before[first], good[nearest] & close)
