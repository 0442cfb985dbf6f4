"""Exact draws about one mode: an emulator learns from exact spectra, and the model itself weighs what it proposes.

Profiles of single parameters say how far the posterior reaches (`profiles.py`): what is never proposed no weight can
show. Pass by pass: places of the parameters are proposed and weighed on the emulator, everything else integrated out
(`weighted_places.py`, `collapsed.py`); for some of them the rest is drawn, and the forward model says what these are
worth, whose spectra teach the emulator. Once it knows enough, passes are large, and their weights make draws exact,
whatever the emulator misses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from kappaflow.refinement.collapsed import Collapsed
from kappaflow.refinement.emulator import About, Emulator, Lessons
from kappaflow.refinement.importance import Judged, Weights, judge, smoothed
from kappaflow.refinement.lead import Lead, tangent
from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.profiles import ProfilePoint, carried, profiles
from kappaflow.refinement.weighted_places import Mixture, Student, WeightedPlaces, explored

__all__ = ["LIMITS", "Effort", "Learned", "Sampled", "finish", "grouped_r_hat", "learn", "sample"]

LIMITS = {"pareto_k": 0.7, "r_hat": 1.05, "ess": 100.0}  # Vehtari et al. 2024 for the first
FIRST = 0.8  # how far from the mode the spectra of the first lesson are, in Laplace's standard deviations
LOOKED = 3  # times as many places as are weighed from which it is learnt where the rest is
OFF = 50.0  # nats: places that are less likely than the middle one by more are off the posterior
HOPELESS = 300.0  # nats: draws worth less than the best by more teach nothing
HIGHER = 1.0  # nats above the mode: a draw is seldom as likely as the best fit, some forty nats below
REACHED = 5.0  # nats: places of profiles that are less likely than the mode by more are off the posterior
GROUPS = 4  # of draws, which are compared


@dataclass(frozen=True)
class Effort:
    """How much is spent per mode."""

    first: int = 96  # spectra of the first lesson
    rounds: tuple[int, int] = (1, 8)  # of learning, at least and at most
    weighed: int = 64  # draws per round
    enough: float = 0.3  # share of effective draws that ends the learning
    places: tuple[int, int] = (150, 500)  # that are to count on the emulator, when learning and at the end
    batches: tuple[int, int] = (12, 40)  # proposed for that at most
    final: int = 256  # draws of a pass at the end
    passes: int = 6  # at most


@dataclass(frozen=True, eq=False)
class Sampled:
    """Weighted draws about one mode, and how good they are."""

    z: np.ndarray  # (n, size)
    weights: Weights
    log_evidence: float
    r_hat: float  # of groups of draws
    rounds: int = 0  # of learning
    higher: np.ndarray | None = None  # (size,), a draw with more density than the mode: there is a better one

    @property
    def ess(self) -> float:
        """Effective number of draws."""
        return self.weights.ess

    @property
    def pareto_k(self) -> float:
        """Shape of the weights' tail; above 0.7 they are not to be trusted."""
        return self.weights.pareto_k

    @property
    def sound(self) -> bool:
        """Whether these are draws of the posterior."""
        return self.pareto_k < LIMITS["pareto_k"] and self.r_hat < LIMITS["r_hat"] and self.ess > LIMITS["ess"]


@dataclass(frozen=True, eq=False)
class Learned:
    """An emulator that knows its posterior well enough, or as well as it will, and what to propose for it."""

    density: Collapsed
    proposal: Mixture
    lessons: Lessons
    top: float  # ln density of the mode
    reached: tuple[ProfilePoint, ...] = ()  # places of profiles that are on the posterior
    higher: np.ndarray | None = None  # (size,), a draw with more
    log_evidence: float = -np.inf  # from the few draws that were weighed
    rounds: int = 0


class _Pass(NamedTuple):
    """Draws, judged; `ln_weight` (n,) is exact and has the evidence for its mean."""

    judged: Judged
    ln_weight: np.ndarray


