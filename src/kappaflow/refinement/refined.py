"""`kf.refine`: the exact posterior of one spectrum. The network proposes, the likelihood decides.

The network's draws are where fits begin; the best mode of each combination of line lists is where chains begin
(`sampling.py`); the combinations are weighed by their evidence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from kappaflow.errors import UserError
from kappaflow.observe.spectrum import Spectrum
from kappaflow.parameters import DRAWS
from kappaflow.randomness import generator
from kappaflow.refinement.best_fit import STAGES, THREADS, BestFit, Mode, one_thread_each, solved
from kappaflow.refinement.emulator import About
from kappaflow.refinement.posing import FitSettings, posed
from kappaflow.refinement.sampling import LIMITS, Effort, Learned, Sampled, finish, learn

__all__ = ["RefineSettings", "Refined", "refine"]

NEGLIGIBLE = 12.0  # nats below the best by Laplace's approximation, whose error is 1 to 3: not looked at
BEHIND = 7.0  # nats below the best by the first weights: a combination that is not sampled to the end
# Every combination also starts from the best of all, and chains find what the last steps would.
QUICKER = FitSettings(starts=6, screened=96, kept=2, steps=(4, 6, 30), tolerance=0.1)
MOVES = 3  # times that a mode may move
HEAVY = 0.01  # share from which a combination's convergence matters


@dataclass(frozen=True)
class RefineSettings:
    """What is exact and how much is spent on it."""

    opacity: Literal["marginal", "fixed"] = "marginal"  # fixed: the base lists as they are
    draws: int = DRAWS
    seed: int = 0
    fit: FitSettings = QUICKER
    effort: Effort = Effort()

    @property
    def steps(self) -> int:
        """How often `advance` of `refine` is called at least."""
        return STAGES + self.effort.rounds[0]

    def __post_init__(self) -> None:
        if self.opacity not in ("marginal", "fixed"):
            raise UserError(f"opacity: {self.opacity!r}; expected 'marginal' or 'fixed'")


@dataclass(frozen=True, eq=False)
class Refined:
    """Exact draws, and whether to believe that they are.

    Examples
    --------
    >>> refined = kf.refine(kf.read_spectrum("x1d.fits"), distance=5.7)  # doctest: +SKIP
    >>> refined.draws.shape, refined.converged, refined.weights  # doctest: +SKIP
    """

    names: tuple[str, ...]
    draws: np.ndarray  # (n, D), equally weighted
    field: np.ndarray  # (n, K), coefficients
    f: np.ndarray  # (n,), structure
    gains: np.ndarray  # (n, 2), factors of the detectors
    lists: tuple[Mapping[str, str], ...]  # combinations that were sampled
    combination: np.ndarray  # (n,), which of them made a draw
    evidence: np.ndarray  # ln, of each
    sampled: tuple[Sampled, ...]  # of each
    best: BestFit
    seconds: float

    @property
    def weights(self) -> np.ndarray:
        """How likely each combination of line lists is; those not sampled are less likely than e^-7 of the best."""
        return np.exp(self.evidence - np.logaddexp.reduce(self.evidence))

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The best fit with each combination, best first."""
        return self.best.modes

    def _worst(self, name: str) -> float:
        """Worst diagnostic over the combinations that matter."""
        heavy = [s for s, w in zip(self.sampled, self.weights, strict=True) if w >= HEAVY]
        values = [getattr(s, name) for s in heavy]
        return float(min(values) if name == "ess" else max(values))

    @property
    def ess(self) -> float:
        """Effective number of draws."""
        share = self.weights
        return float(1 / sum(w**2 / max(s.ess, 1e-9) for s, w in zip(self.sampled, share, strict=True)))

    @property
    def pareto_k(self) -> float:
        """Shape of the weights' tail, the worst of the combinations that matter."""
        return self._worst("pareto_k")

    @property
    def r_hat(self) -> float:
        """Of groups of draws, likewise."""
        return self._worst("r_hat")

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """What is not as it should be, in words."""
        found = []
        if not self.pareto_k < LIMITS["pareto_k"]:
            found.append(f"the weights have a heavy tail (Pareto k {self.pareto_k:.2f})")
        if not self.r_hat < LIMITS["r_hat"]:
            found.append(f"groups of draws disagree (R-hat {self.r_hat:.2f})")
        if not self.ess > LIMITS["ess"]:
            found.append(f"only {self.ess:.0f} draws are effective")
        return tuple(found)

    @property
    def converged(self) -> bool:
        """Whether the draws may be called exact."""
        return not self.shortcomings

    @property
    def sentence(self) -> str:
        """The same in words."""
        if self.converged:
            return f"Converged: {self.ess:.0f} effective draws, Pareto k {self.pareto_k:.2f}, R-hat {self.r_hat:.2f}."
        return f"Not converged: {'; '.join(self.shortcomings)}. Take the network's interval, or more effort."

    def summary(self) -> dict[str, Any]:
        """Plain data."""
        rows = zip(self.lists, self.evidence.tolist(), self.weights.tolist(), strict=True)
        return {
            "converged": self.converged,
            "sentence": self.sentence,
            "ess": self.ess,
            "pareto_k": self.pareto_k,
            "r_hat": self.r_hat,
            "seconds": self.seconds,
            "chi2_over_n": self.best.chi2 / self.best.n,
            "combinations": [{"lists": dict(name), "ln_evidence": e, "weight": w} for name, e, w in rows],
        }


