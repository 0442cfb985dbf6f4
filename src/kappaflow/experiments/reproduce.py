"""`kappaflow paper`: make what items need, compute and draw them, write the page; or say how long it would take."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

import kappaflow
from kappaflow.errors import UserError
from kappaflow.experiments.item import Item, Library
from kappaflow.experiments.order import make_all, missing
from kappaflow.experiments.rates import NOMINAL, Rates, measured_rates, seconds_of, stored_rates, total_seconds
from kappaflow.experiments.results_page import SCHEMA, TIMING, item_page, read_contents, results_page
from kappaflow.experiments.steps import DataSet, Step, code_digest
from kappaflow.experiments.store import StepStore
from kappaflow.experiments.study import Study
from kappaflow.experiments.workers import chosen_workers
from kappaflow.plain_data import plain
from kappaflow.progress import progress
from kappaflow.simulation.run import processors
from kappaflow.storage import digest, file_digest, write_json, written_whole

__all__ = ["Destination", "plan_steps", "reproduce"]


@dataclass(frozen=True)
class Destination:
    """Where everything goes, and who makes it."""

    out: Path  # JSON, Markdown and figures of the items
    cache: Path  # spectra, networks, draws
    page: Path  # the page of all items
    scheduler: str | None = None  # address of a Dask scheduler
    workers: int | None = None  # processes on this machine; one per core by default


def plan_steps(items: Sequence[Item], study: Study, place: Destination) -> dict[str, Any]:
    """Return the steps that a run would make and how long each takes here, measured in half a minute."""
    store = StepStore(place.cache)
    waiting = [item for item in items if _content(item, study, place) is None]
    todo = missing([step for item in waiting for step in item.needs(study)], store)
    rates = stored_rates(study, place.cache) or NOMINAL
    if todo:
        with chosen_workers(place.scheduler, place.workers) as workers:
            rates = measured_rates(study, place.cache, workers)
    rows = [{"kind": s.kind, "name": s.name, "seconds": round(seconds_of(s, rates), 1)} for s in todo]
    judging = {item.name: _judging(study) for item in waiting}
    total = total_seconds(todo, rates) + sum(judging.values())
    return {"steps": rows, "items": judging, "rates": rates.model_dump(), "total": round(total, 1)}


def _judging(study: Study) -> float:
    """Seconds to read, judge and draw an item: about twenty-five with the paper's objects and draws."""
    return round(2.0 + 25.0 * study.sizes.test * study.sizes.draws / (2048 * 400), 1)


def reproduce(items: Sequence[Item], study: Study, place: Destination) -> dict[str, Any]:
    """Make the items, from what the cache has; return what was made now.

    Kill it at any moment: the next run goes on. A second run makes nothing.
    """
    store = StepStore(place.cache)
    with _alone(place.cache):
        known: dict[str, bool] = {}
        waiting = [item for item in items if _content(item, study, place) is None]
        todo = missing([step for item in waiting for step in item.needs(study)], store, known)
        _make(todo, study, place, store)
        library, took = Library(store), {}
        for item in waiting:
            start = time.monotonic()
            _write_item(_computed(item, study, library, place), item, place)
            took[item.name] = round(time.monotonic() - start, 2)
        for item in items:  # whoever lost a figure gets it again
            content = _content(item, study, place)
            assert content is not None, "just written"
            if not all((place.out / f"{item.name}.{ending}").exists() for ending in ("md", "png")):
                _write_item(content, item, place)
        _write_timing(items, study, place, took)
        _write_page(place)
    made = {kind: sum(step.kind == kind for step in todo) for kind in ("data", "network", "draws")}
    return {
        "out": str(place.out),
        "page": str(place.page),
        "items": [item.name for item in items],
        "made": made,
        "computed": list(took),
    }


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Refuse a second run in the same cache: two trainings of one network would write over each other."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise UserError(
            f"{folder}: another `kappaflow paper` works there; wait for it, or give another --cache"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _make(todo: list[Step], study: Study, place: Destination, store: StepStore) -> None:
    if not todo:
        return
    rates = stored_rates(study, place.cache) or NOMINAL
    cost = {step.key: seconds_of(step, rates) for step in todo}
    done = dict.fromkeys(cost, 0.0)
    names = {step.key: step.name for step in todo}
    with (
        progress("paper", round(sum(cost.values())), unit="s of work") as advance,
        chosen_workers(place.scheduler, place.workers) as workers,
    ):

        def tell(key: str, share: float) -> None:
            advance(cost[key] * (share - done[key]), note=names[key])
            done[key] = share

        make_all(todo, store, workers, cost=cost, advance=tell, scheduler=place.scheduler)


