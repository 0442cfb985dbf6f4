"""`kf.reference`: the slow truth of one spectrum, NUTS on the likelihood that `kf.fit` and `kf.refine` use.

Everything is kept in a folder, block by block: a run killed at any moment goes on with the same call, to the same
draws.
"""

from __future__ import annotations

import json
import threading
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from kappaflow.errors import UserError
from kappaflow.observe.spectrum import Spectrum
from kappaflow.randomness import generator
from kappaflow.refinement.best_fit import THREADS, Mode, best_modes
from kappaflow.refinement.bridge import log_normalization
from kappaflow.refinement.chain_quality import Quality, judged
from kappaflow.refinement.climb import Climb
from kappaflow.refinement.densities import Density, Everything, Integrated
from kappaflow.refinement.likelihood import Expansion, ListedModel
from kappaflow.refinement.nuts import Plan, Walked, need_numpyro, walk_chain
from kappaflow.refinement.posing import FitSettings, Posed, posed
from kappaflow.storage import digest, digest_arrays, written_whole

__all__ = ["Reference", "ReferenceSettings", "Running", "reference"]

SCHEMA = "kappaflow-reference-1"
Opacity = Literal["fixed", "marginal", "sampled", "lists"]
NEGLIGIBLE = 7.0  # nats below the best by Laplace's approximation: a combination of lists that no chain walks
BRIDGED = 400  # draws that the evidence is computed from
HEAVY = 0.01  # share from which a combination's convergence matters


@dataclass(frozen=True)
class ReferenceSettings:
    """What is walked, how long, from which seed.

    `fixed`: the base lists as they are; `marginal`: coefficients integrated out by linearization about where they are
    likeliest at each place; `sampled`: coefficients sampled with the parameters; `lists`: one fixed run per combination
    of line lists, pooled with equal shares, as is done by hand.
    """

    opacity: Opacity = "marginal"
    lists: Mapping[str, str] | None = None  # one combination instead of all
    chains: int = 4
    warmup: int = 200
    samples: int = 500  # of each chain
    depth: int = 8  # of the tree: at most 2^depth - 1 forces per draw
    seed: int = 0
    fit: FitSettings = FitSettings()

    def __post_init__(self) -> None:
        if self.opacity not in get_args(Opacity):
            raise UserError(f"opacity: {self.opacity!r}; expected one of {', '.join(get_args(Opacity))}")
        if self.chains < 2 or self.samples < 4 or self.warmup < 1:
            raise UserError(
                f"chains {self.chains}, warmup {self.warmup}, samples {self.samples}; expected at least 2, 1 and 4"
            )

    @property
    def free(self) -> bool:
        """Whether the opacity field is."""
        return self.opacity in ("marginal", "sampled")

    @property
    def how(self) -> FitSettings:
        """Of the fit that the chains start from."""
        return replace(self.fit, field=self.free, seed=self.seed)

    @property
    def chosen(self) -> Mapping[str, str] | None:
        """Line lists; None for every combination."""
        return {} if self.lists is None and self.opacity == "fixed" else self.lists


@dataclass(frozen=True)
class Running:
    """Where a run is kept, and whom it tells how far it is: `advance(share)` with the share of it just done."""

    folder: Path | None = None
    advance: Callable[[float], None] = lambda _: None


