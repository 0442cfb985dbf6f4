"""Several methods in one table: one column per method, the rows as retrieval papers lay them out."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kappaflow.calibrate.interval_coverage import nearest
from kappaflow.calibrate.verdict import Verdict
from kappaflow.errors import UserError
from kappaflow.plain_data import plain

__all__ = ["comparison_table", "parameter_rows"]

_OVERALL = ("overall", "informative", "NLL", "KS failures", "TARP")  # rows that are not of one parameter


def comparison_table(verdicts: Mapping[str, Verdict], parameter: str) -> dict[str, Any]:
    """Compare methods on one parameter, and overall where it says so.

    Returns {"parameter", "methods", "rows": [{"quantity", "of", one value per method}]}.

    A value that a method does not have (a PIT of conformal intervals, an NLL without densities) is None.
    """
    columns = {name: _column(verdict, parameter) for name, verdict in verdicts.items()}
    quantities = list(dict.fromkeys(key for column in columns.values() for key in column))
    rows = [
        {"quantity": q, "of": "all" if q.startswith(_OVERALL) else parameter}
        | {name: column.get(q) for name, column in columns.items()}
        for q in quantities
    ]
    return plain({"parameter": parameter, "methods": list(columns), "rows": rows})


def _column(verdict: Verdict, parameter: str) -> dict[str, float | None]:
    covered = verdict.coverage
    if parameter not in covered.names:
        raise UserError(f"parameter {parameter!r} is not among {', '.join(covered.names)}")
    k, at = covered.names.index(parameter), nearest(covered.levels, 0.9)
    level = f"{covered.levels[at]:g}"
    column: dict[str, float | None] = {
        f"coverage at {x:g}": covered.coverage[i, k] for i, x in enumerate(covered.levels)
    }
    column[f"overall at {level}"] = covered.overall[at]
    if covered.width_over_prior is not None:
        mean = covered.informative_mean
        column[f"informative at {level}"] = None if mean is None else mean[at]
        column[f"width/prior at {level}"] = covered.width_over_prior[at, k]
        score = verdict.scores.interval_score_over_prior
        column[f"interval score/prior at {level}"] = None if score is None else score[at, k]
        crps = verdict.scores.crps_over_prior
        column["CRPS/prior"] = None if crps is None else crps[k]
    else:
        column[f"width at {level}"] = covered.width[at, k]
        column[f"interval score at {level}"] = verdict.scores.interval_score[at, k]
        column["CRPS"] = None if verdict.scores.crps is None else verdict.scores.crps[k]
    column["NLL"] = verdict.scores.nll
    pit = verdict.pit
    column["PIT chi2"] = None if pit is None else pit.chi2[k]
    column["rank mean"] = None if pit is None else pit.rank_mean[k]
    column["KS failures"] = None if pit is None else int((pit.ks_p_bonferroni < 0.05).sum())
    joint = verdict.tarp.get("all")
    column["TARP max deviation"] = None if joint is None else joint.deviation
    column["TARP p-value"] = None if joint is None or covered.fitted_on is not None else joint.p_value
    return column


def parameter_rows(method: str, verdict: Verdict) -> list[dict[str, Any]]:
    """One flat row per parameter, for CSV: every marginal number of the verdict."""
    covered, scores, pit = verdict.coverage, verdict.scores, verdict.pit
    rows = []
    for k, name in enumerate(covered.names):
        row: dict[str, Any] = {"method": method, "parameter": name, "objects": covered.objects}
        row |= {"draws": covered.draws, "reading": verdict.readings.get(name, "")}
        row["informative"] = None if covered.informative is None else bool(covered.informative[k])
        for i, x in enumerate(covered.levels):
            row[f"coverage_{x:g}"] = covered.coverage[i, k]
            row[f"coverage_{x:g}_low"] = covered.wilson_low[i, k]
            row[f"coverage_{x:g}_high"] = covered.wilson_high[i, k]
            row[f"width_{x:g}"] = covered.width[i, k]
            row[f"width_over_prior_{x:g}"] = _at(covered.width_over_prior, i, k)
            row[f"width_over_prior_own_{x:g}"] = _at(covered.width_over_prior_own, i, k)
            row[f"interval_score_{x:g}"] = scores.interval_score[i, k]
        row["crps"] = None if scores.crps is None else scores.crps[k]
        for key in ("chi2", "chi2_p_value", "ks", "ks_p_value", "ks_p_bonferroni", "rank_mean", "tied"):
            row[f"pit_{key}"] = None if pit is None else getattr(pit, key)[k]
        rows.append(plain(row))
    return rows


def _at(array: np.ndarray | None, *index: int) -> float | None:
    return None if array is None else float(array[index])
