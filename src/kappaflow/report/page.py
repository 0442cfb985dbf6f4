"""One self-contained report.html: plain data in, a page that needs nothing else out.

No script, no outside resource, figures inlined; readable on a phone, in print, in light and in dark.
"""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kappaflow.errors import UserError
from kappaflow.storage import written_whole

__all__ = ["Figure", "Line", "Report", "Section", "Table", "write_report"]

_MEDIA = {".svg": "image/svg+xml", ".png": "image/png"}
_VERDICTS = {"pass": ("✓", "pass"), "warn": ("!", "warn"), "fail": ("✕", "fail")}

_OVERALL = {"pass": "Yes.", "warn": "With care.", "fail": "Not as it stands."}


@dataclass(frozen=True)
class Figure:
    """An image on disk (.svg or .png) with what it shows; `alt` for those who cannot see it."""

    path: str | os.PathLike[str]
    caption: str
    alt: str


@dataclass(frozen=True)
class Table:
    """Rows of text; numbers are formatted by whoever makes it. `strong` marks rows by index."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    strong: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Line:
    """One line of a trust card: `verdict` is pass, warn or fail."""

    name: str
    verdict: str
    value: str
    sentence: str


@dataclass(frozen=True)
class Section:
    """One object (or the overview of all): what is large, then trust, table, figures, notes."""

    title: str
    headline: str = ""
    detail: str = ""
    trust: Sequence[Line] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """The page: sections in order, and how it was made at the foot."""

    title: str
    subtitle: str = ""
    sections: Sequence[Section] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)


def write_report(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write `report` to `path`, whole or not at all."""
    body = "\n".join(_section(section, i) for i, section in enumerate(report.sections))
    contents = ""
    if len(report.sections) > 2:
        links = "".join(f'<li><a href="#s{i}">{_text(s.title)}</a></li>' for i, s in enumerate(report.sections))
        contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>'
    made = "".join(f"<dt>{_text(k)}</dt><dd>{_text(v)}</dd>" for k, v in report.provenance.items())
    page = _PAGE.format(
        title=_text(report.title),
        subtitle=f'<p class="sub">{_text(report.subtitle)}</p>' if report.subtitle else "",
        contents=contents,
        body=body,
        made=f"<footer><h2>How this was made</h2><dl>{made}</dl></footer>" if made else "",
        style=_STYLE,
    )
    target = Path(path)
    with written_whole(target) as part:
        part.write_text(page, encoding="utf-8")
    return target


def _text(value: object) -> str:
    """Escape, keep line breaks out, and let numbers keep their minus sign."""
    return html.escape(str(value), quote=True)


def _section(section: Section, number: int) -> str:
    parts = [f'<section id="s{number}"><h2>{_text(section.title)}</h2>']
    if section.headline:
        detail = f'<span class="detail">{_text(section.detail)}</span>' if section.detail else ""
        parts.append(f'<p class="headline"><strong>{_text(section.headline)}</strong>{detail}</p>')
    if section.trust:
        parts.append(_trust(section.trust))
    parts += [_figure(figure) for figure in section.figures]
    parts += [_table(table) for table in section.tables]
    if section.notes:
        parts.append("<ul class='notes'>" + "".join(f"<li>{_text(note)}</li>" for note in section.notes) + "</ul>")
    return "\n".join([*parts, "</section>"])


def _trust(lines: Sequence[Line]) -> str:
    rows = []
    for line in sorted(lines, key=lambda line: -_rank(line)):  # the worst first; sorted() keeps the order within
        if line.verdict not in _VERDICTS:
            raise UserError(f"report: verdict {line.verdict!r}; expected one of {', '.join(_VERDICTS)}")
        sign, word = _VERDICTS[line.verdict]
        rows.append(
            f'<li class="{line.verdict}"><span class="badge"><span aria-hidden="true">{sign}</span> {word}</span>'
            f'<span class="what"><b>{_text(line.name)}</b> <i>{_text(line.value)}</i><br>'
            f"{_text(line.sentence)}</span></li>"
        )
    counts = [sum(line.verdict == v for line in lines) for v in _VERDICTS]
    said = ", ".join(f"{n} {word}" for n, (_, word) in zip(counts, _VERDICTS.values(), strict=True) if n)
    overall = "fail" if counts[2] else "warn" if counts[1] else "pass"
    return (
        f'<div class="trust"><h3>Can this be trusted? <b class="{overall}">{_OVERALL[overall]}</b> '
        f"<small>{said}</small></h3><ul>{''.join(rows)}</ul></div>"
    )


def _rank(line: Line) -> int:
    return list(_VERDICTS).index(line.verdict) if line.verdict in _VERDICTS else -1


