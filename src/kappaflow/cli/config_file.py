"""`--config FILE`: options from a JSON file, also the config.json of `kappaflow simulate`; the command line wins."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from kappaflow.errors import UserError

__all__ = ["ConfigFile", "is_set", "read_settings", "stated_sigma"]

_LARGEST = 1_000_000  # bytes


def read_settings(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file of settings, a mapping."""
    try:
        if path.stat().st_size > _LARGEST:
            raise UserError(f"--config {path}: over {_LARGEST // 10**6} MB; expected a JSON file of options")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"--config {path}: cannot be read ({error.strerror}); expected a JSON file of options"
        ) from None
    except (ValueError, RecursionError):
        raise UserError(
            f"--config {path}: not JSON; expected a file like the config.json of kappaflow simulate"
        ) from None
    if not isinstance(content, dict):
        raise UserError(f'--config {path}: expected a mapping of options, as {{"preset": "tiny", "n": 1024}}')
    return content


def is_set(content: dict[str, Any]) -> bool:
    """Whether this is the config.json of a directory of shards."""
    return isinstance(content.get("config"), dict) and str(content.get("schema", "")).startswith("kappaflow-shards")


def _words(name: str, value: Any) -> Any:
    """Return a setting as its option takes it: ranges and pairs as text."""
    if name == "amplitude" and isinstance(value, list | dict):
        ends = value if isinstance(value, list) else [value.get(k) for k in ("low", "high", "at_zero", "at_one")]
        return ":".join(map(str, ends))
    if name == "axes" and isinstance(value, list):
        return ",".join(value)
    if name in ("pin", "exclude"):
        pairs = value.items() if isinstance(value, dict) else value
        return ["=".join(pair) if isinstance(pair, list | tuple) else pair for pair in pairs]
    if name == "broadening" and isinstance(value, list):
        return [",".join(map(str, pair)) if isinstance(pair, list) else pair for pair in value]
    return value


def _options(command: str, path: Path) -> dict[str, Any]:
    """Options of `command` that the file states."""
    content = read_settings(path)
    if not is_set(content):
        return {name.replace("-", "_"): _words(name, value) for name, value in content.items()}
    if command == "train":
        return {"data": str(path.parent)}
    fields = {name: _words(name, value) for name, value in content["config"].items() if name not in ("model", "sigma")}
    fields["toy"] = content["config"].get("model") == "toy"
    return fields | {"seed": content.get("seed", 0), "n": content.get("spectra")}


def _apply(ctx: typer.Context, value: Path | None) -> Path | None:
    """Make the file's settings the command's defaults; an option that is not one of its own is refused."""
    if value is None or ctx.resilient_parsing:
        return value
    name = ctx.command.name or ""
    stated = _options(name, value)
    known = {param.name for param in ctx.command.params} - {"config", "check"}
    unknown = sorted(set(stated) - known)
    if unknown:
        raise UserError(
            f"--config {value}: {unknown[0]!r} is no option of {name}; expected some of {', '.join(sorted(known))}"
        )
    ctx.default_map = {**(ctx.default_map or {}), **stated}
    return value


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        callback=_apply,
        is_eager=True,
        help="JSON file of options, or the config.json of a simulated set; what is given beside it wins.",
    ),
]


def stated_sigma(path: Path | None, opacity: Path | None) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Widths of the field that a simulated set's config.json states, which no option of `simulate` holds.

    A set made with another opacity table than the packaged one needs it named: the file has its digest, not its place.
    """
    if path is None:
        return ()
    content = read_settings(path)
    if not is_set(content):
        return ()
    needed = (content.get("opacity") or {}).get("digest")
    if opacity is None and needed is not None and content["config"].get("model") != "toy":
        from kappaflow.tables.table_names import table_name

        there = table_name()
        if there.digest != needed:
            raise UserError(
                f"--config {path}: made with opacity table {needed}, the packaged one is {there}; give its own with "
                "--opacity FILE"
            )
    try:
        return tuple((species, tuple(map(float, widths))) for species, widths in content["config"].get("sigma", ()))
    except (TypeError, ValueError):
        raise UserError(f"--config {path}: 'sigma' is not as kappaflow simulate writes it") from None
