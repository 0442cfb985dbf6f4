"""Lines of the trust card: is the brightness possible, was faint flux clipped, how much did the spectrum teach."""

import numpy as np
from scipy.ndimage import median_filter
from scipy.special import ndtr

from kappaflow.instrument import WINDOW
from kappaflow.observe.spectrum import Spectrum
from kappaflow.retrieval.trust import Check, Grade
from kappaflow.spectra import Box

__all__ = ["LEARNED", "brightness_check", "faint_check", "learned_check"]

LEARNED = 0.6  # 90 % interval of C/O over the prior's: above it the prior does most of the work
_FAINT = 3.0  # SNR below which noise alone makes some pixels negative
_ENOUGH = 10.0  # expected negative pixels; none of them is then a chance of 5e-5
_WINDOW = 31  # pixels over which flux and noise are taken as constant
# ln of the median flux at 10 pc, less its mean, over its spread in the training set. Of 5,120 spectra of the laptop
# preset, set `full`, 1 % lie below -3.2, one in a thousand below -6.9; 1 % above 1.37, none above 1.54.
_FAINTER = (-3.2, -7.0)  # limits of a pass and of a warning
_BRIGHTER = (1.4, 1.7)
_REPEATED = 5  # equal values among faint pixels: real noise repeats none


def brightness_check(spectrum: Spectrum, mean: float, spread: float) -> Check | None:
    """Grade the flux of `spectrum`, scaled to 10 pc, against the training set's: a wrong unit or distance shows here.

    `mean` and `spread` are of ln of the median flux [mJy at 10 pc]. No check without a distance.
    """
    if not spectrum.meta.get("scale_known") or not spectrum.mask.any():
        return None
    median = float(np.median(spectrum.flux[spectrum.mask]))
    value = (np.log(max(median, 1e-300)) - mean) / spread
    told = f"At 10 pc the median flux is {median:.2g} mJy"
    if _FAINTER[0] <= value <= _BRIGHTER[0]:
        return Check("brightness", float(value), "pass", f"{told}, as bright as the simulations are.")
    near, far = _BRIGHTER if value > 0 else _FAINTER
    factor = float(np.exp(abs(value - near) * spread))
    verdict: Grade = "warn" if abs(value) <= abs(far) else "fail"
    most = {"warn": "nearly all", "fail": "all"}[verdict]
    way = "brighter" if value > 0 else "fainter"
    say = f"{told}, {factor:.2g} times {way} than {most} simulations: check the flux unit and the distance."
    return Check("brightness", float(value), verdict, say)


def faint_check(native: Spectrum) -> Check:
    """Notice flux clipped at zero (or rows left out for being negative) where the spectrum is faint.

    The value is the number of negative pixels that noise should have made, where there is none (or one value is
    repeated). Noise is the smaller of the stated error and the scatter from pixel to pixel: errors stated too large do
    not raise an alarm.
    """
    use = native.mask & (native.wavelength > WINDOW[0]) & (native.wavelength < WINDOW[1])
    flux, error = native.flux[use], native.error[use]
    name = "faint pixels"
    if flux.size <= _WINDOW:
        return Check(name, float("nan"), "pass", "Too few pixels to see whether faint ones were clipped.")
    level = median_filter(flux, _WINDOW, mode="nearest")
    scatter = 1.4826 / np.sqrt(2) * median_filter(np.abs(np.diff(flux, append=flux[-1])), _WINDOW, mode="nearest")
    faint = level < _FAINT * error
    if not faint.any():
        return Check(name, float("nan"), "pass", "No pixel is faint enough for noise to make it negative.")
    noise = np.minimum(error, scatter)
    seen = faint & (noise > 0)
    expected = float(ndtr(-np.maximum(level[seen], 0) / noise[seen]).sum())
    negative = int((flux[faint] < 0).sum())
    values, counts = np.unique(flux[faint], return_counts=True)
    repeated = int(counts.max()) if counts.max() >= _REPEATED else 0
    wave = native.wavelength[use][faint]
    where = f"{wave[0]:.2f}-{wave[-1]:.2f} um"
    if repeated and negative == 0:
        say = f"{repeated} faint pixels ({where}) have one value, {values[counts.argmax()]:.2g} mJy"
    elif negative == 0 and expected >= _ENOUGH:
        say = (
            f"None of {int(faint.sum())} faint pixels ({where}) is negative, though noise alone would make about "
            f"{expected:.0f} of them negative"
        )
    else:
        say = f"Faint pixels scatter to both sides of zero, {negative} of {int(faint.sum())} below it."
        return Check(name, float("nan"), "pass", say)
    return Check(
        name,
        expected,
        "warn",
        f"{say}: flux seems to have been clipped, which looks like real flux; retrieve the unclipped file.",
    )


def learned_check(draws: np.ndarray, box: Box) -> Check:
    """How much the spectrum taught: width of the 90 % interval of C/O over the prior's, from draws (n, D)."""
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    ratio = (high - low) / (0.9 * box.widths)
    value = float(ratio[box.names.index("C_O")])
    known = f"{int((ratio <= LEARNED).sum())} of {len(ratio)} parameters are narrower than {LEARNED:g} of theirs"
    if value > LEARNED:
        say = f"C/O keeps {value:.0%} of its prior's width: quote a limit, or observe longer; {known}."
        return Check("learned", value, "warn", say)
    return Check("learned", value, "pass", f"C/O is known to {value:.0%} of its prior's width; {known}.")
