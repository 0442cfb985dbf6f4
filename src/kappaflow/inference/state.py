"""Training as one state object: made, saved whole, read back, with nothing that decides the future left out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kappaflow.errors import UserError
from kappaflow.inference.checkpoint import read_tensors, write_tensors
from kappaflow.inference.network import Estimator
from kappaflow.inference.recipes import Recipe
from kappaflow.inference.schedule import Course
from kappaflow.presets import Frozen

__all__ = ["STATE", "Run", "State"]

STATE = "state.safetensors"
_FORMAT, _VERSION = "kappaflow-training", 1


class Run(Frozen):
    """What decides the weights, besides the data themselves: its equality is the condition for resuming."""

    recipe: Recipe
    seed: int
    data: str  # digest of the training data
    preset: str
    n_train: int
    masked: bool
    validation: int  # spectra scored after each epoch
    steps: int  # planned up front
    minutes: float | None = None  # if asked for: the plan in steps then follows the clock
    threads: int  # floating-point sums depend on it

    def refuse_unless_equal(self, other: Run, path: Path) -> None:
        """Raise unless `other`, found at `path`, is this run."""
        for name in type(self).model_fields:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                if isinstance(mine, Recipe):
                    mine, theirs = f"{mine.name} ({mine.digest})", f"{theirs.name} ({theirs.digest})"
                raise UserError(
                    f"{path}: started with {name} {theirs}, resumed with {mine}; "
                    "resume with the same settings and data, or choose another --out"
                )


@dataclass
class State:
    """Everything a run needs to go on as if it had never stopped. All randomness is addressed by `step`."""

    run: Run
    estimator: Estimator
    optimizer: torch.optim.Optimizer
    plan: Course
    average: list[Tensor]  # moving average of the parameters, or the parameters where the recipe has none
    best: list[Tensor]  # those of the best validation loss
    step: int = 0
    losses: list[float] = field(default_factory=list)  # of this epoch's steps so far
    best_loss: float = float("inf")
    best_epoch: int = 0
    stale: int = 0  # epochs since then
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)  # one row per epoch
    finished: str = ""  # why it ended

    @classmethod
    def fresh(cls, run: Run, estimator: Estimator) -> State:
        """Make the state of a run that has not begun."""
        config = run.recipe.training
        parameters = list(estimator.parameters())
        optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)
        for p in parameters:  # as AdamW's first step would, so that a state is whole from the start
            zeros = (torch.zeros_like(p, requires_grad=False) for _ in range(2))
            optimizer.state[p] = {"step": torch.tensor(0.0), **dict(zip(("exp_avg", "exp_avg_sq"), zeros, strict=True))}
        state = cls(run, estimator, optimizer, Course(end=run.steps), [], [])
        state.start_averages()
        return state

    def start_averages(self) -> None:
        """Let the moving average and the best weights be the weights as they are."""
        self.average, self.best = ([p.detach().clone() for p in self.estimator.parameters()] for _ in range(2))

    def follow_weights(self) -> None:
        """Bring averages and moments to the device the weights were moved to."""
        for i, p in enumerate(self.estimator.parameters()):
            self.average[i], self.best[i] = self.average[i].to(p.device), self.best[i].to(p.device)
            moments = self.optimizer.state[p]
            for key in moments:
                moments[key] = moments[key].to(p.device)

    def save(self, path: Path) -> None:
        """Write the whole state, or nothing."""
        arrays: dict[str, np.ndarray] = {}
        for i, (name, p) in enumerate(self.estimator.named_parameters()):
            moments = self.optimizer.state[p]
            arrays[f"weights/{name}"] = _numpy(p)
            arrays[f"average/{name}"] = _numpy(self.average[i])
            arrays[f"best/{name}"] = _numpy(self.best[i])
            for key in ("step", "exp_avg", "exp_avg_sq"):
                arrays[f"{key}/{name}"] = _numpy(moments[key])
        for name, buffer in self.estimator.features.named_buffers():
            arrays[f"features/{name}"] = _numpy(buffer)
        arrays["losses"] = np.asarray(self.losses, dtype=float)
        header = {
            "format": _FORMAT,
            "version": _VERSION,
            "run": self.run.model_dump(mode="json"),
            "plan": asdict(self.plan),
            "step": self.step,
            "best_loss": self.best_loss if np.isfinite(self.best_loss) else None,
            "best_epoch": self.best_epoch,
            "stale": self.stale,
            "seconds": self.seconds,
            "history": self.history,
            "finished": self.finished,
        }
        write_tensors(path, arrays, header)

    def restore(self, path: Path) -> None:
        """Become the state saved at `path`, if it is of the same run."""
        arrays, header = read_tensors(path, _FORMAT, _VERSION)
        self.run.refuse_unless_equal(Run.model_validate(header["run"]), path)
        with torch.no_grad():
            for i, (name, p) in enumerate(self.estimator.named_parameters()):
                p.copy_(torch.from_numpy(arrays[f"weights/{name}"]))
                self.average[i].copy_(torch.from_numpy(arrays[f"average/{name}"]))
                self.best[i].copy_(torch.from_numpy(arrays[f"best/{name}"]))
                for key in ("step", "exp_avg", "exp_avg_sq"):
                    moment = self.optimizer.state[p][key]
                    moment.copy_(torch.from_numpy(arrays[f"{key}/{name}"]).reshape(moment.shape))
            for name, buffer in self.estimator.features.named_buffers():
                buffer.copy_(torch.from_numpy(arrays[f"features/{name}"]))
        self.losses = arrays["losses"].tolist()
        self.plan = Course(**header["plan"])
        self.best_loss = float("inf") if header["best_loss"] is None else header["best_loss"]
        for name in ("step", "best_epoch", "stale", "seconds", "history", "finished"):
            setattr(self, name, header[name])


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
