"""Does the model, with its opacities uncertain, predict the observed spectrum? A posterior-predictive p-value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kappaflow.errors import UserError
from kappaflow.retrieval.trust import THRESHOLDS, Check, Grade

__all__ = ["Predictive", "posterior_predictive", "predictive_check"]

BROAD = 1.0  # half-width of the 90 % band over the flux beyond which a spectrum cannot disagree with it


@dataclass(frozen=True)
class Predictive:
    """What the check found, and the band to draw."""

    p_value: float
    chi2: float  # reduced: T over the number of good pixels
    median: np.ndarray  # (p,), mJy, of the predicted spectra
    low: np.ndarray  # (p,), 5 % of model plus noise
    high: np.ndarray  # (p,), 95 %
    outside: float  # share of good pixels outside [low, high]; 0.10 when all is well
    breadth: float  # median over good pixels of the band's half-width / |flux|: above 1, agreement means little


def posterior_predictive(
    flux: np.ndarray, error: np.ndarray, mask: np.ndarray, predicted: np.ndarray, rng: np.random.Generator
) -> Predictive:
    """Compare a spectrum (p,) with spectra `predicted` (m, p) from posterior draws.

    `error` (p,), or (m, p) where every draw has its own: structure adds to what the file tells. For the opacity
    envelope, each of `predicted` is computed with its own draw of the opacities, and with its own
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
    distance = _distance(np.vstack([observed, noisy]), whitened[:half])
    p = (1 + (distance[1:] >= distance[0]).sum()) / (1 + len(noisy))
    low, high = np.full(good.size, np.nan), np.full(good.size, np.nan)
    spread = whitened + noise * rng.standard_normal(whitened.shape)
    ends = np.quantile(spread, [0.05, 0.95], axis=0) * sigma
    low[good], high[good] = ends
    outside = float(np.mean((flux[good] < ends[0]) | (flux[good] > ends[1])))
    size = np.maximum(np.abs(flux[good]), sigma)
    breadth = float(np.median((ends[1] - ends[0]) / 2 / size))
    chi2 = float(distance[0] / good.sum())
    return Predictive(float(p), chi2, np.median(predicted, axis=0), low, high, outside, breadth)


def _distance(points: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """Mahalanobis distances (k,) of `points` (k, p) from `sample` (m, p), unit noise added.

    (I + A'A)^-1 = I - A' (I + A A')^-1 A for the low-rank A (m, p) whose A'A is the covariance: m x m, never p x p.
    """
    mean = sample.mean(axis=0)
    axes = (sample - mean) / np.sqrt(len(sample) - 1)
    off = points - mean
    along = axes @ off.T  # (m, k)
    explained = np.linalg.solve(np.eye(len(axes)) + axes @ axes.T, along)
    return (off**2).sum(axis=1) - (along * explained).sum(axis=0)


def predictive_check(envelope: Predictive, fixed: Predictive | None = None) -> Check:
    """Grade the p-value under uncertain opacities; `fixed` (base lists only) says what the envelope explains.

    A band wider than the spectrum itself lets anything pass: that is a warning, not a pass.
    """
    name, p = "posterior predictive", envelope.p_value
    good, fair = THRESHOLDS[name]
    verdict: Grade = "pass" if p >= good else "warn" if p >= fair else "fail"
    say = {
        "pass": "The model with uncertain opacities predicts this spectrum",
        "warn": "The model with uncertain opacities has difficulty with this spectrum",
        "fail": "No posterior draw, with any plausible opacities, looks like this spectrum",
    }[verdict]
    if verdict == "pass" and envelope.breadth > BROAD:
        sentence = (
            f"The predictive band is {envelope.breadth:.1f} times the flux: agreement means little (p = {p:.2g})."
        )
        return Check(name, p, "warn", sentence)
    more = ""
    if fixed is not None and verdict == "pass" and fixed.p_value < fair:
        more = "; with fixed opacities it would not"
    return Check(
        name,
        p,
        verdict,
        f"{say}{more} (p = {p:.2g}, {envelope.outside:.0%} of pixels outside the 90 % band).",
    )
