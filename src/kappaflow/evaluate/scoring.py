"""One row of a table: a posterior on held-out spectra, in the words of the calibration suite."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kappaflow.calibrate import LEVELS, check_draws, interval_score, summarize
from kappaflow.calibrate.interval_coverage import inside_by_rank, nearest
from kappaflow.inference import Posterior
from kappaflow.simulation import Shards, make_config, simulate_directory
from kappaflow.spectra import Spectra

__all__ = ["focus", "score", "score_fresh"]

SCORED = 400  # draws per spectrum: a row averages over spectra, and more draws of each would not sharpen it


def focus(names: Sequence[str]) -> str:
    """Return the parameter that tables show: C/O, or the first where there is none."""
    return "C_O" if "C_O" in names else names[0]


def score(posterior: Posterior, observed: Spectra, *, draws: int = SCORED, seed: int = 1) -> dict[str, Any]:
    """Judge `posterior` on simulated spectra by `draws` draws each, with a dial at each spectrum's own amplitude.

    Coverage is of C/O (the first parameter where there is none) by rank, overall the mean over parameters; width is the
    median of the 90 % interval, and both it and the interval scores are over the prior's width; nats are the mean gain
    in log density over the prior.
    """
    truth, box = np.asarray(observed.truth, dtype=float), posterior.box
    sampled = posterior.sample_spectra(observed, n=draws, seed=seed)
    checked = check_draws(truth, sampled, prior=(np.asarray(box.low), np.asarray(box.high)), names=box.names)
    summary = summarize(checked, LEVELS)
    target = box.names.index(focus(box.names))
    ninety = nearest(summary.levels, 0.9)
    inside = inside_by_rank(summary.below, summary.ties, summary.count, summary.levels).mean(axis=1)  # (l, p)
    each = interval_score(summary.truth, summary.lower, summary.upper, summary.levels)[ninety].mean(axis=0) / box.widths
    density = posterior.log_prob_spectra(truth, observed)
    return {
        "parameter": box.names[target],
        "n": len(truth),
        "coverage": {f"{level:.2f}": float(c) for level, c in zip(LEVELS, inside[:, target], strict=True)},
        "overall": {f"{level:.2f}": float(c) for level, c in zip(LEVELS, inside.mean(axis=1), strict=True)},
        "width": float(np.median(summary.width[ninety, :, target]) / box.widths[target]),
        "interval_score": float(each[target]),
        "interval_score_overall": float(each.mean()),
        "nats_from_prior": float(density.mean() + np.log(box.widths).sum()),
    }


def score_fresh(networks: Mapping[str, Posterior], folder: Path, n: int, *, seed: int) -> dict[str, dict[str, Any]]:
    """Score each posterior on `n` spectra of the packaged opacities made here and now (and kept in `folder`).

    Those with a dial are judged where it stands, whatever the spectra's amplitude.
    """
    card = next(iter(networks.values())).members[0].card
    config = make_config(preset=card.preset, parameters=card.parameters)
    simulate_directory(folder, config, n, seed=seed, resume=True)
    shards = Shards(folder, seed=seed)
    for posterior in networks.values():
        posterior.refuse_training_seed(shards.card.seed, folder)
    observed = replace(shards.evaluation(n), amplitude=None)
    return {kind: score(posterior, observed) for kind, posterior in networks.items()}
