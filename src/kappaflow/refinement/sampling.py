"""Exact draws about one mode: an emulator learns from exact spectra, chains walk on it, exact weights judge them.

Round by round: chains walk in the parameters, everything else integrated out on the emulator (`collapsed.py`); the rest
is drawn for some of their places; the forward model says what these are worth, and its spectra teach the emulator. When
enough of the weight is shared the last walk is weighed, and the weights make its draws exact, whatever the emulator
misses. Where they have a heavy tail chains go on by steps that the forward model accepts (`exact_chains.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from kappaflow.refinement.collapsed import Collapsed
from kappaflow.refinement.emulator import About, Emulator, Lessons
from kappaflow.refinement.exact_chains import ExactPath, ExactState, go_on, state_at
from kappaflow.refinement.importance import Judged, Weights, judge, smoothed
from kappaflow.refinement.lead import Lead
from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.population import Population, bridged, effective, log_normalization, split_r_hat, walk
from kappaflow.refinement.refresh import Refresh

__all__ = ["LIMITS", "Effort", "Learned", "Sampled", "finish", "learn", "sample"]

LIMITS = {"pareto_k": 0.7, "r_hat": 1.05, "ess": 100.0}  # Vehtari et al. 2024 for the first
AROUND = 0.7  # how far from the mode chains begin, in Laplace's standard deviations
FIRST = 0.8  # and the spectra of the first lesson are
CORRELATED = 6  # places of a path that count as one for its covariance
KNOWN = 200  # draws of Laplace's normal density from which it is first learnt how parameters follow each other
LOOKED = 3  # times as many places as are weighed from which it is learnt where the rest is
OFF = 50.0  # nats: places that are less likely than the middle one by more are off the posterior
FLATTENED = 8.0  # ln weights are divided by this where chains begin anew
HOPELESS = 300.0  # nats: draws worth less than the best by more teach nothing
SEEN = 12.0  # nats: draws worth less than the best by more are no part of the posterior
LOST = 0.25  # share of such draws from which a chain is


@dataclass(frozen=True)
class Effort:
    """How much is spent per mode."""

    chains: int = 32
    first: int = 96  # spectra of the first lesson
    rounds: tuple[int, int] = (3, 6)  # of learning, at least and at most
    tuned: int = 4  # trajectories of every round that tune the step
    walked: int = 4  # and that are weighed
    weighed: int = 64  # draws per round: as many spectra as are computed together
    enough: float = 0.25  # share of effective draws that ends the learning
    last: int = 16  # trajectories of the last walk, all of whose places are draws
    walks: int = 8  # times that it is walked on at most, until enough draws count
    final: int = 384  # draws that are weighed at the end
    taught: int = 1  # times that the emulator learns from those where they are not enough
    steps: int = 16  # of exact chains until they are looked at
    looks: int = 6  # at most


@dataclass(frozen=True, eq=False)
class Sampled:
    """Weighted draws about one mode, and how good they are."""

    z: np.ndarray  # (n, size)
    weights: Weights
    log_evidence: float
    r_hat: float  # of the last walk
    ess: float  # of parameters, weights and slow chains counted
    rounds: int = 0  # of learning
    accepted: float | None = None  # share of the steps of exact chains; None: the draws are weighed

    @property
    def pareto_k(self) -> float:
        """Shape of the weights' tail; above 0.7 they are not to be trusted."""
        return self.weights.pareto_k

    def learned(self, share: float = 0.0) -> bool:
        """Whether the emulator is good enough: no heavy tail, and more than `share` of the draws count."""
        return self.pareto_k < LIMITS["pareto_k"] and self.weights.ess > share * len(self.z)

    @property
    def sound(self) -> bool:
        """Whether these are draws of the posterior."""
        return self.learned() and self.r_hat < LIMITS["r_hat"] and self.ess > LIMITS["ess"]


