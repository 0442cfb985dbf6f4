"""The trust card: each check is a function of arrays and returns a value, a verdict and a sentence.

Thresholds are in `THRESHOLDS`, as (limit of a pass, limit of a warning). Where the first is the larger, large values
are good (a p-value, a fraction); where it is the smaller, small ones are (a disagreement, a pile-up).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from kappaflow.parameters import INDEX, SNR
from kappaflow.spectra import Box

__all__ = [
    "GRADES",
    "GUESS",
    "THRESHOLDS",
    "Check",
    "Grade",
    "coverage_check",
    "edge_check",
    "familiarity_check",
    "graded",
    "line_list_share",
    "resemblance_check",
    "seed_check",
    "snr_check",
    "worst",
]

Grade = Literal["pass", "warn", "fail"]
GRADES: tuple[Grade, ...] = ("pass", "warn", "fail")

# check -> (limit of a pass, limit of a warning)
THRESHOLDS: dict[str, tuple[float, float]] = {
    "covered fraction": (0.40, 0.20),  # of the model's pixels; one detector alone is 0.34
    "embedding distance": (0.05, 0.01),  # p-value
    "resemblance": (0.05, 0.01),  # p-value
    "posterior predictive": (0.05, 0.01),  # p-value
    "structure": (0.06, 0.15),  # f, share of the flux; real spectra are fitted to 0.03 to 0.07
    # Largest distance of two members' medians / pooled 68 % half-width. With three networks 12 % and 1 % of simulated
    # spectra are beyond (benchmarks/disagreement.py).
    "seed disagreement": (1.0, 1.4),
    "prior edge": (3.0, 8.0),  # density in the outer 2 % of the prior / the prior's own
}
GUESS = "line-list share, networks' guess"
_SHARES = ("covered fraction", "line-list share", GUESS, "structure", "learned")  # shown in per cent
_EDGE = 0.02  # of the prior width: the rim that counts as its edge


@dataclass(frozen=True)
class Check:
    """One line of the trust card."""

    name: str
    value: float
    verdict: Grade
    sentence: str
    interval: tuple[float, float] | None = None  # 95 % interval of `value`, where it has one

    @property
    def shown(self) -> str:
        """The value as a reader sees it; nothing where there is none."""
        if np.isnan(self.value):
            return ""
        if self.name == "prior edge":
            return f"{self.value:.2g} times the prior's density"
        if self.name == "brightness":
            return f"{self.value:+.1f} standard deviations from the mean of the simulations"
        return f"{self.value:.0%}" if self.name in _SHARES else f"{self.value:.3g}"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; nan becomes None."""
        plain = asdict(self)
        plain["value"] = None if np.isnan(self.value) else float(self.value)
        return plain


def worst(checks: Sequence[Check]) -> Grade:
    """Return the worst verdict of `checks`."""
    return GRADES[max((GRADES.index(check.verdict) for check in checks), default=0)]


def graded(value: float, name: str) -> Grade:
    """Grade `value` against THRESHOLDS[name], whichever way round they are."""
    good, fair = THRESHOLDS[name]
    sign = 1.0 if good > fair else -1.0
    if sign * value >= sign * good:
        return "pass"
    return "warn" if sign * value >= sign * fair else "fail"


def snr_check(snr: float) -> Check:
    """Median SNR per pixel against the range the networks were trained on; within 20 % beyond it is a warning."""
    low, high = SNR.low, SNR.high
    if low <= snr <= high:
        return Check("SNR", snr, "pass", f"SNR {snr:.1f} lies inside the trained range, {low:g} to {high:g}.")
    near = 0.8 * low <= snr <= 1.2 * high
    side, remedy = ("above", "check the errors' unit") if snr > high else ("below", "add exposures")
    advice = f"the networks extrapolate; {remedy}" if near else f"do not use this posterior; {remedy}"
    verdict: Grade = "warn" if near else "fail"
    return Check("SNR", snr, verdict, f"SNR {snr:.1f} lies {side} the trained range, {low:g} to {high:g}: {advice}.")


def coverage_check(mask: np.ndarray) -> Check:
    """Share of the model's pixels with good data, from `mask` (p,)."""
    value = float(np.mean(mask))
    verdict = graded(value, "covered fraction")
    advice = {
        "pass": "enough for the networks",
        "warn": "little; add the other detector's file with --merge",
        "fail": "too little for a C/O; add the other detector's file with --merge",
    }[verdict]
    return Check("covered fraction", value, verdict, f"{value:.0%} of the model's pixels hold good data: {advice}.")


def familiarity_check(p_values: Sequence[float]) -> Check:
    """Grade the members' p-values of the embedding distance by their median."""
    p = float(np.median(p_values))
    verdict = graded(p, "embedding distance")
    say = {
        "pass": "is placed among the simulations by the networks",
        "warn": "is unusual among the simulations: look at its residuals before quoting",
        "fail": "is unlike any simulation the networks know: do not quote its posterior; compare with kappaflow fit",
    }[verdict]
    return Check("embedding distance", p, verdict, f"The spectrum {say} (p = {p:.2g}).")


