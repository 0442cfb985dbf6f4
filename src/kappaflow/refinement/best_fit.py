"""The best fit of a spectrum: all parameters, coefficients of the opacity field, gains and structure at once.

Several starts from the network's draws take their first steps with the base lists and a structure of a tenth of the
flux, which smooths away side valleys; the best go on with every combination of line lists and the errors as they are.
Last, the model is taken as the file's own pixels see it, if it fits better so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from kappaflow.constants import LN10
from kappaflow.instrument import on_nrs2
from kappaflow.observe.spectrum import Spectrum
from kappaflow.refinement.climb import Climb, climb
from kappaflow.refinement.coordinates import Coordinates, Point
from kappaflow.refinement.likelihood import TOGETHER, Joint
from kappaflow.refinement.posing import FitSettings, Posed, posed
from kappaflow.refinement.residuals import BandResidual, band_residuals, smooth_and_fine
from kappaflow.refinement.starts import SCREEN, screened

__all__ = ["STAGES", "BestFit", "FitSettings", "Mode", "best_modes", "fit", "one_thread_each", "solved"]

EASING = (SCREEN, SCREEN / 3)  # structure of the first steps
STAGES = 5  # after which `advance` is called
THREADS = os.cpu_count() or 1
HOPELESS = 60.0  # nats: a combination of line lists that a full step would leave farther behind goes no further
OVERTAKEN = 1.0  # nats by which one must have passed the best for all to start from it, too
ROUNDS = 2  # of starts from the best at most


@dataclass(frozen=True, eq=False)
class Mode:
    """A maximum of the posterior density: where a climb ended."""

    lists: Mapping[str, str]
    climb: Climb
    joint: Joint

    @cached_property
    def point(self) -> Point:
        """Return what its coordinates mean."""
        return self.joint.coordinates.point(self.climb.z)

    @cached_property
    def covariance(self) -> np.ndarray:
        """Of all coordinates z, by Laplace's approximation, (k, k)."""
        here = self.climb.here
        assert here is not None
        return np.linalg.inv(here.information)

    @property
    def log_evidence(self) -> float:
        """Ln of the evidence by Laplace's approximation, up to a constant that all modes of a spectrum share."""
        return float(self.climb.value + 0.5 * np.linalg.slogdet(self.covariance)[1])

    def moved(self, z: np.ndarray, steps: int, tolerance: float) -> Mode:
        """Climb again, from `z` (size,)."""
        return Mode(self.lists, _on(self.joint, [Climb(z)], steps, tolerance)[0], self.joint)


@dataclass(frozen=True, eq=False)
class BestFit:
    """The best of all modes found, and the modes: the best of each combination of line lists, best first."""

    spectrum: Spectrum  # on the model's pixels
    names: tuple[str, ...]
    species: tuple[str, ...]
    modes: tuple[Mode, ...]
    starts: tuple[dict[str, Any], ...]  # every start: lists, steps, ln density reached, whether it was carried on

    @property
    def mode(self) -> Mode:
        """The best."""
        return self.modes[0]

    @property
    def lists(self) -> Mapping[str, str]:
        """Line lists, of species that have several."""
        return self.mode.lists

    @property
    def theta(self) -> np.ndarray:
        """Parameters (D,)."""
        return self.mode.point.theta

    @property
    def field(self) -> np.ndarray:
        """Coefficients of the opacity field, (K,)."""
        return self.mode.point.field

    @property
    def gains(self) -> np.ndarray:
        """Factors (2,) of NRS1 and NRS2."""
        return 1 + self.mode.point.sigma_cal * self.mode.point.gains

    @property
    def f(self) -> float:
        """Structure that the model does not have, over the flux."""
        return self.mode.point.f

    @property
    def line_spread(self) -> float:
        """Width of the line-spread function over the nominal one: 1, or that of a point source on the file's pixels."""
        predictor: Any = self.mode.joint.predictor
        told: Mapping[str, Any] = getattr(predictor.model, "meta", {})  # a made-up model has none
        return float(told.get("line_spread", 1.0))

    @property
    def scale(self) -> float:
        """Factor on the flux where its scale is unknown, else 1."""
        return float(np.exp(self.mode.point.ln_scale))

    @cached_property
    def flux(self) -> np.ndarray:
        """The fitted spectrum (p,) on all pixels, gains included, in the data's unit."""
        made = self.mode.joint.predictor(self.theta[None], self.field[None])[0] * self.scale
        return made * self.gains[on_nrs2(self.spectrum.wavelength).astype(int)]

    @property
    def chi2(self) -> float:
        """Sum over good pixels of (residual / error)^2, with the file's errors."""
        good = self.spectrum.mask
        return float((((self.spectrum.flux - self.flux) / self.spectrum.error)[good] ** 2).sum())

    @property
    def n(self) -> int:
        """Number of good pixels."""
        return int(self.spectrum.mask.sum())

    @property
    def reduced_chi2(self) -> float:
        """Mean over good pixels of residual^2 / variance, the structure's included."""
        joint, point = self.mode.joint, self.mode.point
        flux = joint.fluxes([point])[0]
        residual = joint.data.flux - joint.predicted(point, flux)
        return float(np.mean(residual**2 / joint.variance(point, flux)))

    @cached_property
    def covariance(self) -> np.ndarray:
        """Of the parameters, (D, D), in their units: Laplace, everything else integrated out.

        What is held has the variance of its prior: it is what the data cannot tell.
        """
        c, point = self.mode.joint.coordinates, self.mode.point
        out = np.diag(c.box.widths**2 / 12)
        fitted, slope, place = c.free, point.slope[c.free], np.arange(c.size)[c.places["theta"]]
        if c.structure and "log_f" in c.box.names:
            fitted = np.append(fitted, c.box.names.index("log_f"))
            slope = np.append(slope, point.ln_f_slope / LN10)
            place = np.append(place, np.arange(c.size)[c.places["structure"]])
        out[np.ix_(fitted, fitted)] = self.mode.covariance[np.ix_(place, place)] * slope[:, None] * slope
        return out

    @property
    def errors(self) -> np.ndarray:
        """Standard deviations (D,) of the parameters: Laplace's, at most the prior's."""
        return np.sqrt(np.diag(self.covariance))

    @cached_property
    def residuals(self) -> tuple[BandResidual, ...]:
        """Smooth and fine residuals per band."""
        s = self.spectrum
        return band_residuals(s.wavelength, s.flux - self.flux, s.error, s.mask, self.flux)

    @property
    def smooth(self) -> np.ndarray:
        """Smooth part (p,) of data - fit, by detector; NaN where masked."""
        s, nrs2 = self.spectrum, on_nrs2(self.spectrum.wavelength)
        out = np.empty(len(s))
        for part in (nrs2, ~nrs2):
            out[part], _ = smooth_and_fine((s.flux - self.flux)[part], s.mask[part])
        return out

    @property
    def weights(self) -> np.ndarray:
        """Share of each mode in the evidence: how likely each combination of line lists is, by Laplace."""
        ln = np.array([mode.log_evidence for mode in self.modes])
        share = np.exp(ln - ln.max())
        return share / share.sum()


