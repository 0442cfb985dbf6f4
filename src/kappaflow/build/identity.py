"""What decides the numbers of a build besides its settings: data files, code and libraries, each as a short digest.

Unfinished work is named by it, so that a build resumed after a change of any of them starts anew.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata, resources
from pathlib import Path

from kappaflow.errors import UserError

__all__ = ["code_identity", "file_digest"]

TABLES = ("completion", "line_lists", "opacity_table")
CODE = ("constants.py", "build/lines", "build/sources", *(f"build/tables/{name}.py" for name in TABLES))
LIBRARIES = ("hitran-api", "numpy", "scipy", "numba")  # partition functions, transforms, compiled sums


@cache
def code_identity() -> dict[str, str]:
    """Return the digest of the modules that compute cross sections (constants among them), and library versions."""
    root = Path(str(resources.files("kappaflow")))
    sha = hashlib.sha256()
    for name in CODE:
        for file in sorted((root / name).glob("*.py")) or [root / name]:
            sha.update(file.read_bytes())
    versions = {d.metadata["Name"]: d.version for d in map(_distribution, LIBRARIES) if d is not None}
    return {"code": sha.hexdigest()[:16], **versions}


def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def file_digest(path: Path) -> str:
    """Sixteen hex digits of the SHA-256 of a file's bytes."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()[:16]
    except OSError as error:
        raise UserError(f"{path}: cannot read ({error.strerror}); --data must be the folder that holds it") from None
