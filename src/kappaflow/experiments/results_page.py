"""The page of results: a pure function of the items' JSON."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kappaflow.experiments.cells import LEGEND, markdown_table

__all__ = ["DISCUSSION", "TIMING", "duration", "item_page", "read_contents", "results_page"]

TIMING, DISCUSSION = "timing.json", "discussion.md"
SCHEMA = "kappaflow-experiment/1"


def read_contents(folder: Path) -> list[dict[str, Any]]:
    """Return the items' JSON in a folder, in the order of the page."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return sorted((one for one in found if one.get("schema") == SCHEMA), key=lambda one: one["order"])


def duration(seconds: float) -> str:
    """Write seconds as a reader wants them.

    Examples
    --------
    >>> duration(45), duration(600), duration(9000)
    ('45 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def item_page(content: dict[str, Any], figures: str = "") -> str:
    """Write one item in Markdown; `figures` is the path to the folder of the figures, ending in "/", or nothing."""
    name = content["item"]
    parts = [f"## {content['title']}", content["about"], f"Cells: {LEGEND}."]
    parts += [markdown_table(one) for one in content["tables"]]
    parts.append(f"![{content['title']}]({figures}{name}.png)")
    if content["claims"]:
        parts.append(_claims([content]))
    parts += [f"- {note}" for note in content["notes"]]
    parts.append(f"Made by `{content['command']}`.")
    return "\n\n".join(parts) + "\n"


def results_page(contents: Sequence[dict[str, Any]], folder: Path, figures: str = "") -> str:
    """Write all items on one page, with the time they took and what the author has to say, where `folder` has them."""
    first = contents[0]
    sizes = first["sizes"]
    lines = [
        "# The paper, re-run",
        'Every table and figure of Heraty (2026), "Amortized Opacity Marginalization Improves C/O Interval Calibration '
        "for Brown-Dwarf Retrievals\", made again by one command with this package's opacities, at the scale of preset "
        f"`{first['preset']}` with parameter set `{first['parameters']}`: {sizes['train']:,} spectra per training set "
        f"(the paper: 384,000), {sizes['test']:,} test objects, the same in every column, {sizes['draws']} draws per "
        "network and object.",
        f'In tables: {LEGEND}. Errors of coverage are binomial. "All parameters" is the mean over parameters, no '
        "simultaneous coverage.",
    ]
    timing = _timing(folder)
    if timing:
        lines.append(timing)
    said = folder / DISCUSSION
    if said.exists():
        lines.append(said.read_text(encoding="utf-8").strip())
    claims = _claims(contents)
    if claims:
        lines += ["## Aims, met and not met", claims]
    return "\n\n".join(lines) + "\n\n" + "\n".join(item_page(content, figures) for content in contents)


def _claims(contents: Sequence[dict[str, Any]]) -> str:
    rows = [(c["item"], one) for c in contents for one in c["claims"]]
    if not rows:
        return ""
    lines = ["| item | aim | wanted | ours | met |", "|---|---|---|---:|---|"]
    for item, one in rows:
        ours = "–" if one["ours"] is None else f"{one['ours']:,.3f}".rstrip("0").rstrip(".")
        lines.append(f"| {item} | {one['claim']} | {one['target']} | {ours} | {'yes' if one['met'] else '**no**'} |")
    return "\n".join(lines)


def _timing(folder: Path) -> str:
    path = folder / TIMING
    if not path.exists():
        return ""
    told = json.loads(path.read_text(encoding="utf-8"))
    kinds = ", ".join(f"{what} {duration(seconds)}" for what, seconds in told["seconds"].items())
    words = f"With {told['workers']} processes it took {duration(told['total'])} ({kinds})"
    planned = told["planned"]
    return words + (f"; `--plan` had said {duration(planned)}." if planned else ".")
