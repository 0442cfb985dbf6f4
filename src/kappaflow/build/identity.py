"""What decides the numbers of a build besides its settings: data files, code and libraries, each as a short digest.

Unfinished work is named by it, so that a build resumed after a change of any of them starts anew.
"""

import hashlib
from functools import cache
from importlib import metadata, resources
from pathlib import Path

from kappaflow.errors import UserError
from kappaflow.storage import file_digest

__all__ = ["code_identity", "data_digest"]

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


def data_digest(path: Path) -> str:
    """Sixteen hex digits of a file of line data, or a line that says where it should lie."""
    try:
        return file_digest(path)
    except OSError as error:
        raise UserError(f"{path}: cannot read ({error.strerror}); --data must be the folder that holds it") from None
