"""What a client asks to be retrieved, checked: objects made of this job's uploads, distances, and how."""

from collections.abc import Sequence
from typing import Any

from kappaflow.errors import UserError
from kappaflow.serve.job_record import Asked, Job, JobObject, number, plain_name

__all__ = ["asked_of", "objects_of"]


def objects_of(job: Job, given: Any) -> tuple[JobObject, ...]:
    """Return the objects of a request: each has a title, keys of uploads that could be read, perhaps a distance.

    Whether a distance makes sense is for the reader process to say, which has astropy loaded.
    """
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) for one in given):
        raise UserError("nothing to retrieve; drop a spectrum first")
    objects = tuple(_object(job, one) for one in given)
    keys = [key for one in objects for key in one.uploads]
    if len(set(keys)) < len(keys):
        raise UserError("a file belongs to two objects; give each to one")
    titles = [one.title.lower() for one in objects]
    twice = next((one.title for one in objects if titles.count(one.title.lower()) > 1), None)
    if twice is not None:
        raise UserError(f"two objects are called {twice!r}; name them apart, or merge their files")
    return objects


def _object(job: Job, given: dict[str, Any]) -> JobObject:
    keys = given.get("uploads")
    if not isinstance(keys, Sequence) or isinstance(keys, str) or not keys:
        raise UserError("an object without files; give it one")
    uploads = [job.upload(str(key)) for key in keys]
    for one in uploads:
        if one.as_read is None:
            raise UserError(one.error or f"{one.name}: not read yet; wait for it, or remove it")
        if one.hints != uploads[0].hints:
            raise UserError(f"{uploads[0].name} and {one.name}: read differently; files of one object are read alike")
    title = plain_name(str(given.get("title", "")).replace("/", "∕"), uploads[0].name).lstrip("=+-@ ") or "object"
    distance = number(f"{title}: distance", given.get("distance"))
    error = number(f"{title}: distance error", given.get("distance_error"))
    return JobObject(title, tuple(one.key for one in uploads), distance, error)


def asked_of(given: Any) -> Asked:
    """Return how to retrieve, from a request; what it does not say is as on the command line."""
    if given is None:
        return Asked()
    if not isinstance(given, dict) or not set(given) <= {"method", "draws", "seed"}:
        raise UserError("how to retrieve: expected method, draws and seed")
    return Asked(**given)