def _digest(item: Item, study: Study) -> str:
    """Digest of all that decides an item's numbers."""
    module = type(item).__module__.rsplit(".", 1)[-1]
    code = code_digest(f"experiments/items/{module}.py", "experiments/measures.py", "calibrate")
    files = [file_digest(file) for file in study.files] if item.reads_files else []
    sizes = study.sizes.model_dump(mode="json")
    keys = [step.key for step in item.needs(study)]
    tables = study.test_set("perturbed").key  # knows the opacities and the physics
    return digest([SCHEMA, item.name, keys, code, files, sizes, tables, kappaflow.__version__])


def _content(item: Item, study: Study, place: Destination) -> dict[str, Any] | None:
    """Return the item's JSON where it is of this study, else None."""
    try:
        content = json.loads((place.out / f"{item.name}.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return content if content.get("digest") == _digest(item, study) else None


def _computed(item: Item, study: Study, library: Library, place: Destination) -> dict[str, Any]:
    found = item.compute(study, library)
    words = ["kappaflow paper", item.name, "--preset", study.preset, "--parameters", study.parameters]
    words += ["--out", place.out.name, *(["--spectra DIR"] if study.files else [])]
    return plain(
        {
            "schema": SCHEMA,
            "item": item.name,
            "order": item.order,
            "title": item.title,
            "about": item.about,
            "command": " ".join(words),
            "preset": study.preset,
            "parameters": study.parameters,
            "sizes": study.sizes.model_dump(mode="json"),
            "kappaflow": kappaflow.__version__,
            "digest": _digest(item, study),
            "tables": list(found.tables),
            "claims": list(found.claims),
            "notes": list(found.notes),
            "drawn": found.drawn,
        }
    )


def _write_item(content: dict[str, Any], item: Item, place: Destination) -> None:
    """Write figure, Markdown and JSON, the JSON last: where it is, the rest was."""
    from kappaflow.plots import save_figure

    save_figure(item.figure(content["drawn"]), place.out / item.name)
    _write_text(place.out / f"{item.name}.md", item_page(content))
    write_json(place.out / f"{item.name}.json", content, allow_nan=False)


def _write_text(path: Path, text: str) -> None:
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8")


def _write_page(place: Destination) -> None:
    relative = os.path.relpath(place.out, place.page.parent)
    figures = "" if relative == "." else Path(relative).as_posix() + "/"
    _write_text(place.page, results_page(read_contents(place.out), place.out, figures))


def _write_timing(items: Sequence[Item], study: Study, place: Destination, took: dict[str, float]) -> None:
    """Write how long the steps of these items took, as their markers tell, beside what the rates had said."""
    store, path = StepStore(place.cache), place.out / TIMING
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    judging = {**before.get("items", {}), **took}
    steps: dict[str, Step] = {}
    for item in items:
        for step in item.needs(study):
            _closure(step, steps)
    told = {key: store.told(step) for key, step in steps.items()}
    if not took or any(one is None for one in told.values()):
        return
    rates: Rates | None = stored_rates(study, place.cache)
    workers = rates.workers if rates else place.workers or processors()
    seconds = {kind: 0.0 for kind in ("data", "network", "draws")}
    for one in told.values():
        assert one is not None, "checked above"
        seconds[one["kind"]] += one["seconds"] / (1 if one["kind"] == DataSet.kind else workers)
    seconds["judging"] = sum(judging.values())
    planned = None if rates is None else total_seconds(steps.values(), rates) + len(judging) * _judging(study)
    content = {
        "workers": workers,
        "seconds": {kind: round(value, 1) for kind, value in seconds.items()},
        "total": round(sum(seconds.values()), 1),
        "planned": None if planned is None else round(planned, 1),
        "items": judging,
        "steps": [one for one in told.values()],
    }
    write_json(path, content)


def _closure(step: Step, found: dict[str, Step]) -> None:
    for need in step.needs:
        _closure(need, found)
    found[step.key] = step
