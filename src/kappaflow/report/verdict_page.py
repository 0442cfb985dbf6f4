"""A verdict as one self-contained page: what was tested, what was found, every figure inlined."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kappaflow.report.page import Figure, Report, Section, Table, write_report
from kappaflow.retrieval.trust import Check

__all__ = ["write_verdict_page"]

_CAPTIONS = {
    "coverage": (
        "Coverage minus nominal level: {shown} bold, with 95 % Wilson bars; other parameters thin; grey, where an "
        "exact posterior stays with 95 % at each level. Below zero: too narrow or displaced."
    ),
    "width": "Median width against coverage: the best is on the dashed line and as low as can be.",
    "ecdf": (
        "Share of PITs below z, minus z. Grey: where the curves of an exact posterior stay at all z and in all panels "
        "at once with 95 % (Säilynoja, Bürkner & Vehtari 2022). An S that rises first: too narrow; one that falls "
        "first: too wide; an arch: displaced."
    ),
    "tarp": (
        "TARP (Lemos et al. 2023), all parameters jointly: expected coverage minus credibility. Grey: a perfect "
        "posterior of these objects."
    ),
}


def write_verdict_page(content: Mapping[str, Any], figures: Mapping[str, Path], path: Path) -> Path:
    """Write the content of verdict.json, with the PNGs of `figures` (by kind, and `pit NAME`), as a page at `path`."""
    methods, shown = content["methods"], content["comparison"]["parameter"]
    drawn = [Figure(figures[kind], _CAPTIONS[kind].format(shown=shown), kind) for kind in _CAPTIONS if kind in figures]
    first = Section(
        "All methods" if len(methods) > 1 else "At a glance",
        "" if len(methods) > 1 else _headline(next(iter(methods.values()))),
        tables=[_verdicts(methods), _comparison(content["comparison"])],
    )
    sections = [_section(name, verdict, figures.get(f"pit {name}")) for name, verdict in methods.items()]
    objects = next(iter(methods.values()))["coverage"]["objects"]
    told = f"{len(methods)} posterior{'s' if len(methods) > 1 else ''}, {objects:,} objects with known truths"
    made = {f"draws of {name}": f"{one['origin']}, digest {one['digest']}" for name, one in content["inputs"].items()}
    made |= {key: str(value) for key, value in content["settings"].items()}
    return write_report(
        Report("Is the posterior calibrated?", told, [first, Section("Figures", figures=drawn), *sections], made), path
    )


def _headline(verdict: Mapping[str, Any]) -> str:
    return "No check failed" if verdict["calibrated"] else "Not calibrated"


def _verdicts(methods: Mapping[str, Any]) -> Table:
    rows = []
    for name, verdict in methods.items():
        failed = [check["check"] for check in verdict["checks"] if not check["passed"]]
        rows.append([name, _headline(verdict), ", ".join(failed) or "none", f"{verdict['coverage']['objects']:,}"])
    return Table(["method", "verdict", "failed checks", "objects"], rows)


def _comparison(comparison: Mapping[str, Any]) -> Table:
    methods = comparison["methods"]
    rows = [
        [
            row["quantity"] + (" (all parameters)" if row["of"] == "all" else ""),
            *(_short(row[name]) for name in methods),
        ]
        for row in comparison["rows"]
        if any(row[name] is not None for name in methods)
    ]
    return Table(["quantity", *methods], rows, f"{comparison['parameter']}, and all parameters where it says so.")


def _section(name: str, verdict: Mapping[str, Any], pit: Path | None) -> Section:
    checks = [
        Check(check["check"], check["p_value"], "pass" if check["passed"] else "fail", _sentence(check))
        for check in verdict["checks"]
    ]
    captions = "PIT of each parameter, count over expectation: flat when exact; hatched where uniformity is rejected."
    drawn = [] if pit is None else [Figure(pit, captions, f"PIT histograms of {name}")]
    return Section(name, _headline(verdict), trust=checks, figures=drawn, tables=[_parameters(verdict)])


def _sentence(check: Mapping[str, Any]) -> str:
    return f"{check['finding']}; p-value, passed at {check['threshold']:.3g} or more."


def _parameters(verdict: Mapping[str, Any]) -> Table:
    covered, pit = verdict["coverage"], verdict["pit"]
    over = covered["width_over_prior"]
    levels = covered["levels"]
    at = min(range(len(levels)), key=lambda i: abs(levels[i] - 0.9))
    header = ["parameter", "reading", *(f"covers {level:g}" for level in levels)]
    header += [f"width{'/prior' if over else ''} at {levels[at]:g}", "rank mean", "KS p", "leaves band"]
    rows = []
    for k, name in enumerate(covered["names"]):
        shares = [f"{row[k]:.3f}" for row in covered["coverage"]]
        width = (over or covered["width"])[at][k]
        ranks = ["", "", ""]
        if pit is not None:
            ranks = [
                f"{pit['rank_mean'][k]:.3f}",
                _short(pit["ks_p_bonferroni"][k]),
                "yes" if pit["leaves_band"][k] else "no",
            ]
        rows.append([name, verdict["readings"][name], *shares, _short(width), *ranks])
    strong = frozenset(k for k, name in enumerate(covered["names"]) if verdict["readings"][name] != "sound")
    return Table(header, rows, f"Each parameter over {covered['objects']:,} objects; bold where a check fails.", strong)


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
