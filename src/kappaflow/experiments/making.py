"""How each step is made: by the functions of `kappaflow simulate`, `train` and `calibrate`; resumed, never redone."""

import time
from collections.abc import Callable
from functools import cache

import numpy as np

from kappaflow.evaluate.network_draws import draw_all, refuse_foreign
from kappaflow.experiments.steps import DataSet, Drawn, Step, TrainedNetwork
from kappaflow.experiments.store import StepStore
from kappaflow.experiments.treatments import shown
from kappaflow.inference import Posterior, Trainer, plan_run
from kappaflow.simulation import Backend, Shards, SpectraConfig, simulate_directory
from kappaflow.simulation.config import load_model
from kappaflow.spectra import Forward

__all__ = ["make_step"]

IN_PROCESS = 8192  # spectra up to which starting and compiling in further processes takes longer than it saves

Report = Callable[[float], None]  # share of a step that is done


def make_step(step: Step, store: StepStore, report: Report, scheduler: str | None = None) -> None:
    """Make a step whose needs are met, going on from where an earlier attempt ended."""
    if isinstance(step, DataSet):
        _simulate(step, store, scheduler)
    elif isinstance(step, TrainedNetwork):
        _train(step, store, report)
    else:
        _draw(step, store, report)


def _simulate(step: DataSet, store: StepStore, scheduler: str | None) -> None:
    start = time.monotonic()
    where = scheduler or (0 if step.n <= IN_PROCESS else None)
    backend = Backend(where, _kept_model if where == 0 else load_model)
    simulate_directory(store.path(step), step.config, step.n, seed=step.seed, resume=True, backend=backend)
    store.mark(step, time.monotonic() - start)


def _kept_model(config: SpectraConfig) -> Forward:
    """Load the model of a config, once for all the sets that differ in their draws only."""
    same = {"perturb": "both", "amplitude": (1.0, 1.0), "pin": (), "exclude": (), "sigma": ()}
    return _model(config.model_copy(update=same).model_dump_json())


@cache
def _model(config: str) -> Forward:
    return load_model(SpectraConfig.model_validate_json(config))


def _train(step: TrainedNetwork, store: StepStore, report: Report) -> None:
    import torch

    torch.set_num_threads(1)  # as many trainings as cores, one thread each; sums are the same everywhere
    batches = Shards(store.path(step.data), masks=step.masks, limit=step.limit)
    run = plan_run(batches, step.recipe, seed=step.seed, epochs=step.epochs)
    trainer = Trainer(run, batches, store.path(step))
    trainer.begin(resume=True)
    trainer.fit(report=lambda note: report(trainer.state.plan.at(trainer.state.step)))
    store.mark(step, trainer.state.seconds)


def _draw(step: Drawn, store: StepStore, report: Report) -> None:
    import torch

    torch.set_num_threads(1)
    start = time.monotonic()
    posterior, shards = Posterior.load(store.path(step.network)), Shards(store.path(step.data))
    refuse_foreign(posterior, shards)
    seen = shown(shards, step.path, step.masks, step.files)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        report(done / len(seen))

    # Its own base noise for every network, or pooled members would not be independent; the same for every treatment.
    draws, log_prob = draw_all(posterior, seen, step.draws, int(step.network.key[:8], 16), advance)
    told = {"draws": draws, "truth": np.asarray(seen.truth, dtype=float), "log_prob": log_prob}
    told |= {"snr": np.asarray(seen.snr, dtype=float), "good": seen.mask.mean(axis=1)}
    store.write_draws(step, posterior.box, told, time.monotonic() - start)
