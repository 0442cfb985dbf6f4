"""One chain of numpyro's NUTS on a density, whitened by Laplace's approximation, that can be killed and goes on.

The density is NumPy's, with the forward model's compiled program inside. XLA may run a callback on the very thread that
the program inside would need, so that numpyro's step is compiled only where there is none: otherwise its few hundred
small operations cost some per cent of a spectrum's derivatives, and nothing can wait for itself.

References
----------
Hoffman & Gelman (2014), "The No-U-Turn Sampler", JMLR 15, 1593. Phan, Pradhan & Jankowiak (2019), arXiv:1912.11554.
"""

from __future__ import annotations

import importlib.util
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.randomness import generator, key
from kappaflow.refinement.densities import Density
from kappaflow.storage import written_whole

__all__ = ["Plan", "Walked", "need_numpyro", "walk_chain"]

STEP, WANTED = 0.3, 0.8  # first step, and the acceptance to which warming up brings it
IMPOSSIBLE = 1e10  # potential where the density is 0
SPREAD = 0.5  # of the starts about the mode, in Laplace's standard deviations
SAVED = 20.0  # seconds between two saves


@dataclass(frozen=True)
class Plan:
    """Which chain: how long, how deep, and its address."""

    warmup: int
    samples: int
    depth: int  # of the tree: at most 2^depth - 1 steps per draw
    address: tuple[int, ...]  # seed, mode, chain


