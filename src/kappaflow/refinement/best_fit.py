"""The best fit of a spectrum: all parameters, coefficients of the opacity field, gains and structure at once.

Several starts from the network's draws, all line-list combinations; a start's first steps are taken with a structure
of a tenth of the flux, which smooths away the side valleys, and the worse half is dropped twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.observe.resampling import on_pixels
from kappaflow.observe.spectrum import Spectrum
from kappaflow.refinement.climb import Climb, climb
from kappaflow.refinement.coordinates import Coordinates, Point
from kappaflow.refinement.likelihood import Joint, ListedModel, Observation
from kappaflow.refinement.residuals import BandResidual, band_residuals
from kappaflow.refinement.starts import SCREEN, candidates, screened
from kappaflow.simulation.opacity_draws import SWAPPED, coefficient_sigma, combinations, sigma_table
from kappaflow.spectra import Box

__all__ = ["BestFit", "FitSettings", "Mode", "best_modes", "fit"]


@dataclass(frozen=True)
class FitSettings:
    """What is free, from how many starts, and the seed of those."""

    field: bool = True  # the opacity field; otherwise the lists are taken as they are
    structure: bool = True  # f of s^2 = sigma^2 + (f F)^2; otherwise 0
    starts: int = 3  # per combination of line lists
    screened: int = 64  # draws among which they are chosen
    rounds: tuple[int, ...] = (6, 12, 60)  # steps, after each of which but the last the worse half is dropped
    seed: int = 0


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
        information = self.climb.information
        if information is None:
            information = self.joint.expand(self.climb.z).information
        return np.linalg.inv(information)

    @property
    def log_evidence(self) -> float:
        """Ln of the evidence by Laplace's approximation, up to a constant that all modes of a spectrum share."""
        return float(self.climb.value + 0.5 * np.linalg.slogdet(self.covariance)[1])