def sample(
    joint: Joint,
    z: np.ndarray,
    covariance: np.ndarray,
    rng: np.random.Generator,
    *,
    effort: Effort = Effort(),  # noqa: B008 (frozen)
    advance: Callable[[], None] = lambda: None,
) -> Sampled:
    """Draw from the posterior about the mode `z` (size,) with Laplace's `covariance`; `advance` is called per pass."""
    learned = learn(About(joint, z), covariance, rng, effort=effort, advance=advance)
    return finish(learned, rng, effort=effort, advance=advance)


def learn(
    about: About,
    covariance: np.ndarray,
    rng: np.random.Generator,
    *,
    led: Learned | None = None,
    effort: Effort,
    advance: Callable[[], None],
) -> Learned:
    """Teach an emulator about the mode, see `sample`, until enough of the draws count.

    Profiles are those of `led`, the same with other line lists, where it is given.
    """
    joint, z = about.joint, about.z
    (mode,) = joint.expand(z[None], settle=False)
    if led is None:
        found = profiles(joint, mode, about.outer.smooth)
    else:
        found = carried(joint, mode, led.reached, led.density.about.z)
    reached = tuple(place for place in found if place.gain > -REACHED)
    near = z + FIRST * rng.standard_normal((effort.first, z.size)) @ np.linalg.cholesky(covariance).T
    begin = np.concatenate([near, *(place.z[None] for place in reached)])
    flux = joint.fluxes([joint.coordinates.point(row) for row in begin])
    lessons = Lessons(begin, flux / about.outer.factor(begin)[:, None])
    proposal, lead = _first(about, covariance, reached)
    density = Collapsed(Emulator(about, lessons), lead, covariance)
    learned = Learned(density, proposal, lessons, mode.value, reached)
    while True:
        learned, one = _passed(learned, effort, rng, last=False)
        advance()
        weights = smoothed(one.ln_weight)
        learned = replace(learned, log_evidence=weights.ln_mean, rounds=learned.rounds + 1)
        enough = learned.rounds >= effort.rounds[0] and weights.ess > effort.enough * effort.weighed
        if enough or learned.rounds >= effort.rounds[1] or learned.higher is not None:
            return learned


def finish(
    learned: Learned, rng: np.random.Generator, *, effort: Effort, advance: Callable[[], None] = lambda: None
) -> Sampled:
    """Weigh passes of draws, each teaching the emulator for the next, until enough of all together count."""
    passes: list[_Pass] = []
    done = 0
    while True:
        learned, found = _passed(learned, effort, rng, last=True)
        passes = [*(one for one in passes if not _heavy(one)), found]
        sampled = _pooled(learned, passes, rng)
        done += 1
        if sampled.sound or sampled.higher is not None or done == effort.passes:
            return sampled
        advance()


def _heavy(one: _Pass) -> bool:
    """Whether its emulator was not good enough: later ones are better."""
    return not smoothed(one.ln_weight).pareto_k < LIMITS["pareto_k"]


def _first(about: About, covariance: np.ndarray, reached: Sequence[ProfilePoint]) -> tuple[Mixture, Lead]:
    """Propose about the mode and the places `reached`, by the expansion at each, and look for the rest as these expect.

    `covariance` (size, size) is Laplace's at the mode.
    """
    outer, (x, rest) = about.outer, Collapsed.parts(about)
    order = np.concatenate([x, rest])
    z = np.stack([about.z, *(place.z for place in reached)])
    both = np.concatenate([outer.of(z), z[:, outer.structure], z[:, outer.field]], axis=1)
    spreads = [covariance, *(np.linalg.inv(place.here.information) for place in reached)]
    spreads = [outer.covariance(*pair)[np.ix_(order, order)] for pair in zip(z, spreads, strict=True)]
    known = [tangent(at[x], at[rest], spread) for at, spread in zip(both, spreads, strict=True)]
    along, there = (np.concatenate(column) for column in zip((both[:, x], both[:, rest]), *known, strict=True))
    roots = [np.linalg.cholesky(spread[: x.size, : x.size]) for spread in spreads]
    mixture = Mixture.equal(*(Student(at[x], root) for at, root in zip(both, roots, strict=True)))
    return mixture, Lead.fitted(along, there, mixture.root @ mixture.root.T)


