"""JWST 1-D products (`x1d`, `c1d`, `x1dints`) and other FITS tables: bytes in, named columns out.

Only FITS tables are looked at: the ASDF extension that the pipeline appends is never opened.
"""

import gzip
import io
import warnings
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from astropy.io import fits

from kappaflow.errors import UserError
from kappaflow.observe.columns import Columns
from kappaflow.observe.soundness import sound_fits

__all__ = ["LARGEST_FILE", "is_fits", "read_fits"]

LARGEST_FILE = 500_000_000  # bytes, also after decompression: a 1-D spectrum is smaller
_PIPELINE = {"EXTRACT1D", "COMBINE1D"}  # the extensions of x1d and c1d
_HEADER = {
    "target": ("TARGNAME", "TARGPROP", "OBJECT"),
    "instrument": ("INSTRUME",),
    "detector": ("DETECTOR",),
    "grating": ("GRATING",),
    "filter": ("FILTER",),
    "disperser": ("DISPERSER", "DISPERSR"),
    "program": ("PROGRAM",),
    "frame": ("SPECSYS",),
    "slit": ("SLTNAME",),
    "source_id": ("SOURCEID",),
}


def is_fits(data: bytes) -> bool:
    """Whether `data` begins like FITS, plain or gzipped."""
    return data.startswith(b"SIMPLE  =") or data.startswith(b"\x1f\x8b")


def read_fits(where: str, data: bytes) -> list[Columns]:
    """Every spectrum in a FITS file's tables: one per row where columns are 2-D (time series), else one per table."""
    if data.startswith(b"\x1f\x8b"):
        data = _gunzip(where, data)
    data = sound_fits(where, data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they say, a broken file says again below as an error
            with fits.open(io.BytesIO(data), memmap=False, lazy_load_hdus=False) as hdus:
                return _tables(where, hdus, len(data))
    except UserError:
        raise
    except Exception as error:  # astropy raises anything from KeyError to struct.error on a damaged file
        reason = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
        raise UserError(f"{where}: damaged FITS ({reason}); download or write it again") from None


def _gunzip(where: str, data: bytes) -> bytes:
    try:
        with gzip.open(io.BytesIO(data)) as stream:
            plain = stream.read(LARGEST_FILE + 1)
    except (OSError, EOFError, zlib.error):
        raise UserError(f"{where}: damaged gzip; download or write it again") from None
    if len(plain) > LARGEST_FILE:
        raise UserError(f"{where}: over {LARGEST_FILE // 10**6} MB unpacked; expected a 1-D spectrum")
    if not plain.startswith(b"SIMPLE  ="):
        raise UserError(f"{where}: gzipped, but not FITS; unpack it first")
    return plain


def _tables(where: str, hdus: fits.HDUList, size: int) -> list[Columns]:
    tables: list[Any] = [
        hdu for hdu in hdus if isinstance(hdu, fits.BinTableHDU | fits.TableHDU) and hdu.name != "ASDF"
    ]
    chosen = [hdu for hdu in tables if hdu.name in _PIPELINE] or [
        hdu for hdu in tables if {"WAVELENGTH", "WAVE", "LAMBDA"} & {str(n).upper() for n in hdu.columns.names}
    ]
    if not chosen:
        named = ", ".join(hdu.name[:20] or "PRIMARY" for hdu in list(hdus)[:8])
        raise UserError(
            f"{where}: neither an EXTRACT1D table nor another one with WAVELENGTH (it has {named}); "
            "expected an x1d or c1d product, not an image or a cube"
        )
    found = []
    for k, hdu in enumerate(chosen, start=1):
        header: Any = hdu.header
        if header["NAXIS1"] * header["NAXIS2"] > size:
            raise UserError(f"{where}: truncated (its table {k} claims more bytes than the file has); get it again")
        said = _said(hdus[0].header, header)  # type: ignore[union-attr]
        here = f"{where}[{hdu.name},{k}]" if len(chosen) > 1 else where
        found.extend(_spectra(here, hdu, said))
    return found


def _said(primary: fits.Header, own: fits.Header) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for key, cards in _HEADER.items():
        values = (header.get(card) for card in cards for header in (own, primary))
        value = next((v for v in values if isinstance(v, str | int) and str(v).strip()), None)
        if value is not None:
            said[key] = value.strip() if isinstance(value, str) else value
    if str(primary.get("TELESCOP", "")).strip().upper() == "JWST":
        said["medium"] = "vacuum"  # the pipeline's wavelengths always are
    return said


def _spectra(where: str, hdu: Any, said: dict[str, Any]) -> Iterator[Columns]:
    """One `Columns` per spectrum. 2-D columns hold one integration per row, padded beyond N_ALONGDISP."""
    units = {str(c.name): str(c.unit) for c in hdu.columns if c.unit}
    data = hdu.data
    if data is None or len(data) == 0:
        raise UserError(f"{where}: an empty table; expected a spectrum")
    values = {str(n): np.asarray(data[n]) for n in hdu.columns.names}
    wide = [n for n, v in values.items() if v.ndim == 2 and v.shape[1] > 1 and v.dtype.kind in "fiub"]
    if not wide:
        yield Columns(where, {n: v.astype(float) for n, v in values.items() if _numeric(v)}, units, said)
        return
    used = values.get("N_ALONGDISP")
    for row in range(len(data)):
        stop = int(used[row]) if used is not None and used[row] > 0 else None
        columns = {n: values[n][row, :stop].astype(float) for n in wide}
        length = max(v.size for v in columns.values())
        yield Columns(where, {n: v for n, v in columns.items() if v.size == length}, units, said)


def _numeric(values: np.ndarray) -> bool:
    return values.ndim == 1 and values.dtype.kind in "fiub"