def refine(
    spectrum: Spectrum,
    *,
    distance: float | None = None,
    posterior: Any = "packaged",
    model: Any = None,
    settings: RefineSettings = RefineSettings(),  # noqa: B008 (frozen)
    advance: Callable[[str], None] = lambda _: None,
) -> Refined:
    """Sample the exact posterior of `spectrum`.

    Parameters
    ----------
    spectrum : as `read_spectrum` gives it
    distance : in pc; without it, and without one in the file, the flux scale is free and the radius at its prior
    posterior : networks whose draws are where fits begin; None for starts from the prior
    model : forward model; that of the networks by default
    settings : opacities marginalized or fixed, number of draws, seed, effort
    advance : called with a word whenever a step is done: after every stage of the fit and every round of chains
    """
    began = time.monotonic()
    fixed = settings.opacity == "fixed"
    how = replace(settings.fit, field=not fixed, seed=settings.seed)
    lists = {} if fixed else None
    problem = posed(spectrum, distance=distance, lists=lists, model=model, posterior=posterior, settings=how)
    with one_thread_each():
        best = solved(problem, how, advance)
        top = max(mode.log_evidence for mode in best.modes)
        modes = [mode for mode in best.modes if mode.log_evidence > top - NEGLIGIBLE]

        found = [_Found(mode, generator("refine", settings.seed, i), settings, advance) for i, mode in enumerate(modes)]
        with ThreadPoolExecutor(THREADS) as pool:
            learned = [found[0].learned()]
            learned += pool.map(partial(_Found.learned, led=learned[0]), found[1:])
            best_yet = max(one.log_evidence for one in learned)
            near = [i for i, one in enumerate(learned) if one.log_evidence > best_yet - BEHIND]
            sampled = tuple(pool.map(_Found.sampled, [found[i] for i in near], [learned[i] for i in near]))
    return _combined(best, [found[i].mode for i in near], sampled, settings, began)


@dataclass(eq=False)
class _Found:
    """One mode, which moves where draws find a better one."""

    mode: Mode
    rng: np.random.Generator
    settings: RefineSettings
    advance: Callable[[str], None]

    def learned(self, led: Learned | None = None) -> Learned:
        """Teach an emulator about it; `led`, that of other line lists, knows how far it reaches."""
        step, effort = partial(self.advance, "draws"), self.settings.effort
        for _ in range(MOVES):
            about = About(self.mode.joint, self.mode.climb.z)
            learned = learn(about, self.mode.covariance, self.rng, led=led, effort=effort, advance=step)
            if learned.higher is None:
                break
            self._move(learned.higher)
        return learned

    def sampled(self, learned: Learned) -> Sampled:
        """Draw about it."""
        step = partial(self.advance, "draws")
        for _ in range(MOVES):
            sampled = finish(learned, self.rng, effort=self.settings.effort, advance=step)
            if sampled.higher is None:
                break
            self._move(sampled.higher)
            learned = self.learned()
        return sampled

    def _move(self, z: np.ndarray) -> None:
        how = self.settings.fit
        self.mode = self.mode.moved(z, how.steps[2], how.tolerance)


def _combined(
    best: BestFit, modes: list[Mode], sampled: tuple[Sampled, ...], settings: RefineSettings, began: float
) -> Refined:
    """Resample all combinations together, each with the weight of its evidence."""
    evidence = np.array([s.log_evidence for s in sampled])
    ln = np.concatenate([s.weights.ln + e for s, e in zip(sampled, evidence, strict=True)])
    owner = np.repeat(np.arange(len(sampled)), [len(s.z) for s in sampled])
    rng = generator("refined draws", settings.seed)
    edges = np.cumsum(np.exp(ln - np.logaddexp.reduce(ln)))
    # Systematic resampling: a draw comes as often as its weight says, give or take one.
    places = np.searchsorted(edges, (np.arange(settings.draws) + rng.random()) / settings.draws * edges[-1])
    places = rng.permutation(places.clip(0, ln.size - 1))
    z = np.concatenate([s.z for s in sampled])
    points = [modes[owner[i]].joint.coordinates.point(z[i]) for i in places]
    return Refined(
        best.names,
        best.mode.joint.coordinates.spread_held(np.stack([p.theta for p in points]), rng),
        np.stack([p.field for p in points]),
        np.array([p.f for p in points]),
        np.stack([1 + p.sigma_cal * p.gains for p in points]),
        tuple(mode.lists for mode in modes),
        owner[places],
        evidence,
        sampled,
        best,
        time.monotonic() - began,
    )
