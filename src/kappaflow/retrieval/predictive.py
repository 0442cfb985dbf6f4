"""Does the model, with its opacities uncertain, predict the observed spectrum? A posterior-predictive p-value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kappaflow.errors import UserError
from kappaflow.retrieval.trust import THRESHOLDS, Check, Grade

__all__ = ["Predictive", "posterior_predictive", "predictive_check"]

BAND = 0.2  # um: the misfit is placed to this
LOCAL = 0.4  # share of the excess in one band beyond which it is that band's; evenly spread it is a twelfth
BROAD = 1.0  # half-width of the 90 % band over the flux beyond which a spectrum cannot disagree with it


@dataclass(frozen=True)
class Misfit:
    """Where the statistic exceeds what noise makes of it, and the structure that would excuse it."""

    share: float  # of the excess, in the worst band
    band: tuple[float, float] | None  # that band, um; None without wavelengths or excess
    f: float  # s^2 = sigma^2 + (f F)^2 with this f makes the residuals as large as the errors


@dataclass(frozen=True)
class Predictive:
    """What the check found, and the band to draw."""

    p_value: float
    chi2: float  # reduced: T over the number of good pixels
    median: np.ndarray  # (p,), mJy, of the predicted spectra
    low: np.ndarray  # (p,), 5 % of model plus noise
    high: np.ndarray  # (p,), 95 %
    outside: float  # share of good pixels outside [low, high]; 0.10 when all is well
    misfit: Misfit  # where, and how large
    breadth: float  # median over good pixels of the band's half-width / |flux|: above 1, agreement means little


def posterior_predictive(
    flux: np.ndarray,
    error: np.ndarray,
    mask: np.ndarray,
    predicted: np.ndarray,
    rng: np.random.Generator,
    *,
    wavelength: np.ndarray | None = None,
) -> Predictive:
    """Compare a spectrum (p,) with spectra `predicted` (m, p) from posterior draws.

    `error` (p,), or (m, p) where every draw has its own: structure adds to what the file tells. `wavelength` (p,) [um]
    lets the misfit be placed. For the opacity envelope, each of `predicted` is computed with its own draw of the
    opacities, and with its own
    gain; for the fixed-opacity verdict, with the base lists.

    The statistic is the distance T = (y - mu)' (S + N)^-1 (y - mu) over good pixels, with mu and S the mean and
    covariance of the first half of `predicted` and N the noise variance. Its null is T of the second half, each with
    fresh noise: exchangeable with the observation if the model is right, whatever the rank of S. p = (1 + number of
    those at least as far as the observed) / (1 + m/2).
    """
    good = np.asarray(mask, bool)
    predicted = np.asarray(predicted, float)
    if predicted.ndim != 2 or len(predicted) < 40 or predicted.shape[1] != good.size:
        raise UserError(
            f"posterior predictive: shape {predicted.shape}; expected at least 40 spectra on {good.size} pixels"
        )
    if good.sum() < 10:
        raise UserError(f"posterior predictive: {good.sum()} good pixels; expected at least 10")
    own = np.atleast_2d(np.asarray(error, float))[:, good]
    sigma = np.sqrt((own**2).mean(axis=0))
    half = len(predicted) // 2
    whitened = predicted[:, good] / sigma
    noise = np.broadcast_to(own / sigma, whitened.shape)
    noisy = whitened[half:] + noise[half:] * rng.standard_normal(whitened[half:].shape)
    observed = np.asarray(flux, float)[good] / sigma
    points = np.vstack([observed, noisy])
    left = _unexplained(points, whitened[:half])
    off = points - whitened[:half].mean(axis=0)
    distance = (off * left).sum(axis=1)
    p = (1 + (distance[1:] >= distance[0]).sum()) / (1 + len(noisy))
    low, high = np.full(good.size, np.nan), np.full(good.size, np.nan)
    spread = whitened + noise * rng.standard_normal(whitened.shape)
    ends = np.quantile(spread, [0.05, 0.95], axis=0) * sigma
    low[good], high[good] = ends
    outside = float(np.mean((flux[good] < ends[0]) | (flux[good] > ends[1])))
    size = np.maximum(np.abs(flux[good]), sigma)
    breadth = float(np.median((ends[1] - ends[0]) / 2 / size))
    chi2 = float(distance[0] / good.sum())
    where = None if wavelength is None else np.asarray(wavelength, float)[good]
    misfit = _misfit(off[0] * left[0], left[0], observed, where)
    return Predictive(float(p), chi2, np.median(predicted, axis=0), low, high, outside, misfit, breadth)


def _unexplained(points: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """(C + I)^-1 (points - mean), (k, p): what of `points` (k, p) the spread of `sample` (m, p) does not explain.

    (I + A'A)^-1 = I - A' (I + A A')^-1 A for the low-rank A (m, p) whose A'A is the covariance C: m x m, never p x p.
    """
    mean = sample.mean(axis=0)
    axes = (sample - mean) / np.sqrt(len(sample) - 1)
    off = points - mean
    explained = np.linalg.solve(np.eye(len(axes)) + axes @ axes.T, axes @ off.T)  # (m, k)
    return off - explained.T @ axes


def _misfit(terms: np.ndarray, residual: np.ndarray, observed: np.ndarray, where: np.ndarray | None) -> Misfit:
    """Place the excess of the statistic, whose `terms` (n,) sum to it; `residual` and `observed` are over the error."""
    low, high = 0.0, 10.0
    for _ in range(40):  # bisection: the mean falls as f grows
        f = (low + high) / 2
        low, high = (f, high) if np.mean(residual**2 / (1 + (f * observed) ** 2)) > 1 else (low, f)
    f = high if high > 1e-9 else 0.0
    if where is None or terms.sum() <= terms.size:
        return Misfit(0.0, None, f)
    start = np.floor(where / BAND).astype(int)
    excess = np.bincount(start - start.min(), terms - 1)
    at = int(excess.argmax())
    share = float(excess[at] / np.maximum(excess, 0).sum())
    first = BAND * (start.min() + at)
    return Misfit(share, (round(first, 6), round(first + BAND, 6)), f)


def predictive_check(envelope: Predictive, fixed: Predictive | None = None) -> Check:
    """Grade the p-value under uncertain opacities; `fixed` (base lists only) says what the envelope explains.

    A band wider than the spectrum itself lets anything pass: that is a warning, not a pass.
    """
    name, p = "posterior predictive", envelope.p_value
    good, fair = THRESHOLDS[name]
    verdict: Grade = "pass" if p >= good else "warn" if p >= fair else "fail"
    if verdict == "pass" and envelope.breadth > BROAD:
        sentence = (
            f"The predictive band is {envelope.breadth:.1f} times the flux: agreement means little (p = {p:.2g}); "
            "judge by the interval's width."
        )
        return Check(name, p, "warn", sentence)
    if verdict == "pass":
        more = "; with fixed opacities it would not" if fixed is not None and fixed.p_value < fair else ""
        outside = f"{envelope.outside:.0%} of pixels outside the 90 % band"
        say = f"The model with uncertain opacities predicts this spectrum{more} (p = {p:.2g}, {outside})."
        return Check(name, p, verdict, say)
    say = {
        "warn": "Few posterior draws, opacities varied, have this spectrum's shape",
        "fail": "No posterior draw, with any plausible opacities, has this spectrum's shape",
    }[verdict]
    return Check(name, p, verdict, f"{say} (p = {p:.2g}): {_advice(envelope.misfit)}.")


def _advice(misfit: Misfit) -> str:
    """Return what to do about a misfit: mask where it is, or enlarge the errors where it is everywhere."""
    if misfit.band is not None and misfit.share > LOCAL:
        low, high = misfit.band
        return (
            f"{misfit.share:.0%} of the misfit is at {low:g}-{high:g} um; mask it and compare: --mask {low:g}:{high:g}"
        )
    grown = f"errors with f = {misfit.f:.2g} of the flux added would excuse it" if misfit.f > 0 else "it is subtle"
    return f"the misfit is spread over the spectrum; {grown}; compare with kappaflow fit, which infers f"
