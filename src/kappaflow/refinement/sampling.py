"""Exact draws about one mode: an emulator learns from exact spectra, chains walk on it, exact weights judge them.

Round by round: chains walk on the emulator; coefficients, gains and sigma_cal are drawn for some of their places; the
forward model says what these are worth; some of them, with derivatives, teach the emulator. When enough of the weight
is shared the last walk is weighed, and the weights make its draws exact, whatever the emulator misses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from kappaflow.refinement.emulator import Design, Emulator, design
from kappaflow.refinement.importance import Exact, Judged, Weights, smoothed
from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.nested import Nested
from kappaflow.refinement.outer import Outer
from kappaflow.refinement.population import Population, efficiency, log_normalization, split_r_hat, walk

__all__ = ["Effort", "Sampled", "sample"]

FIRST = 16  # points of the first design
NEAR = 0.5  # how far from the mode they are drawn, in Laplace's standard deviations
FLATTENED = 8.0  # ln weights are divided by this where the emulator's next points are chosen
HOPELESS = 300.0  # nats: draws worth less than the best by more teach nothing


@dataclass(frozen=True)
class Effort:
    """How much is spent per mode."""

    chains: int = 24
    rounds: tuple[int, int] = (2, 5)  # of learning, at least and at most
    tuned: int = 15  # trajectories of every round that tune the step
    walked: int = 15  # and that are weighed
    weighed: int = 64  # draws per round: as many spectra as are computed together
    taught: int = 24  # of them, with derivatives
    enough: float = 0.3  # share of effective draws that ends the learning
    last: int = 48  # trajectories of the last walk, all of whose places are draws
    final: int = 768  # draws that are weighed at the end


@dataclass(frozen=True, eq=False)
class Sampled:
    """Weighted draws about one mode, and how good they are."""

    z: np.ndarray  # (n, size)
    weights: Weights
    log_evidence: float
    r_hat: float  # of the last walk
    ess: float  # of the weights, times the share of independent draws in the walk
    rounds: int = 0  # of learning

    @property
    def pareto_k(self) -> float:
        """Shape of the weights' tail; above 0.7 they are not to be trusted."""
        return self.weights.pareto_k


def sample(
    joint: Joint,
    z: np.ndarray,
    covariance: np.ndarray,
    rng: np.random.Generator,
    *,
    effort: Effort = Effort(),  # noqa: B008 (frozen)
    advance: Callable[[], None] = lambda: None,
) -> Sampled:
    """Draw from the posterior about the mode `z` (size,) with Laplace's `covariance`; `advance` is called per round."""
    outer, exact = Outer(joint), Exact(joint, z, covariance)
    root = np.linalg.cholesky(covariance)
    begin = z + NEAR * rng.standard_normal((FIRST - 1, z.size)) @ root.T
    made = design(joint, np.concatenate([z[None], begin]))
    root = np.linalg.cholesky(outer.covariance(z, covariance)[: outer.size, : outer.size])
    start = outer.of(z[None]) + NEAR * rng.standard_normal((effort.chains, outer.size)) @ root.T
    chains = Population(start, root)
    f = joint.coordinates.point(z).f
    for count in range(1, effort.rounds[1] + 1):
        density = Nested(joint, Emulator(joint, made, covariance, f), z, covariance)
        chains, _, _ = walk(density, chains, effort.tuned, rng, tune=True)
        chains, path, _ = walk(density, chains, effort.walked, rng)
        flat = path.reshape(-1, outer.size)
        w = flat[rng.choice(len(flat), effort.weighed, replace=False)]
        judged = exact.judge(*density.draw(w, rng), rng)
        weights = smoothed(judged.ln_weight)
        advance()
        if count >= effort.rounds[0] and weights.ess > effort.enough * effort.weighed:
            break
        made = made.joined(_lessons(joint, judged, effort.taught, rng))
        chains = _restarted(chains, flat, w, judged.ln_weight, rng)
    return replace(_last(density, exact, chains, effort, rng), rounds=count)


def _flattened(ln_weight: np.ndarray) -> np.ndarray:
    """Probabilities in which large and small weights are a little more alike."""
    return np.exp(ln_weight / FLATTENED - np.logaddexp.reduce(ln_weight / FLATTENED))


def _lessons(joint: Joint, judged: Judged, taught: int, rng: np.random.Generator) -> Design:
    """Return new points: two of three with derivatives where the weight is, one anywhere; the others as spectra."""
    n = len(judged.z)
    chance = 0.67 * _flattened(judged.ln_weight) + 0.33 / n
    chosen = rng.choice(n, taught, replace=False, p=chance / chance.sum())
    rest = np.setdiff1d(np.flatnonzero(judged.ln_weight > judged.ln_weight.max() - HOPELESS), chosen)
    made = design(joint, judged.z[chosen])
    return made.joined(design(joint, judged.z[rest], judged.flux[rest])) if rest.size else made


def _restarted(
    chains: Population, flat: np.ndarray, w: np.ndarray, ln_weight: np.ndarray, rng: np.random.Generator
) -> Population:
    """Let chains go on from where the exact weight is, with the metric of where they were."""
    at = w[rng.choice(len(w), len(chains.at), p=_flattened(ln_weight))]
    covariance = np.cov(flat.T)
    old = chains.root @ chains.root.T
    return replace(chains.with_covariance(0.5 * covariance + 0.5 * old), at=at)


def _last(density: Nested, exact: Exact, chains: Population, effort: Effort, rng: np.random.Generator) -> Sampled:
    """Walk once more, weigh, and normalize."""
    chains, path, _ = walk(density, chains, effort.tuned, rng, tune=True)
    chains, path, values = walk(density, chains, effort.last, rng)
    flat = path.reshape(-1, path.shape[2])
    chosen = rng.permutation(len(flat))[: effort.final]
    parts = [
        exact.judge(*density.draw(flat[chosen[i : i + effort.weighed]], rng), rng)
        for i in range(0, len(chosen), effort.weighed)
    ]
    judged = Judged.joined(parts)
    weights = smoothed(judged.ln_weight)
    order = rng.permutation(len(flat))
    evidence = log_normalization(density, flat[order], values.ravel()[order], rng) + weights.ln_mean
    constants = 0.5 * np.log(2 * np.pi) * (density.outer.smooth.size + exact.joint.data.flux.size)
    ess = weights.ess * efficiency(path)
    return Sampled(judged.z, weights, evidence - constants, split_r_hat(path), ess)
