"""What the likelihood says beside the networks: exact draws with the opacities marginalized, and with one line list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.observe.spectrum import Spectrum
from kappaflow.parameters import INDEX
from kappaflow.plain_data import plain
from kappaflow.progress import progress
from kappaflow.randomness import generator
from kappaflow.refinement.refined import Refined, RefineSettings, refine
from kappaflow.retrieval.trust import Check
from kappaflow.spectra import OpacityCard

__all__ = ["Exactness", "refinement_check", "refined_both", "share_check"]

_CO = INDEX["C_O"]
AGREEMENT = 1.5  # distance of C/O medians / the networks' 68 % half-width: beyond it they disagree
_NAME, _SHARE = "refinement", "line-list share"


@dataclass(frozen=True, eq=False)
class Exactness:
    """The likelihood's answer: opacities marginalized, and with the base lists taken as they are."""

    marginal: Refined
    fixed: Refined | str  # or why there is none

    @property
    def converged(self) -> bool:
        """Whether the marginalized draws may be called the posterior."""
        return self.marginal.converged

    @property
    def one_list(self) -> Refined | None:
        """The fixed-opacity posterior, where both are exact."""
        fixed = self.fixed
        return fixed if self.converged and isinstance(fixed, Refined) and fixed.converged else None

    @property
    def why_no_share(self) -> str:
        """Why fixed and marginalized cannot be compared; empty where they can."""
        if not self.converged:
            return "the refinement has not converged"
        if isinstance(self.fixed, str):
            return self.fixed
        return "" if self.fixed.converged else f"with fixed opacities: {'; '.join(self.fixed.shortcomings)}"

    def with_draws(self, change: Callable[[np.ndarray], np.ndarray]) -> Exactness:
        """Return the same with `change` applied to the draws (n, D) of both."""
        fixed = self.fixed
        fixed = fixed if isinstance(fixed, str) else replace(fixed, draws=change(fixed.draws))
        return Exactness(replace(self.marginal, draws=change(self.marginal.draws)), fixed)

    def summary(self) -> dict[str, Any]:
        """Plain data."""
        fixed = {"converged": False, "sentence": self.fixed} if isinstance(self.fixed, str) else self.fixed.summary()
        return plain(self.marginal.summary() | {"fixed": fixed})


@dataclass(frozen=True, eq=False)
class _Known:
    """Draws as where fits begin, in the place of networks."""

    wavelength: np.ndarray
    names: tuple[str, ...]
    draws: np.ndarray
    opacity: OpacityCard | None

    def sample(self, spectrum: Spectrum, *, n: int, seed: int) -> np.ndarray:
        """Return `n` of the draws."""
        return self.draws[generator("known draws", seed).permutation(len(self.draws))[:n]]


def refined_both(
    native: Spectrum, posterior: Any, model: Any, distance: float | None, settings: RefineSettings
) -> Exactness | str:
    """Refine with the opacities marginalized, and then with the base lists, from draws of the first and the networks.

    What cannot be refined is a sentence that says why.
    """
    with progress("refining", 2 * settings.steps, unit="steps") as advance:

        def step(word: str) -> None:
            advance(1, note=word)

        try:
            found = refine(native, distance=distance, posterior=posterior, model=model, settings=settings, advance=step)
        except (UserError, np.linalg.LinAlgError) as error:
            return str(error)
        if not found.converged:
            return Exactness(found, "not tried")
        # Draws that fit are near each other, and with one line list the best fit may lie elsewhere: the networks' too.
        both = np.concatenate([found.draws, posterior.sample(found.best.spectrum, n=len(found.draws))])
        known = _Known(model.wavelength, found.names, both, posterior.opacity)
        quick = replace(settings.effort, first=min(64, settings.effort.first))  # without a field there is less to learn
        how = replace(settings, opacity="fixed", effort=quick)
        try:
            fixed = refine(native, distance=distance, posterior=known, model=model, settings=how, advance=step)
        except np.linalg.LinAlgError as error:
            return Exactness(found, f"with fixed opacities: {error}")
    return Exactness(found, fixed)