def _table(table: Table) -> str:
    for i, row in enumerate(table.rows):
        if len(row) != len(table.header):
            raise UserError(f"report: row {i} has {len(row)} cells; expected {len(table.header)}, as in the header")
    head = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in table.header)
    body = "".join(
        f"<tr{' class=strong' if i in table.strong else ''}>"
        + f'<th scope="row">{_text(row[0])}</th>'
        + "".join(f"<td>{_text(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for i, row in enumerate(table.rows)
    )
    caption = f"<caption>{_text(table.caption)}</caption>" if table.caption else ""
    return f'<div class="scroll"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _figure(figure: Figure) -> str:
    path = Path(figure.path)
    media = _MEDIA.get(path.suffix.lower())
    if media is None:
        raise UserError(f"report: {path.name}: expected a figure as .svg or .png")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"report: {path.name}: cannot be read ({error.strerror})") from None
    data = base64.b64encode(content).decode()
    # A PNG states its width in bytes 16 to 20; two of its pixels to one of the page keep small figures small and sharp.
    width = f' width="{int.from_bytes(content[16:20], "big") // 2}"' if media == "image/png" else ""
    # As an image an SVG cannot run or fetch anything, whatever it holds.
    return (
        f'<figure><img src="data:{media};base64,{data}" alt="{_text(figure.alt)}"{width}>'
        f"<figcaption>{_text(figure.caption)}</figcaption></figure>"
    )


_STYLE = """
:root{color-scheme:light dark;--ink:#1c242c;--soft:#55616c;--ground:#f6f7f8;--card:#fff;--rule:#d9dee3;--link:#0b5fa5;
--pass:#1d7a46;--warn:#9a6200;--fail:#b3261e}
@media (prefers-color-scheme:dark){:root{--ink:#e6eaee;--soft:#a3adb7;--ground:#13181d;--card:#1c2329;--rule:#343d46;
--link:#7db9ee;--pass:#63c58d;--warn:#e5b04b;--fail:#ff8a80}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem 3rem}
h1{font-size:1.7rem;line-height:1.2;margin:.3rem 0}h2{font-size:1.3rem;margin:0 0 .6rem}
h3{font-size:1.05rem;margin:0 0 .5rem}
.sub,.detail,figcaption,caption,footer,small{color:var(--soft)}
.sub{margin:.2rem 0 1rem}small{font-weight:400;font-size:.9rem;margin-left:.4rem}
a{color:var(--link)}nav ul{display:flex;flex-wrap:wrap;gap:.3rem 1rem;list-style:none;padding:0;margin:0 0 1rem}
section{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:1.1rem;margin:0 0 1.2rem}
.headline{margin:.2rem 0 1rem;display:flex;flex-wrap:wrap;gap:.2rem .8rem;align-items:baseline}
.headline strong{font-size:1.6rem;font-variant-numeric:tabular-nums}
.trust{margin:0 0 1.2rem}.trust ul{list-style:none;margin:0;padding:0}
.trust li{display:flex;gap:.8rem;padding:.45rem 0;border-top:1px solid var(--rule);align-items:flex-start}
.badge{flex:0 0 4.4rem;text-align:center;border:1.5px solid;border-radius:99px;font-size:.85rem;font-weight:600;
padding:.05rem 0;margin-top:.1rem}
.pass .badge,b.pass{color:var(--pass)}.warn .badge,b.warn{color:var(--warn)}.fail .badge,b.fail{color:var(--fail)}
.what{min-width:0}.what i{color:var(--soft);font-style:normal;margin-left:.3rem;font-variant-numeric:tabular-nums}
figure{margin:0 0 1.2rem}
figure img{display:block;max-width:100%;height:auto;margin:0 auto;background:#fff;border-radius:6px;padding:.3rem}
figcaption{font-size:.92rem;margin-top:.35rem}
.scroll{overflow-x:auto;margin:0 0 1rem}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
caption{text-align:left;font-size:.92rem;padding-bottom:.4rem}
th,td{padding:.32rem .6rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap;font-weight:400}
thead th{font-weight:600;border-bottom-width:2px}
th:first-child{text-align:left;position:sticky;left:0;background:var(--card)}
tr.strong th,tr.strong td{font-weight:700}
.notes{margin:0;padding-left:1.2rem;color:var(--soft)}
footer{font-size:.9rem;padding:0 .2rem}footer h2{font-size:1rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0}dd{margin:0;overflow-wrap:anywhere}
@media (max-width:34rem){main{padding:1rem .6rem}section{padding:.8rem}.headline strong{font-size:1.35rem}
dl{grid-template-columns:1fr}dt{font-weight:600}th:first-child{white-space:normal;overflow-wrap:anywhere;min-width:7rem}
th,td{padding:.3rem .45rem;font-size:.92rem}}
@media print{:root{--ink:#000;--soft:#333;--ground:#fff;--card:#fff;--rule:#bbb;
--pass:#155d35;--warn:#6e4600;--fail:#8c1d16}
body{font-size:10.5pt}main{max-width:none;padding:0}section{border:0;padding:0;break-inside:auto}
figure,.trust li,tr{break-inside:avoid}figure img{max-height:12cm;width:auto}
h2,h3{break-after:avoid}nav{display:none}.scroll{overflow:visible}}
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<header><h1>{title}</h1>{subtitle}</header>
{contents}
{body}
{made}
</main>
</body>
</html>
"""
