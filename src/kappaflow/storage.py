"""Files written whole or not at all, and digests that name what they hold."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_path

__all__ = ["cache_folder", "compiled_folder", "digest", "digest_arrays", "written_whole"]


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


def digest(content: Any) -> str:
    """Sixteen hex digits of the SHA-256 of `content` written as canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
