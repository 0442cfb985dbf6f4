"""C/O against the dial: what a network that is told the amplitude of line-list errors says at each of them."""

from dataclasses import dataclass

import numpy as np

from kappaflow.inference.posterior import Posterior
from kappaflow.observe.spectrum import Spectrum
from kappaflow.parameters import INDEX
from kappaflow.retrieval.quantiles import quantiles

__all__ = ["DialCurve", "c_to_o_by_dial", "turned"]

POINTS = 11  # of the curve, ends included


@dataclass(frozen=True, eq=False)
class DialCurve:
    """C/O at each amplitude, and the one that was asked for."""

    amplitude: np.ndarray  # (k,), ascending
    quantiles: np.ndarray  # (k, 5), at the five levels
    chosen: float

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {"amplitude": self.amplitude.tolist(), "c_to_o": self.quantiles.tolist(), "chosen": self.chosen}


def c_to_o_by_dial(posterior: Posterior, spectrum: Spectrum, *, draws: int, seed: int) -> DialCurve | None:
    """Sample C/O over the whole dial, from the same noise at every amplitude; None where there is no dial."""
    if posterior.dial is None:
        return None
    places = np.linspace(*posterior.dial, POINTS)
    samples = (posterior.sample(spectrum, draws, seed, amplitude=float(place)) for place in places)
    curve = [quantiles(s[:, INDEX["C_O"]]) for s in samples]
    return DialCurve(places, np.array(curve), posterior.amplitude)


def turned(posterior: Posterior, control: Posterior | None, line_lists: float) -> tuple[Posterior, Posterior | None]:
    """Return networks with the dial at `line_lists` and their control: their own at 0, unless another is given."""
    own = posterior.dial is not None and posterior.dial[0] == 0 and control is None
    return posterior.at(line_lists), posterior.at(0) if own else control
