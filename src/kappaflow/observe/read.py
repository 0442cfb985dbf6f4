"""`read_spectrum`: any number of files of one object become one spectrum."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from kappaflow.errors import UserError
from kappaflow.instrument import WINDOW, on_nrs2
from kappaflow.observe.columns import Columns, Hints, Segment, segment_of
from kappaflow.observe.merge import merge
from kappaflow.observe.resolution import of_this_disperser
from kappaflow.observe.spectrum import MIN_COVERED, Spectrum, covered_fraction
from kappaflow.observe.text import read_text
from kappaflow.observe.x1d import LARGEST_FILE, is_fits, read_fits

__all__ = ["Hint", "read_spectrum"]


class Hint(TypedDict, total=False):
    """Keywords of `read_spectrum`; each is also a flag of `kappaflow retrieve`."""

    wavelength_unit: str | None
    flux_unit: str | None
    medium: str | None
    columns: Sequence[str] | str | None
    source: str | None
    detector_offset: float
    mask: Sequence[str] | str | None


def read_spectrum(*paths: str | os.PathLike[str], **hints: Unpack[Hint]) -> Spectrum:
    """Read one object's spectrum from JWST x1d/c1d FITS, ECSV, CSV or plain columns.

    Several files, extensions or integrations (NRS1 and NRS2, dithers, time series) are merged with inverse variance.
    Rows without a finite flux and a positive error, and rows whose DQ says DO_NOT_USE, are masked; negative flux is
    kept; rows are sorted, and those at the same wavelength averaged.

    Parameters
    ----------
    *paths
        Files of one object.
    **hints
        `wavelength_unit`, `flux_unit`: override or supply units (`"um"`, `"erg/s/cm2/A"`).
        `medium`: `"vacuum"` (the default when the file is silent) or `"air"`.
        `columns`: three names, or numbers from 1, for wavelength, flux, error.
        `source`: slit name or source number when a file holds several objects; `"all"` merges them.
        `detector_offset`: NRS2 (or, without a detector keyword, everything beyond 3.736 um) is multiplied by
        one plus this.
        `mask`: ranges LOW:HIGH [um, vacuum] to leave out, as `"4.2:4.4"`.

    Returns
    -------
    Spectrum
        Vacuum um, mJy; see `Spectrum`.

    Raises
    ------
    UserError
        Naming the file, what is wrong, and the flag that helps; also when good pixels cover less than a tenth of
        2.87-5.27 um.
    """
    if not paths:
        raise UserError("read_spectrum: no file given; expected at least one")
    unknown = set(hints) - set(Hint.__annotations__)
    if unknown:
        raise UserError(
            f"read_spectrum: unknown keyword {sorted(unknown)[0]!r}; expected {', '.join(Hint.__annotations__)}"
        )
    known = Hints(**hints)  # type: ignore[arg-type]
    segments = [segment for path in paths for segment in _segments(Path(path), known)]
    segments = of_this_disperser(", ".join(Path(path).name for path in paths), segments)
    merged, meta = merge([_scaled(s, known.detector_offset) for s in segments])
    if isinstance(meta.get("target"), tuple) and known.source != "all":
        targets = ", ".join(str(t)[:30] for t in meta["target"][:4])
        raise UserError(f"{Path(paths[0]).name} and others: several targets ({targets}); merge them with --source all")
    return _checked(merged, {"files": tuple(Path(p).name for p in paths), **meta})


def _segments(path: Path, hints: Hints) -> list[Segment]:
    where = path.name or str(path)
    try:
        if not path.is_file():
            what = "a folder" if path.is_dir() else "not there" if not path.exists() else "no regular file"
            raise UserError(f"{path}: {what}; expected a spectrum in FITS, ECSV, CSV or columns")
        if path.stat().st_size > LARGEST_FILE:
            raise UserError(f"{where}: over {LARGEST_FILE // 10**6} MB; expected a 1-D spectrum")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{where}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not data.strip():
        raise UserError(f"{where}: empty; expected a spectrum")
    tables = read_fits(where, data) if is_fits(data) else [read_text(where, data)]
    tables = _one_source(where, tables, hints.source)
    segments = [segment_of(table, hints) for table in tables if _has_data(table) or len(tables) == 1]
    if not segments:
        raise UserError(f"{where}: every value is missing; was the extraction made for an extended source?")
    return segments


def _has_data(table: Columns) -> bool:
    """Tell a table from an integration or dither whose flux is missing throughout, which adds nothing."""
    return any(np.isfinite(v).any() for n, v in table.values.items() if n.upper() == "FLUX") or not any(
        n.upper() == "FLUX" for n in table.values
    )


def _one_source(where: str, tables: list[Columns], source: str | None) -> list[Columns]:
    """Refuse to blend objects: slits or sources in one file are merged only when asked for."""

    def names(table: Columns) -> set[str]:
        return {str(table.said[key]) for key in ("slit", "source_id") if key in table.said}

    if source == "all":
        return tables
    if source is not None:
        chosen = [table for table in tables if source in names(table) or not names(table)]
        if chosen:
            return chosen
    kinds = {tuple(sorted(names(table))) for table in tables}
    if source is not None or len(kinds) > 1:
        listed = ", ".join(sorted({" / ".join(kind) for kind in kinds})[:8])
        raise UserError(
            f"{where}: holds several slits or sources ({listed}); choose with --source NAME, or --source all"
        )
    return tables


def _scaled(segment: Segment, offset: float) -> Segment:
    """Multiply NRS2 by 1 + offset."""
    if offset == 0.0:
        return segment
    detector = str(segment.meta.get("detector", "")).upper()
    second = np.full(len(segment), detector == "NRS2") if detector in {"NRS1", "NRS2"} else on_nrs2(segment.wavelength)
    gain = np.where(second, 1.0 + offset, 1.0)
    return replace(segment, flux=segment.flux * gain, error=segment.error * gain)


def _checked(segment: Segment, meta: dict[str, Any]) -> Spectrum:
    spectrum = Spectrum(segment.wavelength, segment.flux, segment.error, segment.good, meta)
    covered = covered_fraction(spectrum)
    if covered < MIN_COVERED:
        rows = ", ".join(f"{count} {reason}" for reason, count in meta["rows"].items())
        raise UserError(
            f"{', '.join(meta['files'])}: good pixels cover {covered:.1%} of {WINDOW[0]}-{WINDOW[1]} um (rows: {rows}; "
            f"{spectrum.wavelength[0]:.4g}-{spectrum.wavelength[-1]:.4g} um); expected at least {MIN_COVERED:.0%}: "
            "is this NIRSpec G395H, and is --wavelength-unit right?"
        )
    return spectrum.noted(covered_fraction=covered)
