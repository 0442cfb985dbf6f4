"""One self-contained report.html: plain data in, a page that needs nothing else out.

No outside resource, figures inlined; readable on a phone, in print, in light and in dark. `page.html` is the template;
everything put into it is escaped there. The one script, where a table can be sorted, is our own, and the page's policy
allows no other: it names its hash.
"""

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from kappaflow.errors import UserError
from kappaflow.retrieval.trust import GRADES, Check, Grade, worst
from kappaflow.storage import written_whole

__all__ = ["Figure", "Report", "Section", "Table", "write_report"]

_MEDIA = {".svg": "image/svg+xml", ".png": "image/png"}
WIDE = 520  # pixels of the page
_SIGNS = {"pass": "✓", "warn": "!", "fail": "✕"}
_ANSWERS = {"pass": "Yes.", "warn": "With care.", "fail": "Not as it stands."}


@dataclass(frozen=True)
class Figure:
    """An image on disk (.svg or .png) with what it shows; `alt` for those who cannot see it."""

    path: str | os.PathLike[str]
    caption: str
    alt: str

    def _content(self) -> tuple[str, bytes]:
        """Media type and bytes."""
        path = Path(self.path)
        if path.suffix.lower() not in _MEDIA:
            raise UserError(f"report: {path.name}: expected a figure as .svg or .png")
        try:
            return _MEDIA[path.suffix.lower()], path.read_bytes()
        except OSError as error:
            raise UserError(f"report: {path.name}: cannot be read ({error.strerror})") from None

    @property
    def inlined(self) -> str:
        """The image as a data URL; as an image an SVG cannot run or fetch anything, whatever it holds."""
        media, content = self._content()
        return f"data:{media};base64,{base64.b64encode(content).decode()}"

    @property
    def width(self) -> int | None:
        """Pixels of the page: half of a PNG's own (its bytes 16 to 20), which keeps small figures small and sharp."""
        media, content = self._content()
        return int.from_bytes(content[16:20], "big") // 2 if media == "image/png" else None

    @property
    def wide(self) -> bool:
        """Whether its letters would be too small to read at the width of a phone."""
        return (self.width or 0) > WIDE


@dataclass(frozen=True)
class Table:
    """Rows of text; numbers are formatted by whoever makes it. `strong` marks rows by index."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    strong: frozenset[int] = frozenset()
    links: Sequence[str] = ()  # of the first cells: relative addresses, one per row; "" where there is none
    sortable: bool = False  # by a click on a column's head

    def __post_init__(self) -> None:
        for i, row in enumerate(self.rows):
            if len(row) != len(self.header):
                raise UserError(f"report: row {i} has {len(row)} cells; expected {len(self.header)}, as in the header")


@dataclass(frozen=True)
class Section:
    """One object (or the overview of all): what is large, then trust, figures, tables, notes, facts."""

    title: str
    headline: str = ""
    detail: str = ""
    trust: Sequence[Check] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)  # what was read, and how
    methods: str = ""  # a paragraph for a paper

    @property
    def verdict(self) -> Grade:
        """The worst grade of the trust card."""
        return worst(self.trust)

    @property
    def worst_first(self) -> list[Check]:
        """The checks, those that say no before the others."""
        return sorted(self.trust, key=lambda check: -GRADES.index(check.verdict))

    @property
    def counts(self) -> str:
        """How many checks have each grade, in words."""
        counts = {grade: sum(check.verdict == grade for check in self.trust) for grade in GRADES}
        return ", ".join(f"{n} {grade}" for grade, n in counts.items() if n)


@dataclass(frozen=True)
class Report:
    """The page: sections in order, and how it was made at the foot."""

    title: str
    subtitle: str = ""
    sections: Sequence[Section] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)


def write_report(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write `report` to `path`, whole or not at all."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(
        loader=PackageLoader("kappaflow", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    sorts = any(table.sortable for section in report.sections for table in section.tables)
    script = (resources.files("kappaflow.report") / "sorting.js").read_text(encoding="utf-8") if sorts else ""
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() if sorts else ""
    page = pages.get_template("page.html").render(
        report=report, signs=_SIGNS, answers=_ANSWERS, script=script, allowed=allowed
    )
    target = Path(path)
    with written_whole(target) as part:
        part.write_text(page, encoding="utf-8")
    return target
