"""A job becomes results: the way of `kappaflow retrieve`, with the job's uploads as its files."""

import csv
import json
import os
import shlex
import shutil
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kappaflow.observe.distances import as_distance
from kappaflow.observe.targets import Target
from kappaflow.plain_data import plain
from kappaflow.retrieval.parallel import CatalogueRun, retrieve_many
from kappaflow.retrieval.retriever import Retriever
from kappaflow.serve.job_record import Asked, Job, Upload, folder_names
from kappaflow.storage import written_whole

__all__ = ["Retrievers", "command_of", "run_job"]

Retrievers = Callable[[Asked], Retriever]
_PACKED = {".png", ".pdf", ".nc", ".gz", ".zip"}  # compressed already


def run_job(folder: Path, retriever_for: Retrievers) -> dict[str, Any]:
    """Retrieve the objects of the job in `folder`; returns a row per object, and leaves result/ and everything.zip.

    By the way of catalogues: one batch through the networks, many objects in several processes (they end with ours, see
    `Child.stop`), and a job that is run again keeps the objects it had finished. `retriever_for` is called in those
    processes too: it must be importable there.
    """
    job = Job.from_dict(json.loads((folder / "job.json").read_text(encoding="utf-8")))
    files = _inputs(job, folder)
    names = folder_names(["inputs", *(one.title for one in job.objects)])[1:]  # `inputs` is taken, in the zip
    load = partial(retriever_for, job.asked)
    rows: dict[str, dict[str, Any]] = {}
    # Objects that are read alike go in one batch, as on the command line; mostly that is all of them.
    for hints, group in _alike(job).items():
        targets = [
            Target(
                names[k],
                tuple(files[key] for key in job.objects[k].uploads),
                as_distance(job.objects[k].distance, job.objects[k].distance_error),
                title=job.objects[k].title,
            )
            for k in group
        ]
        said = json.loads(hints)
        run = CatalogueRun(command_of(job, said), resume=True)
        outcomes, _ = retrieve_many(load, targets, folder / "result", run, said)
        rows |= {outcome.name: outcome.row() for outcome in outcomes}
    _write_targets(job, names, files, folder / "result" / "targets.csv")
    _pack(folder)
    return {"rows": [plain(rows[name]) | {"title": one.title} for name, one in zip(names, job.objects, strict=True)]}


def _alike(job: Job) -> dict[str, list[int]]:
    """Places of objects by how their files are to be read, as JSON."""
    groups: dict[str, list[int]] = {}
    for k, one in enumerate(job.objects):
        groups.setdefault(json.dumps(job.upload(one.uploads[0]).hints, sort_keys=True), []).append(k)
    return groups


def _inputs(job: Job, folder: Path) -> dict[str, Path]:
    """Lay the uploads out under names that are safe on any disk and still say which is which; paths by key."""
    shutil.rmtree(folder / "inputs", ignore_errors=True)
    (folder / "inputs").mkdir()
    used = [one for one in job.uploads if any(one.key in made.uploads for made in job.objects)]
    paths = {}
    for one, name in zip(used, _file_names(used), strict=True):
        paths[one.key] = folder / "inputs" / name
        try:
            os.link(folder / "uploads" / one.key, paths[one.key])
        except OSError:  # a disk without links
            shutil.copyfile(folder / "uploads" / one.key, paths[one.key])
    return paths


def _file_names(uploads: Sequence[Upload]) -> list[str]:
    stems, ends = [], []
    for one in uploads:
        plain = one.name.removesuffix(".gz")
        stem, dot, end = plain.rpartition(".")
        end = folder_names([end])[0][:10] if dot and stem else "txt"
        stems.append(stem if dot and stem else plain)
        ends.append(end + (".gz" if one.name.endswith(".gz") else ""))
    return [f"{name}.{end}" for name, end in zip(folder_names(stems), ends, strict=True)]


def command_of(job: Job, hints: dict[str, Any]) -> str:
    """Return the command that does the same in the unpacked everything.zip."""
    words = ["kappaflow", "retrieve", "--targets", "targets.csv"]
    for key, value in hints.items():
        for each in value if isinstance(value, list) else [value]:
            words += [f"--{key.replace('_', '-')}", str(each)]
    words += ["--amortized"] if job.asked.method == "amortized" else []
    words += [] if job.asked.draws == Asked().draws else ["--draws", str(job.asked.draws)]
    return shlex.join(words + ([] if job.asked.seed == 0 else ["--seed", str(job.asked.seed)]))


def _write_targets(job: Job, names: Sequence[str], files: dict[str, Path], path: Path) -> None:
    with written_whole(path) as part, part.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["file", "name", "distance", "distance_error"])
        for name, one in zip(names, job.objects, strict=True):
            joined = " + ".join(f"inputs/{files[key].name}" for key in one.uploads)
            table.writerow([joined, name, *("" if x is None else x for x in (one.distance, one.distance_error))])


def _pack(folder: Path) -> None:
    """Write everything.zip: the results and the uploads they were made from."""
    members = [(path, path.relative_to(folder / "result")) for path in sorted((folder / "result").rglob("*"))]
    members += [(path, path.relative_to(folder)) for path in sorted((folder / "inputs").iterdir())]
    with written_whole(folder / "everything.zip") as part, zipfile.ZipFile(part, "w") as archive:
        for path, inside in members:
            if path.is_file():
                kind = zipfile.ZIP_STORED if path.suffix in _PACKED else zipfile.ZIP_DEFLATED
                archive.write(path, Path("kappaflow") / inside, kind)
