"""Lines of the trust card: is the brightness possible, was faint flux clipped, how much did the spectrum teach."""

import numpy as np

from kappaflow.observe.spectrum import Spectrum
from kappaflow.observe.wrong_flux import faint_pixels
from kappaflow.retrieval.trust import Check, Grade
from kappaflow.spectra import Box

__all__ = ["LEARNED", "brightness_check", "faint_check", "learned_check"]

LEARNED = 0.6  # 90 % interval of C/O over the prior's: above it the prior does most of the work
# ln of the median flux at 10 pc, less its mean, over its spread in the training set. Of 5,120 spectra of the laptop
# preset, set `full`, 1 % lie below -3.2, one in a thousand below -6.9; 1 % above 1.37, none above 1.54.
_FAINTER = (-3.2, -7.0)  # limits of a pass and of a warning
_BRIGHTER = (1.4, 1.7)


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
    repeated). Such pixels were masked before anything was fitted.
    """
    found = faint_pixels(native)
    name, count = "faint pixels", int(found.where.sum())
    if not count:
        return Check(name, float("nan"), "pass", "No pixel is faint enough for noise to make it negative.")
    if not (found.clipped or found.one_sided):
        say = f"Faint pixels scatter to both sides of zero, {found.negative} of {count} below it."
        return Check(name, float("nan"), "pass", say)
    wave = native.wavelength[found.where]
    where = f"{wave[0]:.2f}-{wave[-1]:.2f} um"
    if found.repeated:
        say = f"{found.repeated} of {count} faint pixels ({where}) have one value, {found.value:.2g} mJy"
    else:
        say = (
            f"None of {count} faint pixels ({where}) is negative, though noise alone would make about "
            f"{found.expected:.0f} of them negative"
        )
    if found.clipped:
        rows = f" and {found.missing} rows are missing there" if found.missing else ""
        say += f"{rows}: flux seems to have been clipped, which looks like real flux; they were masked: retrieve the "
        return Check(name, found.expected, "warn", f"{say}unclipped file.")
    say += ", and no rows are missing: is the flux an absolute value, or are the errors too large?"
    return Check(name, found.expected, "warn", say)


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