def _following(density: Collapsed, seen: WeightedPlaces, n: int, rng: np.random.Generator) -> Lead:
    """Where the rest is found at `n` of the places."""
    x = seen.drawn(n, rng)
    found = density.found(x)
    there = found.value > np.median(found.value) - OFF
    root = seen.proposal.root
    return Lead.fitted(x[there], found.middle[there], root @ root.T)


def _passed(learned: Learned, effort: Effort, rng: np.random.Generator, *, last: bool) -> tuple[Learned, _Pass]:
    """Weigh places on the emulator and draws of them exactly; the emulator learns from these."""
    density, n = learned.density, effort.final if last else effort.weighed
    wanted, most = effort.places[last], effort.batches[last]
    seen = explored(density.value, learned.proposal, rng, wanted=wanted, most=most)
    places, ln_share = seen.thinned(n, rng)
    parts = [
        judge(density.joint, *density.complete(seen.x[some], rng))
        for some in np.split(places, range(effort.weighed, len(places), effort.weighed))
    ]
    judged = Judged.joined(parts)
    evidence = seen.ln_total - _constants(density)
    found = _Pass(judged, ln_share + np.log(len(places)) + judged.ln_weight + evidence)
    lead = _following(density, seen, LOOKED * effort.weighed, rng)
    useful = judged.ln_weight > judged.ln_weight.max() - HOPELESS
    z = judged.z[useful]
    lessons = learned.lessons.joined(Lessons(z, judged.flux[useful] / density.outer.factor(z)[:, None]))
    taught = Collapsed(Emulator(density.about, lessons), lead, density.covariance)
    best = judged.z[int(np.argmax(judged.ln_weight))]
    higher = best if float(density.joint(best[None])[0]) > learned.top + HIGHER else None
    return replace(learned, density=taught, proposal=seen.proposal, lessons=lessons, higher=higher), found


def _constants(density: Collapsed) -> float:
    """Ln of what normalizes the priors and the noise that the density leaves out."""
    outer = density.outer
    return 0.5 * np.log(2 * np.pi) * (outer.inputs.size + outer.structure.size + density.joint.data.flux.size)


def _pooled(learned: Learned, passes: list[_Pass], rng: np.random.Generator) -> Sampled:
    """All passes together: their weights are of one density."""
    z = np.concatenate([one.judged.z for one in passes])
    weights = smoothed(np.concatenate([one.ln_weight for one in passes]))
    group = rng.permutation(len(z)) % GROUPS
    r_hat = grouped_r_hat(z[:, learned.density.outer.smooth], np.exp(weights.ln), group)
    return Sampled(z, weights, weights.ln_mean, r_hat, learned.rounds, learned.higher)


def grouped_r_hat(values: np.ndarray, weight: np.ndarray, group: np.ndarray) -> float:
    """Largest R-hat over coordinates of draws `values` (n, k) with `weight` (n,): groups of draws are compared.

    Draws know nothing of each other: groups disagree where a few of them have most of the weight.
    """
    parts = [(values[group == g], weight[group == g] / weight[group == g].sum()) for g in np.unique(group)]
    means = np.array([w @ v for v, w in parts])
    within = np.mean([w @ (v - m) ** 2 for (v, w), m in zip(parts, means, strict=True)], axis=0)
    return float(np.sqrt(1 + means.var(axis=0, ddof=1) / np.maximum(within, 1e-300)).max())