@dataclass(frozen=True, eq=False)
class BestFit:
    """The best of all modes found, and the modes: the best of each combination of line lists, best first."""

    spectrum: Spectrum  # on the model's pixels
    names: tuple[str, ...]
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
    def scale(self) -> float:
        """Factor on the flux where its scale is unknown, else 1."""
        return float(np.exp(self.mode.point.ln_scale))

    @cached_property
    def flux(self) -> np.ndarray:
        """The fitted spectrum (p,) on all pixels, gains included, in the data's unit."""
        from kappaflow.instrument import on_nrs2

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
        """Mean over good pixels of residual^2 / (error^2 + (f flux)^2)."""
        good = self.spectrum.mask
        variance = self.spectrum.error**2 + (self.f * self.flux) ** 2
        return float(np.mean((self.spectrum.flux - self.flux)[good] ** 2 / variance[good]))

    @cached_property
    def covariance(self) -> np.ndarray:
        """Of the parameters, (D, D), in their units: Laplace, everything else integrated out; 0 for what is held."""
        c = self.mode.joint.coordinates
        place = c.places["theta"]
        out = np.zeros((len(c.box), len(c.box)))
        slope = self.mode.point.slope[c.free]
        out[np.ix_(c.free, c.free)] = self.mode.covariance[place, place] * slope[:, None] * slope
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
    model : forward model; that of the networks' preset by default
    posterior : networks whose draws are starts; None for starts from the prior
    settings : what is free, how many starts, the seed

    Examples
    --------
    >>> import kappaflow as kf
    >>> best = kf.fit(kf.read_spectrum("x1d.fits"), distance=5.71)  # doctest: +SKIP
    >>> best.chi2 / best.n, best.theta[5], best.errors[5]  # doctest: +SKIP
    """
    networks, forward = _defaults(posterior, model)
    told = spectrum.meta.get("distance_pc")
    distance = distance if distance is not None else float(told) if isinstance(told, int | float) else None
    data = on_pixels(spectrum, forward.wavelength, distance)
    table = coefficient_sigma(sigma_table())
    sigma = table.ravel() if settings.field else np.zeros(table.size)
    box = Box()
    coordinates = Coordinates(box, sigma, settings.structure, not data.meta["scale_known"])
    choices = [dict(lists)] if lists is not None else [dict(c) for c in combinations(forward.names, SWAPPED)]
    observed = Observation.of(data)
    joints = [
        (choice, Joint(observed, ListedModel(forward, tuple(forward.list_indices(choice).tolist())), coordinates))
        for choice in choices
    ]
    theta = candidates(data, box, networks, n=settings.screened, seed=settings.seed)
    modes, starts = best_modes(joints, theta, settings)
    return BestFit(data, box.names, modes, starts)


def _defaults(posterior: Any, model: Any) -> tuple[Any, Any]:
    """Networks, or None, and the forward model on their pixels."""
    if isinstance(posterior, str):
        from kappaflow.inference import Posterior

        if posterior != "packaged":
            raise UserError(f"posterior: {posterior!r}; expected `kappaflow.Posterior`, 'packaged' or None")
        posterior = Posterior.load()
    if model is None:
        from kappaflow.model.forward import ForwardModel

        model = ForwardModel.load("laptop" if posterior is None else posterior.members[0].card.preset)
    return posterior, model


@dataclass(eq=False)
class _Run:
    """One start on its way."""

    choice: int
    climb: Climb
    first: float
    dropped: bool = False


def best_modes(
    joints: Sequence[tuple[Mapping[str, str], Joint]], theta: np.ndarray, settings: FitSettings
) -> tuple[tuple[Mode, ...], tuple[dict[str, Any], ...]]:
    """Climb from the best of `theta` (n, D) in each of `joints` (lists, density); the best mode of each, best first.

    Where a combination ends below another by more than its own lists explain, it is started again from the other's
    mode: a side valley of one is seldom one of all.
    """
    workers = os.cpu_count() or 1

    def each(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(function, items))

    def begin(choice: int) -> list[_Run]:
        joint = joints[choice][1]
        found = [_eased(joint, z, settings.rounds[0]) for z in screened(joint, theta, settings.starts)]
        return [_Run(choice, c, c.value) for c in found]

    def further(job: tuple[_Run, int]) -> None:
        run, steps = job
        run.climb = _on(joints[run.choice][1], run.climb, steps)

    runs = [run for some in each(begin, range(len(joints))) for run in some]
    for steps in settings.rounds[1:]:
        for choice in range(len(joints)):
            _drop_worse_half([run for run in runs if run.choice == choice and not run.dropped])
        left = [(run, steps) for run in runs if not run.dropped and not run.climb.converged]
        each(further, left)
    best = [max((r for r in runs if r.choice == i), key=lambda r: r.climb.value).climb for i in range(len(joints))]
    top = max(best, key=lambda c: c.value)

    def again(choice: int) -> Climb:
        if best[choice] is top:
            return best[choice]
        joint = joints[choice][1]
        start = Climb(top.z)
        return max(best[choice], _on(joint, start, settings.rounds[-1]), key=lambda c: c.value)

    modes = [Mode(joints[i][0], c, joints[i][1]) for i, c in enumerate(each(again, range(len(joints))))]
    records = tuple(
        {
            "lists": dict(joints[r.choice][0]),
            "steps": r.climb.steps,
            "ln_density": r.climb.value,
            "converged": r.climb.converged,
            "dropped": r.dropped,
        }
        for r in runs
    )
    return tuple(sorted(modes, key=lambda mode: -mode.climb.value)), records


def _drop_worse_half(runs: list[_Run]) -> None:
    for run in sorted(runs, key=lambda r: -r.climb.value)[max(1, -(-len(runs) // 2)) :]:
        run.dropped = True


def _eased(joint: Joint, z: np.ndarray, steps: int) -> Climb:
    """First steps with the structure held at a tenth of the flux, then at a third of that, then as asked."""
    c = joint.coordinates
    for f in (SCREEN, SCREEN / 3):
        lenient = replace(joint, coordinates=c.with_structure(f))
        start = c.moved(z, lenient.coordinates)
        found = _on(lenient, Climb(start), steps)
        z = lenient.coordinates.moved(found.z, c)
        if c.structure:
            z[c.places["structure"]] = c.at(lenient.coordinates.point(found.z).theta, f=f)[c.places["structure"]]
    return _on(joint, Climb(z), steps)


def _on(joint: Joint, start: Climb, steps: int) -> Climb:
    return climb(joint, joint.expand, start, steps=steps, inside=joint.coordinates.inside)
