"""A job as it is kept on disk: uploads, how to read them, the objects to retrieve, and what came of it."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from kappaflow.errors import UserError
from kappaflow.parameters import DRAWS

__all__ = [
    "HINTS",
    "METHODS",
    "SCHEMA",
    "Asked",
    "Job",
    "JobObject",
    "State",
    "Upload",
    "checked_hints",
    "folder_names",
    "plain_name",
]

SCHEMA = "kappaflow-job-1"
State = Literal["draft", "queued", "running", "done", "failed", "cancelled"]
METHODS = ("refined", "amortized")  # what the page offers, the default first
HINTS = ("wavelength_unit", "flux_unit", "medium", "columns", "source", "detector_offset", "mask")
_LONGEST = 120  # letters of a name, a unit or a list of columns
_UNSAFE = re.compile(r"[^A-Za-z0-9+_.-]+")


@dataclass(frozen=True)
class Upload:
    """One uploaded file: the server's name for it, the client's (text, never a path), and what reading it gave."""

    key: str  # of the file in the job's folder `uploads`
    name: str
    size: int
    hints: dict[str, Any] = field(default_factory=dict)
    as_read: dict[str, Any] | None = None
    error: str | None = None


@dataclass(frozen=True)
class JobObject:
    """One object to retrieve: keys of its uploads (several are merged), and what only its observer knows."""

    title: str
    uploads: tuple[str, ...]
    distance: float | None = None
    distance_error: float | None = None


@dataclass(frozen=True)
class Asked:
    """How to retrieve: which of METHODS, how many draws, the seed."""

    method: str = METHODS[0]
    draws: int = DRAWS
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UserError(f"method: {str(self.method)[:20]!r}; expected {' or '.join(METHODS)}")
        whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (self.draws, self.seed))
        if not whole or not 100 <= self.draws <= 100_000 or not 0 <= self.seed < 2**31:
            raise UserError("draws and seed: expected whole numbers, 100 to 100,000 draws and a seed of at least 0")


@dataclass(frozen=True)
class Job:
    """One job, immutable: every change is a new one, saved whole."""

    id: str
    created: str
    state: State = "draft"
    uploads: tuple[Upload, ...] = ()
    objects: tuple[JobObject, ...] = ()
    asked: Asked = Asked()
    attempts: int = 0  # times it was started
    started: str | None = None
    finished: str | None = None
    error: str | None = None
    outcomes: tuple[dict[str, Any], ...] = ()  # a row per object, as in summary.csv

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for job.json and for the page."""
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Job:
        """Make a job from its plain data; raises KeyError, TypeError or ValueError where it is none."""
        plain = dict(plain)
        if plain.pop("schema") != SCHEMA:
            raise ValueError("another schema")
        plain["objects"] = tuple(JobObject(**{**one, "uploads": tuple(one["uploads"])}) for one in plain["objects"])
        plain["uploads"] = tuple(Upload(**one) for one in plain["uploads"])
        plain["outcomes"] = tuple(plain["outcomes"])
        plain["asked"] = Asked(**plain["asked"])
        return cls(**plain)

    def upload(self, key: str) -> Upload:
        """Return the upload that the server calls `key`."""
        for one in self.uploads:
            if one.key == key:
                return one
        raise UserError("no such file in this job")

    def with_upload(self, upload: Upload) -> Job:
        """Return the job with `upload` in the place of the one of its key, or added."""
        kept = [upload if one.key == upload.key else one for one in self.uploads]
        return replace(self, uploads=tuple(kept) if upload in kept else (*self.uploads, upload))


def plain_name(text: str, default: str = "spectrum") -> str:
    r"""Return a client's name as text to show: the last part of a path, without what is no letter, sign or blank.

    Examples
    --------
    >>> plain_name("../../etc/pass\x00wd\u202e"), plain_name("C:\\data\\x1d.fits"), plain_name("..")
    ('passwd', 'x1d.fits', 'spectrum')
    """
    last = re.split(r"[/\\]", text)[-1]
    shown = "".join(c for c in last if unicodedata.category(c)[0] not in "CZ" or c == " ").strip()[:_LONGEST].strip()
    return shown if shown.strip(". ") else default


def folder_names(titles: list[str]) -> list[str]:
    """Make distinct names of folders from titles: ASCII letters, digits, + - _ and . inside.

    Examples
    --------
    >>> folder_names(["Wolf 1130 C", "wolf_1130_c", "../x", "λ"])
    ['Wolf_1130_C', 'wolf_1130_c-2', 'x', 'object']
    """
    taken: set[str] = set()
    names = []
    for title in titles:
        stem = _UNSAFE.sub("_", title).strip("._-+ ")[:60].strip("._-+ ") or "object"
        name, count = stem, 1
        while name.lower() in taken:  # some disks do not tell A from a
            count += 1
            name = f"{stem}-{count}"
        taken.add(name.lower())
        names.append(name)
    return names


def checked_hints(given: Any) -> dict[str, Any]:
    """Return what a client says of how to read a file, plain and short; units and names are judged by the reader."""
    if not isinstance(given, dict) or not set(given) <= set(HINTS):
        raise UserError(f"how to read it: expected some of {', '.join(HINTS)}")
    hints: dict[str, Any] = {}
    for key, value in given.items():
        if value in (None, "", []):
            continue
        if key == "detector_offset":
            hints[key] = number("detector offset", value)
        elif key == "mask":
            words = value.replace(",", " ").split() if isinstance(value, str) else value
            if not isinstance(words, list) or len(words) > 50 or not all(isinstance(word, str) for word in words):
                raise UserError("mask: expected ranges LOW:HIGH in um, as 4.2:4.4")
            hints[key] = [word[:_LONGEST] for word in words]
        elif isinstance(value, str):
            hints[key] = value.strip()[:_LONGEST]
        else:
            raise UserError(f"{key.replace('_', ' ')}: expected text")
    return hints


def number(what: str, value: Any) -> float | None:
    """Return a finite number from what a client sent; nothing stays None."""
    if value is None or value == "":
        return None
    try:
        found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else float("nan")
    except (ValueError, OverflowError):
        found = float("nan")
    if not abs(found) < 1e300:  # nan too
        raise UserError(f"{what}: {str(value)[:24]!r}; expected a number, or nothing")
    return found
