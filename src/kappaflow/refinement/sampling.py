"""Exact draws about one mode: an emulator learns from exact spectra, chains walk on it, exact weights judge them.

Round by round: chains walk on the emulator; radius, gains and sigma_cal are drawn for some of their places; the forward
model says what these are worth, and its spectra teach the emulator. When enough of the weight is shared the last walk
is weighed, and the weights make its draws exact, whatever the emulator misses. Where they have a heavy tail chains go
on by steps that the forward model accepts (`exact_chains.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from kappaflow.refinement.emulated import EmulatedDensity, Fence
from kappaflow.refinement.emulator import Emulator, Lessons, expansion
from kappaflow.refinement.exact_chains import ExactPath, ExactState, go_on, state_at
from kappaflow.refinement.importance import Judged, Weights, judge, smoothed
from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.outer import Outer
from kappaflow.refinement.population import Population, bridged, efficiency, log_normalization, split_r_hat, walk
from kappaflow.refinement.warp import Warp

__all__ = ["LIMITS", "Effort", "Learned", "Sampled", "finish", "learn", "sample"]

LIMITS = {"pareto_k": 0.7, "r_hat": 1.1, "ess": 100.0}  # Vehtari et al. 2024 for the first
NEAR = 0.5  # how far from the mode chains begin, in Laplace's standard deviations
FLATTENED = 8.0  # ln weights are divided by this where chains begin anew
HOPELESS = 300.0  # nats: draws worth less than the best by more teach nothing
SEEN = 12.0  # nats: draws worth less than the best by more are no part of the posterior
LOST = 0.25  # share of such draws from which a chain is


@dataclass(frozen=True)
class Effort:
    """How much is spent per mode."""

    chains: int = 32
    first: int = 128  # spectra of the first lesson
    rounds: tuple[int, int] = (2, 4)  # of learning, at least and at most
    tuned: int = 12  # trajectories of every round that tune the step
    walked: int = 8  # and that are weighed
    weighed: int = 64  # draws per round: as many spectra as are computed together
    enough: float = 0.25  # share of effective draws that ends the learning
    last: int = 64  # trajectories of the last walk, all of whose places are draws
    walks: int = 6  # times that it is walked on at most, where chains have not mixed
    final: int = 384  # draws that are weighed at the end
    steps: int = 12  # of exact chains until they are looked at
    trajectories: int = 2  # of one such step
    looks: int = 4  # at most


@dataclass(frozen=True, eq=False)
class Sampled:
    """Weighted draws about one mode, and how good they are."""

    z: np.ndarray  # (n, size)
    weights: Weights
    log_evidence: float
    r_hat: float  # of the last walk
    ess: float  # of the weights, as far as the draws are independent
    rounds: int = 0  # of learning
    accepted: float | None = None  # share of the steps of exact chains; None: the draws are weighed

    @property
    def pareto_k(self) -> float:
        """Shape of the weights' tail; above 0.7 they are not to be trusted."""
        return self.weights.pareto_k

    @property
    def learned(self) -> bool:
        """Whether the emulator is good enough: another round of learning is not called for."""
        return self.pareto_k < LIMITS["pareto_k"] and self.weights.ess > LIMITS["ess"]

    @property
    def sound(self) -> bool:
        """Whether these are draws of the posterior."""
        return self.learned and self.r_hat < LIMITS["r_hat"] and self.ess > LIMITS["ess"]


@dataclass(frozen=True, eq=False)
class Learned:
    """An emulator that knows its posterior well enough for a last walk, or as well as it will, and where chains are."""

    density: EmulatedDensity
    chains: Population
    expanded: tuple[np.ndarray, np.ndarray]  # the mode's spectrum and its derivatives
    lessons: Lessons
    log_evidence: float  # from the few draws that were weighed
    rounds: int


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
    learned = learn(joint, z, covariance, rng, effort=effort, advance=advance)
    return finish(learned, rng, effort=effort, advance=advance)


def learn(
    joint: Joint,
    z: np.ndarray,
    covariance: np.ndarray,
    rng: np.random.Generator,
    *,
    effort: Effort,
    advance: Callable[[], None],
) -> Learned:
    """Teach an emulator about the mode, see `sample`, until enough of the weight is shared."""
    outer = Outer(joint)
    expanded = expansion(joint, z)
    warp = Warp(joint, z, *expanded)
    begin = z + rng.standard_normal((effort.first, z.size)) @ np.linalg.cholesky(covariance).T
    begin[:, outer.inputs] = warp.plain(begin[:, outer.inputs])
    flux = joint.fluxes([joint.coordinates.point(row) for row in begin])
    lessons = Lessons(begin, flux / outer.factor(begin)[:, None])
    root = np.linalg.cholesky(outer.covariance(z, covariance))
    emulator = Emulator(warp, *expanded, lessons)
    density = EmulatedDensity(joint, emulator, z, covariance, _fence(outer.of(z[None]), root))
    start = density.of(z[None]) + NEAR * rng.standard_normal((effort.chains, len(root))) @ root.T
    learned = Learned(density, Population(start, root), expanded, lessons, -np.inf, 0)
    while True:
        learned, judged, enough = _round(learned, effort, rng)
        advance()
        if enough or learned.rounds >= effort.rounds[1]:
            return learned
        learned = _taught(learned, judged)


