"""Segments of one object (detectors, dithers, integrations) become one, weighted by inverse variance."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from kappaflow.observe.columns import Segment
from kappaflow.observe.resampling import MIN_FRACTION, overlap_mean
from kappaflow.observe.spectrum import pixel_edges

__all__ = ["merge"]

_SAME_GRID = 0.02  # of a pixel: grids closer than this are averaged row by row
_ALIKE = 3.0  # repeated exposures whose scatter is above this many times their errors deserve a note


def merge(segments: Sequence[Segment]) -> tuple[Segment, dict[str, Any]]:
    """Merge in the order given: later segments are brought to the pixels of the earlier ones where they overlap.

    Where a later segment has pixels that no earlier one covers (the other detector, a dither that fills the
    gap), they are kept as they are. `repeat_rms` in the meta is the rms of (difference / its error) where
    exposures overlap: 1 when the errors are right.
    """
    total, scatter = segments[0], []
    for segment in segments[1:]:
        total, z = _add(total, segment)
        scatter.append(z)
    z = np.concatenate(scatter) if scatter else np.zeros(0)
    meta = _common(segments)
    if z.size:
        meta["repeat_rms"] = float(np.sqrt(np.mean(z**2)))
        if meta["repeat_rms"] > _ALIKE:
            note = f"overlapping exposures differ by {meta['repeat_rms']:.1f} times their errors (rms)"
            meta["notes"] = (*meta.get("notes", ()), note)
    return total, meta


def _add(first: Segment, second: Segment) -> tuple[Segment, np.ndarray]:
    """Inverse-variance mean on `first`'s pixels, plus the pixels only `second` has; and the normalized differences."""
    edges = pixel_edges(first.wavelength)
    if len(first) == len(second) and _same(first.wavelength, second.wavelength, edges):
        flux, error, seen = second.flux, second.error, second.good
        extra = np.zeros(len(second), bool)
    else:
        own = pixel_edges(second.wavelength)
        flux, error, fraction = overlap_mean(second.flux, second.error, second.good, own, edges)
        seen = fraction >= MIN_FRACTION
        extra = _uncovered(own, edges, second.wavelength)
    both, only = first.good & seen, ~first.good & seen
    z = (first.flux[both] - flux[both]) / np.hypot(first.error[both], error[both])
    mean, sigma = first.flux.copy(), first.error.copy()
    wa, wb = first.error[both] ** -2.0, error[both] ** -2.0
    mean[both] = (first.flux[both] * wa + flux[both] * wb) / (wa + wb)
    sigma[both] = (wa + wb) ** -0.5
    mean[only], sigma[only] = flux[only], error[only]
    wave = np.concatenate([first.wavelength, second.wavelength[extra]])
    order = np.argsort(wave, kind="stable")
    joined = [
        np.concatenate([a, b[extra]])[order]
        for a, b in ((mean, second.flux), (sigma, second.error), (first.good | seen, second.good))
    ]
    return Segment(wave[order], *joined, meta=first.meta), z


def _uncovered(own: np.ndarray, edges: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Which pixels `own` (n, 2) have their centre in none of the pixels `edges` (m, 2), and mostly lie outside them."""
    zero = np.zeros(len(edges))
    covered = overlap_mean(zero, zero, zero == 0, edges, own)[2]
    below = np.searchsorted(edges[:, 0], centres, side="right") - 1
    inside = (below >= 0) & (centres <= edges[np.maximum(below, 0), 1])
    return ~inside & (covered < MIN_FRACTION)


def _same(a: np.ndarray, b: np.ndarray, edges: np.ndarray) -> bool:
    return bool((np.abs(a - b) <= _SAME_GRID * (edges[:, 1] - edges[:, 0])).all())


def _common(segments: Sequence[Segment]) -> dict[str, Any]:
    """Meta of all: what they agree on once, what they do not as a tuple; row counts summed."""
    rows: Counter[str] = Counter()
    meta: dict[str, Any] = {}
    for key in dict.fromkeys(k for s in segments for k in s.meta if k not in ("rows", "notes")):
        values = tuple(dict.fromkeys(s.meta[key] for s in segments if key in s.meta))
        meta[key] = values[0] if len(values) == 1 else values
    for segment in segments:
        rows.update(segment.meta["rows"])
    notes = tuple(dict.fromkeys(note for segment in segments for note in segment.meta.get("notes", ())))
    return {**meta, **({"notes": notes} if notes else {}), "rows": dict(rows), "segments": len(segments)}