def fit(
    spectrum: Spectrum,
    *,
    distance: float | None = None,
    lists: Mapping[str, str] | None = None,
    model: Any = None,
    posterior: Any = "packaged",
    settings: FitSettings = FitSettings(),  # noqa: B008 (frozen)
) -> BestFit:
    """Find the parameters, opacities and gains that fit `spectrum` best.

    Parameters
    ----------
    spectrum : as `read_spectrum` gives it
    distance : in pc; without it, and without one in the file, the flux scale is free and the radius at its prior
    lists : {species: line list}, the base where not named; every combination of H2O and CH4 lists if None
    model : forward model; that of the networks by default, or the laptop's with the full parameter set
    posterior : networks whose draws are starts; None for starts from the prior
    settings : what is free, how many starts, the seed

    Examples
    --------
    >>> import kappaflow as kf
    >>> best = kf.fit(kf.read_spectrum("x1d.fits"), distance=5.71)  # doctest: +SKIP
    >>> best.chi2 / best.n, best.theta[5], best.errors[5]  # doctest: +SKIP
    """
    problem = posed(spectrum, distance=distance, lists=lists, model=model, posterior=posterior, settings=settings)
    with one_thread_each():
        return solved(problem, settings)


def one_thread_each() -> AbstractContextManager[Any]:
    """Let matrices be multiplied by one thread each: they are small, and threads of ours share out what there is."""
    return threadpool_limits(1)


def solved(problem: Posed, settings: FitSettings, advance: Callable[[str], None] = lambda _: None) -> BestFit:
    """Fit; `advance` is called with a word after each of `STAGES` stages."""
    modes, starts = best_modes(problem.joints, problem.theta, settings, advance)
    if problem.seen is not None:
        modes = _as_seen(modes, problem.seen, settings)
    return BestFit(problem.spectrum, problem.names, problem.species, modes, starts)


@dataclass(eq=False)
class _Run:
    """One start on its way with one combination of line lists."""

    choice: int
    climb: Climb


def best_modes(
    joints: Sequence[tuple[Mapping[str, str], Joint]],
    theta: np.ndarray,
    settings: FitSettings,
    advance: Callable[[str], None] = lambda _: None,
) -> tuple[tuple[Mode, ...], tuple[dict[str, Any], ...]]:
    """Climb from the best of `theta` (n, D) in each of `joints` (lists, density); the best mode of each, best first.

    Every combination is also started from the best mode of all, and again if one has then passed it: a side valley of
    one is seldom one of all. Those that then are far behind it stay where they are.
    """
    easing, together, alone = settings.steps
    first = joints[0][1]
    chosen = screened(first, theta, settings.starts)
    advance("screened")
    begun = _eased(first, chosen, easing)
    advance("eased")
    begun.sort(key=lambda c: -c.value)
    seeds = [_restarted(first.coordinates, c) for c in begun[: settings.kept]]
    runs = [_Run(i, seed) for i in range(len(joints)) for seed in seeds]
    on = partial(_advance, joints, tolerance=settings.tolerance)
    on(runs, together)
    advance("line lists")
    best = [_best(runs, i) for i in range(len(joints))]
    top = max(best, key=lambda run: run.climb.value)
    on([top], alone)
    advance("best")
    again: list[_Run] = []
    for _ in range(ROUNDS):
        again += _from_the_best(on, best + again, top, settings.steps)
        higher = max(best + again, key=lambda run: run.climb.value)
        if higher.climb.value < top.climb.value + OVERTAKEN:
            break
        top = higher
    advance("fit")
    modes = [Mode(joints[i][0], _best(best + again, i).climb, joints[i][1]) for i in range(len(joints))]
    records = [_record("eased", joints[0][0], climb) for climb in begun]
    records += [_record("kept", joints[run.choice][0], run.climb) for run in runs]
    records += [_record("from the best", joints[run.choice][0], run.climb) for run in again]
    return tuple(sorted(modes, key=lambda mode: -mode.climb.value)), tuple(records)