@dataclass(frozen=True, eq=False)
class Learned:
    """An emulator that knows its posterior well enough for a last walk, or as well as it will, and where chains are."""

    density: Collapsed
    chains: Population
    lessons: Lessons
    refresh: Refresh
    log_evidence: float = -np.inf  # from the few draws that were weighed
    rounds: int = 0

    def walk(
        self, chains: Population, n: int, rng: np.random.Generator, *, tune: bool = False
    ) -> tuple[Population, np.ndarray, np.ndarray]:
        """Walk on the emulator (`population.walk`), parameters refreshed with every trajectory."""
        return walk(self.density, chains, n, rng, tune=tune, between=partial(self.refresh, self.density.value))


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
    about = About(joint, z)
    begin = z + FIRST * rng.standard_normal((effort.first, z.size)) @ np.linalg.cholesky(covariance).T
    flux = joint.fluxes([joint.coordinates.point(row) for row in begin])
    lessons = Lessons(begin, flux / about.outer.factor(begin)[:, None])
    density = _first(about, lessons, covariance)
    root = density.lead.root
    around = density.lead.centre + AROUND * rng.standard_normal((effort.weighed, len(root))) @ root.T
    start = around[np.argsort(-density(around)[0])[: effort.chains]]
    density = _following(density, around, root @ root.T)
    refresh = Refresh.learnt(density.lead.centre + rng.standard_normal((KNOWN, len(root))) @ root.T, about.count)
    learned = Learned(density, Population(start, _metric(density, start)), lessons, refresh)
    while True:
        learned, judged, enough = _round(learned, effort, rng)
        advance()
        learned = _taught(learned, judged)
        if enough or learned.rounds >= effort.rounds[1]:
            return learned


