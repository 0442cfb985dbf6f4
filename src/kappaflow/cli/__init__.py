"""The command line: one module per command, loaded here, errors turned into one line and exit code 2."""

from __future__ import annotations

import importlib
import os
import sys

import typer

from kappaflow.errors import UserError
from kappaflow.storage import compiled_folder

__all__ = ["app", "main"]

app = typer.Typer(
    name="kappaflow",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Retrievals whose C/O error bars include the line lists.",
)

# Each module has `register(app)`. They import what is heavy inside their functions, so that --help is quick.
_COMMANDS: tuple[str, ...] = (
    "demo",
    "retrieve",
    "fit",
    "simulate",
    "train",
    "calibrate",
    "paper",
    "opacity",
    "chemistry",
    "cache",
)

for _name in _COMMANDS:
    importlib.import_module(f"kappaflow.cli.{_name}_command").register(app)


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit code 2."""
    compiled = compiled_folder()
    if (
        compiled is not None
    ):  # JAX reads it when it is imported, here and in the processes we start; in a library, never
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(compiled))
    try:
        app()
    except UserError as error:
        print(f"kappaflow: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("kappaflow: interrupted", file=sys.stderr)
        sys.exit(130)
