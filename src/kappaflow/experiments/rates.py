"""How long a step takes on this machine: a few rates measured in half a minute, and the sizes of the steps."""

import heapq
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kappaflow.experiments.making import IN_PROCESS
from kappaflow.experiments.steps import DataSet, Drawn, Step, TrainedNetwork
from kappaflow.experiments.study import Study
from kappaflow.experiments.workers import Workers
from kappaflow.inference import Checkpoint, Posterior, Recipe, Trainer, plan_run
from kappaflow.parameters import parameter_set
from kappaflow.presets import Frozen
from kappaflow.simulation import Backend, Shards, SpectraConfig, simulate_directory
from kappaflow.simulation.config import load_model
from kappaflow.spectra import Card, Spectra
from kappaflow.storage import digest, write_json

__all__ = ["NOMINAL", "Rates", "measured_rates", "seconds_of", "stored_rates", "total_seconds"]

BENCH = 512  # spectra that the rates are measured on
LONG = 5.0  # s of training that are timed
WARM = 4  # steps before
FORWARD = 0.35  # of a training step's time: judging a batch without its gradient
FITTED, FAMILIAR = 8192, 20_480  # spectra read for the scaling, and embedded at the end of a training


class Rates(Frozen):
    """What one worker does per second while the others work too."""

    workers: int
    simulated: float  # spectra per second of one process
    start: float  # s until a process has loaded and compiled the model
    trained: dict[str, float]  # recipe -> spectra per second
    drawn: float  # draws per second
    shown: float  # spectra observed per second


# Of the machine this was written on, laptop preset; where nothing was measured they only weigh the progress bar.
NOMINAL = Rates(
    workers=2, simulated=70.0, start=12.0, trained={"kappaflow": 900.0, "paper": 280.0}, drawn=5e4, shown=4e3
)


def seconds_of(step: Step, rates: Rates) -> float:
    """Estimate a step: of a set with all processes at once, of a network or draws on one worker."""
    if isinstance(step, DataSet):
        start = rates.start if step.n > IN_PROCESS else 1.0
        return start + step.n / (rates.simulated * rates.workers)
    if isinstance(step, TrainedNetwork):
        n = step.limit or 0.9 * step.data.n
        judged = step.epochs * min(0.1 * step.data.n, 10_240) + min(n, FAMILIAR) + min(0.1 * step.data.n, FAMILIAR)
        read = min(n, FITTED) / rates.shown
        return read + (step.epochs * n + FORWARD * judged) / rates.trained[step.recipe.name]
    return 0.3 + step.data.n * (step.draws / rates.drawn + (1.0 if step.path == "none" else 2.0) / rates.shown)


def total_seconds(steps: Iterable[Step], rates: Rates) -> float:
    """Estimate all steps: sets one after the other, then the rest shared by the workers, long ones first."""
    steps = list(steps)
    sets = sum(seconds_of(step, rates) for step in steps if isinstance(step, DataSet))
    free = [0.0] * rates.workers
    networks = [step for step in steps if isinstance(step, TrainedNetwork)]
    draws = [step for step in steps if isinstance(step, Drawn)]
    for step in (*sorted(networks, key=lambda step: -seconds_of(step, rates)), *draws):
        heapq.heappush(free, heapq.heappop(free) + seconds_of(step, rates))
    return sets + max(free)


def _file(study: Study, folder: Path) -> Path:
    return folder / f"rates-{digest([study.preset, study.parameters, study.sizes.model_dump(mode='json')])}.json"