@dataclass(eq=False)
class Walked:
    """A chain as far as it has come."""

    w: np.ndarray  # (n, k), draws
    value: np.ndarray  # (n,), ln density
    steps: np.ndarray  # (n,), forces computed for each draw
    accepted: np.ndarray  # (n,), mean chance of acceptance
    diverging: np.ndarray  # (n,)
    seconds: float = 0.0
    done: int = 0  # transitions, warming up included
    forces: int = 0  # computed, warming up included
    leaves: list[np.ndarray] = field(default_factory=list)  # numpyro's state

    @classmethod
    def none(cls, k: int) -> Walked:
        """Return a chain that has not begun."""
        return cls(np.empty((0, k)), np.empty(0), np.empty(0, int), np.empty(0), np.empty(0, bool))

    def save(self, path: Path) -> None:
        """Write everything, whole."""
        arrays: dict[str, Any] = {
            name: getattr(self, name) for name in ("w", "value", "steps", "accepted", "diverging")
        }
        arrays |= {f"state-{i:02d}": leaf for i, leaf in enumerate(self.leaves)}
        arrays |= {"counts": np.array([self.done, self.forces]), "seconds": np.array(self.seconds)}
        with written_whole(path) as part, part.open("wb") as stream:
            np.savez(stream, **arrays)

    @classmethod
    def load(cls, path: Path) -> Walked:
        """Read what `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as file:
                names = sorted(name for name in file.files if name.startswith("state-"))
                w, value, steps, accepted, diverging = (
                    file[name] for name in ("w", "value", "steps", "accepted", "diverging")
                )
                (done, forces), seconds = file["counts"].tolist(), float(file["seconds"])
                leaves = [file[name] for name in names]
                return cls(w, value, steps, accepted, diverging, seconds, done, forces, leaves)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise UserError(f"{path}: unreadable ({error}); remove it, and the chain begins anew") from None


def need_numpyro() -> None:
    """Refuse in one line where numpyro is not installed."""
    if importlib.util.find_spec("numpyro") is None:
        raise UserError("numpyro is not installed; run pip install 'kappaflow[reference]'")


def walk_chain(
    density: Density, plan: Plan, path: Path | None = None, advance: Callable[[], None] = lambda: None
) -> Walked:
    """Warm up and draw; with a `path`, go on from what it holds, and keep the chain there.

    `advance` is called after every transition.
    """
    need_numpyro()
    chain = Walked.load(path) if path is not None and path.exists() else Walked.none(density.centre.size)
    total = plan.warmup + plan.samples
    for _ in range(chain.done):
        advance()
    if chain.done >= total:
        return chain
    import jax

    root = np.linalg.cholesky(density.covariance)
    began = saved = time.monotonic()
    before = chain.seconds
    top = density(density.centre)[0]
    start = _start(density, root, plan, top)
    with jax.disable_jit(density.compiled):
        kernel = _kernel(density, root, plan, top)
        words = jax.numpy.asarray(key("reference chain", *plan.address).view(np.uint32)[:2])
        first = jax.numpy.asarray(start)
        state = kernel.init(words, plan.warmup, init_params=first, model_args=(), model_kwargs={})
        transition = jax.jit(lambda at: kernel.sample(at, (), {}))
        if chain.leaves:
            state = jax.tree.unflatten(jax.tree.structure(state), [jax.numpy.asarray(a) for a in chain.leaves])
        while chain.done < total:
            state = transition(state)
            _note(chain, state, density.centre + root @ np.asarray(state.z, float), keep=chain.done >= plan.warmup)
            chain.seconds = before + time.monotonic() - began
            if path is not None and (chain.done == total or time.monotonic() - saved > SAVED):
                chain.leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
                chain.save(path)
                saved = time.monotonic()
            advance()
    return chain


def _note(chain: Walked, state: Any, w: np.ndarray, *, keep: bool) -> None:
    """Count a transition and keep its draw."""
    chain.done += 1
    chain.forces += int(state.num_steps)
    if keep:
        chain.w = np.concatenate([chain.w, w[None]])
        chain.value = np.append(chain.value, -float(state.potential_energy))
        chain.steps = np.append(chain.steps, int(state.num_steps))
        chain.accepted = np.append(chain.accepted, float(state.accept_prob))
        chain.diverging = np.append(chain.diverging, bool(state.diverging))


def _kernel(density: Density, root: np.ndarray, plan: Plan, top: float) -> Any:
    """Return numpyro's kernel in whitened coordinates x, w = centre + root x; its potential is 0 at the centre."""
    import jax
    from numpyro.infer import NUTS

    def host(x: Any) -> tuple[np.ndarray, np.ndarray]:
        kind = np.asarray(x).dtype
        try:  # a step that went astray is an impossible place, whatever breaks there
            with jax.disable_jit(False), np.errstate(all="ignore"):  # the forward model is compiled
                value, force = density(density.centre + root @ np.asarray(x, float))
        except np.linalg.LinAlgError:
            value, force = -np.inf, np.zeros(x.shape)
        pull = root.T @ force
        if not (top - value < IMPOSSIBLE and np.abs(pull).max() < IMPOSSIBLE**2):  # NaN is impossible too
            return np.asarray(IMPOSSIBLE, kind), np.zeros(x.shape, kind)
        return np.asarray(top - value, kind), np.asarray(-pull, kind)

    def called(x: Any) -> Any:
        if density.compiled:  # here, in this thread: nothing is traced
            return tuple(jax.numpy.asarray(a) for a in host(x))
        shapes = (jax.ShapeDtypeStruct((), x.dtype), jax.ShapeDtypeStruct(x.shape, x.dtype))
        return jax.pure_callback(host, shapes, x, vmap_method="sequential")

    @jax.custom_vjp
    def potential(x: Any) -> Any:
        return called(x)[0]

    potential.defvjp(called, lambda force, by: (by * force,))
    return NUTS(potential_fn=potential, step_size=STEP, target_accept_prob=WANTED, max_tree_depth=plan.depth)


def _start(density: Density, root: np.ndarray, plan: Plan, top: float) -> np.ndarray:
    """Return x near the mode, nearer where Laplace's approximation has led down by more than chains would go."""
    x = SPREAD * generator("reference start", *plan.address).standard_normal(density.centre.size)
    for _ in range(6):
        if density(density.centre + root @ x)[0] > top - max(10.0, x.size):
            return x
        x = 0.5 * x
    return 0.0 * x
