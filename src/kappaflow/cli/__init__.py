"""The command line: one module per command, loaded here, errors turned into one line and exit code 2."""

import gc
import importlib
import os
import sys
from typing import Annotated

import typer

from kappaflow.cli.command_line import CommandLine, one_line
from kappaflow.storage import compiled_folder

__all__ = ["app", "main"]

app = CommandLine(
    name="kappaflow",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

# NAME_command has NAME, a command (its help is HELP, or its docstring) or a group of them; what is heavy is imported
# inside the functions, so that --help is quick.
_COMMANDS = (
    "demo",
    "retrieve",
    "fit",
    "reference",
    "serve",
    "simulate",
    "train",
    "calibrate",
    "paper",
    "opacity",
    "chemistry",
    "cache",
)


def _version(asked: bool) -> None:
    if asked:
        from kappaflow import __version__

        print(f"kappaflow {__version__}")
        raise typer.Exit


@app.callback(help="Retrievals whose C/O error bars include the line lists.")
def _whole(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Take what stands before the command's name."""


for _name in _COMMANDS:
    _module = importlib.import_module(f"kappaflow.cli.{_name}_command")
    if isinstance(_entry := getattr(_module, _name), typer.Typer):
        app.add_typer(_entry, name=_name)
    else:
        app.command(_name, help=getattr(_module, "HELP", None))(_entry)


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit code 2."""
    # Imports and figures make millions of small objects that stay: walking them again and again takes over a second.
    gc.set_threshold(100_000)
    compiled = compiled_folder()
    if compiled is not None:  # JAX reads it when imported, here and in the processes we start; in a library, never
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(compiled))
    try:
        app(prog_name="kappaflow")  # its name in help and completion, also where it runs as `python -m kappaflow`
    except Exception as error:
        told = one_line(error)
        if told is None:
            raise
        print(f"kappaflow: {told}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("kappaflow: interrupted", file=sys.stderr)
        sys.exit(130)
