"""Exact draws about one mode: an emulator learns from exact spectra, chains walk on it, exact weights judge them.

Round by round: chains walk on the emulator; radius, gains and sigma_cal are drawn for some of their places; the forward
model says what these are worth; some of them, with derivatives, teach the emulator. When enough of the weight is
shared the last walk is weighed, and the weights make its draws exact, whatever the emulator misses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from kappaflow.refinement.emulated import EmulatedDensity, Fence
from kappaflow.refinement.emulator import Design, Emulator, design
from kappaflow.refinement.importance import Exact, Judged, Weights, smoothed
from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.outer import Outer
from kappaflow.refinement.population import Population, efficiency, log_normalization, split_r_hat, walk
from kappaflow.refinement.warp import Warp

__all__ = ["LIMITS", "Effort", "Learned", "Sampled", "finish", "learn", "sample"]

LIMITS = {"pareto_k": 0.7, "r_hat": 1.1, "ess": 100.0}  # Vehtari et al. 2024 for the first
NEAR = 0.5  # how far from the mode they are drawn, in Laplace's standard deviations
FLATTENED = 8.0  # ln weights are divided by this where the emulator's next points are chosen
HOPELESS = 300.0  # nats: draws worth less than the best by more teach nothing
SEEN = 12.0  # nats: draws worth less than the best by more are no part of the posterior
TAUGHT = 64  # spectra without derivatives that are learnt from in a round
LOST = 0.25  # share of such draws from which a chain is


@dataclass(frozen=True)
class Effort:
    """How much is spent per mode."""

    chains: int = 32
    first: int = 16  # points of the first design
    rounds: tuple[int, int] = (1, 6)  # of learning, at least and at most
    tuned: int = 20  # trajectories of every round that tune the step
    walked: int = 20  # and that are weighed
    weighed: int = 64  # draws per round: as many spectra as are computed together
    taught: int = 16  # of them, with derivatives
    enough: float = 0.25  # share of effective draws that ends the learning
    last: int = 64  # trajectories of the last walk, all of whose places are draws
    walks: int = 6  # times that it is walked on at most, where chains have not mixed
    final: int = 384  # draws that are weighed at the end


@dataclass(frozen=True, eq=False)
class Sampled:
    """Weighted draws about one mode, and how good they are."""

    z: np.ndarray  # (n, size)
    weights: Weights
    log_evidence: float
    r_hat: float  # of the last walk
    ess: float  # of the weights, as far as the draws are independent
    rounds: int = 0  # of learning

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
    exact: Exact
    chains: Population
    made: Design
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
    outer, exact = Outer(joint), Exact(joint, z, covariance)
    made = design(joint, z[None])
    warp = Warp(joint, z, made.flux[0], made.slopes[0])
    begin = z + NEAR * rng.standard_normal((effort.first - 1, z.size)) @ np.linalg.cholesky(covariance).T
    begin[:, outer.inputs] = warp.plain(begin[:, outer.inputs])
    made = made.joined(design(joint, begin))
    root = np.linalg.cholesky(outer.covariance(z, covariance))
    emulator = Emulator(warp, made, covariance)
    density = EmulatedDensity(joint, emulator, z, covariance, _fence(outer.of(z[None]), root))
    start = density.of(z[None]) + NEAR * rng.standard_normal((effort.chains, len(root))) @ root.T
    learned = Learned(density, exact, Population(start, root), made, -np.inf, 0)
    while True:
        learned, judged, enough = _round(learned, effort, rng)
        advance()
        if enough or learned.rounds >= effort.rounds[1]:
            return learned
        learned = _taught(learned, judged, effort, rng)


def finish(
    learned: Learned, rng: np.random.Generator, *, effort: Effort, advance: Callable[[], None] = lambda: None
) -> Sampled:
    """Walk, weigh and normalize; where the chains have not mixed walk on, where the emulator is wrong teach it."""
    walks: list[_Walk] = []
    while True:
        walks.append(_last(learned, effort if not walks else replace(effort, final=effort.final // 3), rng))
        found = _weighed(learned, walks, rng)
        spent = len(walks) >= effort.walks if found.learned else learned.rounds >= effort.rounds[1]
        if found.sound or spent:
            return replace(found, rounds=learned.rounds)
        advance()
        if found.learned:
            learned = replace(learned, chains=walks[-1].chains)
        else:
            learned, _, _ = _round(_taught(learned, walks[-1].judged, effort, rng), effort, rng)
            walks = []


def _round(learned: Learned, effort: Effort, rng: np.random.Generator) -> tuple[Learned, Judged, bool]:
    """Walk, weigh some places, restart from the good ones; also whether that was enough."""
    density, exact = learned.density, learned.exact
    chains, _, _ = walk(density, learned.chains, effort.tuned, rng, tune=True)
    chains, path, values = walk(density, chains, effort.walked, rng)
    flat = path.reshape(-1, path.shape[2])
    order = rng.permutation(len(flat))
    v, ln_drawn = flat[order[: effort.weighed]], values.ravel()[order[: effort.weighed]]
    judged = exact.judge(density.complete(v, rng), ln_drawn, rng)
    weights = smoothed(judged.ln_weight)
    evidence = log_normalization(density, flat[order], values.ravel()[order], rng, about=chains.root)
    evidence += weights.ln_mean
    chains = _restarted(chains, flat, v, judged.ln_weight, rng)
    rounds = learned.rounds + 1
    enough = rounds >= effort.rounds[0] and weights.ess > effort.enough * effort.weighed
    return replace(learned, chains=chains, log_evidence=evidence, rounds=rounds), judged, enough


def _taught(learned: Learned, judged: Judged, effort: Effort, rng: np.random.Generator) -> Learned:
    """Let the emulator learn from draws that were judged, and the fence enclose them."""
    joint, old = learned.exact.joint, learned.density
    made = learned.made.joined(_lessons(joint, judged, effort.taught, rng))
    emulator = Emulator(old.emulator.warp, made, old.covariance)
    seen = old.outer.of(judged.z[judged.ln_weight > judged.ln_weight.max() - SEEN])
    density = EmulatedDensity(joint, emulator, old.mode, old.covariance, _fence(seen, learned.chains.root))
    return replace(learned, density=density, made=made)


def _flattened(ln_weight: np.ndarray) -> np.ndarray:
    """Probabilities in which large and small weights are a little more alike."""
    return np.exp(ln_weight / FLATTENED - np.logaddexp.reduce(ln_weight / FLATTENED))


def _lessons(joint: Joint, judged: Judged, taught: int, rng: np.random.Generator) -> Design:
    """Return new points: two of three with derivatives where the weight is, one anywhere; the others as spectra."""
    n = len(judged.z)
    chance = 0.67 * _flattened(judged.ln_weight) + 0.33 / n
    chosen = rng.choice(n, taught, replace=False, p=chance / chance.sum())
    rest = np.setdiff1d(np.flatnonzero(judged.ln_weight > judged.ln_weight.max() - HOPELESS), chosen)
    rest = rest[:TAUGHT]
    made = design(joint, judged.z[chosen])
    return made.joined(design(joint, judged.z[rest], judged.flux[rest])) if rest.size else made


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
    covariance = np.cov(v[kept].T) if kept.sum() > 3 * v.shape[1] else np.cov(flat.T)
    old = chains.root @ chains.root.T
    return replace(chains.with_covariance(0.5 * covariance + 0.5 * old), at=at)


class _Walk(NamedTuple):
    """A last walk: its path (n, chains, k), ln density along it, draws of it, judged, and where it would go on."""

    path: np.ndarray
    values: np.ndarray  # (n, chains)
    judged: Judged
    chain: np.ndarray  # (draws,), of which chain
    chains: Population


def _last(learned: Learned, effort: Effort, rng: np.random.Generator) -> _Walk:
    """Walk once more and judge draws of the path."""
    density, exact = learned.density, learned.exact
    chains, path, _ = walk(density, learned.chains, effort.tuned, rng, tune=True)
    chains, path, values = walk(density, chains, effort.last, rng)
    places = rng.permutation(values.size)[: effort.final]
    flat = path.reshape(-1, path.shape[2])
    parts = [
        exact.judge(density.complete(flat[some], rng), values.ravel()[some], rng)
        for some in np.split(places, range(effort.weighed, len(places), effort.weighed))
    ]
    judged = Judged.joined(parts)
    covariance = 0.5 * np.cov(flat.T) + 0.5 * chains.root @ chains.root.T
    return _Walk(path, values, judged, places % values.shape[1], chains.with_covariance(covariance))


def _weighed(learned: Learned, walks: list[_Walk], rng: np.random.Generator) -> Sampled:
    """Weigh the draws of all walks on one emulator together, each the continuation of the last, and normalize."""
    path, values = (np.concatenate([getattr(w, name) for w in walks]) for name in ("path", "values"))
    judged = Judged.joined([w.judged for w in walks])
    chain = np.concatenate([w.chain for w in walks])
    there = _not_lost(judged.ln_weight, chain, values.shape[1])
    kept = np.flatnonzero(there[chain])
    weights = smoothed(judged.ln_weight[kept])
    path, values = path[:, there], values[:, there]
    density, root = learned.density, walks[-1].chains.root
    # Chain after chain: halves of the draws must know nothing of each other.
    flat = np.moveaxis(path, 1, 0).reshape(-1, path.shape[2])
    evidence = log_normalization(density, flat, values.T.ravel(), rng, about=root) + weights.ln_mean
    constants = 0.5 * np.log(2 * np.pi) * (density.outer.inputs.size + learned.exact.joint.data.flux.size)
    # With most chains lost nobody knows where the posterior is.
    r_hat = split_r_hat(path) if 2 * there.sum() > there.size else np.inf
    # Draws are a few of the path's: of those there are values.size * efficiency that are independent.
    ess = weights.ess / (1 + kept.size / (values.size * efficiency(path)))
    return Sampled(judged.z[kept], weights, evidence - constants, r_hat, ess)


def _not_lost(ln_weight: np.ndarray, chain: np.ndarray, chains: int) -> np.ndarray:
    """Tell which of `chains` chains are where the posterior is, from ln weights (n,) of draws of `chain` (n,).

    The others were lured away by a mode that only the emulator has: the forward model finds their draws worthless.
    """
    worthless = ln_weight < ln_weight.max() - SEEN
    drawn = np.bincount(chain, minlength=chains)
    lost = np.bincount(chain, worthless, minlength=chains) > LOST * np.maximum(drawn, 1)
    return ~lost if not lost.all() else lost