def finish(
    learned: Learned, rng: np.random.Generator, *, effort: Effort, advance: Callable[[], None] = lambda: None
) -> Sampled:
    """Walk, weigh and normalize; where chains have not mixed walk on, where weights are not enough go on exactly."""
    walks: list[_Walk] = []
    while True:
        walks.append(_last(learned, effort if not walks else replace(effort, final=effort.final // 3), rng))
        found = _weighed(learned, walks, rng)
        if found.sound:
            return replace(found, rounds=learned.rounds)
        advance()
        if not found.learned:
            return replace(_chained(learned, walks[-1], rng, effort, advance), rounds=learned.rounds)
        if len(walks) >= effort.walks:
            return replace(found, rounds=learned.rounds)
        learned = replace(learned, chains=walks[-1].chains)


def _chained(
    learned: Learned, walked: _Walk, rng: np.random.Generator, effort: Effort, advance: Callable[[], None]
) -> Sampled:
    """Go on from the weighed draws of a walk by exact steps; what is proposed in the first of them is learnt from."""
    weight = np.exp(smoothed(walked.judged.ln_weight).ln)
    flat = walked.path.reshape(-1, walked.path.shape[2])[walked.places]
    begin = flat[rng.choice(len(flat), effort.chains, p=weight / weight.sum())]
    learned = _taught(replace(learned, chains=walked.chains), walked.judged)
    step = partial(go_on, chains=learned.chains, trajectories=effort.trajectories, steps=effort.steps, rng=rng)
    state, path = step(learned.density, state_at(learned.density, begin, rng))
    learned = _taught(learned, path.proposed)
    state, path = step(learned.density, state)
    for _ in range(effort.looks - 1):
        advance()
        if path.r_hat < LIMITS["r_hat"] and path.ess > LIMITS["ess"]:
            break
        state, more = step(learned.density, state)
        path = path.joined(more)
    ratio, evidence = _evidence(learned, state, path, effort, rng)
    equal = Weights(np.full(path.ln_weight.size, -np.log(path.ln_weight.size)), ratio, 0.0)
    draws = path.z.reshape(path.ln_weight.size, -1)
    return Sampled(draws, equal, evidence, path.r_hat, path.ess, accepted=path.accepted)


def _evidence(
    learned: Learned, state: ExactState, path: ExactPath, effort: Effort, rng: np.random.Generator
) -> tuple[float, float]:
    """Ln of the evidence over the emulator's, and ln of the evidence.

    Proposals are no draws of the emulator, they begin where exact chains are: it is walked once more.
    """
    density, chains = learned.density, learned.chains
    _, places, values = walk(density, replace(chains, at=state.v), effort.walked, rng)
    judged = judge(density.joint, density.complete(places[-1], rng), values[-1])
    ratio = bridged(judged.ln_weight, path.ln_weight.ravel())
    flat = np.moveaxis(places, 1, 0).reshape(-1, places.shape[2])
    whole = log_normalization(density, flat, values.T.ravel(), rng, about=chains.root)
    return ratio, whole + ratio - _constants(density)


def _constants(density: EmulatedDensity) -> float:
    """Ln of what normalizes the priors and the noise that the density leaves out."""
    outer = density.outer
    return 0.5 * np.log(2 * np.pi) * (outer.inputs.size + outer.structure.size + density.joint.data.flux.size)


def _round(learned: Learned, effort: Effort, rng: np.random.Generator) -> tuple[Learned, Judged, bool]:
    """Walk, weigh some places, restart from the good ones; also whether that was enough."""
    density = learned.density
    chains, _, _ = walk(density, learned.chains, effort.tuned, rng, tune=True)
    chains, path, values = walk(density, chains, effort.walked, rng)
    flat = path.reshape(-1, path.shape[2])
    order = rng.permutation(len(flat))
    v, ln_drawn = flat[order[: effort.weighed]], values.ravel()[order[: effort.weighed]]
    judged = judge(density.joint, density.complete(v, rng), ln_drawn)
    weights = smoothed(judged.ln_weight)
    evidence = log_normalization(density, flat[order], values.ravel()[order], rng, about=chains.root)
    evidence += weights.ln_mean
    chains = _restarted(chains, flat, v, judged.ln_weight, rng)
    rounds = learned.rounds + 1
    enough = rounds >= effort.rounds[0] and weights.ess > effort.enough * effort.weighed
    return replace(learned, chains=chains, log_evidence=evidence, rounds=rounds), judged, enough


def _taught(learned: Learned, judged: Judged) -> Learned:
    """Let the emulator learn from draws that were judged, and the fence enclose them."""
    old = learned.density
    useful = judged.ln_weight > judged.ln_weight.max() - HOPELESS
    z = judged.z[useful]
    lessons = learned.lessons.joined(Lessons(z, judged.flux[useful] / old.outer.factor(z)[:, None]))
    emulator = Emulator(old.emulator.warp, *learned.expanded, lessons)
    seen = old.outer.of(judged.z[judged.ln_weight > judged.ln_weight.max() - SEEN])
    density = EmulatedDensity(old.joint, emulator, old.mode, old.covariance, _fence(seen, learned.chains.root))
    return replace(learned, density=density, lessons=lessons)


def _flattened(ln_weight: np.ndarray) -> np.ndarray:
    """Probabilities in which large and small weights are a little more alike."""
    return np.exp(ln_weight / FLATTENED - np.logaddexp.reduce(ln_weight / FLATTENED))


def _fence(seen: np.ndarray, root: np.ndarray) -> Fence:
    """Enclose `seen` (n, k), and where a normal density of covariance root root' has its first k coordinates."""
    k = seen.shape[1]
    centre, back = seen.mean(axis=0), np.linalg.inv(root[:k, :k])  # a triangle's corner is that of its marginal
    far = np.linalg.norm((seen - centre) @ back.T, axis=1).max(initial=np.sqrt(k))
    return Fence(centre, back, float(far) + 2.0)


def _restarted(
    chains: Population, flat: np.ndarray, v: np.ndarray, ln_weight: np.ndarray, rng: np.random.Generator
) -> Population:
    """Let chains go on from where the exact weight is, with the metric of where they were, the lost ones apart."""
    kept = ln_weight > ln_weight.max() - SEEN
    chance = np.where(kept, _flattened(ln_weight), 0.0)
    at = v[rng.choice(len(v), len(chains.at), p=chance / chance.sum())]
    return replace(chains.stretched(flat), at=at)


class _Walk(NamedTuple):
    """A last walk: its path (n, chains, k), ln density along it, draws of it, judged, and where it would go on."""

    path: np.ndarray
    values: np.ndarray  # (n, chains)
    judged: Judged
    places: np.ndarray  # (draws,), of the path
    chains: Population


def _last(learned: Learned, effort: Effort, rng: np.random.Generator) -> _Walk:
    """Walk once more and judge draws of the path."""
    density = learned.density
    chains, path, _ = walk(density, learned.chains, effort.tuned, rng, tune=True)
    chains, path, values = walk(density, chains, effort.last, rng)
    places = rng.permutation(values.size)[: effort.final]
    flat = path.reshape(-1, path.shape[2])
    parts = [
        judge(density.joint, density.complete(flat[some], rng), values.ravel()[some])
        for some in np.split(places, range(effort.weighed, len(places), effort.weighed))
    ]
    judged = Judged.joined(parts)
    return _Walk(path, values, judged, places, chains.stretched(flat))


def _weighed(learned: Learned, walks: list[_Walk], rng: np.random.Generator) -> Sampled:
    """Weigh the draws of all walks on one emulator together, each the continuation of the last, and normalize."""
    path, values = (np.concatenate([getattr(w, name) for w in walks]) for name in ("path", "values"))
    judged = Judged.joined([w.judged for w in walks])
    chain = np.concatenate([w.places % values.shape[1] for w in walks])
    there = _not_lost(judged.ln_weight, chain, values.shape[1])
    kept = np.flatnonzero(there[chain])
    weights = smoothed(judged.ln_weight[kept])
    path, values = path[:, there], values[:, there]
    density, root = learned.density, walks[-1].chains.root
    # Chain after chain: halves of the draws must know nothing of each other.
    flat = np.moveaxis(path, 1, 0).reshape(-1, path.shape[2])
    evidence = log_normalization(density, flat, values.T.ravel(), rng, about=root) + weights.ln_mean
    # With most chains lost nobody knows where the posterior is.
    r_hat = split_r_hat(path) if 2 * there.sum() > there.size else np.inf
    # Draws are a few of the path's: of those there are values.size * efficiency that are independent.
    ess = weights.ess / (1 + kept.size / (values.size * efficiency(path)))
    return Sampled(judged.z[kept], weights, evidence - _constants(density), r_hat, ess)


def _not_lost(ln_weight: np.ndarray, chain: np.ndarray, chains: int) -> np.ndarray:
    """Tell which of `chains` chains are where the posterior is, from ln weights (n,) of draws of `chain` (n,).

    The others were lured away by a mode that only the emulator has: the forward model finds their draws worthless.
    """
    worthless = ln_weight < ln_weight.max() - SEEN
    drawn = np.bincount(chain, minlength=chains)
    lost = np.bincount(chain, worthless, minlength=chains) > LOST * np.maximum(drawn, 1)
    return ~lost if not lost.all() else lost
