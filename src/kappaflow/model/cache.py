"""Prepared arrays kept on disk, one file per set, and mapped into memory: processes that use one set share its pages.

A file is one line of JSON, padded so that the arrays that follow lie on 64-byte boundaries, where JAX takes them
without a copy. Its name is the digest of everything that decides the arrays: the bytes of the table files, the sizes,
the broadening, the CIA family, the code. Whatever is wrong with the folder or a file, the arrays are made again.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from filelock import FileLock

from kappaflow.model.arrays import PreparedArrays
from kappaflow.presets import Preset
from kappaflow.storage import cache_folder, compiled_folder, digest, written_whole
from kappaflow.tables.chemistry import CHEMISTRY
from kappaflow.tables.cia import CIA
from kappaflow.tables.opacity import OPACITY

__all__ = ["CODE", "cache_entries", "cached", "clear_cache", "prepared_key"]

SCHEMA = "kappaflow-prepared/1"
ALIGNMENT = 64  # bytes, of XLA's processor buffers
LONGEST_LINE = 1 << 20
LIMIT = 8e9  # bytes; beyond it the sets used longest ago go
PATIENCE = 600  # s to wait for another process that makes the same set
# The modules whose change may change an array. Of physics/, only the names of fields count: a set that lacks one fails.
CODE = (
    "constants.py",
    "instrument.py",
    "parameters.py",
    "model/arrays.py",
    "model/detector_matrix.py",
    "model/line_terms.py",
    "model/prepare.py",
    "tables/checked_file.py",
    "tables/chemistry.py",
    "tables/cia.py",
    "tables/field_prior.py",
    "tables/opacity.py",
)


def prepared_key(
    opacity: str | os.PathLike[str] | None,
    sizes: Preset,
    broadening: tuple[float, float],
    cia: str,
    parameters: str = "paper",
) -> str:
    """Digest of all that decides the arrays.

    Files count by their bytes, not by the digest they claim: an edited table must not find the arrays of the old one.
    """
    tables = (OPACITY.path(opacity), CHEMISTRY.path(), CIA.path())
    code = [resources.files("kappaflow").joinpath(name) for name in CODE]
    return digest(
        {
            "schema": SCHEMA,
            "files": [hashlib.sha256(file.read_bytes()).hexdigest() for file in (*tables, *code)],
            "libraries": [np.__version__, scipy.__version__],
            "sizes": sizes.model_dump(include={"stride", "layers", "pixel_bin"}),
            "broadening": list(broadening),
            "cia": cia,
            "parameters": parameters,
        }
    )


def cached(key: str, make: Callable[[], PreparedArrays]) -> PreparedArrays:
    """Return the set `key` from the disk, or `make` and keep it; processes that want the same one make it once."""
    folder = cache_folder()
    if folder is None:
        return make()
    path = folder / f"{key}.prepared"
    found = _read(path, key)
    if found is not None:
        return found
    with _alone(path):
        found = _read(path, key)  # made by another process meanwhile
        if found is None:
            made = make()
            try:
                _write(path, key, made)
                _prune(folder, keep=path)
            except OSError:  # no room, no right to write: then do without
                return made
            found = _read(path, key) or made
    return found


def _write(path: Path, key: str, prepared: PreparedArrays) -> None:
    layout, offset, total = {}, 0, 0
    for name, array in prepared.arrays.items():
        layout[name] = [array.dtype.str, list(array.shape), offset]
        offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        total += _checksum(np.ravel(array).view(np.uint8))
    content = {
        "schema": SCHEMA,
        "key": key,
        "names": {species: list(names) for species, names in prepared.names.items()},
        "meta": dict(prepared.meta),
        "arrays": layout,
        "bytes": offset,
        "checksum": total % 2**64,
    }
    line = json.dumps({"content": content, "digest": digest(content)}).encode()
    line += b" " * (-(len(line) + 1) % ALIGNMENT) + b"\n"
    with written_whole(path) as part, part.open("wb") as file:
        file.write(line)
        for array in prepared.arrays.values():
            file.write(array.data)
            file.write(bytes(-array.nbytes % ALIGNMENT))


def _read(path: Path, key: str) -> PreparedArrays | None:
    """Map the set, or return None where there is none, or where it is not whole."""
    try:
        with path.open("rb") as file:
            line = file.readline(LONGEST_LINE)
            content = _content(line)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        data = np.frombuffer(mapped, np.uint8, offset=len(line))
        if content["key"] != key or data.size != content["bytes"] or _checksum(data) != content["checksum"]:
            return None
        arrays = {}
        for name, (dtype, shape, offset) in content["arrays"].items():
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            arrays[name] = data[offset : offset + size].view(dtype).reshape(shape)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    with suppress(OSError):
        os.utime(path)  # for `_prune`
    return PreparedArrays(arrays, {s: tuple(names) for s, names in content["names"].items()}, content["meta"])


def _content(line: bytes) -> dict[str, Any]:
    """Parse and check the first line of a file."""
    index = json.loads(line)
    content = index["content"]
    if index["digest"] != digest(content) or content["schema"] != SCHEMA:
        raise ValueError("not a set of this version")
    return content


def _checksum(data: np.ndarray) -> int:
    """Sum of 64-bit words modulo 2^64: as fast as memory, and any damage that is not made on purpose changes it."""
    whole = data.size // 8 * 8
    words = int(np.add.reduce(data[:whole].view(np.uint64), dtype=np.uint64))
    return (words + int.from_bytes(data[whole:].tobytes(), "little")) % 2**64


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock of `path` where locks work; without one, two processes may do the same work, both well."""
    lock = FileLock(f"{path}.lock")
    held = False
    with suppress(OSError, NotImplementedError):  # a timeout is an OSError too
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=PATIENCE)
        held = True
    try:
        yield
    finally:
        if held:
            lock.release()


def _prune(folder: Path, keep: Path) -> None:
    """Remove what a killed process left, and the sets used longest ago, until the folder holds at most LIMIT."""
    for part in folder.glob("*.prepared.*.part"):
        if time.time() - part.stat().st_mtime > 24 * 3600:
            part.unlink(missing_ok=True)
    newest = sorted(folder.glob("*.prepared"), key=lambda p: (p == keep, p.stat().st_mtime), reverse=True)
    total = 0
    for path in newest:
        total += path.stat().st_size
        if total > LIMIT and path != keep:
            path.unlink(missing_ok=True)


def cache_entries() -> list[Mapping[str, Any]]:
    """Describe every set in the folder: its key, size in bytes, time of last use and what it was made for."""
    folder = cache_folder()
    entries = []
    for path in sorted(folder.glob("*.prepared")) if folder is not None and folder.is_dir() else ():
        with suppress(OSError):
            found = path.stat()
            entry: dict[str, Any] = {"key": path.stem, "bytes": found.st_size, "used": found.st_mtime}
            with path.open("rb") as file, suppress(ValueError, KeyError, TypeError):
                entry |= _content(file.readline(LONGEST_LINE))["meta"]
            entries.append(entry)
    return entries


def clear_cache() -> int:
    """Remove every set; return the bytes freed. A process that has one mapped keeps it until it ends."""
    folder = cache_folder()
    freed = 0
    compiled = compiled_folder()
    made = [] if folder is None or compiled is None else [*folder.glob("*.prepared*"), *compiled.glob("*")]
    for path in made:
        with suppress(OSError):
            size = path.stat().st_size
            path.unlink()
            freed += size
    return freed
