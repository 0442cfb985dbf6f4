"""Training: resumed to the bit after kill -9, stopped with a reason, refusing what does not belong."""

import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import inference_toy
import numpy as np
import pytest
import torch
from inference_toy import batches, small, trainer, variant
from safetensors.numpy import load_file

import kappaflow.inference.training as training
from kappaflow.errors import UserError
from kappaflow.inference import VARIANTS, Checkpoint, Diverged, Posterior, Trainer, plan_run, recipe
from kappaflow.inference.devices import Fabric, place
from kappaflow.inference.features import Features
from kappaflow.inference.recipes import NetworkSize
from kappaflow.inference.schedule import SCHEDULES, Course
from kappaflow.inference.state import STATE

TOY = Path(inference_toy.__file__)
pytestmark = pytest.mark.usefixtures("one_thread")


def weights(folder):
    return load_file(folder / "network.safetensors")


def assert_equal_networks(one, other):
    a, b = weights(one), weights(other)
    assert a.keys() == b.keys()
    for name in a:
        assert np.array_equal(a[name], b[name]), name


def killed_at(folder, step):
    """Run the toy in another process and kill -9 it after it reports `step`; returns the step its state has."""
    process = subprocess.Popen(
        [sys.executable, TOY, folder], stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            if int(line) >= step:
                os.kill(process.pid, signal.SIGKILL)
                break
    assert process.wait() == -signal.SIGKILL


def test_a_run_killed_twice_and_resumed_has_the_weights_of_an_uninterrupted_one(tmp_path):
    whole = trainer(tmp_path / "whole")
    whole.fit()
    assert whole.state.step == 30
    killed_at(tmp_path / "killed", 4)
    killed_at(tmp_path / "killed", 17)  # within the second epoch
    assert not (tmp_path / "killed" / "network.safetensors").exists()
    resumed = trainer(tmp_path / "killed")
    resumed.begin(resume=True)
    assert 15 <= resumed.state.step < 30
    resumed.fit()
    assert_equal_networks(tmp_path / "whole", tmp_path / "killed")
    logs = [[json.loads(r) for r in (tmp_path / d / "log.jsonl").read_text().splitlines()] for d in ("whole", "killed")]
    assert [r["validation"] for r in logs[0]] == [r["validation"] for r in logs[1]]


def test_seed_decides_the_weights(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        trainer(tmp_path / name, seed=seed, epochs=1).fit()
    assert_equal_networks(tmp_path / "a", tmp_path / "b")
    with pytest.raises(AssertionError):
        assert_equal_networks(tmp_path / "a", tmp_path / "c")


def test_a_finished_run_resumed_is_left_as_it_is(tmp_path):
    trainer(tmp_path, epochs=1).fit()
    before = (tmp_path / STATE).read_bytes()
    trainer(tmp_path, epochs=1).fit(resume=True)
    assert (tmp_path / STATE).read_bytes() == before


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    trainer(tmp_path, epochs=1).fit()
    with pytest.raises(UserError, match="holds a training run; go on with --resume"):
        trainer(tmp_path, epochs=1).fit()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": small("paper")}, "recipe kappaflow .* resumed with paper"),
        ({"data": batches(1500, seed=5)}, "started with data"),
        ({"seed": 1}, "started with seed 0, resumed with 1"),
        ({"epochs": 2}, "started with steps 10, resumed with 20"),
    ],
)
def test_a_run_is_not_resumed_with_other_settings_or_data(tmp_path, change, said):
    trainer(tmp_path, epochs=1).fit()
    with pytest.raises(UserError, match=said):
        trainer(tmp_path, **{"epochs": 1, **change}).fit(resume=True)


def test_a_run_is_not_resumed_on_another_preset(tmp_path):
    data = batches()
    trainer(tmp_path, data=data, epochs=1).fit()
    laptop = SimpleNamespace(card=replace(data.card, preset="laptop"), train=data.train, validation=data.validation)
    with pytest.raises(UserError, match="started with preset memory, resumed with laptop"):
        trainer(tmp_path, data=laptop, epochs=1).fit(resume=True)


def test_too_few_spectra_for_one_batch_are_refused(tmp_path):
    with pytest.raises(UserError, match="fewer than one batch of 128"):
        trainer(tmp_path, data=batches(100))


class Poisoned:
    """Batches whose flux becomes NaN-making from a given epoch on: infinite truths."""

    def __init__(self, data, epoch):
        self.data, self.epoch, self.card = data, epoch, data.card

    def train(self, epoch, index, size):
        batch = self.data.train(epoch, index, size)
        return replace(batch, theta=batch.theta * np.nan) if epoch >= self.epoch else batch

    def validation(self, start, stop):
        return self.data.validation(start, stop)


