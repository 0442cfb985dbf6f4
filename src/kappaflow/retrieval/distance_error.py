"""What an uncertain distance does to a posterior: the radius follows it, nothing else does."""

from dataclasses import replace

import numpy as np

from kappaflow.observe.distances import Distance
from kappaflow.parameters import INDEX
from kappaflow.randomness import generator
from kappaflow.retrieval.result import Retrieval

__all__ = ["with_distance_error"]


def with_distance_error(result: Retrieval, distance: Distance | None) -> Retrieval:
    """Return `result` with every draw of R multiplied by its own normal draw of d/d0.

    The flux fixes R/d: a spectrum scaled with d0 gives R at d0, and R d/d0 at d. The prior of R is not applied a second
    time, so that draws may leave its box. Draws of the networks, of the control and of the refinement are widened
    alike; what was predicted from them is not touched, for it holds at d0.
    """
    if distance is None or distance.error == 0 or not result.spectrum.meta.get("scale_known"):
        return result
    rng = generator("distance", result.settings.seed)
    share = distance.error / distance.pc

    def widened(draws: np.ndarray) -> np.ndarray:
        draws = draws.copy()
        draws[..., INDEX["R"]] *= np.abs(1 + share * rng.standard_normal(draws.shape[:-1]))
        return draws

    note = f"R includes the distance's error of {share:.1%}: each draw was multiplied by a normal draw of d/d0."
    notes = (*result.spectrum.meta.get("notes", ()), note)
    spectrum = result.spectrum.noted(distance_error_pc=distance.error, notes=notes)
    members = widened(result.members)
    control = None if result.control is None else widened(result.control)
    refined = None if result.refined is None else result.refined.with_draws(widened)
    return replace(result, members=members, control=control, refined=refined, spectrum=spectrum)
