"""Training: one loop for every recipe, resumable to the bit, with the clock kept out of the weights."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kappaflow.errors import UserError
from kappaflow.inference.batches import Batches, prefetched
from kappaflow.inference.checkpoint import Checkpoint
from kappaflow.inference.curves import Curves
from kappaflow.inference.devices import Cpu, Place
from kappaflow.inference.embedding import Projected
from kappaflow.inference.features import Features, Prepared
from kappaflow.inference.network import Estimator, Familiarity
from kappaflow.inference.recipes import Recipe
from kappaflow.inference.resemblance import Resemblance
from kappaflow.inference.schedule import SCHEDULES
from kappaflow.inference.state import STATE, Run, State
from kappaflow.randomness import generator, torch_seed
from kappaflow.spectra import Spectra

__all__ = ["Diverged", "Trainer", "plan_run"]

SCALING = 8192  # spectra that set the scaling of the inputs
FAMILIAR = 20_480  # training spectra whose embeddings are recorded
RESEMBLED, RESEMBLING = 8192, 1024  # training spectra with components taken, validation spectra judged by them
VALIDATION = 10_240  # spectra scored after an epoch, at most
SAVE_EVERY = 60.0  # seconds between saves within an epoch; when a state is saved does not change it
MEASURED = 20  # steps after which a budget in minutes has a rate to go by


class Diverged(UserError):
    """The loss or its gradient stopped being a number."""


def plan_run(
    batches: Batches, recipe: Recipe, *, seed: int, epochs: int | None = None, minutes: float | None = None
) -> Run:
    """Everything that decides the weights, from the data and what the user asked for."""
    card, batch = batches.card, recipe.training.batch
    if card.n_train < batch:
        raise UserError(
            f"training data: {card.n_train} spectra, fewer than one batch of {batch}; simulate more (--n) or use a "
            "recipe with smaller batches"
        )
    if minutes is not None and minutes <= 0:
        raise UserError(f"--minutes: {minutes:g}; expected a positive number")
    return Run(
        recipe=recipe,
        seed=seed,
        data=card.digest,
        preset=card.preset,
        n_train=card.n_train,
        masked=card.masked,
        validation=min(VALIDATION, card.n_validation),
        steps=(epochs or recipe.training.epochs) * (card.n_train // batch),
        minutes=minutes,
        threads=torch.get_num_threads(),
    )


class Trainer:
    """A run on its data, in a folder that holds its state, log, loss curve and, in the end, its network.

    Parameters
    ----------
    run : from `plan_run`
    batches : the data
    folder : where everything goes
    place : the machine
    tensorboard : write its files too
    """

    def __init__(
        self,
        run: Run,
        batches: Batches,
        folder: str | os.PathLike[str],
        *,
        place: Place | None = None,
        tensorboard: bool = False,
    ) -> None:
        self.run, self.batches, self.folder = run, batches, Path(folder)
        self.place = place or Cpu()
        with _seeded(run.seed, "weights"):
            card = batches.card
            estimator = Estimator(run.recipe, len(card.wavelength), len(card.box), card.dial)
        self.state = State.fresh(run, estimator)
        self.curves = Curves(self.folder, tensorboard=tensorboard)
        self.per_epoch = run.n_train // run.recipe.training.batch
        self._features: Features | None = None

    @property
    def path(self) -> Path:
        """Where the state is saved."""
        return self.folder / STATE

    def begin(self, *, resume: bool = False) -> None:
        """Read the folder's state where there is one to continue from, or make a new one."""
        if self.path.exists():
            if not resume:
                raise UserError(f"{self.folder}: holds a training run; go on with --resume, or choose another --out")
            self.state.restore(self.path)
            self.curves.rewrite(self.state.history)
        else:
            self._learn()
            self.folder.mkdir(parents=True, exist_ok=True)
        self._features = copy.deepcopy(self.state.estimator.features)  # stays on the CPU, where batches are made

    def _learn(self) -> None:
        """Learn the scaling, and what noise-free training spectra look like; begin projections with that."""
        estimator, (clean, theta) = self.state.estimator, self._clean(SCALING)
        features = estimator.features
        if clean.size:
            features.learn(clean, theta, self.batches.card.box, self._some("training", SCALING))
        features.fit(self._some("training", SCALING))
        if isinstance(estimator.embedding, Projected) and clean.size:
            flux = torch.as_tensor(clean, dtype=torch.float32)
            good = torch.ones(flux.shape, dtype=torch.bool)
            smooth = features(flux, 1e-3 * flux, good, good[:, 0]).channels[:, 0]
            noisy = [features.prepare(batch).channels[:, 0] for batch in self._some("training", SCALING)]
            estimator.embedding.begin(smooth, torch.cat(noisy))
            self.state.start_averages()

    def _clean(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return noise-free training spectra (n, p) and their parameters, none where the data cannot give them."""
        return getattr(self.batches, "clean", lambda count: (np.zeros((0, 0)), np.zeros((0, 0))))(count)

    def fit(self, *, resume: bool = False, report: Callable[[str], None] = lambda note: None) -> Checkpoint:
        """Train to the end of the plan (or early stop) and write the network; `report` is called after each step."""
        if self._features is None:
            self.begin(resume=resume)
        if not self.state.finished:
            with _threads(self.run.threads), torch.random.fork_rng(devices=[]):
                self._loop(report)
        return self._finish()

    def _loop(self, report: Callable[[str], None]) -> None:
        state = self.state
        model, optimizer = self.place.set_up(state.estimator, state.optimizer)
        state.follow_weights()
        started, before, first = time.monotonic(), state.seconds, state.step
        saved = started
        for step, batch in prefetched(self._prepare, self._steps()):
            self._step(model, optimizer, step, batch)
            state.step = step + 1
            now = time.monotonic()
            state.seconds = before + now - started
            ended = state.plan.at(state.step) >= 1
            if state.step % self.per_epoch == 0 or ended:
                self._end_epoch(ended)
                now = saved = self._save()
            elif now - saved > SAVE_EVERY:
                saved = self._save()
            self._follow_clock(first, now - started)
            report(self._note())
            if state.finished:
                break
        self._save()

    def _steps(self) -> Iterator[int]:
        """Yield the steps to come; the plan may still move the end, so it is asked each time."""
        step = self.state.step
        while self.state.plan.at(step) < 1:
            yield step
            step += 1

    def _prepare(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Channels, scalars and unit-cube truths of a step's batch; everything random is drawn at its address."""
        size, inputs = self.run.recipe.training.batch, self.run.recipe.inputs
        epoch, index = divmod(step, self.per_epoch)
        if not self.run.recipe.training.fresh_noise:
            # The batches of the first epoch, noise and all, in another order.
            index = int(generator("batch order", self.run.seed, epoch).permutation(self.per_epoch)[index])
            epoch = 0
        batch = self.batches.train(epoch, index, size)
        known = generator("known scale", self.run.seed, step).random(len(batch)) >= inputs.scale_dropout
        prepared, unit = self._prepared(replace(batch, scale_known=known))
        mine = slice(self.place.rank, None, self.place.world)
        return prepared.channels[mine], prepared.scalars[mine], unit[mine]

    def _prepared(self, batch: Spectra) -> tuple[Prepared, Tensor]:
        """Return what the network sees of a batch, and its parameters in the unit cube."""
        assert self._features is not None, "begin() first"
        unit = self.batches.card.box.to_unit(np.asarray(batch.truth, dtype=float))
        return self._features.prepare(batch), torch.as_tensor(unit)

    def _step(self, model: Any, optimizer: Any, step: int, batch: tuple[Tensor, ...]) -> None:
        state, config = self.state, self.run.recipe.training
        rate = config.learning_rate * SCHEDULES[config.schedule](state.plan.at(step))
        for group in state.optimizer.param_groups:
            group["lr"] = rate
        model.train()
        torch.manual_seed(torch_seed("dropout", self.run.seed, step))
        optimizer.zero_grad(set_to_none=True)
        loss = -model(*self.place.put(*batch)).mean()
        self.place.backward(loss)
        parameters: list[Tensor] = list(state.estimator.parameters())
        norm = torch.nn.utils.clip_grad_norm_(parameters, config.clip or math.inf)
        value = float(self.place.mean(loss.detach()))
        if not (math.isfinite(value) and bool(torch.isfinite(norm))):
            self._diverged(step, value)
        optimizer.step()
        self._average(parameters, step)
        state.losses.append(value)

    def _average(self, parameters: list[Tensor], step: int) -> None:
        decay = self.run.recipe.training.ema
        with torch.no_grad():
            if decay is None:
                torch._foreach_copy_(self.state.average, parameters)
            else:
                # Young averages forget faster, or they would remember where they were initialized.
                torch._foreach_lerp_(self.state.average, parameters, 1 - min(decay, (1 + step) / (10 + step)))

    def _end_epoch(self, ended: bool) -> None:
        state, config = self.state, self.run.recipe.training
        score = float(
            self.place.mean(torch.tensor(self._validate(), dtype=torch.double))
        )  # every process decides on the same number
        row = {
            "epoch": len(state.history) + 1,
            "step": state.step,
            "train": float(np.mean(state.losses)),
            "validation": score,
            "learning_rate": state.optimizer.param_groups[0]["lr"],
            "seconds": round(state.seconds, 3),
            "spectra_per_second": round(state.step * config.batch / max(state.seconds, 1e-9), 1),
        }
        state.losses = []
        state.history.append(row)
        state.stale += 1
        if score < state.best_loss:
            state.best_loss, state.best_epoch, state.stale = score, row["epoch"], 0
            torch._foreach_copy_(state.best, state.average)
        if ended:
            state.finished = "end of the plan"
        elif config.patience is not None and state.stale >= config.patience:
            state.finished = f"no better validation loss in {config.patience} epochs"
        if self.place.rank == 0:
            self.curves.add(row)

    def _note(self) -> str:
        """State the losses for the progress bar."""
        recent = self.state.losses[-50:]
        now = f"loss {np.mean(recent):.2f}" if recent else ""
        if not self.state.history:
            return now
        return f"{now} validation {self.state.history[-1]['validation']:.2f} (best {self.state.best_loss:.2f})"

    @torch.no_grad()
    def _validate(self) -> float:
        """Mean loss of the averaged weights on the validation split."""
        with self._with(self.state.average) as estimator:
            total = count = 0
            for batch in self._some("validation", self.run.validation):
                prepared, unit = self._prepared(batch)
                total += float(-estimator(*self.place.put(prepared.channels, prepared.scalars, unit)).sum())
                count += len(unit)
        return total / count

    @contextmanager
    def _with(self, weights: list[Tensor]) -> Iterator[Estimator]:
        """Lend the estimator with `weights` in place of its own, for evaluation."""
        estimator = self.state.estimator
        parameters: list[Tensor] = list(estimator.parameters())
        kept = [p.detach().clone() for p in parameters]
        with torch.no_grad():
            torch._foreach_copy_(parameters, weights)
            try:
                yield estimator.eval()
            finally:
                torch._foreach_copy_(parameters, kept)

    def _some(self, split: str, count: int, size: int = 512) -> Iterator[Spectra]:
        """Yield the first `count` spectra of a split in pieces: training as in epoch 0, validation as always."""
        card = self.batches.card
        count = min(count, card.n_train if split == "training" else card.n_validation)
        for i in range(-(-count // size)):
            if split == "training":
                yield self.batches.train(0, i, size)
            else:
                yield self.batches.validation(i * size, min((i + 1) * size, count))

    def _follow_clock(self, first: int, elapsed: float) -> None:
        """With a budget in minutes, keep the end of the plan where the budget ends."""
        done = self.state.step - first
        if self.run.minutes is None or self.state.finished or done < MEASURED or done % MEASURED:
            return
        clock = torch.tensor([60 * self.run.minutes - self.state.seconds, elapsed / done], dtype=torch.double)
        left, pace = self.place.mean(clock).tolist()  # one clock for all processes
        self.state.plan = self.state.plan.redrawn(self.state.step, left, pace)

    def _save(self) -> float:
        if self.place.rank == 0:
            self.state.save(self.path)
        return time.monotonic()

    def _diverged(self, step: int, value: float) -> None:
        state, where = self.state, "no epoch was finished"
        if state.history and self.place.rank == 0:
            path = self._checkpoint(reason="diverged").save(self.folder)
            where = f"the best network so far (epoch {state.best_epoch}, validation {state.best_loss:.3f}) is {path}"
        raise Diverged(
            f"training: loss {value:g} or its gradient is not finite at step {step} (learning rate "
            f"{state.optimizer.param_groups[0]['lr']:.2g}); {where}; check the data, or lower the learning rate"
        )

    def _finish(self) -> Checkpoint:
        checkpoint = self._checkpoint(reason=self.state.finished)
        if self.place.rank == 0:
            checkpoint.save(self.folder)
            self.curves.draw(self.state.history, self.state.best_epoch)
        return checkpoint

    def _checkpoint(self, *, reason: str) -> Checkpoint:
        """Make the network of the best epoch, with what its embeddings of the data look like."""
        state = self.state
        with torch.no_grad():
            torch._foreach_copy_(tuple(state.estimator.parameters()), state.best)
        estimator = state.estimator.eval()
        clouds = [self._embeddings(estimator, split, FAMILIAR) for split in ("training", "validation")]
        metrics = {
            "validation": state.best_loss,
            "epoch": state.best_epoch,
            "epochs": len(state.history),
            "steps": state.step,
            "spectra": state.step * self.run.recipe.training.batch,
            "seconds": round(state.seconds, 1),
            "minutes": self.run.minutes,
            "threads": self.run.threads,
            "ended": reason,
        }
        known = Familiarity.of(*clouds), self._resemblance()
        return Checkpoint(estimator.cpu(), self.batches.card, self.run.seed, metrics, *known)

    def _resemblance(self) -> Resemblance | None:
        """Principal components of the training set, where it can give noise-free spectra and all are positive."""
        clean, _ = self._clean(RESEMBLED)
        if not clean.size or not (clean > 0).all():
            return None
        return Resemblance.of(clean, self._some("validation", RESEMBLING))

    @torch.no_grad()
    def _embeddings(self, estimator: Estimator, split: str, count: int) -> np.ndarray:
        parts = []
        for batch in self._some(split, count):
            channels = self._prepared(batch)[0].channels
            parts.append(estimator.embedding(*self.place.put(channels)).cpu().numpy())
        return np.concatenate(parts)


@contextmanager
def _seeded(seed: int, purpose: str) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(purpose, seed))
        yield


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
