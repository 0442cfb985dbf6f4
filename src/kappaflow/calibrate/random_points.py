r"""TARP, tests of accuracy with random points (Lemos et al. 2023): joint calibration of all parameters.

For a reference point r the credibility of the region that just holds the truth t is f = P(|d - r| < |t - r|) over
posterior draws d. For an exact posterior f is uniform for every choice of r that knows nothing of t beyond the data;
the expected coverage ECP(a) = P(f < a) is then a. Two choices are offered:

- "local": references are draws of the same object's posterior, each left out of its own comparison. Scale: the
  root-mean-square posterior deviation over objects, so that every parameter weighs alike. Exchangeability with the
  truth is exact for any number of draws. ECP below the diagonal means too narrow or displaced, above too wide.
- "prior": uniform over the prior box, scaled by its width, as the method's authors and sbi have it. A far reference
  compares draws along one direction only, directions that average away a displacement to first order.

References
----------
Lemos, Coogan, Hezaveh & Perreault-Levasseur 2023, "Sampling-based accuracy testing of posterior estimators".
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kappaflow.calibrate.bootstrap import bootstrap_mean, percentile_interval, resamples, undefined_for_one
from kappaflow.calibrate.draws import Draws
from kappaflow.errors import UserError
from kappaflow.plain_data import plain
from kappaflow.randomness import generator

__all__ = ["TarpReport", "tarp", "tarp_ranks"]

REFERENCES = 50
WORKERS = 2
ALPHA = np.linspace(0.0, 1.0, 101)


@dataclass(frozen=True, eq=False)
class TarpReport:
    """Expected coverage `ecp` at credibilities `alpha` (a,), its bootstrap interval, and the null band.

    `interval` (2, a) is the bootstrap's over objects; `null_band` (2, a) holds 95 % of the curves a perfect
    posterior would give with these very draws, objects and references. `deviation` is max |ecp - alpha|, at
    `worst_alpha`, with its bootstrap interval; `null_deviation` its 95 % point for the perfect posterior and
    `p_value` the chance of at least `deviation` there. `mean_deviation` is the mean of ecp - alpha, signed.
    """

    parameters: tuple[str, ...]
    references: str
    reference_count: int
    alpha: np.ndarray
    ecp: np.ndarray
    interval: np.ndarray
    null_band: np.ndarray
    deviation: float
    deviation_interval: np.ndarray
    worst_alpha: float
    mean_deviation: float
    mean_deviation_interval: np.ndarray
    null_deviation: float
    p_value: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return plain(asdict(self))


def tarp(
    draws: Draws,
    *,
    references: str = "local",
    parameters: np.ndarray | None = None,
    count: int = REFERENCES,
    resampled: np.ndarray | None = None,
    seed: int = 0,
) -> TarpReport:
    """Judge the joint calibration of `parameters` (mask or indices (p,), all by default) with `count` references.

    `resampled` are bootstrap counts (b, n), 1,000 replicates of `seed` by default; as many null curves are made, in
    each of which every truth is replaced by one of its own draws.
    """
    chosen = np.arange(len(draws.names)) if parameters is None else np.arange(len(draws.names))[parameters]
    counts = resamples(len(draws.truth), seed=seed) if resampled is None else resampled
    chosen, shift, scale = _scaling(draws, references, chosen)
    count = min(count, draws.draws.shape[1] - 1) if references == "local" else count
    curves, null = _curves(draws, _Plan(chosen, shift, scale, references, count, len(counts), seed))
    ecp = curves.mean(axis=0)
    replicates = bootstrap_mean(curves, counts)
    gap, null_gap = ecp - ALPHA, np.abs(null - ALPHA).max(axis=1)
    n, deviation = len(curves), float(np.abs(gap).max())
    return TarpReport(
        parameters=tuple(draws.names[k] for k in chosen),
        references=references,
        reference_count=count,
        alpha=ALPHA,
        ecp=ecp,
        interval=undefined_for_one(percentile_interval(replicates), n),
        null_band=percentile_interval(null),
        deviation=deviation,
        deviation_interval=undefined_for_one(percentile_interval(np.abs(replicates - ALPHA).max(axis=1)), n),
        worst_alpha=float(ALPHA[np.abs(gap).argmax()]),
        mean_deviation=float(gap.mean()),
        mean_deviation_interval=undefined_for_one(percentile_interval((replicates - ALPHA).mean(axis=1)), n),
        null_deviation=float(np.quantile(null_gap, 0.95)),
        p_value=float((1 + np.count_nonzero(null_gap >= deviation)) / (1 + len(null))),
    )


def tarp_ranks(truth: np.ndarray, draws: np.ndarray, references: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draws nearer to each reference than the truth is, and as near: counts (m,) and (m,).

    `truth` (p,), `draws` (s, p), `references` (m, p), all in units in which distances make sense.
    """
    near, near_truth = _nearness(draws, truth, references)
    return _nearer(near, near_truth)


