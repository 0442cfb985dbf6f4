"""Files written whole or not at all, and digests that name what they hold."""

import csv
import glob
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_path

__all__ = [
    "cache_folder",
    "compiled_folder",
    "digest",
    "digest_arrays",
    "file_digest",
    "folder_written_whole",
    "write_json",
    "write_rows",
    "written_whole",
]


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield `NAME.PID.part` beside `path`; on success fsync and rename it onto `path`, on failure remove it.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with written_whole(target) as part:
    ...     _ = part.write_text("all of it")
    >>> target.read_text()
    'all of it'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        with part.open("r+b") as stream:  # Windows flushes no file that was opened for reading
            os.fsync(stream.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_json(path: str | os.PathLike[str], content: Any, *, allow_nan: bool = True) -> None:
    """Write `content` as JSON, whole or not at all."""
    with written_whole(path) as part:
        part.write_text(json.dumps(content, indent=1, allow_nan=allow_nan) + "\n", encoding="utf-8")


def write_rows(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write `rows` as CSV under the union of their keys, whole or not at all."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    with written_whole(path) as part, part.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, names)
        writer.writeheader()
        writer.writerows(rows)


@contextmanager
def folder_written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield an empty hidden folder beside `path`; on success it takes the place of `path`, on failure it is removed.

    Of a folder that is replaced, files that the body did not write and the last body did not list in its
    `summary.json` (`files`) are someone else's: they are kept. A run killed between the two renames leaves the
    old folder under a hidden name; the next one puts it back.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in sorted(path.parent.glob(f".{glob.escape(path.name)}.*.old")):
        left.replace(path) if not path.exists() else shutil.rmtree(left)
    part, old = (path.with_name(f".{path.name}.{os.getpid()}.{kind}") for kind in ("part", "old"))
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        yield part
        if path.is_dir():
            path.replace(old)
        part.replace(path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        if old.is_dir() and not path.exists():
            old.replace(path)
        raise
    if old.is_dir():
        for theirs in _not_ours(old):
            if not (path / theirs.name).exists():
                theirs.replace(path / theirs.name)
        shutil.rmtree(old)


def _not_ours(folder: Path) -> list[Path]:
    """Files of `folder` that its summary.json does not list; without one, all."""
    try:
        ours = set(json.loads((folder / "summary.json").read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        ours = set()
    return [path for path in folder.iterdir() if path.name not in ours]


def digest(content: Any) -> str:
    """Sixteen hex digits of the SHA-256 of `content` written as canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(path: str | os.PathLike[str]) -> str:
    """Sixteen hex digits of the SHA-256 of a file's bytes."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]


def digest_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """Sixteen hex digits of the SHA-256 over names, dtypes, shapes and bytes of `arrays`, in order of name."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()[:16]


def cache_folder() -> Path | None:
    """Return the folder in KAPPAFLOW_CACHE, or the user's own; None where KAPPAFLOW_CACHE is "off"."""
    named = os.environ.get("KAPPAFLOW_CACHE")
    if named == "off":
        return None
    return Path(named) if named else user_cache_path("kappaflow", appauthor=False)


def compiled_folder() -> Path | None:
    """Return where the command line lets JAX keep compiled programs: beside the prepared arrays."""
    folder = cache_folder()
    return None if folder is None else folder / "compiled"