def finish(
    learned: Learned, rng: np.random.Generator, *, effort: Effort, advance: Callable[[], None] = lambda: None
) -> Sampled:
    """Walk, weigh and normalize.

    Where few of the draws count the emulator learns from them, and another walk begins; where their weights still have
    a heavy tail chains go on exactly. Otherwise chains walk on, and more draws are weighed, until there are enough.
    """
    walks: list[_Walk] = []
    taught = 0
    while True:
        walks.append(_last(learned, effort if not walks else replace(effort, final=effort.final // 2), rng))
        found = replace(_weighed(learned, walks, rng), rounds=learned.rounds)
        if found.sound:
            return found
        advance()
        if not found.learned(effort.enough) and taught < effort.taught:
            learned, walks, taught = _anew(learned, walks[-1], effort, rng), [], taught + 1
        elif not found.learned():
            return replace(_chained(learned, walks[-1], rng, effort, advance), rounds=learned.rounds)
        elif len(walks) >= effort.walks:
            return found
        else:
            learned = replace(learned, chains=walks[-1].chains)


def _anew(learned: Learned, walked: _Walk, effort: Effort, rng: np.random.Generator) -> Learned:
    """Learn from the draws of a walk; chains begin at some of them, drawn by their weights."""
    weight = np.exp(smoothed(walked.judged.ln_weight).ln)
    flat = walked.path.reshape(-1, walked.path.shape[2])[walked.places]
    begin = flat[np.sort(rng.choice(len(flat), effort.chains, p=weight / weight.sum()))]
    return _taught(replace(learned, chains=replace(walked.chains, at=begin)), walked.judged)


def _chained(
    learned: Learned, walked: _Walk, rng: np.random.Generator, effort: Effort, advance: Callable[[], None]
) -> Sampled:
    """Go on from the weighed draws of a walk by exact steps; what is proposed in the first of them is learnt from."""
    learned = _anew(learned, walked, effort, rng)
    state, path = go_on(state_at(learned.density, learned.chains.at, rng), learned, effort.steps, rng)
    learned = _taught(replace(learned, chains=replace(learned.chains, at=state.v)), path.proposed)
    state, path = go_on(state, learned, effort.steps, rng)
    for _ in range(effort.looks - 1):
        advance()
        if path.r_hat < LIMITS["r_hat"] and path.ess > LIMITS["ess"]:
            break
        state, more = go_on(state, learned, effort.steps, rng)
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
    _, places, values = learned.walk(replace(chains, at=state.v), effort.walked, rng)
    judged = judge(density.joint, *density.complete(places[-1], rng))
    ratio = bridged(judged.ln_weight, path.ln_weight.ravel())
    flat = np.moveaxis(places, 1, 0).reshape(-1, places.shape[2])
    whole = log_normalization(density, flat, values.T.ravel(), rng, about=chains.root)
    return ratio, whole + ratio - _constants(density)


def _constants(density: Collapsed) -> float:
    """Ln of what normalizes the priors and the noise that the density leaves out."""
    outer = density.outer
    return 0.5 * np.log(2 * np.pi) * (outer.inputs.size + outer.structure.size + density.joint.data.flux.size)


def _first(about: About, lessons: Lessons, covariance: np.ndarray) -> Collapsed:
    """Return the density on a first emulator; the rest is looked for by Laplace's `covariance`."""
    outer = about.outer
    both = np.concatenate([outer.of(about.z[None])[0], about.z[outer.structure], about.z[outer.field]])
    x, rest = Collapsed.parts(about)
    order = np.concatenate([x, rest])
    lead = Lead.straight(both[x], both[rest], outer.covariance(about.z, covariance)[np.ix_(order, order)])
    return Collapsed(Emulator(about, lessons), lead, covariance)


def _following(density: Collapsed, x: np.ndarray, covariance: np.ndarray) -> Collapsed:
    """Return the same density, the rest looked for where it was found at places x (a, k)."""
    found = density.found(x)
    there = found.value > np.median(found.value) - OFF
    lead = Lead.fitted(x[there], found.middle[there], found.ln_det[there], covariance)
    return Collapsed(density.emulator, lead, density.covariance)


def _round(learned: Learned, effort: Effort, rng: np.random.Generator) -> tuple[Learned, Judged, bool]:
    """Walk, weigh some places, restart from the good ones; also whether that was enough."""
    density = learned.density
    chains, _, _ = learned.walk(learned.chains, effort.tuned, rng, tune=True)
    chains, path, values = learned.walk(chains, effort.walked, rng)
    flat = path.reshape(-1, path.shape[2])
    order = rng.permutation(len(flat))
    x = flat[order[: effort.weighed]]
    judged = judge(density.joint, *density.complete(x, rng))
    weights = smoothed(judged.ln_weight)
    evidence = log_normalization(density, flat[order], values.ravel()[order], rng, about=chains.root)
    kept = judged.ln_weight > judged.ln_weight.max() - SEEN
    ln_chance = np.where(kept, judged.ln_weight / FLATTENED, -np.inf)
    chance = np.exp(ln_chance - np.logaddexp.reduce(ln_chance))
    at = x[np.sort(rng.choice(len(x), effort.chains, p=chance))]
    rounds = learned.rounds + 1
    enough = rounds >= effort.rounds[0] and weights.ess > effort.enough * effort.weighed
    root = _covariance_root(flat, density.lead.root)
    density = _following(density, flat[order[: LOOKED * effort.weighed]], root @ root.T)
    after = Learned(
        density,
        replace(chains, at=at, root=_metric(density, x)),
        learned.lessons,
        Refresh.learnt(flat, density.about.count),
        evidence + weights.ln_mean,
        rounds,
    )
    return after, judged, enough


def _covariance_root(path: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Root of the covariance of a path (n, k), which is mixed with the one known before: it is short."""
    n, k = len(path) / CORRELATED, path.shape[1]
    share = n / (n + k)
    return np.linalg.cholesky(share * np.cov(path.T).reshape(k, k) + (1 - share) * root @ root.T)


def _metric(density: Collapsed, x: np.ndarray) -> np.ndarray:
    """Root of the inverse of the mean information at places x (a, k): steps are as long as stiff places allow."""
    return np.linalg.cholesky(np.linalg.inv(density.information(x).mean(axis=0)))


def _taught(learned: Learned, judged: Judged) -> Learned:
    """Let the emulator learn from draws that were judged."""
    old = learned.density
    useful = judged.ln_weight > judged.ln_weight.max() - HOPELESS
    z = judged.z[useful]
    lessons = learned.lessons.joined(Lessons(z, judged.flux[useful] / old.outer.factor(z)[:, None]))
    density = Collapsed(Emulator(old.about, lessons), old.lead, old.covariance)
    return replace(learned, density=density, lessons=lessons)


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
    chains, path, _ = learned.walk(learned.chains, effort.tuned, rng, tune=True)
    chains, path, values = learned.walk(chains, effort.last, rng)
    chosen = rng.permutation(values.size)[: effort.final]
    flat = path.reshape(-1, path.shape[2])
    parts = [
        judge(density.joint, *density.complete(flat[some], rng))
        for some in np.split(chosen, range(effort.weighed, len(chosen), effort.weighed))
    ]
    judged = Judged.joined(parts)
    return _Walk(path, values, judged, chosen, chains)


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
    z = judged.z[kept]
    ess = effective(z[:, density.outer.smooth], np.exp(weights.ln), chain[kept])
    return Sampled(z, weights, evidence - _constants(density), r_hat, ess)


def _not_lost(ln_weight: np.ndarray, chain: np.ndarray, chains: int) -> np.ndarray:
    """Tell which of `chains` chains are where the posterior is, from ln weights (n,) of draws of `chain` (n,).

    The others were lured away by a mode that only the emulator has: the forward model finds their draws worthless.
    """
    worthless = ln_weight < ln_weight.max() - SEEN
    drawn = np.bincount(chain, minlength=chains)
    lost = np.bincount(chain, worthless, minlength=chains) > LOST * np.maximum(drawn, 1)
    return ~lost if not lost.all() else lost