def _nearness(points: np.ndarray, truth: np.ndarray, references: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances less the references' own square, of draws (m, s) and truth (m, 1): ordered as distances."""
    both = np.concatenate([points, truth[None]]).T.copy()
    # einsum, not a matrix product: equal points stay equal to the last bit, and BLAS starts no threads here.
    near = (both**2).sum(axis=0) - 2.0 * np.einsum("mp,ps->ms", references, both)
    return near[:, :-1], near[:, -1:]


def _nearer(near: np.ndarray, near_truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.count_nonzero(near < near_truth, axis=1), np.count_nonzero(near == near_truth, axis=1)


def _scaling(draws: Draws, references: str, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parameters that vary, and the shift and scale (p,) that make distances between them comparable."""
    if references == "local":
        columns = (draws.draws[..., k] for k in chosen)
        scale = np.sqrt([np.mean(np.var(column, axis=1, dtype=np.float64)) for column in columns])
        shift = draws.truth[:, chosen].mean(axis=0)
    elif references == "prior":
        if draws.low is None or draws.prior_width is None:
            raise UserError('tarp: references="prior" need the prior; give its bounds or use "local" references')
        shift, scale = draws.low[chosen], draws.prior_width[chosen]
    else:
        raise UserError(f'tarp: references={references!r}; expected "local" or "prior"')
    vary = scale > 0  # a constant parameter has no distance and nothing to test
    if not vary.any():
        raise UserError("tarp: the draws of every parameter are constant within each object; nothing to test")
    return chosen[vary], shift[vary], scale[vary]


@dataclass(frozen=True)
class _Plan:
    """What is compared, and how: the parameters, their shift and scale, and the references."""

    chosen: np.ndarray
    shift: np.ndarray
    scale: np.ndarray
    references: str
    count: int
    nulls: int
    seed: int


def _curves(draws: Draws, plan: _Plan) -> tuple[np.ndarray, np.ndarray]:
    """ECP of each object, (n, a), and of `nulls` perfect posteriors over all objects, (nulls, a)."""
    # NumPy's sorts leave the interpreter free for a second thread; small ones are not worth its taking turns.
    workers = WORKERS if plan.count * draws.draws.shape[1] > 10_000 else 1
    blocks = np.array_split(np.arange(len(draws.truth)), workers)
    with ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(lambda block: _block(draws, plan, block), blocks))
    histogram = np.sum([part[1] for part in parts], axis=0)
    null = np.cumsum(histogram, axis=1) / histogram.sum(axis=1, keepdims=True)
    return np.concatenate([part[0] for part in parts]), np.concatenate([np.zeros((len(null), 1)), null], axis=1)


def _block(draws: Draws, plan: _Plan, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Curves of the objects of one block, and their share of the null histogram (nulls, a - 1)."""
    s, local = draws.draws.shape[1], plan.references == "local"
    others = s - 1 if local else s  # a local reference is not compared with itself
    curves = np.empty((len(block), len(ALPHA)))
    histogram = np.zeros((plan.nulls, len(ALPHA) - 1), dtype=np.int64)
    for row, i in enumerate(block):
        rng = generator("TARP", plan.seed, i)  # addressed: object i is the same in any company
        points = (draws.draws[i][:, plan.chosen] - plan.shift) / plan.scale
        truth = (draws.truth[i, plan.chosen] - plan.shift) / plan.scale
        own = rng.choice(s, plan.count, replace=False) if local else None
        anchors = points[own] if own is not None else rng.random((plan.count, len(plan.chosen)))
        near, near_truth = _nearness(points, truth, anchors)
        if own is not None:
            near[np.arange(plan.count), own] = -np.inf  # itself: the nearest, taken off the count below
        start, ties = _nearer(near, near_truth)
        reached = ALPHA * (others + 1) - (start - (s - others))[:, None]
        curves[row] = np.clip(reached / (ties + 1.0)[:, None], 0.0, 1.0).mean(axis=0)
        _add_null(histogram, near, own, rng)
    return curves, histogram


def _add_null(histogram: np.ndarray, near: np.ndarray, own: np.ndarray | None, rng: np.random.Generator) -> None:
    """Let one random draw per null curve play the truth, for every reference; add its PIT to the (nulls, a - 1) bins.

    One draw fewer is left to compare with: the ranks run over 0 ... s - 1, less the reference itself where local.
    """
    (m, s), (nulls, bins) = near.shape, histogram.shape
    rank = np.empty((m, s), dtype=np.int64)
    np.put_along_axis(rank, np.argsort(near, axis=1), np.arange(s)[None], axis=1)
    played, jitter = rng.integers(0, s, nulls), rng.random(nulls)
    first = 0 if own is None else 1  # rank 0 is the local reference itself
    cell = ((rank[:, played] - first + jitter) * (bins / (s - first))).astype(np.int64) + np.arange(nulls) * bins
    if own is not None:
        cell = cell[played[None] != own[:, None]]  # a draw cannot play the truth with itself as reference
    histogram += np.bincount(cell.ravel(), minlength=histogram.size).reshape(histogram.shape)
