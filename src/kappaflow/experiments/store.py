"""Where steps lie, and whether one that is found is whole.

    DIR/cache/data-KEY/            shards                    data-KEY.json
    DIR/cache/network-KEY/         network.safetensors       network-KEY.json
    DIR/cache/draws-KEY.npz        draws                     draws-KEY.json

The JSON beside a step is written last, whole: where it is, the step was finished. Draws are kept as 16-bit places in
the prior box: 1.5e-5 of a prior's width is far below the noise of a few hundred draws, and half the disk.
"""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kappaflow.calibrate import Draws, check_draws
from kappaflow.errors import UserError
from kappaflow.experiments.steps import DataSet, Drawn, Step, TrainedNetwork
from kappaflow.inference.checkpoint import FILE, Checkpoint
from kappaflow.simulation.directory import check_directory
from kappaflow.spectra import Box
from kappaflow.storage import digest_arrays, write_json, written_whole

__all__ = ["StepStore", "Told"]

STEPS = 1 << 16  # places in the prior box


@dataclass(frozen=True, eq=False)
class Told:
    """What networks said of the objects of a test set, pooled: draws, log density of the truth (n,), SNR (n,)."""

    draws: Draws
    log_prob: np.ndarray
    snr: np.ndarray
    good: np.ndarray  # (n,), share of good pixels shown


@dataclass(frozen=True)
class StepStore:
    """The cache folder of a study."""

    folder: Path

    def path(self, step: Step) -> Path:
        """Folder of a set or a network, file of draws."""
        return self.folder / f"{step.kind}-{step.key}{'.npz' if isinstance(step, Drawn) else ''}"

    def marker(self, step: Step) -> Path:
        """File that says that a step was finished, and what it is."""
        return self.folder / f"{step.kind}-{step.key}.json"

    def told(self, step: Step) -> dict[str, Any] | None:
        """Return what the marker says, or None where the step was not finished."""
        try:
            return json.loads(self.marker(step).read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
            return None

    def mark(self, step: Step, seconds: float, **more: Any) -> None:
        """Say that a step is finished, and how long it took."""
        content = {"name": step.name, "kind": step.kind, "key": step.key, "seconds": round(seconds, 2), **more}
        write_json(self.marker(step), content)

    def has(self, step: Step) -> bool:
        """Whether a step is finished and every byte of it is what was written."""
        told = self.told(step)
        if told is None:
            return False
        try:
            if isinstance(step, DataSet):
                state = check_directory(self.path(step))
                return state["good"] == state["shards"]
            if isinstance(step, TrainedNetwork):
                return bool(Checkpoint.load(self.path(step) / FILE))
            return digest_arrays(self._arrays(step)) == told.get("digest")
        except (UserError, OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return False

    def write_draws(self, step: Drawn, box: Box, arrays: dict[str, np.ndarray], seconds: float) -> None:
        """Keep draws (n, s, p) inside `box`, with "truth" (n, p), "log_prob", "snr" and "good" (n,)."""
        unit = np.clip(box.to_unit(arrays["draws"]) * STEPS, 0, STEPS - 1)
        kept = {**arrays, "draws": unit.astype(np.uint16), "names": np.array(box.names)}
        kept |= {"low": np.asarray(box.low, float), "high": np.asarray(box.high, float)}
        with written_whole(self.path(step)) as part, part.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **kept)
        self.mark(step, seconds, digest=digest_arrays(kept))

    def _arrays(self, step: Drawn) -> dict[str, np.ndarray]:
        with np.load(self.path(step), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}

    def read_draws(self, *steps: Drawn) -> Told:
        """Read the draws of networks on one test set, concatenated; the density is the members' mean."""
        parts = [self._arrays(step) for step in steps]
        first = parts[0]
        low, width = first["low"].astype(np.float32), (first["high"] - first["low"]).astype(np.float32)
        count, size = [part["draws"].shape[1] for part in parts], first["draws"].shape
        draws = np.empty((size[0], sum(count), size[2]), dtype=np.float32)
        for start, part in zip(np.cumsum([0, *count[:-1]]), parts, strict=True):
            some = draws[:, start : start + part["draws"].shape[1]]
            np.multiply(part["draws"] + np.float32(0.5), width / np.float32(STEPS), out=some)
            some += low
        density = np.logaddexp.reduce([part["log_prob"] for part in parts]) - np.log(len(parts))
        prior = (first["low"], first["high"])
        checked = check_draws(first["truth"], draws, prior=prior, names=[str(name) for name in first["names"]])
        return Told(checked, density, first["snr"], first["good"])
