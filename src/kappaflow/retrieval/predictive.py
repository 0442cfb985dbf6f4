"""Does the model, with its opacities uncertain, predict the observed spectrum? A posterior-predictive p-value."""

from dataclasses import dataclass

import numpy as np

from kappaflow.errors import UserError
from kappaflow.retrieval.replicates import Judge, Replicates, intraclass
from kappaflow.retrieval.trust import THRESHOLDS, Check, Grade, graded

__all__ = ["Predictive", "posterior_predictive", "predictive_check", "structure_check"]

NULL = 2000  # null draws, at least
BAND = 0.2  # um: the misfit is placed to this
LOCAL = 0.4  # share of the excess in one band beyond which it is that band's; evenly spread it is a twelfth
MISSED = 0.3  # f beyond which "fits to f" would be a joke
BROAD = 1.0  # half-width of the 90 % band over the flux beyond which a spectrum cannot disagree with it


@dataclass(frozen=True)
class Misfit:
    """Where the statistic exceeds what noise makes of it, and the structure that would excuse all of it."""

    share: float  # of the excess, in the worst band
    band: tuple[float, float] | None  # that band, um; None without wavelengths or excess
    f: float  # structure of this share of the light makes the residuals as large as the errors: it "fits to f"


@dataclass(frozen=True)
class Predictive:
    """What the check found, and the band to draw."""

    p_value: float
    p_error: float  # Monte Carlo, one standard deviation
    at_most: bool  # no null draw was as far: `p_value` is the smallest that so many can tell
    chi2: float  # reduced: T over the number of good pixels
    median: np.ndarray  # (p,), mJy, of the predicted spectra
    low: np.ndarray  # (p,), 5 % of model plus noise
    high: np.ndarray  # (p,), 95 %
    outside: float  # share of good pixels outside [low, high]; 0.10 when all is well
    misfit: Misfit  # where, and how large
    breadth: float  # median over good pixels of the band's half-width / |flux|: above 1, agreement means little
    errors: float  # median over good pixels of the stated error / |flux|

    @property
    def p_words(self) -> str:
        """The p-value as a reader sees it: with its error, or as a bound."""
        if self.at_most:
            return f"p at most {self.p_value:.1g}"
        return f"p = {self.p_value:.2g} ± {self.p_error:.1g}"


