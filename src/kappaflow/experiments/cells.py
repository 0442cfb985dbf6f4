"""Tables of numbers with their error and the paper's value beside them: plain data, Markdown, terminal."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

__all__ = ["LEGEND", "Cell", "cell", "cell_text", "markdown_table", "print_tables", "table"]

LEGEND = "ours ± its standard error · *the paper's*"

# A number {"value", "error", "paper", "digits"}, or words.
Cell = dict[str, Any] | str


def cell(
    value: float | None, error: float | None = None, paper: float | None = None, *, digits: int = 3
) -> dict[str, Any]:
    """Return a number with its standard error and the paper's value, where there are any."""
    return {"value": value, "error": error, "paper": paper, "digits": digits}


def table(
    title: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[Cell]]], note: str = ""
) -> dict[str, Any]:
    """Return a table as plain data: `columns` name the cells of every row, which has a label of its own."""
    for label, cells in rows:
        if len(cells) != len(columns):
            raise ValueError(f"table {title!r}: row {label!r} has {len(cells)} cells for {len(columns)} columns")
    return {
        "title": title,
        "columns": list(columns),
        "rows": [{"label": label, "cells": list(cells)} for label, cells in rows],
        "note": note,
    }


def cell_text(content: Cell, mark: str = "*") -> str:
    """Write a cell: "0.871 ± 0.007 · *0.894*".

    Examples
    --------
    >>> cell_text(cell(0.8714, 0.0074, 0.894))
    '0.871 ± 0.007 · *0.894*'
    """
    if isinstance(content, str):
        return content
    words = "–" if content["value"] is None else _number(content["value"], content["digits"])
    if content["error"] is not None:
        words += f" ± {_number(content['error'], content['digits'])}"
    if content["paper"] is not None:
        words += f" · {mark}{_number(content['paper'], content['digits'])}{mark}"
    return words


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def markdown_table(content: dict[str, Any]) -> str:
    """Write a table in Markdown, with its title above and its note below."""
    head = ["", *content["columns"]]
    lines = [
        f"**{content['title']}**",
        "",
        "| " + " | ".join(head) + " |",
        "|---" + "|---:" * len(content["columns"]) + "|",
    ]
    lines += ["| " + " | ".join([row["label"], *map(cell_text, row["cells"])]) + " |" for row in content["rows"]]
    if content["note"]:
        lines += ["", content["note"]]
    return "\n".join(lines)


def print_tables(contents: Sequence[dict[str, Any]], console: Console) -> None:
    """Print tables to a terminal."""
    for content in contents:
        shown = RichTable(title=escape(content["title"]), title_justify="left", box=box.SIMPLE_HEAD)
        shown.add_column("")
        for name in content["columns"]:
            shown.add_column(escape(name), justify="right")
        for row in content["rows"]:
            shown.add_row(escape(row["label"]), *(escape(cell_text(one, "").replace("*", "")) for one in row["cells"]))
        console.print(shown)
        if content["note"]:
            console.print(escape(content["note"]), style="dim", soft_wrap=True)
