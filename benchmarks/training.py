"""Training throughput against sbi's NPE loop: the same network, batch size and number of spectra, the same run.

    python benchmarks/training.py [--recipe NAME] [--spectra 4096] [--pixels 1800] [--rounds 3] [--threads 1] [--json]

sbi is given the network as its layers are usually written (Conv1d, zuko's NSF) and spectra that are already noisy and
scaled; it shuffles, trains two epochs and validates. kappaflow trains the same network with its own loop for as many
and validates, and besides draws fresh noise, scales the inputs, averages the weights and saves its state. The two take
turns, on one thread each unless told otherwise (kappaflow makes its batches in another). Their log densities on the
same weights are compared. What bounds the loop is measured part by part.
"""

import argparse
import contextlib
import json
import logging
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sbi.inference import NPE
from sbi.neural_nets.estimators.zuko_flow import ZukoFlow
from torch import nn

from kappaflow.inference import Estimator, Trainer, plan_run, recipe
from kappaflow.inference.features import Prepared
from kappaflow.parameters import bounds
from kappaflow.presets import preset

VALIDATION = 0.1
EPOCHS = 2


class Clock:
    """Wall time, and the processor time of all threads, which a busy machine disturbs less."""

    def __init__(self):
        self.start = time.perf_counter(), time.process_time()

    def rates(self, spectra):
        """Spectra per second of either."""
        return spectra / (time.perf_counter() - self.start[0]), spectra / (time.process_time() - self.start[1])


class Plain(nn.Module):
    """The embedding as one would write it, on flattened channels followed by the scalars."""

    def __init__(self, estimator):
        super().__init__()
        self.ours, self.shape = estimator.embedding, (len(estimator.recipe.inputs.channels), estimator.pixels)
        self.pooled = estimator.recipe.embedding.kind == "pooled"

    def forward(self, x):  # noqa: D102
        net, split = self.ours, self.shape[0] * self.shape[1]
        channels, scalars = x[:, :split].unflatten(1, self.shape), x[:, split:]
        y = channels
        for conv in net.blocks:
            y = torch.relu(conv(y))
            y = nn.functional.max_pool1d(y, 2) if self.pooled else y
        parts = [y.mean(dim=-1) if self.pooled else torch.relu(net.flat(y.flatten(1)))]
        if net.dense is not None:
            parts.append(torch.relu(net.dense(channels.flatten(1))))
        y = net.dropout(torch.cat(parts, dim=-1))
        y = y if self.pooled else net.dropout(torch.relu(net.mix(y)))
        return torch.cat((net.out(y), scalars), dim=-1)


def data(spectra, pixels):
    """Smooth made-up spectra: throughput does not ask what is in them."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
    from array_batches import ArrayBatches

    rng = np.random.default_rng(0)
    low, high = bounds()
    theta = rng.uniform(low, high, (spectra, 15))
    unit = (theta - low) / (high - low)
    flux = np.exp(0.5 * unit @ np.sin(np.outer(np.arange(1, 16), np.linspace(0, 6, pixels)))).astype(np.float32)
    return ArrayBatches(theta, flux, 0.02 * flux)


def prepared(batches, estimator, n):
    """All spectra as sbi wants them: flow variable (n, 15) and flattened inputs (n, C p + S)."""
    inputs, variables = [], []
    for i in range(-(-n // 512)):
        batch = batches.train(0, i, 512)
        ready = estimator.features.prepare(batch)
        inputs.append(torch.cat((ready.channels.flatten(1), ready.scalars), dim=1))
        variables.append(estimator.flow.variable(torch.as_tensor(batches.card.box.to_unit(batch.theta.astype(float)))))
    return torch.cat(variables), torch.cat(inputs)


def sbi_flow(estimator, variables, inputs):
    return ZukoFlow(
        estimator.flow.nsf, Plain(estimator), input_shape=variables[0].shape, condition_shape=inputs[0].shape
    )


def sbi_rates(settings, pixels, variables, inputs):
    """Training spectra per second of sbi's NPE."""
    torch.manual_seed(0)
    npe = NPE(
        density_estimator=lambda v, x: sbi_flow(Estimator(settings, pixels, 15), v, x),
        show_progress_bars=False,
        logging_level=logging.ERROR,
    )
    npe.append_simulations(variables, inputs)
    clock = Clock()
    npe.train(
        training_batch_size=settings.training.batch,
        learning_rate=settings.training.learning_rate,
        validation_fraction=VALIDATION,
        max_num_epochs=EPOCHS,
    )
    return clock.rates(EPOCHS * len(variables) * (1 - VALIDATION))


