"""What every command shares: options given once, a place that can be written, extras that are there, Ctrl-C."""

import errno
import importlib.util
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from kappaflow.errors import UserError

__all__ = [
    "AsOne",
    "CheckedCommand",
    "CheckedGroup",
    "CommandLine",
    "FluxUnit",
    "WavelengthUnit",
    "need_extra",
    "one_line",
    "refuse_unwritable",
]

# Options of every command that reads telescope files.
AsOne = Annotated[bool, typer.Option("--merge", help="All FILEs are one object (NRS1 and NRS2, dithers).")]
WavelengthUnit = Annotated[str | None, typer.Option(help="um, nm, Angstrom, cm-1: where the file is silent.")]
FluxUnit = Annotated[str | None, typer.Option(help="mJy, erg/s/cm2/um, W/m2/um...: where the file is silent.")]

# Module -> the extra of pyproject.toml that brings it; torch's TensorBoard writer and dev tools are of `dev`.
EXTRAS = {
    "dask": "cluster",
    "dask_jobqueue": "cluster",
    "distributed": "cluster",
    "exogibbs": "build",
    "exojax": "build",
    "hapi": "build",
    "lightning_fabric": "gpu",
    "numba": "build",
    "numpyro": "reference",
    "pyfastchem": "build",
    "starlette": "web",
    "tensorboard": "dev",
    "uvicorn": "web",
}
# What a disk or its owner refuses: the user's to mend, and no traceback helps.
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}


_UsageError: Any = typer.BadParameter.__mro__[1]  # click's, or that of the copy of click inside newer typers


class CheckedCommand(TyperCommand):
    """A command that refuses an option given twice, of which only the last would count, and an --out it cannot write.

    Both before the command's own function runs, hence before anything heavy is loaded.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, but not over a repeated option; a mistake is one line."""
        with _one_line_each(ctx):
            if not ctx.resilient_parsing:  # shell completion parses half a line
                self._refuse_repeated(ctx, args)
            return super().parse_args(ctx, args)

    def _refuse_repeated(self, ctx: Any, args: list[str]) -> None:
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for option, count in Counter(order).items():
            once = option.param_type_name == "option" and not getattr(option, "multiple", False)
            if once and count > 1:
                name = max(option.opts, key=len)
                remedy = "; a distance for each object goes into --targets FILE" if "distance" in name else ""
                raise UserError(f"{name}: given {count} times, and only the last would count; give it once{remedy}")

    def invoke(self, ctx: Any) -> Any:
        """Run the command's function; interrupted, say what to do."""
        for name in ("out", "save_draws"):
            if isinstance(ctx.params.get(name), Path):
                refuse_unwritable(ctx.params[name], f"--{name.replace('_', '-')}")
        if isinstance(ctx.params.get("out"), Path):
            _refuse_other_kind(ctx.params["out"], next(option for option in self.params if option.name == "out"))
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            more = "; the same command with --resume goes on" if "resume" in ctx.params else ""
            print(f"kappaflow: interrupted{more}", file=sys.stderr)
            raise typer.Exit(130) from None


class CheckedGroup(TyperGroup):
    """Commands of which one that is not there is refused in a line."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command."""
        with _one_line_each(ctx):
            return super().resolve_command(ctx, args)


@contextmanager
def _one_line_each(ctx: Any) -> Iterator[None]:
    """Turn what the parser has to say, a box of several lines, into a mistake like all others."""
    try:
        yield
    except _UsageError as error:
        told = " ".join(error.format_message().split()).removesuffix(".")
        raise UserError(f"{told} (see `{ctx.command_path} --help`)") from None


class CommandLine(typer.Typer):
    """A `typer.Typer` whose commands are all checked ones."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": CheckedGroup, **options})

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:  # type: ignore[override]
        """Add a command, as typer does."""
        return super().command(name, **{"cls": CheckedCommand, **options})


def refuse_unwritable(path: Path, option: str) -> None:
    """Refuse a file or folder that cannot be made or written, before hours are spent on its content."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    if there != path and not there.is_dir():
        raise UserError(f"{option} {path}: {there} is a file; expected a folder there: choose another place")
    try:
        if there.is_dir():
            tempfile.TemporaryFile(dir=there).close()  # asks the disk itself: permissions do not say all
        else:
            there.open("r+b").close()
    except OSError as error:
        raise UserError(
            f"{option} {path}: {there} cannot be written ({error.strerror}); choose another place"
        ) from None


def _refuse_other_kind(out: Path, option: Any) -> None:
    """Refuse a file where a folder will be written, and the reverse: a default with a suffix is a file's."""
    if isinstance(option.default, Path) and option.default.suffix:
        if out.is_dir():
            raise UserError(f"--out {out}: a folder; expected a file to write: name one, like {out / option.default}")
    elif out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: a file; expected a folder: choose another place")


def need_extra(module: str) -> None:
    """Refuse in one line what needs a module that an extra of ours would bring."""
    if importlib.util.find_spec(module) is None:
        raise UserError(_missing(module))


def _missing(module: str) -> str:
    return f"{module} is not installed; run pip install 'kappaflow[{EXTRAS[module]}]'"


def one_line(error: BaseException) -> str | None:
    """Return what to tell the user of `error` instead of a traceback; None where it is our own mistake."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        return _missing(module) if module in EXTRAS else None
    if isinstance(error, OSError) and error.errno in _DISK:
        return f"{error.filename or 'a file'}: {error.strerror}; free or choose another place"
    return None