def refinement_check(found: Exactness | str, network: np.ndarray) -> Check:
    """Say whether the refinement converged, and whether its C/O agrees with that of the networks' draws (n, D).

    The value is the distance of their medians in the networks' 68 % half-widths.
    """
    if isinstance(found, str):
        return Check(_NAME, float("nan"), "warn", f"Not refined, the interval is the networks': {found}.")
    if not found.converged:
        why = "; ".join(found.marginal.shortcomings)
        say = f"Not converged ({why}): the interval is the networks', and no exact one is known."
        return Check(_NAME, float("nan"), "warn", say)
    low, middle, high = np.quantile(network[:, _CO], [0.16, 0.5, 0.84])
    ours = np.quantile(found.marginal.draws[:, _CO], [0.16, 0.5, 0.84])
    value = float(abs(ours[1] - middle) / max((high - low) / 2, 1e-12))
    both = f"C/O {ours[1]:.2f} ({ours[0]:.2f} to {ours[2]:.2f}), networks {middle:.2f} ({low:.2f} to {high:.2f})"
    if value <= AGREEMENT:
        exact = found.marginal.sentence.removesuffix(".")
        return Check(_NAME, value, "pass", f"{exact}; they agree with the networks ({both}).")
    say = f"Network and likelihood disagree ({both}): the likelihood decides, if its fit leaves no residuals."
    return Check(_NAME, value, "warn", say)


def share_check(found: Exactness, rng: np.random.Generator, *, n: int = 500) -> Check:
    """How much of the C/O variance is line lists: 1 - (w_fixed / w_marginalized)^2 of the 68 % widths, both exact.

    The 95 % interval comes from `n` bootstraps, each of as many draws as are effective.
    """
    fixed = found.one_list
    if fixed is None:
        return Check(_SHARE, float("nan"), "warn", f"Not computed: {found.why_no_share}.")
    pair = (fixed, found.marginal)
    narrow, wide = (float(_half_width(r.draws[:, _CO])) for r in pair)
    boot = [_half_width(rng.choice(r.draws[:, _CO], size=(n, max(int(min(r.ess, len(r.draws))), 20)))) for r in pair]
    share = float(1 - (narrow / wide) ** 2)
    low, high = (float(v) for v in np.quantile(1 - (boot[0] / boot[1]) ** 2, [0.025, 0.975]))
    if high < 0:
        say = f"C/O is no better known with one line list (±{narrow:.2g}) than in truth (±{wide:.2g})."
        return Check(_SHARE, share, "warn", say, (low, high))
    say = (
        f"C/O ±{_digits(narrow)} with one line list, ±{_digits(wide)} in truth: {max(share, 0):.0%} "
        f"(95 %: {max(low, 0):.0%}-{max(high, 0):.0%}) of its variance is line lists{_apart(fixed, found.marginal)}."
    )
    return Check(_SHARE, share, "pass", say, (low, high))


def _apart(fixed: Refined, marginal: Refined) -> str:
    """Say so where the interval of one line list misses the other altogether."""
    inner, outer = (np.quantile(r.draws[:, _CO], [0.05, 0.5, 0.95]) for r in (fixed, marginal))
    if inner[0] > outer[2] or outer[0] > inner[2]:
        return f", and one alone would say {inner[1]:.2f}, outside the 90 % interval"
    return ""


def _half_width(draws: np.ndarray) -> np.ndarray:
    low, high = np.quantile(draws, [0.16, 0.84], axis=-1)
    return np.maximum((high - low) / 2, 1e-12)


def _digits(width: float) -> str:
    """Two decimals, or three where they are needed: 0.06, 0.007."""
    return f"{width:.2f}" if width >= 0.0095 else f"{width:.3f}"