def our_rates(settings, batches):
    """Training spectra per second of ours, validation and saving included."""
    run = plan_run(batches, settings, seed=0, epochs=EPOCHS)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(run, batches, Path(folder))
        trainer.begin()
        clock = Clock()
        trainer._loop(lambda note: None)
        return clock.rates(trainer.state.step * settings.training.batch)


def same_density(estimator, variables, inputs):
    """Largest difference of log densities of the two on the same weights."""
    estimator.eval()
    with torch.no_grad():
        v, x = variables[:64], inputs[:64]
        theirs = sbi_flow(estimator, v, x).log_prob(v[None], x)[0]
        split = len(estimator.recipe.inputs.channels) * estimator.pixels
        ready = Prepared(x[:, :split].unflatten(1, (-1, estimator.pixels)), x[:, split:])
        unit = estimator.flow.map.to_unit(v.double())
        ours = estimator(ready.channels, ready.scalars, unit) + estimator.flow.map.log_slope(v).sum(-1)
    return float((ours - theirs).abs().max())


def parts(settings, batches, repeats=7):
    """Milliseconds of each part of a step, measured by itself."""
    pixels = len(batches.card.wavelength)
    torch.manual_seed(0)
    estimator = Estimator(settings, pixels, 15).train()
    size = settings.training.batch
    optimizer = torch.optim.AdamW(estimator.parameters(), fused=True)
    batch = batches.train(0, 0, size)
    ready = estimator.features.prepare(batch)
    unit = torch.as_tensor(batches.card.box.to_unit(batch.theta.astype(float)))
    context = estimator.context(ready).detach().requires_grad_()

    def update():
        torch.nn.utils.clip_grad_norm_(estimator.parameters(), 5.0)
        optimizer.step()

    steps = {
        "embedding, forward and backward": lambda: estimator.embedding(ready.channels).sum().backward(),
        "flow, forward and backward": lambda: estimator.flow(unit, context).mean().backward(),
        "clipping and optimizer": update,
        "noise (another thread)": lambda: batches.train(0, 0, size),
        "inputs (another thread)": lambda: estimator.features.prepare(batch),
    }
    times = {}
    for name, step in steps.items():
        seen = []
        for _ in range(repeats):
            start = time.perf_counter()
            step()
            seen.append(time.perf_counter() - start)
        times[name] = round(1e3 * statistics.median(seen[1:]), 2)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="kappaflow")
    parser.add_argument("--preset", default="laptop", help="whose network size")
    parser.add_argument("--spectra", type=int, default=4096)
    parser.add_argument("--pixels", type=int, default=1800)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    warnings.simplefilter("ignore")
    settings = recipe(given.recipe, preset(given.preset).network)
    batches = data(given.spectra, given.pixels)
    torch.manual_seed(0)
    estimator = Estimator(settings, given.pixels, 15)
    estimator.features.fit([batches.train(0, 0, 1024)])
    variables, inputs = prepared(batches, estimator, batches.card.n_train)
    rates = {"sbi": [], "kappaflow": []}
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as litter, contextlib.chdir(litter):  # sbi leaves its logs where it runs
            rates["sbi"].append(sbi_rates(settings, given.pixels, variables, inputs))
        rates["kappaflow"].append(our_rates(settings, batches))
    wall, processor = (
        {name: statistics.median(v[i] for v in values) for name, values in rates.items()} for i in (0, 1)
    )
    times = parts(settings, batches)
    result = {
        "recipe": given.recipe,
        "batch": settings.training.batch,
        "pixels": given.pixels,
        "threads": torch.get_num_threads(),
        "spectra_per_second": {name: round(v, 1) for name, v in wall.items()},
        "ratio": round(wall["kappaflow"] / wall["sbi"], 3),
        "spectra_per_processor_second": {name: round(v, 1) for name, v in processor.items()},
        "ratio_of_processor_time": round(processor["kappaflow"] / processor["sbi"], 3),
        "target": 1.3,
        "largest_difference_of_log_density": same_density(estimator, variables, inputs),
        "milliseconds": times,
        "bounded_by": max(times, key=times.get),
    }
    print(json.dumps(result) if given.json else "\n".join(f"{k}: {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