def test_a_nan_loss_stops_with_the_reason_and_leaves_the_last_good_network(tmp_path):
    data = batches()
    run = trainer(tmp_path, data=Poisoned(data, 1))
    with pytest.raises(Diverged, match=r"loss nan .* at step 10 .*epoch 1, validation"):
        run.fit()
    checkpoint = Checkpoint.load(tmp_path)
    assert checkpoint.metrics["ended"] == "diverged"
    assert checkpoint.metrics["epochs"] == 1
    assert all(torch.isfinite(p).all() for p in checkpoint.estimator.parameters())
    good = trainer(tmp_path / "good", data=data)
    good.begin()
    good.state.restore(tmp_path / STATE)  # the state on disk is from before, too
    assert good.state.step == 10


def test_training_stops_early_and_keeps_the_best_epoch(tmp_path):
    run = trainer(tmp_path, small(patience=2, learning_rate=0.1, schedule="constant", clip=None, ema=None), epochs=60)
    checkpoint = run.fit()
    scores = [row["validation"] for row in run.state.history]
    assert len(scores) < 60
    assert "no better validation loss in 2 epochs" in checkpoint.metrics["ended"]
    assert checkpoint.metrics["epoch"] == 1 + int(np.argmin(scores)) == len(scores) - 2
    held = batches().validation(0, batches().card.n_validation)
    density = Posterior([checkpoint]).log_prob_batch(held.theta, held.flux, held.error, held.mask, scale_known=True)
    assert -density.mean() - np.log(checkpoint.box.widths).sum() == pytest.approx(min(scores), abs=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_of_the_recipe_trains(tmp_path, name):
    whole = small(batch=64)
    other = variant(whole, name)
    assert other.digest != whole.digest
    checkpoint = trainer(tmp_path, other, data=batches(200), epochs=1).fit()
    assert math.isfinite(checkpoint.metrics["validation"])


def test_the_papers_recipe_is_its_appendix():
    r = recipe("paper", NetworkSize(transforms=10, hidden=(256, 256)))
    assert r.training.model_dump() == {
        "batch": 64,
        "learning_rate": 1e-4,
        "weight_decay": 1e-4,
        "epochs": 60,
        "schedule": "constant",
        "clip": None,
        "ema": None,
        "patience": None,
        "fresh_noise": True,
    }
    assert (r.flow.transforms, r.flow.hidden, r.flow.box) == (10, (256, 256), "logistic")
    assert (r.embedding.kernel, r.embedding.features, r.inputs.fill) == (7, 128, "median")


def test_unknown_recipes_and_variants_are_named():
    with pytest.raises(UserError, match="unknown name 'best'; expected one of paper, kappaflow"):
        recipe("best", NetworkSize(transforms=1, hidden=(8, 8)))
    with pytest.raises(UserError, match="no variant 'luck'"):
        variant(small(), "luck")


def test_frozen_noise_repeats_the_first_epochs_batches(tmp_path):
    asked = []

    def train(epoch, index, size):
        asked.append((epoch, index, size))
        return data.train(epoch, index, size)

    def addresses(folder, settings):
        asked.clear()
        watched = SimpleNamespace(card=data.card, train=train, validation=data.validation)
        trainer(folder, settings, data=watched, epochs=2).fit()
        steps = [(epoch, index) for epoch, index, size in asked if size == settings.training.batch]
        return steps[:10], steps[10:20]

    data, settings = batches(), small()
    first, second = addresses(tmp_path / "once", variant(settings, "noise drawn once"))
    assert set(first) == set(second) == {(0, i) for i in range(10)}
    assert first != second  # in another order
    first, second = addresses(tmp_path / "fresh", settings)
    assert (first, second) == ([(0, i) for i in range(10)], [(1, i) for i in range(10)])


def test_withheld_flux_scales_have_the_share_of_the_recipe(tmp_path, monkeypatch):
    seen, prepare = [], Features.prepare
    monkeypatch.setattr(Features, "prepare", lambda self, spectra: seen.append(spectra) or prepare(self, spectra))
    run = trainer(tmp_path)
    run.fit()
    flags = np.concatenate([s.scale_known for s in seen if len(s) == run.run.recipe.training.batch])
    assert len(flags) >= 30 * 128
    assert 1 - float(flags.mean()) == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / len(flags)))


def test_cosine_ends_at_zero_and_constant_stays():
    assert SCHEDULES["cosine"](1.0) == pytest.approx(0, abs=1e-12)
    assert SCHEDULES["cosine"](0.02) > 0.99
    assert SCHEDULES["constant"](0.9) == 1


