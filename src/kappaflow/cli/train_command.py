"""`kappaflow train`: a directory of shards becomes a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kappaflow.cli.command_line import need_extra
from kappaflow.cli.config_file import ConfigFile
from kappaflow.errors import UserError

if TYPE_CHECKING:
    from kappaflow.inference import Trainer

__all__ = ["train"]

HELP = """Train a network on a directory of shards.

Writes into --out: network.safetensors (the network: weights, settings, scaling, provenance), log.jsonl and loss.png
(the loss curve), state.safetensors (everything --resume needs). A run that was killed goes on with --resume and ends
with the same weights. The loss is counted from the prior: 0 is a network that has learned nothing.

Example: [bold]kappaflow train --data train --out marginalized-0 --seed 0 --masks[/bold]
one more member of the ensemble: [bold]kappaflow train --data train --out marginalized-1 --seed 1 --masks[/bold]
on the set of a config.json: [bold]kappaflow train --config train/config.json --out marginalized-2 --seed 2[/bold]
at most 45 minutes: [bold]kappaflow train --data train --out quick --minutes 45[/bold]
"""


def _fit(trainer: Trainer) -> dict[str, Any]:
    """Train with a progress bar, of spectra or of the minutes allowed, and say what came out."""
    from kappaflow.inference.checkpoint import FILE
    from kappaflow.progress import progress

    run, state, out, batch = trainer.run, trainer.state, trainer.folder, trainer.run.recipe.training.batch
    if run.minutes is None:
        with progress(f"training {out.name}", run.steps * batch, unit="spectra", done=state.step * batch) as advance:
            checkpoint = trainer.fit(report=lambda note: advance(batch, note=note))
    else:
        shown = [state.seconds]

        def tick(note: str) -> None:
            advance(state.seconds - shown[0], note=note)
            shown[0] = state.seconds

        with progress(f"training {out.name}", int(60 * run.minutes), unit="s", done=int(shown[0])) as advance:
            checkpoint = trainer.fit(report=tick)
    return {"network": str(out / FILE), "recipe": run.recipe.name, **checkpoint.metrics}


def train(
    data: Annotated[Path, typer.Option(help="Directory made by `kappaflow simulate`.")],
    out: Annotated[Path, typer.Option(help="Folder for the network and its training state.")],
    config: ConfigFile = None,
    seed: Annotated[int, typer.Option(help="Of weights, dropout and withheld flux scales.")] = 0,
    recipe: Annotated[str, typer.Option(help="kappaflow or paper.")] = "kappaflow",
    preset: Annotated[str | None, typer.Option(help="Refuse data that is not of this preset.")] = None,
    masks: Annotated[bool, typer.Option("--masks", help="Train with realistic bad-pixel masks.")] = False,
    epochs: Annotated[int | None, typer.Option(min=1, help="Instead of the recipe's.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Budget: the schedule ends when it does (not to the bit).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, if there is one.")] = False,
    accelerator: Annotated[str, typer.Option(help="cpu, or a GPU through Lightning Fabric: cuda.")] = "cpu",
    devices: Annotated[int, typer.Option(min=1, help="Number of GPUs (or of CPU processes).")] = 1,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; fixes the sums to the bit.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard's files too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a network (see `HELP`)."""
    if tensorboard:
        need_extra("tensorboard")
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    from kappaflow import presets
    from kappaflow.inference import Trainer, place, plan_run
    from kappaflow.inference import recipe as recipe_named
    from kappaflow.simulation import Shards

    batches = Shards(data, masks=masks)
    if preset is not None and preset != batches.card.preset:
        raise UserError(f"{data}: spectra of preset {batches.card.preset!r}; --preset {preset!r} was asked for")
    settings = recipe_named(recipe, presets.preset(batches.card.preset).network)
    run = plan_run(batches, settings, seed=seed, epochs=epochs, minutes=minutes)
    trainer = Trainer(run, batches, out, place=place(accelerator, devices), tensorboard=tensorboard)
    trainer.begin(resume=resume)
    result = _fit(trainer)
    if trainer.place.rank != 0:
        return  # of several processes one speaks
    if as_json:
        print(json.dumps(result))
    else:
        print(
            f"{result['network']}: validation loss {result['validation']:.3f} nats (epoch {result['epoch']} of "
            f"{result['epochs']}), {result['spectra']:,} spectra in {result['seconds']:.0f} s; {result['ended']}"
        )