def _as_seen(modes: tuple[Mode, ...], seen: Any, settings: FitSettings) -> tuple[Mode, ...]:
    """Climb on from `modes` with the model as `seen` by the file; they stay where the best of them gains nothing."""
    _, together, alone = settings.steps
    joints = []
    for mode in modes:
        joint: Any = mode.joint
        joints.append((mode.lists, replace(joint, predictor=replace(joint.predictor, model=seen))))
    runs = [_Run(i, Climb(mode.climb.z)) for i, mode in enumerate(modes)]
    on = partial(_advance, joints, tolerance=settings.tolerance)
    on(runs[:1], alone)
    top = runs[0].climb.value
    if top < modes[0].climb.value + OVERTAKEN:
        return modes
    on(runs[1:], together)
    on([run for run in runs[1:] if run.climb.foreseen > top - HOPELESS], alone)
    found = [Mode(joints[run.choice][0], run.climb, joints[run.choice][1]) for run in runs]
    return tuple(sorted(found, key=lambda mode: -mode.climb.value))


def _from_the_best(
    on: Callable[[list[_Run], int], None], runs: list[_Run], top: _Run, steps: tuple[int, int, int]
) -> list[_Run]:
    """Start every other combination of `runs` from `top`; the best run of each goes on, unless it is far behind."""
    _, together, alone = steps
    again = [_Run(i, Climb(top.climb.z)) for i in _choices(runs) if i != top.choice]
    on(again, together)
    near = [_best(runs + again, run.choice) for run in again]
    on([run for run in near if run.climb.foreseen > top.climb.value - HOPELESS], alone)
    return again


def _best(runs: Sequence[_Run], choice: int) -> _Run:
    return max((run for run in runs if run.choice == choice), key=lambda run: run.climb.value)


def _choices(runs: Sequence[_Run]) -> list[int]:
    return sorted({run.choice for run in runs})


def _record(stage: str, lists: Mapping[str, str], climb: Climb) -> dict[str, Any]:
    return {
        "stage": stage,
        "lists": dict(lists),
        "steps": climb.steps,
        "ln_density": climb.value,
        "converged": climb.converged,
    }


def _advance(
    joints: Sequence[tuple[Mapping[str, str], Joint]], runs: Sequence[_Run], steps: int, *, tolerance: float
) -> None:
    """Let every one of `runs` climb on; a thread per combination of line lists."""
    groups = [group for i in range(len(joints)) if (group := [run for run in runs if run.choice == i])]

    def go(group: list[_Run]) -> None:
        joint = joints[group[0].choice][1]
        for run, climbed in zip(group, _on(joint, [run.climb for run in group], steps, tolerance), strict=True):
            run.climb = climbed

    _in_threads(go, groups)


def _in_threads(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, items))


def _eased(joint: Joint, starts: list[np.ndarray], steps: int) -> list[Climb]:
    """First steps with the structure held at a tenth of the flux, then at a third of that; a batch per thread."""

    def ease(some: list[np.ndarray]) -> list[Climb]:
        climbs = [Climb(z) for z in some]
        for f in EASING:
            lenient = replace(joint, coordinates=joint.coordinates.with_structure(f))
            climbs = _on(lenient, [Climb(c.z) for c in climbs], steps)
        return climbs

    held = joint.coordinates.with_structure(EASING[0])
    moved = [joint.coordinates.moved(z, held) for z in starts]
    groups = [moved[i : i + TOGETHER] for i in range(0, len(moved), TOGETHER)]
    return [climb for group in _in_threads(ease, groups) for climb in group]


def _restarted(coordinates: Coordinates, eased: Climb) -> Climb:
    """Return a start in `coordinates` from where the easing ended, with the structure that it allowed."""
    held = coordinates.with_structure(EASING[-1])
    z = held.moved(eased.z, coordinates)
    if coordinates.structure:
        place = coordinates.places["structure"]
        z[place] = coordinates.at(coordinates.point(z).theta, f=EASING[-1])[place]
    return Climb(z)


def _on(joint: Joint, starts: list[Climb], steps: int, tolerance: float = 0.02) -> list[Climb]:
    return climb(joint.expand, starts, steps=steps, tolerance=tolerance, inside=joint.coordinates.inside)