def test_a_redrawn_plan_goes_on_from_where_it_is():
    plan = Course(end=1000)
    later = plan.redrawn(200, seconds_left=50, seconds_per_step=0.5)
    assert later.at(200) == pytest.approx(0.2)
    assert later.at(250) == pytest.approx(0.6)
    assert later.at(300) == 1


def test_a_budget_in_minutes_is_kept_and_recorded(tmp_path, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: 0.01 * next(ticks)))
    checkpoint = trainer(tmp_path, epochs=10_000, minutes=0.05).fit()
    assert checkpoint.metrics["minutes"] == 0.05
    assert checkpoint.metrics["seconds"] == pytest.approx(3, abs=0.3)
    assert checkpoint.metrics["ended"] == "end of the plan"
    rates = [json.loads(line)["learning_rate"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert rates[-1] < 0.1 * max(rates)  # the cosine came down within the budget


def test_log_figure_and_tensorboard_are_written(tmp_path):
    data = batches(300)
    run = Trainer(plan_run(data, small(), seed=0, epochs=2), data, tmp_path, tensorboard=True)
    run.fit()
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [r["epoch"] for r in rows] == [1, 2]
    assert rows[0].keys() >= {"train", "validation", "learning_rate", "spectra_per_second", "step"}
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "tensorboard").iterdir())


def test_lightning_fabric_on_one_device_trains_the_same_network(tmp_path):
    pytest.importorskip("lightning_fabric")
    trainer(tmp_path / "plain", epochs=1).fit()
    data = batches()
    Trainer(plan_run(data, small(), seed=0, epochs=1), data, tmp_path / "fabric", place=Fabric("cpu", 1)).fit()
    assert_equal_networks(tmp_path / "plain", tmp_path / "fabric")


def test_devices_that_are_not_there_are_refused():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(UserError, match="1 x 'cuda' not available"):
        place("cuda", 1)
    with pytest.raises(UserError, match="expected at least 1"):
        place("cpu", 0)


def test_saving_in_the_middle_of_an_epoch_does_not_change_the_weights(tmp_path, monkeypatch):
    trainer(tmp_path / "a", epochs=1).fit()
    monkeypatch.setattr(training, "SAVE_EVERY", 0.0)
    trainer(tmp_path / "b", epochs=1).fit()
    assert_equal_networks(tmp_path / "a", tmp_path / "b")


def test_training_leaves_the_callers_random_numbers_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trainer(tmp_path, data=batches(200), epochs=1).fit()
    assert torch.equal(torch.rand(3), expected)


def run_cli(*words):
    return subprocess.run(
        [sys.executable, "-c", "from kappaflow.cli import main; main()", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_command_line_trains_on_shards_and_refuses_what_is_not_theirs(tmp_path, toy_shards, command):
    toy_shards(tmp_path / "data", 512)
    words = ("train", "--data", tmp_path / "data", "--out", tmp_path / "m")
    code, told, error = command(*words, "--epochs", 1, "--threads", 1, "--masks", "--json")
    assert code == 0, error
    assert Checkpoint.load(json.loads(told)["network"]).card.masked
    code, _, error = command(*words, "--preset", "paper")
    assert code == 2
    assert re.fullmatch(r"kappaflow: .*--preset 'paper' was asked for\n", error)
    code, _, error = command("train", "--data", tmp_path / "nowhere", "--out", tmp_path / "m")
    assert code == 2
    assert re.fullmatch(r"kappaflow: .*nowhere.*\n", error)


@pytest.mark.slow
def test_two_processes_through_lightning_fabric_share_every_batch(tmp_path, toy_shards):
    pytest.importorskip("lightning_fabric")
    toy_shards(tmp_path / "data", 512)
    common = ("train", "--data", tmp_path / "data", "--epochs", 1, "--threads", 1, "--json")
    one = run_cli(*common, "--out", tmp_path / "one")
    program = tmp_path / "program.py"  # Fabric starts the second process from the file of the first
    program.write_text("from kappaflow.cli import main\n\nmain()\n")
    words = [str(w) for w in (*common, "--out", tmp_path / "two", "--devices", 2)]
    two = subprocess.run([sys.executable, program, *words], capture_output=True, text=True)
    assert two.returncode == 0, two.stderr
    alone, shared = (json.loads(run.stdout.strip().splitlines()[-1]) for run in (one, two))
    assert shared["steps"] == alone["steps"]
    # The same batches, gradients averaged: apart from dropout's draws the same training.
    assert shared["validation"] == pytest.approx(alone["validation"], abs=0.1)