def stored_rates(study: Study, folder: Path) -> Rates | None:
    """Return the rates measured here before, if they were."""
    try:
        return Rates.model_validate(json.loads(_file(study, folder).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return None


def measured_rates(study: Study, folder: Path, workers: Workers) -> Rates:
    """Return the rates of this machine, measured on all workers at once, as they will work; kept in `folder`."""
    found = stored_rates(study, folder)
    if found is not None:
        return found
    recipes = {name: study.sizes.recipe(name, study.preset) for name in study.sizes.epochs}
    bench = Bench(study.config({}), recipes, study.sizes.draws)
    left = {workers.submit(bench) for _ in range(workers.count)}
    parts: list[Rates] = []
    while left:
        for number, what, value in workers.events():
            if what == "done":
                left.discard(number)
                parts.append(value)
    mean = {
        name: float(np.mean([getattr(part, name) for part in parts]))
        for name in ("simulated", "start", "drawn", "shown")
    }
    trained = {name: float(np.mean([part.trained[name] for part in parts])) for name in recipes}
    rates = Rates(workers=workers.count, trained=trained, **mean)
    write_json(_file(study, folder), rates.model_dump())
    return rates


@dataclass(frozen=True)
class Bench:
    """The benchmark of one worker, a task: simulate, train and draw a little."""

    config: SpectraConfig
    recipes: dict[str, Recipe]
    draws: int

    def __call__(self, report: Callable[[float], None]) -> Rates:
        """Measure the rates of this process."""
        import torch

        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            simulated, start = self._simulated(Path(folder) / "spectra")
            shards = Shards(Path(folder) / "spectra")
            clock = time.perf_counter()
            seen = shards.evaluation()
            shown = len(seen) / (time.perf_counter() - clock)
            trained, drawn = {}, 0.0
            for name, recipe in self.recipes.items():
                trainer = _trainer(recipe, shards, Path(folder) / name)
                trained[name] = _trained(trainer)
                if name == "kappaflow":
                    drawn = self._drawn(trainer, seen)
        return Rates(workers=1, simulated=simulated, start=start, trained=trained, drawn=drawn, shown=shown)

    def _simulated(self, folder: Path) -> tuple[float, float]:
        """Spectra per second, and the seconds before the first."""
        begin = time.perf_counter()
        model = load_model(self.config)
        parameters = parameter_set(self.config.parameters)
        middle = (np.asarray(parameters.low) + np.asarray(parameters.high)) / 2
        model(np.tile(middle, (64, 1)))  # compiled for a whole chunk
        ready = time.perf_counter()
        simulate_directory(folder, self.config, BENCH, backend=Backend(0, lambda _: model))
        return BENCH / (time.perf_counter() - ready), ready - begin

    def _drawn(self, trainer: Trainer, seen: Spectra) -> float:
        posterior = Posterior([Checkpoint(trainer.state.estimator.eval(), trainer.batches.card, 0)])
        some = seen[slice(0, 64)]
        best = np.inf
        for _ in range(2):
            clock = time.perf_counter()
            posterior.sample_batch(some.flux, some.error, some.mask, n=self.draws)
            best = min(best, time.perf_counter() - clock)
        return len(some) * self.draws / best


@dataclass(frozen=True)
class _Endless:
    """A small set that calls itself a large one, so that no epoch ends while a step is timed."""

    shards: Shards

    @property
    def card(self) -> Card:
        return replace(self.shards.card, n_train=10**7)

    def train(self, epoch: int, index: int, size: int) -> Spectra:
        """See `Batches`."""
        return self.shards.train(0, index % max(1, self.shards.card.n_train // size), size)

    def validation(self, start: int, stop: int) -> Spectra:
        """See `Batches`."""
        return self.shards.validation(start, stop)


class _EnoughError(Exception):
    """The rate is known."""


def _trainer(recipe: Recipe, shards: Shards, folder: Path) -> Trainer:
    batches = _Endless(shards)
    return Trainer(plan_run(batches, recipe, seed=0, epochs=1), batches, folder)


def _trained(trainer: Trainer) -> float:
    """Spectra per second, from `WARM` steps on for `LONG` seconds."""
    ticks: list[float] = []

    def report(note: str) -> None:
        ticks.append(time.perf_counter())
        if len(ticks) > WARM + 1 and ticks[-1] - ticks[WARM] > LONG:
            raise _EnoughError

    try:
        trainer.fit(report=report)
    except _EnoughError:
        pass
    return trainer.run.recipe.training.batch * (len(ticks) - 1 - WARM) / (ticks[-1] - ticks[WARM])