def resemblance_check(p: float, strange: str) -> Check:
    """Grade the p-value of the distance from the training set in the space of spectra; `strange` says where it is."""
    verdict = graded(p, "resemblance")
    say = {
        "pass": "looks like spectra of the training set",
        "warn": f"is unusual beside the training set ({strange}): look at its residuals before quoting",
        "fail": f"looks like none of the training set ({strange}): do not quote its posterior; check file and mask",
    }[verdict]
    return Check("resemblance", p, verdict, f"The spectrum {say} (p = {p:.2g}).")


def seed_check(members: Sequence[np.ndarray]) -> Check:
    """Disagreement of the ensemble's members on one parameter, each with draws (n,).

    The largest distance between two medians, in units of half the pooled central 68 % interval.
    """
    if len(members) < 2:
        say = "One network alone: the disagreement of seeds cannot be seen; use an ensemble."
        return Check("seed disagreement", float("nan"), "warn", say)
    medians = np.array([np.median(draws) for draws in members])
    low, high = np.quantile(np.concatenate([np.ravel(m) for m in members]), [0.16, 0.84])
    value = float(np.ptp(medians) / max((high - low) / 2, 1e-12))
    verdict = graded(value, "seed disagreement")
    say = {
        "pass": "differ by less than the error bar",
        "warn": "differ by the error bar or more: quote the pooled interval, never one network's",
        "fail": "disagree, and the error bar is theirs, not the data's: add networks (--model) before quoting",
    }[verdict]
    ends = f"{medians.min():.2f} to {medians.max():.2f}"
    sentence = f"The {len(members)} networks {say} (C/O medians {ends}, {value:.2f} of the 68 % half-width apart)."
    return Check("seed disagreement", value, verdict, sentence)


def edge_check(draws: np.ndarray, box: Box) -> Check:
    """Posterior piling up at an edge of the prior `box`, from draws (n, D).

    Value: the largest density, relative to the uniform prior's, in the outer 2 % of any parameter's range. A
    pile-up of C/O can fail; of another parameter it only warns, for the C/O may still be good.
    """
    unit = box.to_unit(np.asarray(draws, float))
    density = np.maximum((unit < _EDGE).mean(axis=0), (unit > 1 - _EDGE).mean(axis=0)) / _EDGE
    good, fair = THRESHOLDS["prior edge"]
    piled = [box.names[i] for i in np.argsort(-density) if density[i] > good]
    value, carbon = float(density.max()), float(density[INDEX["C_O"]])
    if not piled:
        nearest = f"{box.names[int(density.argmax())]} comes nearest to it"
        return Check("prior edge", value, "pass", f"No parameter piles up at an edge of its prior; {nearest}.")
    verdict: Grade = "fail" if carbon > fair else "warn"
    named = ", ".join(piled[:5]) + (" and others" if len(piled) > 5 else "")
    advice = (
        "C/O itself is limited by the prior, not by the data: quote a limit"
        if carbon > fair
        else "C/O leans on its prior edge: quote a limit"
        if carbon > good
        else "quote limits for these; the truth may lie outside, and pull the rest"
    )
    return Check("prior edge", value, verdict, f"Piles up at a prior edge: {named}; {advice}.")


def line_list_share(control: np.ndarray, marginalized: np.ndarray, rng: np.random.Generator, *, n: int = 500) -> Check:
    """Let networks guess how much of the C/O error bar is line lists: 1 - (w_control / w_marginalized)^2.

    Widths are of 68 %. A network's interval is partly its own: the likelihood's share (`exactness.share_check`) is the
    one to quote.

    `control` and `marginalized` are C/O draws (m,), or (k, m) of k networks, that differ only in whether the opacities
    varied in training; variances of independent causes add, so the share is of the variance. Widths are the mean over
    networks, not the pooled one: a disagreement of seeds is not the line lists' doing. The 95 % interval comes from `n`
    bootstraps of the draws: it holds the sampling noise, not the spread between trainings.
    """
    pair = [np.atleast_2d(draws) for draws in (control, marginalized)]
    narrow, wide = (_width(d).mean() for d in pair)
    boot = [np.mean([_width(rng.choice(one, size=(n, one.size))) for one in d], axis=0) for d in pair]
    share = float(1 - (narrow / wide) ** 2)
    low, high = np.quantile(1 - (boot[0] / boot[1]) ** 2, [0.025, 0.975])
    inner, outer = (np.quantile(d, [0.05, 0.95]) for d in (control, marginalized))
    apart = inner[0] > outer[1] or outer[0] > inner[1]
    interval = (float(low), float(high))
    if apart:
        say = "The control's and the marginalized 90 % C/O intervals do not touch: quote neither; see the residuals."
        return Check(GUESS, share, "fail", say, interval)
    if high < 0:
        say = "The control's C/O interval is the wider: the trainings differ in more than opacities; quote no share."
        return Check(GUESS, share, "warn", say, interval)
    shown = f"{max(share, 0):.0%} (95 %: {max(low, 0):.0%}-{max(high, 0):.0%})"
    say = (
        f"The networks guess {shown} of the C/O variance, their error bar being {wide / narrow:.2f} times the "
        "control's; refine to measure it."
    )
    return Check(GUESS, share, "pass", say, interval)


def _width(draws: np.ndarray) -> np.ndarray:
    low, high = np.quantile(draws, [0.16, 0.84], axis=-1)
    return np.maximum(high - low, 1e-12)
