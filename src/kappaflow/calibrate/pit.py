"""Probability integral transforms (simulation-based calibration): histograms, chi2, Kolmogorov-Smirnov, means."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import chi2, kstest, kstwo

from kappaflow.calibrate.ecdf_band import ecdf, simultaneous_band
from kappaflow.calibrate.summary import Summary
from kappaflow.plain_data import plain
from kappaflow.randomness import generator

__all__ = ["PitReport", "pit_report", "randomized_pit"]

BINS = 20
_BAND = 0.05  # chance that any curve of an exact posterior leaves the band


@dataclass(frozen=True, eq=False)
class PitReport:
    """Uniformity of the PIT of p parameters over n objects.

    `histogram` (p, bins) counts; `chi2`, `chi2_p_value`, `ks`, `ks_p_value` (each parameter alone),
    `ks_p_bonferroni`, `rank_mean`, `rank_mean_error`, `tied` (share of draws equal to their truth) are (p,);
    `pooled` is all parameters together. A p-value of chi2 is NaN with fewer than five objects expected per bin.
    `ecdf` (p, K) is the share of PITs at or below `ecdf_at` (K,); `ecdf_low` and `ecdf_high` (K,) are the band in which
    all p curves of an exact posterior stay with at least 95 %, `leaves_band` (p,) says whether a curve does not.
    """

    names: tuple[str, ...]
    bins: int
    histogram: np.ndarray
    chi2: np.ndarray
    chi2_p_value: np.ndarray
    ks: np.ndarray
    ks_p_value: np.ndarray
    ks_p_bonferroni: np.ndarray
    rank_mean: np.ndarray
    rank_mean_error: np.ndarray
    tied: np.ndarray
    pooled: dict[str, float]
    ecdf_at: np.ndarray
    ecdf: np.ndarray
    ecdf_low: np.ndarray
    ecdf_high: np.ndarray
    leaves_band: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return plain(asdict(self))


def randomized_pit(below: np.ndarray, ties: np.ndarray, count: int, *, seed: int = 0) -> np.ndarray:
    r"""PIT of each truth, uniform on [0, 1] under an exact posterior whatever `count` and the ties: (n, p).

    u = (b + U (ties + 1))/(s + 1), U uniform: a place at random in the truth's rank cell. Without it the ranks of s
    draws are lumps at k/(s + 1), which bins that do not divide s + 1 cut unevenly.
    """
    jitter = generator("PIT", seed).random(below.shape)
    return (below + jitter * (ties + 1.0)) / (count + 1.0)


def pit_report(summary: Summary, *, bins: int = BINS, seed: int = 0, fitted_on: int | None = None) -> PitReport:
    """Test the PIT of every parameter, and of all together, for uniformity.

    A PIT that was made uniform on m other objects (`fitted_on`) carries their chance too: its deviations are as large
    as those between two samples, n and m, and are judged as such.
    """
    u = randomized_pit(summary.below, summary.ties, summary.count, seed=seed)
    n, p = u.shape
    cell = np.minimum((u * bins).astype(int), bins - 1)
    histogram = np.array([np.bincount(column, minlength=bins) for column in cell.T])
    statistic = ((histogram - n / bins) ** 2).sum(axis=1) / (n / bins)
    excess = 1.0 if fitted_on is None else 1.0 + n / fitted_on  # variance of a bin, fitted over known
    p_value = chi2.sf(statistic / excess, bins - 1) if n >= 5 * bins else np.full(p, np.nan)
    tests = [kstest(column, "uniform") for column in u.T]
    ks = np.array([test.statistic for test in tests])
    ks_p = np.array([test.pvalue for test in tests]) if fitted_on is None else kstwo.sf(ks, max(1, round(n / excess)))
    at, share = ecdf(u)
    # All parameters at once (Bonferroni); a PIT fitted on m others wanders as that of fewer objects does.
    low, high = simultaneous_band(max(1, round(n / excess)), 1.0 - _BAND / p)
    return PitReport(
        names=summary.names,
        bins=bins,
        histogram=histogram,
        chi2=statistic,
        chi2_p_value=p_value,
        ks=ks,
        ks_p_value=ks_p,
        ks_p_bonferroni=np.minimum(1.0, p * ks_p),
        rank_mean=u.mean(axis=0),
        rank_mean_error=u.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(p, np.nan),
        tied=summary.ties.mean(axis=0) / summary.count,
        pooled=_pooled(cell, bins, excess),
        ecdf_at=at,
        ecdf=share,
        ecdf_low=low,
        ecdf_high=high,
        leaves_band=np.asarray(((share < low - 1e-12) | (share > high + 1e-12)).any(axis=1)),
    )


def _pooled(cell: np.ndarray, bins: int, excess: float) -> dict[str, float]:
    r"""Pool all parameters: the plain chi2, and a p-value that knows an object's parameters are correlated.

    The plain statistic takes n p values for independent, and its chi2 distribution is then wrong. Under uniformity it
    is a sum of chi2 with weights the eigenvalues w of V, the second moment of an object's standardized counts
    (deviations from p/bins over sqrt(p/bins)). Rao & Scott's second-order correction matches mean and variance:
    X sum(w)/sum(w^2) is chi2 with sum(w)^2/sum(w^2) degrees of freedom, the traces taken over objects.
    """
    n, p = cell.shape
    counts = np.zeros((n, bins))
    np.add.at(counts, (np.arange(n)[:, None], cell), 1.0)
    each = (counts - p / bins) / np.sqrt(p / bins)
    statistic = float((each.sum(axis=0) ** 2).sum() / n)
    if n < 5 * bins:
        return {"chi2": statistic, "effective_dof": np.nan, "p_value": np.nan}
    norm = (each**2).sum(axis=1)
    first = norm.mean()
    second = (((each.T @ each) ** 2).sum() - (norm**2).sum()) / (n * (n - 1.0))  # pairs of distinct objects: unbiased
    freedom = float(first**2 / second)
    return {
        "chi2": statistic,
        "effective_dof": freedom,
        "p_value": float(chi2.sf(statistic / excess * first / second, freedom)),
    }
