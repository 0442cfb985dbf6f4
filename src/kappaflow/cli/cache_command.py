"""`kappaflow cache`: the prepared tables that are kept on disk."""

import json
import time
from typing import Annotated

import typer

from kappaflow.cli.command_line import CommandLine

__all__ = ["cache"]

cache = CommandLine(
    no_args_is_help=True,
    help="Prepared tables, kept so that the forward model loads in a second: see them, remove them.",
)


@cache.command()
def info(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Say where the prepared tables are and what is there.

    The environment variable KAPPAFLOW_CACHE names another folder, or "off".

    Example: kappaflow cache info
    """
    from kappaflow.model.cache import cache_entries
    from kappaflow.storage import cache_folder

    folder, entries = cache_folder(), cache_entries()
    if as_json:
        print(json.dumps({"folder": None if folder is None else str(folder), "sets": entries}, indent=2))
        return
    total = sum(entry["bytes"] for entry in entries)
    print(f"{'off' if folder is None else folder}: {len(entries)} sets, {total / 1e9:.2f} GB")
    for entry in entries:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry["used"]))
        sizes = ", ".join(f"{name} {value}" for name, value in entry.get("sizes", {"not readable": ""}).items())
        print(f"  {entry['key']}  {entry['bytes'] / 1e9:.2f} GB  last used {used}  {sizes}")


@cache.command()
def clear(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Remove the prepared tables; the next use makes them again.

    Example: kappaflow cache clear
    """
    from kappaflow.model.cache import clear_cache

    freed = clear_cache()
    print(json.dumps({"freed_bytes": freed}) if as_json else f"freed {freed / 1e9:.2f} GB")