@dataclass(frozen=True, eq=False)
class Reference:
    """Draws of long chains, pooled over combinations of line lists, and whether to believe them."""

    problem: Posed
    settings: ReferenceSettings
    theta: np.ndarray  # (chain, draw, D)
    z: np.ndarray  # (chain, draw, size), all coordinates
    combination: np.ndarray  # (chain, draw), which of `lists` a draw has
    lists: tuple[Mapping[str, str], ...]  # that were walked
    weights: np.ndarray  # share of each
    evidence: np.ndarray  # ln, of each, but for a constant
    walked: tuple[tuple[Walked, ...], ...]  # chains of each
    quality: tuple[Quality, ...]  # of each

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters."""
        return self.problem.names

    @property
    def draws(self) -> np.ndarray:
        """Parameters (n, D) of all chains."""
        return self.theta.reshape(-1, self.theta.shape[-1])

    @cached_property
    def _points(self) -> list[list[Any]]:
        coordinates = self.problem.joints[0][1].coordinates
        return [[coordinates.point(row) for row in chain] for chain in self.z]

    @property
    def f(self) -> np.ndarray:
        """Structure (chain, draw)."""
        return np.array([[p.f for p in chain] for chain in self._points])

    @property
    def gains(self) -> np.ndarray:
        """Factors (chain, draw, 2) of the detectors."""
        return np.array([[1 + p.sigma_cal * p.gains for p in chain] for chain in self._points])

    @property
    def field(self) -> np.ndarray | None:
        """Coefficients (chain, draw, K) where they were sampled."""
        return np.array([[p.field for p in chain] for chain in self._points]) if self._sampled else None

    @property
    def _sampled(self) -> bool:
        return self.settings.opacity == "sampled"

    @property
    def seconds(self) -> float:
        """Of all chains, one after another."""
        return sum(chain.seconds for chains in self.walked for chain in chains)

    @property
    def forces(self) -> int:
        """Number of forces that were computed."""
        return sum(chain.forces for chains in self.walked for chain in chains)

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """What is not as it should be, in words, of combinations that matter."""
        heavy = [q for q, w in zip(self.quality, self.weights, strict=True) if w >= HEAVY]
        return tuple(dict.fromkeys(text for q in heavy for text in q.shortcomings))

    @property
    def converged(self) -> bool:
        """Whether the draws may be called the truth."""
        return not self.shortcomings


def reference(
    spectrum: Spectrum,
    *,
    distance: float | None = None,
    posterior: Any = "packaged",
    model: Any = None,
    settings: ReferenceSettings = ReferenceSettings(),  # noqa: B008 (frozen)
    running: Running = Running(),  # noqa: B008 (frozen)
) -> Reference:
    """Sample the posterior of `spectrum` with NUTS (needs the extra `reference`); takes hours.

    Parameters
    ----------
    spectrum : as `read_spectrum` gives it
    distance : in pc; without it, and without one in the file, the flux scale is free and the radius at its prior
    posterior : networks whose draws are where fits begin; None for starts from the prior
    model : forward model; that of the networks by default
    settings : how opacities are treated, number and length of chains, seed
    running : a folder that keeps the run, which then can be killed and goes on; and progress

    Examples
    --------
    >>> settings = kf.ReferenceSettings(opacity="sampled", chains=4)  # doctest: +SKIP
    >>> truth = kf.reference(spectrum, distance=5.7, settings=settings)  # doctest: +SKIP
    >>> truth.draws.shape, truth.converged, truth.shortcomings  # doctest: +SKIP
    """
    need_numpyro()
    how, lists = settings.how, settings.chosen
    problem = posed(spectrum, distance=distance, lists=lists, model=model, posterior=posterior, settings=how)
    if running.folder is not None:
        _claim(running.folder, problem, settings)
    modes = _modes(problem, settings, running.folder)
    kind = Integrated if settings.opacity == "marginal" else Everything
    densities: list[Density] = [kind(mode) for mode in modes]
    plans = [(i, j) for i in range(len(modes)) for j in range(settings.chains)]
    share = 1 / (len(plans) * (settings.warmup + settings.samples))

    stop = threading.Event()

    def advance() -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        running.advance(share)

    def one(place: tuple[int, int]) -> Walked:
        path = None if running.folder is None else running.folder / f"chain-{place[0]}-{place[1]}.npz"
        plan = Plan(settings.warmup, settings.samples, settings.depth, (settings.seed, *place))
        return walk_chain(densities[place[0]], plan, path, advance)

    with ThreadPoolExecutor(THREADS) as pool:
        try:
            found = list(pool.map(one, plans))
        except BaseException:  # interrupted, or one of the chains failed: the others end after their transition
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    chains = tuple(tuple(c for c, p in zip(found, plans, strict=True) if p[0] == i) for i in range(len(modes)))
    return _pooled(problem, settings, modes, densities, chains)


def _claim(folder: Path, problem: Posed, settings: ReferenceSettings) -> None:
    """Say in run.json what the folder is for; refuse one that is for something else. More samples are the same run."""
    told = {name: getattr(settings, name) for name in ("opacity", "chains", "warmup", "depth", "seed")}
    told["lists"] = None if settings.lists is None else dict(settings.lists)
    data = problem.spectrum
    arrays = {"flux": data.flux, "error": data.error, "mask": data.mask}
    known = bool(data.meta["scale_known"])
    predictor = problem.joints[0][1].predictor
    assert isinstance(predictor, ListedModel)
    of_data = digest_arrays({name: np.where(data.mask, a, 0) for name, a in arrays.items()})
    told |= {"schema": SCHEMA, "model": predictor.model.digest, "spectrum": of_data, "scale_known": known}
    content, path = {**told, "digest": digest(told)}, folder / "run.json"
    if path.exists():
        try:
            there = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise UserError(f"{path}: unreadable; choose another --out") from None
        other = [name for name in content if not isinstance(there, dict) or there.get(name) != content[name]]
        if other:
            raise UserError(f"{folder}: holds another run (other {', '.join(other)}); choose another --out")
        return
    with written_whole(path) as part:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _modes(problem: Posed, settings: ReferenceSettings, folder: Path | None) -> list[Mode]:
    """Return the modes that chains walk about: fitted, or as a run before has left them."""
    path = None if folder is None else folder / "modes.npz"
    if path is not None and path.exists():
        return _read_modes(path, problem)
    how = settings.how
    modes, _ = best_modes(problem.joints, problem.theta, how)
    top = max(mode.log_evidence for mode in modes)
    if settings.free:
        modes = tuple(mode for mode in modes if mode.log_evidence > top - NEGLIGIBLE)
    if path is not None:
        places = [next(i for i, (lists, _) in enumerate(problem.joints) if lists == mode.lists) for mode in modes]
        ends = [mode.climb.here for mode in modes]
        columns: dict[str, Any] = {name: np.stack([getattr(end, name) for end in ends]) for name in Expansion._fields}
        columns |= {"places": np.array(places), "converged": np.array([mode.climb.converged for mode in modes])}
        with written_whole(path) as part, part.open("wb") as stream:
            np.savez(stream, **columns)
    return list(modes)


def _read_modes(path: Path, problem: Posed) -> list[Mode]:
    try:
        with np.load(path, allow_pickle=False) as file:
            places, converged = file["places"].tolist(), file["converged"].tolist()
            ends = list(zip(*(file[name] for name in Expansion._fields), strict=True))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: unreadable ({error}); choose another --out, or remove the folder") from None
    modes = []
    for place, done, (z, value, gradient, information) in zip(places, converged, ends, strict=True):
        lists, joint = problem.joints[place]
        end = Expansion(z, float(value), gradient, information)
        modes.append(Mode(lists, Climb(z, end, converged=done), joint))
    return modes


def _pooled(
    problem: Posed,
    settings: ReferenceSettings,
    modes: list[Mode],
    densities: list[Density],
    chains: tuple[tuple[Walked, ...], ...],
) -> Reference:
    """Put the combinations together, each with its share."""
    n, coordinates = settings.samples, problem.joints[0][1].coordinates
    z = np.stack(
        [[[d.whole(w) for w in chain.w[:n]] for chain in some] for d, some in zip(densities, chains, strict=True)]
    )
    evidence = np.array([mode.log_evidence for mode in modes])
    weights = np.full(len(modes), 1 / len(modes))
    if settings.free and len(modes) > 1:
        evidence = np.array(
            [_evidence(d, some, settings, i) for i, (d, some) in enumerate(zip(densities, chains, strict=True))]
        )
        weights = np.exp(evidence - np.logaddexp.reduce(evidence))
    rng = generator("reference pool", settings.seed)
    owner = np.zeros((settings.chains, n), int)
    if len(modes) > 1:
        edges = np.cumsum(weights)
        for j in range(settings.chains):
            places = np.searchsorted(edges, (np.arange(n) + rng.random()) / n * edges[-1])
            owner[j] = rng.permutation(places.clip(0, len(modes) - 1))
    draw = np.tile(np.arange(n), (settings.chains, 1))
    pooled = z[owner, np.arange(settings.chains)[:, None], draw]
    theta = np.array([[coordinates.point(row).theta for row in chain] for chain in pooled])
    return Reference(
        problem=problem,
        settings=settings,
        theta=coordinates.spread_held(theta, rng),
        z=pooled,
        combination=owner,
        lists=tuple(mode.lists for mode in modes),
        weights=weights,
        evidence=evidence,
        walked=chains,
        quality=tuple(judged(some, n) for some in chains),
    )


def _evidence(density: Density, chains: tuple[Walked, ...], settings: ReferenceSettings, place: int) -> float:
    """Ln of the evidence by bridge sampling from the chains, in the coordinates they walked in."""
    w = np.concatenate([chain.w[: settings.samples] for chain in chains])
    value = np.concatenate([chain.value[: settings.samples] for chain in chains])
    rng = generator("reference evidence", settings.seed, place)
    chosen = rng.permutation(len(w))[: max(BRIDGED, 4 * w.shape[1])]
    if len(chosen) < 4 * w.shape[1]:
        raise UserError(
            f"{len(w)} draws of {w.shape[1]} coordinates are too few to weigh line lists; more --samples, or --lists"
        )

    def of_many(rows: np.ndarray) -> np.ndarray:
        return np.array([density(row)[0] for row in rows])

    at_centre = density(density.centre)[0]  # chains count from there
    about = np.linalg.cholesky(np.cov(w.T))
    return log_normalization(of_many, w[chosen], value[chosen] + at_centre, rng, about=about)