def posterior_predictive(
    flux: np.ndarray,
    error: np.ndarray,
    mask: np.ndarray,
    predicted: Replicates | np.ndarray,
    rng: np.random.Generator,
    *,
    wavelength: np.ndarray | None = None,
) -> Predictive:
    """Compare a spectrum (p,) with spectra predicted (m, p) from posterior draws.

    `error` (p,) is what the file states; the structure f of each draw, which adds to it, comes with `predicted`.
    `wavelength` (p,) [um] lets the misfit be placed.

    For the opacity envelope, each of `predicted` is computed with its own draw of the opacities, and with its own
    gain; for the fixed-opacity verdict, with the base lists.

    The statistic is the distance T = (y - mu)' (S + N)^-1 (y - mu) over good pixels, with mu and S the mean and
    covariance of one half of `predicted` and N the noise, whose f is estimated from y itself, by its scatter from pixel
    to pixel: what is judged is the shape. Its null is T of the other half, each with fresh noise several times:
    exchangeable with the observation if the model is right, whatever the rank of S. Both halves take both parts.
    p = (1 + null draws at least as far) / (1 + all of them); its error counts spectra, not replicates of one.
    """
    good = np.asarray(mask, bool)
    replicates = predicted if isinstance(predicted, Replicates) else Replicates(np.asarray(predicted, float))
    shape = replicates.flux.shape
    if len(shape) != 2 or shape[0] < 40 or shape[1] != good.size:
        raise UserError(f"posterior predictive: shape {shape}; expected at least 40 spectra on {good.size} pixels")
    if good.sum() < 10:
        raise UserError(f"posterior predictive: {good.sum()} good pixels; expected at least 10")
    observed, stated = np.asarray(flux, float)[good], np.asarray(error, float)[good]
    kept = replicates.on(good)
    halves = [kept.rows(slice(len(kept.flux) // 2)), kept.rows(slice(len(kept.flux) // 2, None))]
    repeats = -(-NULL // len(kept.flux))
    far, null, judges = [], [], []
    for sample, rest in (halves, halves[::-1]):
        judge = Judge.of(sample, stated, float(kept.f.max()))
        distance = judge.distance(np.vstack([observed, rest.noisy(stated, repeats, rng)]))
        far.append((distance[1:] >= distance[0]).reshape(repeats, -1))
        null.append(distance[1:].reshape(repeats, -1) - np.median(distance[1:]))
        judges.append((judge, distance[0]))
    p = _p_value(np.concatenate(far, axis=1), np.concatenate(null, axis=1))
    judge, distance = judges[0]
    where = None if wavelength is None else np.asarray(wavelength, float)[good]
    misfit = _misfit(judge, observed, where)
    band = _band(observed, kept.noisy(stated, 1, rng), np.maximum(np.abs(observed), stated))
    low, high = np.full(good.size, np.nan), np.full(good.size, np.nan)
    low[good], high[good] = band[0]
    relative = float(np.median(stated / np.maximum(np.abs(observed), 1e-300)))
    chi2 = float(distance / good.sum())
    return Predictive(*p, chi2, np.median(replicates.flux, axis=0), low, high, band[1], misfit, band[2], relative)


def _p_value(far: np.ndarray, distance: np.ndarray) -> tuple[float, float, bool]:
    """p, its Monte Carlo error and whether it is the floor, from `far` and T (repeats, spectra) of the null."""
    share = far.mean(axis=0)  # of each spectrum's replicates
    p = (1 + far.sum()) / (1 + far.size)
    error = float(share.std(ddof=1) / np.sqrt(share.size))
    if far.any():
        return float(p), max(error, 0.5 / far.size), False
    # Replicates of one spectrum are alike: they count for fewer than they are.
    alone = far.size / (1 + (len(far) - 1) * intraclass(distance))
    return float(1 / (1 + alone)), 0.0, True


def _band(observed: np.ndarray, noisy: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, float, float]:
    """90 % band (2, n) of spectra with noise, the share of pixels outside it, and its half-width over the flux."""
    ends = np.quantile(noisy, [0.05, 0.95], axis=0)
    outside = float(np.mean((observed < ends[0]) | (observed > ends[1])))
    return ends, outside, float(np.median((ends[1] - ends[0]) / 2 / size))


def _misfit(judge: Judge, observed: np.ndarray, where: np.ndarray | None) -> Misfit:
    """Place the excess of the statistic, and measure it against the stated errors."""
    residual, expected = judge.unexplained(observed[None], 0.0)[0], judge.expected()
    scaled = judge.shape * observed / judge.stated
    low, high = 0.0, 10.0
    for _ in range(40):  # bisection: the mean falls as f grows
        f = (low + high) / 2
        low, high = (f, high) if np.mean(residual**2 / (1 + (f * scaled) ** 2)) > expected else (low, f)
    # As a share of the light: f itself is the share where the structure's shape is 1 (`unmodelled.py`).
    f = high * float(np.average(judge.shape, weights=np.abs(judge.mean))) if high > 1e-9 else 0.0
    terms = judge.terms(observed)
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
            f"The predictive band is {envelope.breadth:.1f} times the flux: agreement means little "
            f"({envelope.p_words}); judge by the interval's width."
        )
        return Check(name, p, "warn", sentence)
    if verdict == "pass":
        more = "; with fixed opacities it would not" if fixed is not None and fixed.p_value < fair else ""
        outside = f"{envelope.outside:.0%} of pixels outside the 90 % band"
        say = f"The model with uncertain opacities predicts this spectrum{more} ({envelope.p_words}, {outside})."
        return Check(name, p, verdict, say)
    say = {
        "warn": "few posterior draws, whatever the opacities, leave as much",
        "fail": "no posterior draw, with any plausible opacities, leaves as much",
    }[verdict]
    return Check(name, p, verdict, f"{_size(envelope)}; {say} ({envelope.p_words}): {_advice(envelope.misfit)}.")


def structure_check(envelope: Predictive) -> Check:
    """Grade what the residuals have beyond the stated errors, as a share f of the flux."""
    f = envelope.misfit.f
    if f <= envelope.errors:
        beside = f"; beside them the residuals hold {_percent(f)} of the flux" if f > 0 else ""
        return Check("structure", f, "pass", f"{_size(envelope)}{beside}.")
    verdict = graded(f, "structure")
    say = {
        "pass": "as much as real spectra usually have",
        "warn": "something is missing in model or calibration; look where the residuals are",
        "fail": "the model misses a good part of this spectrum; do not quote it before you know what",
    }[verdict]
    return Check("structure", f, verdict, f"{_size(envelope)}: {say}.")


def _size(envelope: Predictive) -> str:
    """Say how well the model fits."""
    f, told = envelope.misfit.f, _percent(envelope.errors)
    if f > max(envelope.errors, MISSED):
        return f"The model misses the spectrum by {_percent(f)}, where your errors are {told}"
    if f > envelope.errors:
        return f"The model fits to {_percent(f)}, more than your errors of {told}"
    return f"The model fits to your errors of {told}"


def _percent(share: float) -> str:
    """0.0412 as "4.1 %"."""
    return f"{100 * share:.2g} %"


def _advice(misfit: Misfit) -> str:
    """Return what to do about a misfit: mask where it is, or compare where it is everywhere."""
    if misfit.band is not None and misfit.share > LOCAL:
        low, high = misfit.band
        return (
            f"{misfit.share:.0%} of the misfit is at {low:g}-{high:g} um; mask it and compare: --mask {low:g}:{high:g}"
        )
    return "the misfit is spread over the spectrum; compare with kappaflow fit"
