"""The process that opens uploads: with the readers of `kappaflow retrieve`, a limit on memory, and nothing else."""

import re
import sys
from pathlib import Path
from typing import Any

from kappaflow.errors import UserError
from kappaflow.serve.answering import answer_requests, limit_memory

__all__ = ["check_distances", "main", "read_upload"]

_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)")


def read_upload(request: dict[str, Any]) -> dict[str, Any]:
    """Read the file at `path`, which the server made, and tell of it under the client's `name`."""
    from kappaflow.observe.read import read_spectrum
    from kappaflow.serve.as_read import as_read

    path, name = Path(request["path"]), request["name"]
    try:
        return as_read(read_spectrum(path, **request["hints"]))
    except UserError as error:
        told = str(error).replace(path.name, name)
        # The command line's flags are fields of the page.
        raise UserError(_FLAG.sub(lambda flag: f"“{flag[1].replace('-', ' ')}”", told)) from None


def check_distances(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Refuse a distance or error that `kappaflow retrieve` would refuse."""
    from kappaflow.observe.distances import as_distance

    for one in objects:
        as_distance(one["distance"], one["distance_error"], where=f"{one['title']}: distance")
    return {}


def main() -> None:
    """Answer until the server closes our input."""
    limit_memory(int(sys.argv[1]))
    import kappaflow.serve.as_read  # noqa: F401 (seconds, now rather than at the first upload)

    answer_requests(lambda ask, tell: check_distances(ask["objects"]) if "objects" in ask else read_upload(ask))


if __name__ == "__main__":
    main()
