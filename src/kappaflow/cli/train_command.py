"""`kappaflow train`: a directory of shards becomes a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kappaflow.errors import UserError

if TYPE_CHECKING:
    from kappaflow.inference import Batches, Recipe

__all__ = ["open_batches", "recipe_for", "register"]

HELP = """Train a network on a directory of shards.

Writes into --out: network.safetensors (the network: weights, settings, scaling, provenance), log.jsonl and loss.png
(the loss curve), state.safetensors (everything --resume needs). A run that was killed goes on with --resume and ends
with the same weights. The loss is counted from the prior: 0 is a network that has learned nothing.

Example: [bold]kappaflow train --data train --out marginalized-0 --seed 0 --masks[/bold]
one more member of the ensemble: [bold]kappaflow train --data train --out marginalized-1 --seed 1 --masks[/bold]
at most 45 minutes: [bold]kappaflow train --data train --out quick --minutes 45[/bold]
"""


def open_batches(data: Path, *, masks: bool = False, limit: int | None = None) -> Batches:
    """Open the shards in `data` as training batches; `limit` keeps the first so many training spectra."""
    from kappaflow.simulation import Shards

    shards = Shards(data, masks=masks)
    if limit is not None:
        training, held = shards.split
        if not 1 <= limit <= len(training):
            raise UserError(f"{data}: {limit} training spectra asked; it has {len(training)}")
        shards.split = (training[:limit], held)
    return shards


def recipe_for(name: str, preset_name: str) -> Recipe:
    """Recipe `name` with the network size that belongs to the preset of the data."""
    from kappaflow.inference import recipe
    from kappaflow.presets import preset

    return recipe(name, preset(preset_name).network)


def _train(batches: Batches, recipe: Recipe, out: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Run the training with a progress bar and say what came out."""
    from kappaflow.inference import Trainer, place, plan_run
    from kappaflow.inference.checkpoint import FILE
    from kappaflow.progress import progress

    run = plan_run(batches, recipe, seed=options["seed"], epochs=options["epochs"], minutes=options["minutes"])
    machine = place(options["accelerator"], options["devices"])
    trainer = Trainer(run, batches, out, place=machine, tensorboard=options["tensorboard"])
    trainer.begin(resume=options["resume"])
    batch, state = recipe.training.batch, trainer.state
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
    # Of several processes one speaks.
    return {"network": str(out / FILE), "recipe": recipe.name, **checkpoint.metrics} if machine.rank == 0 else {}


def train(
    data: Annotated[Path, typer.Option(help="Directory made by `kappaflow simulate`.")],
    out: Annotated[Path, typer.Option(help="Folder for the network and its training state.")],
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
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    batches = open_batches(data, masks=masks)
    if preset is not None and preset != batches.card.preset:
        raise UserError(f"{data}: spectra of preset {batches.card.preset!r}; --preset {preset!r} was asked for")
    options: dict[str, Any] = {
        "seed": seed,
        "epochs": epochs,
        "minutes": minutes,
        "resume": resume,
        "accelerator": accelerator,
        "devices": devices,
        "tensorboard": tensorboard,
    }
    result = _train(batches, recipe_for(recipe, batches.card.preset), out, options)
    if as_json and result:
        print(json.dumps(result))
    elif result:
        print(
            f"{result['network']}: validation loss {result['validation']:.3f} nats (epoch {result['epoch']} of "
            f"{result['epochs']}), {result['spectra']:,} spectra in {result['seconds']:.0f} s; {result['ended']}"
        )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train", help=HELP)(train)
