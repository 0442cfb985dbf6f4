"""Chains whose steps the forward model itself accepts: what is left where weights have a heavy tail.

Delayed acceptance (Christen & Fox 2005): a few trajectories on the emulator are a proposal, which is accepted with the
ratio of exact weights there and here. Exact whatever the emulator misses, and where ln weights scatter by 1.5 a third
of the proposals is accepted where a tenth of as many weighted draws would count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from kappaflow.refinement.collapsed import Collapsed
from kappaflow.refinement.importance import Judged, judge
from kappaflow.refinement.population import Population, effective, split_r_hat

__all__ = ["ExactPath", "ExactState", "Walker", "go_on", "state_at"]


@dataclass(frozen=True, eq=False)
class ExactState:
    """Where the chains are, with radius, gains and structure drawn, and ln of the exact density there."""

    v: np.ndarray  # (b, k)
    z: np.ndarray  # (b, size)
    ln_exact: np.ndarray  # (b,)


@dataclass(frozen=True, eq=False)
class ExactPath:
    """Steps of the chains, and all that was proposed to them."""

    v: np.ndarray  # (n, b, k)
    z: np.ndarray  # (n, b, size)
    ln_weight: np.ndarray  # (n, b), exact over emulated
    proposed: Judged
    accepted: float  # share
    smooth: np.ndarray  # places of the parameters in z that are counted

    @property
    def r_hat(self) -> float:
        """Whether the chains agree."""
        return split_r_hat(self.v)

    @property
    def ess(self) -> float:
        """Effective number of draws."""
        n, b, k = self.z[..., self.smooth].shape
        return effective(self.z[..., self.smooth].reshape(n * b, k), np.ones(n * b), np.tile(np.arange(b), n))

    def joined(self, after: ExactPath) -> ExactPath:
        """Return both, one after the other."""
        n, m = len(self.v), len(after.v)
        v, z = np.concatenate([self.v, after.v]), np.concatenate([self.z, after.z])
        ln_weight = np.concatenate([self.ln_weight, after.ln_weight])
        share = (n * self.accepted + m * after.accepted) / (n + m)
        return ExactPath(v, z, ln_weight, Judged.joined([self.proposed, after.proposed]), share, self.smooth)


def state_at(density: Collapsed, v: np.ndarray, rng: np.random.Generator) -> ExactState:
    """Let chains be at v (b, k)."""
    value = density(v)[0]
    judged = judge(density.joint, *density.complete(v, rng))
    return ExactState(v, judged.z, judged.ln_weight + value)


class Walker(Protocol):
    """A density that is walked on (`sampling.Learned`)."""

    @property
    def density(self) -> Collapsed:
        """The emulated one."""
        ...

    @property
    def chains(self) -> Population:
        """How it is walked."""
        ...

    def walk(self, chains: Population, n: int, rng: np.random.Generator) -> tuple[Population, np.ndarray, np.ndarray]:
        """Walk `n` trajectories (`population.walk`)."""
        ...


def go_on(state: ExactState, walker: Walker, steps: int, rng: np.random.Generator) -> tuple[ExactState, ExactPath]:
    """Take `steps` steps of one trajectory each."""
    density = walker.density
    path, proposed = [], []
    here = state.ln_exact - density(state.v)[0]
    accepted = 0.0
    for _ in range(steps):
        _, places, values = walker.walk(replace(walker.chains, at=state.v), 1, rng)
        v = places[-1]
        judged = judge(density.joint, *density.complete(v, rng))
        moved = np.log(rng.random(len(v))) < judged.ln_weight - here
        here = np.where(moved, judged.ln_weight, here)
        state = ExactState(
            np.where(moved[:, None], v, state.v),
            np.where(moved[:, None], judged.z, state.z),
            np.where(moved, judged.ln_weight + values[-1], state.ln_exact),
        )
        accepted += float(moved.mean()) / steps
        path.append((state.v, state.z, here))
        proposed.append(judged)
    at, z, ln_weight = (np.stack(column) for column in zip(*path, strict=True))
    return state, ExactPath(at, z, ln_weight, Judged.joined(proposed), accepted, density.outer.smooth)
