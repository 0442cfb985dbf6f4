"""Plain columns, CSV and ECSV: text in, named columns out. Nothing is evaluated, and every row is accounted for."""

import csv
import io
import re
from dataclasses import replace
from typing import Any

import numpy as np
import yaml

from kappaflow.errors import UserError
from kappaflow.observe.columns import Columns
from kappaflow.observe.units import is_flux, is_spectral, parse_unit, units_in

__all__ = ["read_text", "read_words"]

_ECSV = "# %ECSV"
_COMMENT = ("#", "%", "!", "\\")
_MISSING = {"", "nan", "none", "null", "n/a", "na", "--", "-", "masked", "..."}
_TRUE, _FALSE = {"true", "t", "yes"}, {"false", "f", "no"}
_TOKEN = re.compile(r'"[^"]*"|\S+')
_UNIT_IN_NAME = re.compile(r"^(?P<name>[^\[(]*?)\s*[\[(](?P<unit>.+)[\])]$")
_SUFFIXES = {"um", "micron", "microns", "nm", "angstrom", "aa", "jy", "mjy", "ujy"}
_MOST_COLUMNS = 200
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1b\x7f]")
_FORTRAN = re.compile(r"[-+]?[\d.]+[dD][-+]?\d+")


def read_text(where: str, data: bytes) -> Columns:
    """Read `data`, the bytes of the file called `where`, as columns of numbers (n,) with their names and units."""
    lines = _lines(where, data, "a spectrum in FITS, ECSV, CSV or columns")
    comments = [line.lstrip("#%!\\ ") for _, line in lines if line.startswith(_COMMENT)]
    body = [(i, line) for i, line in lines if line and not line.startswith(_COMMENT)]
    if not body:
        raise UserError(f"{where}: no rows; expected columns wavelength, flux, error")
    if lines[0][1].startswith(_ECSV):
        names, units, rows, meta = _ecsv(where, lines, body)
        return replace(_numbers(where, names, units, rows), said=meta)
    delimiter = _delimiter(body[0][1])
    first = _split(body[0][1], delimiter)
    names, units = _header(where, first, comments)
    rows = body if all(_is_number(token) for token in first[:3]) else body[1:]
    if len(rows) < len(body) and rows:
        row = dict(zip(names, _split(rows[0][1], delimiter), strict=False))
        stated = {
            name: text for name, text in row.items() if is_spectral(parse_unit(text)) or is_flux(parse_unit(text))
        }
        if stated:  # a second header row, of units
            units, rows = {**stated, **units}, rows[1:]
    return _numbers(where, names, units, [(i, _split(line, delimiter)) for i, line in rows])


def read_words(where: str, data: bytes) -> tuple[list[str], dict[str, str], list[tuple[int, list[str]]]]:
    """Read a table of words, CSV or ECSV: names, units by name, and rows (line number, one word per column)."""
    lines = _lines(where, data, "a table in CSV or ECSV")
    body = [(i, line) for i, line in lines if line and not line.startswith("#")]
    if not body:
        raise UserError(f"{where}: no rows; expected a table with a row of names")
    if lines[0][1].startswith(_ECSV):
        names, units, rows, _ = _ecsv(where, lines, body)
    else:
        delimiter = _delimiter(body[0][1]) or ","
        names, units = [name.strip() for name in _split(body[0][1], delimiter)], {}
        rows = [(i, _split(line, delimiter)) for i, line in body[1:]]
    for line, words in rows:
        if len(words) != len(names):
            raise UserError(f"{where}: line {line} has {len(words)} columns; expected {len(names)}, as above it")
    return names, units, [(line, ["" if w.lower() in _MISSING else w for w in words]) for line, words in rows]


