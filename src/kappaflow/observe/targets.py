"""What is to be retrieved: objects named by their files, or a table with a row for each."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from astropy import units as u

from kappaflow.errors import UserError
from kappaflow.observe.distances import Distance, as_distance
from kappaflow.observe.text import read_words
from kappaflow.observe.units import parse_unit

__all__ = ["TARGET_COLUMNS", "Target", "name_objects", "named_targets", "read_targets"]

TARGET_COLUMNS = ("file", "name", "distance", "distance_error", "offset")
_BETWEEN = " + "  # between the files of one object, in one cell
_UNSAFE = re.compile(r'[\\/:*?"<>|\x00-\x1f\x7f]')  # in the name of a folder, on any system
_LARGEST = 10_000_000  # bytes: some 100,000 objects
_LONGEST = 100  # letters of a folder's name


@dataclass(frozen=True)
class Target:
    """One object: its files (merged), the name of its folder, and what only its observer knows."""

    name: str
    files: tuple[Path, ...]
    distance: Distance | None = None
    offset: float | None = None  # NRS2 is multiplied by one plus this; None: as for all
    title: str | None = None  # as the table calls it; None: as the file does

    def __post_init__(self) -> None:
        if self.offset is not None and not -0.5 <= self.offset <= 0.5:
            raise UserError(f"{self.name}: offset {self.offset}; expected a fraction between -0.5 and 0.5")


def name_objects(groups: Sequence[Sequence[Path]]) -> list[tuple[str, list[Path]]]:
    """Name objects by their first file, distinctly, and safe as folders.

    Examples
    --------
    >>> [name for name, _ in name_objects([[Path("a/x1d.fits.gz")], [Path("b/x1d.csv")]])]
    ['x1d', 'x1d-2']
    """
    taken: set[str] = set()
    named = []
    for group in groups:
        stem = _folder_name(group[0].name.removesuffix(".gz").rsplit(".", 1)[0]) or "spectrum"
        name, count = stem, 1
        while name.lower() in taken:  # some disks do not tell A from a
            count += 1
            name = f"{stem}-{count}"
        taken.add(name.lower())
        named.append((name, list(group)))
    return named


def _folder_name(text: str) -> str:
    return _UNSAFE.sub("_", text).strip(". ")[:_LONGEST].strip(". ")


def named_targets(groups: Sequence[Sequence[Path]], distance: Distance | None = None) -> list[Target]:
    """Targets of the files given on a command line; a distance belongs to one object only."""
    if distance is not None and len(groups) > 1:
        raise UserError(
            f"--distance {distance.pc:g}: given for {len(groups)} objects; give each its own with --targets FILE "
            f"(columns {', '.join(TARGET_COLUMNS)}), or --merge if they are one object"
        )
    return [Target(name, tuple(files), distance) for name, files in name_objects(groups)]


def read_targets(path: Path, files: Sequence[Path] = ()) -> tuple[list[Target], tuple[str, ...]]:
    """Read a table of targets, CSV or ECSV, with any of the columns in `TARGET_COLUMNS`.

    `file` is relative to the table; several files of one object are joined by " + ". Without that column the rows
    belong to `files`: by `name` (the file's name without its ending), else in order. Distances are in pc where the
    table states no unit.

    Returns
    -------
    targets
        One per row.
    unused
        Columns that were not understood.
    """
    where = path.name
    names, units, rows = _table(path)
    known = {name.lower(): i for i, name in enumerate(names) if name.lower() in TARGET_COLUMNS}
    unused = tuple(name for name in names if name.lower() not in TARGET_COLUMNS)
    if not known:
        listed = ", ".join(repr(name[:24]) for name in names[:6])
        raise UserError(f"{where}: columns {listed}; expected some of {', '.join(TARGET_COLUMNS)}")
    if not rows:
        raise UserError(f"{where}: a header but no rows; expected a row per object")
    table = [(line, {key: words[i] for key, i in known.items()}) for line, words in rows]
    groups = _groups(where, path.parent, table, files, "file" in known)
    titles = [row.get("name", "") for _, row in table]
    twice = {title for title in titles if title and titles.count(title) > 1}
    if twice:
        raise UserError(
            f'{where}: two rows are named {min(twice)!r}; give one row per object, its files joined by " + "'
        )
    folders = name_objects(
        [
            [Path(f"{_UNSAFE.sub('_', title)}.x")] if title else group
            for title, group in zip(titles, groups, strict=True)
        ]
    )
    return [
        Target(
            name,
            tuple(group),
            _distance(f"{where}: line {line}: distance", row, units),
            _number(f"{where}: line {line}: offset", row.get("offset", "")),
            title or None,
        )
        for (name, _), group, title, (line, row) in zip(folders, groups, titles, table, strict=True)
    ], unused


def _table(path: Path) -> tuple[list[str], dict[str, str], list[tuple[int, list[str]]]]:
    try:
        if not path.is_file():
            raise UserError(
                f"--targets {path}: no such file; expected a table with columns {', '.join(TARGET_COLUMNS)}"
            )
        if path.stat().st_size > _LARGEST:
            raise UserError(f"--targets {path}: over {_LARGEST // 10**6} MB; expected a row per object")
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"--targets {path}: cannot be read ({error.strerror})") from None
    names, units, rows = read_words(path.name, data)
    lowered = [name.lower() for name in names]
    if len(set(lowered)) < len(names):
        raise UserError(f"{path.name}: two columns have one name; expected each of {', '.join(TARGET_COLUMNS)} once")
    return names, {name.lower(): unit for name, unit in units.items()}, rows


def _groups(
    where: str, folder: Path, table: list[tuple[int, dict[str, str]]], files: Sequence[Path], in_table: bool
) -> list[list[Path]]:
    """Files of each row."""
    if in_table:
        if files:
            raise UserError(f"{where}: it names the files itself; give either FILE... or a table with a column 'file'")
        for line, row in table:
            if not row["file"]:
                raise UserError(f"{where}: line {line}: no file; expected one, or several joined by ' + '")
        return [[folder / one.strip() for one in row["file"].split(_BETWEEN)] for _, row in table]
    if not files:
        raise UserError(
            f"{where}: no column 'file'; add it, or give the files: kappaflow retrieve FILE... --targets {where}"
        )
    if not all(row.get("name") for _, row in table):
        if len(files) != len(table):
            raise UserError(f"{where}: {len(table)} rows for {len(files)} files; expected as many, or a column 'name'")
        return [[file] for file in files]
    by_name = {name_objects([[file]])[0][0]: file for file in files}
    for line, row in table:
        if row["name"] not in by_name:
            there = ", ".join(list(by_name)[:4])
            raise UserError(f"{where}: line {line}: no file is called {row['name'][:40]!r}; there are {there}")
    left = set(by_name) - {row["name"] for _, row in table}
    if left:
        raise UserError(f"{where}: no row for {min(left)}; expected one for each file")
    return [[by_name[row["name"]]] for _, row in table]


def _distance(where: str, row: dict[str, str], units: dict[str, str]) -> Distance | None:
    pc, error = (
        _in_parsec(where, _number(where, row.get(key, "")), units.get(key)) for key in ("distance", "distance_error")
    )
    return as_distance(pc, error, where=where)


def _in_parsec(where: str, value: float | None, stated: str | None) -> float | None:
    if value is None or not stated:
        return value
    unit = parse_unit(stated)
    if unit is None or not unit.is_equivalent(u.pc):
        raise UserError(f"{where}: unit {stated[:20]!r}; expected a length, as pc (a parallax is not read)")
    return float((value * unit).to_value(u.pc))


def _number(where: str, word: str) -> float | None:
    if not word:
        return None
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{where}: {word[:24]!r}; expected a number, or nothing")
    return value
