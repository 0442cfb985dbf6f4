"""A look at the bones of a FITS file before a library reads it: headers end, counts are sane, the data are all there.

Damaged counts make general readers loop for hours or ask for terabytes; here each header is walked once.
"""

import re

from kappaflow.errors import UserError

__all__ = ["sound_fits"]

_BLOCK, _CARD = 2880, 80
_MOST_BLOCKS = 400  # of one header: 14,400 cards, several times what the pipeline writes
_MOST_UNITS = 20_000  # header-data units: old time-series products have one per integration
_INTEGER = re.compile(rb"(NAXIS\d{0,3}|BITPIX|PCOUNT|GCOUNT|TFIELDS) *= *(\S{1,20})")


def sound_fits(where: str, data: bytes) -> bytes:
    """Return `data` up to the end of its last whole unit; raise `UserError` where a unit is damaged or cut off."""
    at = units = 0
    while at < len(data) and (units == 0 or data.startswith(b"XTENSION", at)):
        units += 1
        if units > _MOST_UNITS:
            raise UserError(f"{where}: over {_MOST_UNITS} FITS extensions; expected a 1-D spectrum")
        stop = _header_end(where, data, at)
        at = stop + _data_size(where, data[at:stop])
        if at > len(data) + _BLOCK:
            raise UserError(f"{where}: truncated FITS ({len(data)} of at least {at} bytes); download it again")
    return data[:at]


def _header_end(where: str, data: bytes, start: int) -> int:
    """Offset of the block after the END card of the header at `start`."""
    for block in range(start, min(len(data), start + _MOST_BLOCKS * _BLOCK), _BLOCK):
        for card in range(block, block + _BLOCK, _CARD):
            if data[card : card + _CARD].rstrip() == b"END":
                return block + _BLOCK
    raise UserError(f"{where}: damaged FITS (a header without END); download or write it again")


def _data_size(where: str, header: bytes) -> int:
    """Bytes of the data after `header`, padded to blocks: |BITPIX| / 8 * GCOUNT * (PCOUNT + NAXIS1 * NAXIS2 * ...)."""
    found: dict[str, int] = {}
    for i in range(0, len(header), _CARD):
        match = _INTEGER.match(header[i : i + _CARD])
        if match:
            try:
                found.setdefault(match[1].decode(), int(match[2].rstrip(b"/")))
            except ValueError:
                raise UserError(f"{where}: damaged FITS ({match[1].decode()} is not a number); get it again") from None
    axes = found.get("NAXIS", 0)
    if not (0 <= axes <= 999 and 0 <= found.get("TFIELDS", 0) <= 999):
        raise UserError(f"{where}: damaged FITS (a header claims {axes} axes or too many columns); get it again")
    size = 1 if axes else 0
    for axis in range(1, axes + 1):
        size *= found.get(f"NAXIS{axis}", 0)
    size = abs(found.get("BITPIX", 8)) // 8 * found.get("GCOUNT", 1) * (found.get("PCOUNT", 0) + size)
    if size < 0:
        raise UserError(f"{where}: damaged FITS (negative sizes); download or write it again")
    return -(-size // _BLOCK) * _BLOCK
