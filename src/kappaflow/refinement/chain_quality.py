"""Whether chains agree: R-hat and effective sizes by ArviZ, divergences, trees that were cut off."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kappaflow.refinement.nuts import Walked

__all__ = ["Quality", "judged"]

LIMITS = {"r_hat": 1.05, "ess": 100.0, "diverging": 0.02}


@dataclass(frozen=True)
class Quality:
    """The worst over coordinates (Vehtari et al. 2021: rank-normalized), and means over draws."""

    r_hat: float
    ess_bulk: float
    ess_tail: float
    diverging: float  # share of draws
    accepted: float
    steps: float  # forces per draw

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """What is not as it should be, in words."""
        found = []
        if not self.r_hat < LIMITS["r_hat"]:
            found.append(f"chains disagree (R-hat {self.r_hat:.2f})")
        ess = min(self.ess_bulk, self.ess_tail)
        if not ess > LIMITS["ess"]:
            found.append(f"only {ess:.0f} draws are effective")
        if not self.diverging < LIMITS["diverging"]:
            found.append(f"{100 * self.diverging:.0f} % of the draws diverged")
        return tuple(found)


def judged(chains: Sequence[Walked], n: int) -> Quality:
    """Judge the first `n` draws of `chains` in the coordinates they walked in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # arviz announces its next version once a day
        import arviz

    w = np.stack([chain.w[:n] for chain in chains])  # chain, draw, k
    columns = [w[..., i] for i in range(w.shape[2])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # very short chains: not a number, which is never good enough
        r_hat = max(float(arviz.rhat(c)) for c in columns)
        ess = {method: min(float(arviz.ess(c, method=method)) for c in columns) for method in ("bulk", "tail")}
    return Quality(
        r_hat,
        ess["bulk"],
        ess["tail"],
        float(np.mean([chain.diverging[:n].mean() for chain in chains])),
        float(np.mean([chain.accepted[:n].mean() for chain in chains])),
        float(np.mean([chain.steps[:n].mean() for chain in chains])),
    )
