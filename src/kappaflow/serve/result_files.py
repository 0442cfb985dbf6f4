"""Which of a job's results a request means: found in our own listing, never by a path that a client made."""

from pathlib import Path

from kappaflow.serve.job_shelf import NoSuch

__all__ = ["result_file"]

_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".csv": "text/csv; charset=utf-8",
    ".ecsv": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".bib": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".pdf": "application/pdf",
    ".nc": "application/x-netcdf",
}


def result_file(folder: Path, asked: str) -> tuple[Path, str]:
    """Return the path and media type of the result called `asked`, by comparing it with what is there.

    Raises `NoSuch` where nothing in `folder` has that name or its kind is not one that we write.
    """
    for path in folder.rglob("*"):
        if path.relative_to(folder).as_posix() == asked and path.suffix in _MEDIA:
            if path.is_file() and not path.is_symlink():
                return path, _MEDIA[path.suffix]
    raise NoSuch("no such file in the results")