def _lines(where: str, data: bytes, expected: str) -> list[tuple[int, str]]:
    """Lines with their numbers, stripped."""
    if _BINARY.search(data):
        raise UserError(f"{where}: neither FITS nor text; expected {expected}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # where an old editor left its own micro sign
    return [(i, line.strip()) for i, line in enumerate(text.splitlines(), start=1)]


def _delimiter(line: str) -> str | None:
    """Return what splits `line`, None for blanks; a semicolon first: beside it, commas are decimal."""
    return next((d for d in (";", ",", "|", "\t") if d in line), None)


def _split(line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return [token.strip('"') for token in _TOKEN.findall(line)]
    if delimiter == "|":
        line = line.strip("|")
    try:
        return [token.strip() for token in next(csv.reader(io.StringIO(line), delimiter=delimiter), [])]
    except csv.Error:
        return [token.strip() for token in line.split(delimiter)]


def _float(token: str) -> float:
    """Read a number as Python, Fortran (1.0D-15) or a comma-decimal country writes it."""
    if _FORTRAN.fullmatch(token):
        token = token.lower().replace("d", "e")
    elif "." not in token and token.count(",") == 1:
        token = token.replace(",", ".")
    return float(token)


def _is_number(token: str) -> bool:
    try:
        _float(token)
    except ValueError:
        return token.lower() in _MISSING
    return True


def _header(where: str, first: list[str], comments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Names and units of the columns: from a header row, else from a comment that looks like one, else by order."""
    if len(first) > _MOST_COLUMNS:
        raise UserError(f"{where}: {len(first)} columns; expected wavelength, flux, error")
    if not all(_is_number(token) for token in first[:3]):
        names, units = _names(first)
    else:
        candidates = (_split(line, _delimiter(line)) for line in reversed(comments))
        known = next((c for c in candidates if len(c) == len(first) and _looks_like_names(c)), None)
        if known is not None:
            names, units = _names(known)
        elif len(first) < 3:
            raise UserError(f"{where}: {len(first)} columns; expected wavelength, flux, error (errors are needed)")
        else:
            names, units = ["wavelength", "flux", "error", *(f"column{i}" for i in range(4, len(first) + 1))], {}
    if len(set(names)) < len(names):
        raise UserError(f"{where}: two columns have one name ({', '.join(n[:20] for n in names[:8])})")
    return names, _from_comments(where, names, units, comments)


def _looks_like_names(tokens: list[str]) -> bool:
    return tokens[0].lower().startswith(("wav", "wl", "lam")) and not any(_is_number(t) for t in tokens)


def _names(tokens: list[str]) -> tuple[list[str], dict[str, str]]:
    """Split `flux(Jy)`, `flux [Jy]` and `flux_mJy` into name and unit."""
    names, units = [], {}
    for token in tokens:
        name, unit = token, None
        bracket = _UNIT_IN_NAME.match(token)
        head, _, tail = token.rpartition("_")
        if bracket:
            name, unit = bracket["name"] or token, bracket["unit"]
        elif head and tail.lower() in _SUFFIXES:
            name, unit = head, tail
        names.append(name)
        if unit:
            units[name] = unit
    return names, units


def _from_comments(where: str, names: list[str], units: dict[str, str], comments: list[str]) -> dict[str, str]:
    """Fill in units that only the comments state; two that disagree are no statement."""
    if units:
        return units
    found = [unit for line in comments[:50] for unit in units_in(line)]
    for wanted, start in ((is_spectral, "w"), (is_flux, "f")):
        kinds = [unit for unit in found if wanted(unit)]
        name = next((n for n in names if n.lower().startswith((start, "l") if start == "w" else start)), None)
        if kinds and name is not None:
            if any(unit != kinds[0] for unit in kinds):
                said = ", ".join(sorted({str(unit) for unit in kinds}))
                flag = "--wavelength-unit" if start == "w" else "--flux-unit"
                raise UserError(f"{where}: its comments state several units ({said}); say which with {flag}")
            units[name] = str(kinds[0])
    return units


def _numbers(where: str, names: list[str], units: dict[str, str], rows: list[tuple[int, list[str]]]) -> Columns:
    """Turn tokens into floats, missing ones into nan; a short row or a word is named by its line."""
    if not rows:
        raise UserError(f"{where}: a header but no rows; expected columns wavelength, flux, error")
    values = np.empty((len(rows), len(names)))
    words: dict[str, str] = {}
    for k, (line, tokens) in enumerate(rows):
        if len(tokens) != len(names):
            raise UserError(f"{where}: line {line} has {len(tokens)} columns; expected {len(names)}, as above it")
        for j, token in enumerate(tokens):
            try:
                values[k, j] = _value(token)
            except ValueError:
                values[k, j] = np.nan
                words.setdefault(names[j], f"line {line}, column {names[j][:24]!r}: {token[:24]!r} is not a number")
    return Columns(where, {name: values[:, j].copy() for j, name in enumerate(names)}, units, words=words)


def _value(token: str) -> float:
    lower = token.lower()
    if lower in _MISSING:
        return float("nan")
    if lower in _TRUE | _FALSE:
        return float(lower in _TRUE)
    return _float(token)


def _ecsv(
    where: str, lines: list[tuple[int, str]], body: list[tuple[int, str]]
) -> tuple[list[str], dict[str, str], list[tuple[int, list[str]]], dict[str, Any]]:
    """ECSV: its YAML header, read as plain data only, states names, units and meta; rows are words."""
    head = [line[2:] for _, line in lines if line.startswith("#")]
    header = _plain_yaml(where, "\n".join(head[2:]))  # after `%ECSV 1.0` and `---`
    columns = header.get("datatype")
    columns = [c for c in columns if isinstance(c, dict)] if isinstance(columns, list) else []
    delimiter = header.get("delimiter", " ")
    if delimiter not in (" ", ","):
        raise UserError(f"{where}: ECSV delimiter {str(delimiter)[:8]!r}; expected a blank or a comma")
    split = None if delimiter == " " else ","
    names = _split(body[0][1], split)
    if not columns or names != [c.get("name") for c in columns] or len(set(names)) < len(names):
        raise UserError(f"{where}: the ECSV header and the row of names disagree; expected the same columns in both")
    units = {name: c["unit"] for name, c in zip(names, columns, strict=True) if isinstance(c.get("unit"), str)}
    return names, units, [(i, _split(line, split)) for i, line in body[1:]], _meta(header.get("meta"))


class _PlainLoader(yaml.SafeLoader):
    """Plain data only. What astropy tags (`!astropy...`: units of a QTable, times) is left out, never made.

    astropy's own reader would make it: for a file from anywhere that is more than names, units and numbers need.
    """


_PlainLoader.add_multi_constructor("!", lambda loader, tag, node: None)


def _plain_yaml(where: str, text: str) -> dict[str, Any]:
    try:
        header = yaml.load(text, Loader=_PlainLoader)  # a SafeLoader
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, AttributeError, ArithmeticError, LookupError):
        raise UserError(f"{where}: its ECSV header is not plain YAML; write it again with astropy") from None
    if not isinstance(header, dict):
        raise UserError(f"{where}: its ECSV header is empty; write it again with astropy")
    return header


def _meta(meta: Any) -> dict[str, Any]:
    """Keep the plain text and numbers of an ECSV's meta (a mapping, or `!!omap` pairs), under lower-case keys."""
    pairs = meta.items() if isinstance(meta, dict) else meta if isinstance(meta, list) else ()
    pairs = [p for p in pairs if isinstance(p, tuple) and len(p) == 2]
    return {k.lower(): v for k, v in pairs if isinstance(k, str) and isinstance(v, str | int | float | bool)}
