"""How far a posterior reaches: one parameter held after the other, ever farther from the mode, all others climbed.

Once a layer is too deep to be seen, or a gas too rare, a parameter is free over much of its prior, and others follow it
along curves that are bent far more than they are wide. Near the mode nothing tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np

from kappaflow.refinement.best_fit import THREADS
from kappaflow.refinement.climb import Climb, climb
from kappaflow.refinement.likelihood import TOGETHER, Expansion, Joint

__all__ = ["ProfilePoint", "carried", "profiles"]

SHARP = 0.02  # standard deviation of a coordinate below which it has no profile of its own
FIRST = 1.5  # step from the mode, in Laplace's standard deviations
GROWTH = ((0.5, 2.5), (1.5, 1.6))  # of the next step after one that lost less than so many nats
LARGEST = 0.8  # step
FARTHEST = 2.2  # of a coordinate: less than 1.5 % of the prior are beyond
OFF = 5.0  # nats below the best where a profile ends
PLACES = 7  # each way, at most
STEPS = 12  # of a climb: where a valley is far longer than it is wide and bends, six fell short by a hundred nats
SHORT = 3  # times that a step is halved because the climb from its end has not arrived
ENOUGH = 0.5  # nats that a full step may still gain: it is taken on paper
BOUNDED = 1.5  # of that step in any coordinate
DAMPING = 1e-3  # with the loosest coordinate held the rest is better measured


@dataclass(frozen=True, eq=False)
class ProfilePoint:
    """An expansion near where everything but one coordinate is likeliest."""

    here: Expansion
    held: int
    at_mode: float = 0.0  # ln mass of the mode

    @cached_property
    def _others(self) -> np.ndarray:
        return np.delete(np.arange(self.here.z.size), self.held)

    @cached_property
    def _information(self) -> np.ndarray:
        return self.here.information[np.ix_(self._others, self._others)]

    @cached_property
    def _step(self) -> np.ndarray:
        whole = np.linalg.solve(self._information, self.here.gradient[self._others])
        return whole * min(1.0, BOUNDED / max(np.abs(whole).max(), 1e-12))

    @cached_property
    def z(self) -> np.ndarray:
        """Coordinates (size,) where all others are likeliest."""
        z = self.here.z.copy()
        z[self._others] += self._step
        return z

    @cached_property
    def ln_mass(self) -> float:
        """Ln of the integral of the density over all others, but for a constant."""
        left = min(0.5 * float(self.here.gradient[self._others] @ self._step), 3 * ENOUGH)
        return self.here.value + left - 0.5 * float(np.linalg.slogdet(self._information)[1])

    @property
    def gain(self) -> float:
        """Ln mass over that of the mode."""
        return self.ln_mass - self.at_mode

    @cached_property
    def _tangent(self) -> np.ndarray:
        """How all coordinates (size,) follow the one that is held."""
        out = np.ones(self.here.z.size)
        out[self._others] = -np.linalg.solve(self._information, self.here.information[self._others, self.held])
        return out

    @property
    def arrived(self) -> bool:
        """Whether little is left to climb."""
        return 0.5 * float(self.here.gradient[self._others] @ self._step) < 3 * ENOUGH

    def at(self, value: float, before: ProfilePoint | None = None) -> np.ndarray:
        """Z (size,) expected with the coordinate held at another value: on a parabola through the place before."""
        ahead = value - self.z[self.held]
        shift = self._tangent * ahead
        if before is not None:
            back = before.z - self.z
            bend = (back - self._tangent * back[self.held]) / back[self.held] ** 2
            shift += bend * ahead**2
        z = self.z + np.clip(shift, -BOUNDED, BOUNDED)
        z[self.held] = value
        return z


@dataclass(eq=False)
class _Way:
    """From the mode along one coordinate, up or down."""

    sign: float
    step: float
    places: list[ProfilePoint]
    done: bool = False
    short: int = 0  # times that the step was halved

    def next(self) -> np.ndarray:
        """Return where to climb from next."""
        last = self.places[-1]
        value = float(last.here.z[last.held] + self.sign * self.step)
        return last.at(float(np.clip(value, -FARTHEST, FARTHEST)), *self.places[-2:-1])

    def judged(self, place: ProfilePoint, best: float) -> None:
        """Take a place, and say how far to go next."""
        if not place.arrived and place.ln_mass < best - OFF and self.short < SHORT:
            self.short, self.step = self.short + 1, 0.5 * self.step
            return
        lost = self.places[-1].ln_mass - place.ln_mass
        self.places.append(place)
        self.step *= next((grown for least, grown in GROWTH if lost < least), 1.0)
        self.step = min(self.step, LARGEST)
        ended = place.ln_mass < best - OFF or abs(place.here.z[place.held]) >= FARTHEST
        self.done = ended or len(self.places) > PLACES


def profiles(joint: Joint, mode: Expansion, candidates: np.ndarray) -> list[ProfilePoint]:
    """Return places along each of the coordinates `candidates` that is not sharp, the mode not among them."""
    sd = np.sqrt(np.diag(np.linalg.inv(mode.information)))
    loose = [int(i) for i in candidates if sd[i] > SHARP]
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda i: _profile(joint, mode, i, FIRST * float(sd[i])), loose)
        return [place for places in found for place in places]


def carried(joint: Joint, mode: Expansion, places: Sequence[ProfilePoint], origin: np.ndarray) -> list[ProfilePoint]:
    """Return the `places` of another density with its mode at `origin`, moved to this one's and climbed from there.

    Line lists differ, but where a layer is too deep to be seen with one it is with the others.
    """
    starts: list[tuple[int, list[np.ndarray]]] = []
    for held, group in groupby(places, key=lambda place: place.held):
        moved = [place.z + mode.z - origin for place in group]
        for z in moved:
            z[held] = np.clip(z[held], -FARTHEST, FARTHEST)
        starts += [(held, moved[i : i + TOGETHER]) for i in range(0, len(moved), TOGETHER)]
    with ThreadPoolExecutor(THREADS) as pool:
        found = [place for some in pool.map(lambda one: _climbed(joint, *one), starts) for place in some]
    return [replace(place, at_mode=ProfilePoint(mode, place.held).ln_mass) for place in found]


def _profile(joint: Joint, here: Expansion, held: int, step: float) -> list[ProfilePoint]:
    """Places up and down from the mode, the first a `step` from it."""
    start = ProfilePoint(here, held)
    ways = [_Way(sign, min(step, LARGEST), [start]) for sign in (-1.0, 1.0) if abs(here.z[held]) < FARTHEST]
    while going := [way for way in ways if not way.done]:
        found = _climbed(joint, held, [way.next() for way in going])
        best = max(place.ln_mass for way in ways for place in way.places)
        for way, place in zip(going, found, strict=True):
            way.judged(place, max(best, place.ln_mass))
    return [replace(place, at_mode=start.ln_mass) for way in ways for place in way.places[1:]]


def _climbed(joint: Joint, held: int, starts: Sequence[np.ndarray]) -> list[ProfilePoint]:
    """Climb in all coordinates but one."""
    whole: dict[bytes, Expansion] = {}

    def expand(z: np.ndarray) -> list[Expansion]:
        out = []
        for here in joint.expand(z):
            whole[here.z.tobytes()] = here
            information, gradient = here.information.copy(), here.gradient.copy()
            information[held] = information[:, held] = gradient[held] = 0.0
            information[held, held] = 1.0
            out.append(here._replace(gradient=gradient, information=information))
        return out

    runs = climb(
        expand,
        [Climb(z, damping=DAMPING) for z in starts],
        steps=STEPS,
        inside=joint.coordinates.inside,
        worth=lambda run: run.foreseen > run.value + ENOUGH,
    )
    return [ProfilePoint(whole[run.z.tobytes()], held) for run in runs]
