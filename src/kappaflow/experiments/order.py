"""The order of steps: what is missing, what it needs first, and who makes it."""

from collections.abc import Callable, Iterable, Mapping

from kappaflow.experiments.making import make_step
from kappaflow.experiments.steps import DataSet, Drawn, Step
from kappaflow.experiments.store import StepStore
from kappaflow.experiments.workers import StepTask, Workers

__all__ = ["make_all", "missing"]

Advance = Callable[[str, float], None]  # key of a step, share of it that is done


def missing(wanted: Iterable[Step], store: StepStore, known: dict[str, bool] | None = None) -> list[Step]:
    """Return the steps to be made before all of `wanted` are there, each after what it needs.

    What only a finished step needed is not looked at: draws that are there do not miss their network.
    """
    known = {} if known is None else known
    todo: dict[str, Step] = {}

    def visit(step: Step) -> None:
        if step.key in todo:
            return
        if step.key not in known:
            known[step.key] = store.has(step)
        if not known[step.key]:
            for need in step.needs:
                visit(need)
            todo[step.key] = step

    for step in wanted:
        visit(step)
    return list(todo.values())


def make_all(
    todo: list[Step],
    store: StepStore,
    workers: Workers,
    *,
    cost: Mapping[str, float],
    advance: Advance,
    scheduler: str | None = None,
) -> None:
    """Make the steps `todo`: sets first, each by all cores; then networks and draws, one per worker."""
    store.folder.mkdir(parents=True, exist_ok=True)
    for step in todo:
        if isinstance(step, DataSet):
            make_step(step, store, lambda share: None, scheduler)
            advance(step.key, 1.0)
    # Networks before draws: the long ones first leave no worker alone with one in the end.
    waiting = [step for step in todo if not isinstance(step, DataSet)]
    waiting.sort(key=lambda step: (isinstance(step, Drawn), -cost.get(step.key, 0.0)))
    unmade, running = {step.key for step in waiting}, dict[int, Step]()
    while waiting or running:
        for step in list(waiting):
            if len(running) >= workers.count:
                break
            if not any(need.key in unmade for need in step.needs):
                waiting.remove(step)
                running[workers.submit(StepTask(step, store.folder))] = step
        for number, what, value in workers.events():
            if what == "share":
                advance(running[number].key, value)
            else:
                done = running.pop(number)
                unmade.discard(done.key)
                advance(done.key, 1.0)
