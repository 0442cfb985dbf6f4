"""Methods -> verdict: what `kappaflow calibrate` finds and writes."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kappaflow.calibrate import (
    JudgeSettings,
    Verdict,
    comparison_table,
    fit_conformal,
    fit_pit_map,
    highest_density_coverage,
    judge,
    judge_intervals,
    paired,
    parameter_rows,
    resamples,
    split_half,
    summarize,
)
from kappaflow.calibrate.verdict import STAGES
from kappaflow.errors import UserError
from kappaflow.evaluate.draws_file import DrawsFile, Method
from kappaflow.evaluate.network_draws import HeldOut
from kappaflow.evaluate.scoring import focus
from kappaflow.parameters import NAMED
from kappaflow.plain_data import plain
from kappaflow.progress import progress
from kappaflow.storage import write_json, write_rows

__all__ = ["judge_sources"]

Source = DrawsFile | HeldOut  # a file of draws, or networks on a held-out set


def judge_sources(
    sources: Sequence[Source],
    out: Path,
    settings: JudgeSettings,
    *,
    parameter: str | None = None,
    pair: tuple[str, str] | None = None,
    recalibrate: bool = False,
) -> dict[str, Any]:
    """Judge each source, compare them, write everything into `out`, and return the content of verdict.json.

    Parameters
    ----------
    sources
        One method each.
    out
        Folder, made if absent.
    settings
        Levels, bootstraps, references, seed.
    parameter
        The one that tables compare; C/O, or the first, by default.
    pair
        Names of two methods to compare object by object.
    recalibrate
        Fit PIT maps and conformal margins on one half, and judge on the other.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: a file; expected a folder, made if absent")
    _check_names([source.name for source in sources], pair, recalibrate)
    content: dict[str, Any] = {"schema": "kappaflow-verdict-1", "settings": plain(asdict(settings))}
    content |= {"recalibrate": recalibrate, "inputs": {}, "highest_density": {}, "corrections": {}}
    verdicts: dict[str, Verdict] = {}
    with progress("judging", len(sources) * STAGES * (2 if recalibrate else 1), unit="stages") as advance:
        for source in sources:  # one after the other: only one set of draws is in memory
            method = source.method(settings.seed)
            content["inputs"][method.name] = {"origin": method.origin, "digest": method.digest()}
            if not recalibrate:
                verdicts[method.name] = _judge(method, settings, content, advance)
            else:
                verdicts |= _judge_corrected(method, settings, content, advance)
    shown = parameter or focus(next(iter(verdicts.values())).coverage.names)
    content["comparison"] = comparison_table(verdicts, shown)
    if pair is not None:
        content["pair"] = _compare(verdicts, pair, settings)
    content["methods"] = {name: verdict.to_dict() for name, verdict in verdicts.items()}
    _write(out, content, verdicts)
    return content


def _check_names(names: list[str], pair: tuple[str, str] | None, recalibrate: bool) -> None:
    """Refuse two methods of one name and a pair that will not exist, before the long part."""
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UserError(f"two methods are called {min(twice)!r}; rename a file: its name is the method's")
    corrected = [f"{name} {kind}" for name in names for kind in ("recalibrated", "conformal")] if recalibrate else []
    for name in pair or ():
        if name not in [*names, *corrected]:
            raise UserError(f"--pair {name}: no such method; there are {', '.join([*names, *corrected])}")


def _judge(method: Method, settings: JudgeSettings, content: dict[str, Any], advance: Callable[..., None]) -> Verdict:
    """Judge a method as it is; the coverage of highest-density regions goes into `content` where it can be computed."""
    if method.log_prob is not None and method.log_prob_draws is not None:
        content["highest_density"][method.name] = highest_density_coverage(
            method.log_prob, method.log_prob_draws, settings.levels
        )
    return judge(method.draws, settings, covariates=method.covariates, log_prob=method.log_prob, advance=advance)


def _judge_corrected(
    method: Method, settings: JudgeSettings, content: dict[str, Any], advance: Callable[..., None]
) -> dict[str, Verdict]:
    """Judge one half of a method raw, recalibrated and conformal; both corrections are fitted on the other half."""
    fit, test = split_half(len(method.draws.truth), seed=settings.seed)
    held, method = method.draws.objects(fit), method.objects(test)
    raw = _judge(method, settings, content, advance)
    calibration = summarize(held, settings.levels)
    pit_map, margins = fit_pit_map(calibration, seed=settings.seed), fit_conformal(calibration)
    m, moved, fixed = len(held.truth), pit_map.apply(method.draws), margins.apply(raw.summary)
    content["corrections"][method.name] = {
        "calibration_objects": m,
        "test_objects": len(method.draws.truth),
        "saturated": pit_map.saturated(margins.levels, calibration.count).tolist(),
        "conformal_margin": margins.margin.tolist(),
    }
    seen = method.covariates
    return {
        method.name: raw,
        f"{method.name} recalibrated": judge(moved, settings, covariates=seen, fitted_on=m, advance=advance),
        f"{method.name} conformal": judge_intervals(fixed, settings, covariates=seen, fitted_on=m),
    }


def _compare(verdicts: dict[str, Verdict], pair: tuple[str, str], settings: JudgeSettings) -> dict[str, Any]:
    first, second = (verdicts[name] for name in pair)
    counts = resamples(len(first.summary.truth), settings.bootstraps, seed=settings.seed)
    found = paired((first.summary, first.inside), (second.summary, second.inside), counts)
    return {"first": pair[0], "second": pair[1]} | found


def _write(out: Path, content: dict[str, Any], verdicts: dict[str, Verdict]) -> None:
    """Write every file whole, verdict.json last: where it is, the rest is."""
    from kappaflow.report.verdict_page import write_verdict_page

    (out / "verdict.json").unlink(missing_ok=True)  # never the old verdict beside new figures
    rows = [row for name, verdict in verdicts.items() for row in parameter_rows(name, verdict)]
    write_rows(out / "parameters.csv", rows)
    write_rows(out / "methods.csv", content["comparison"]["rows"])
    write_verdict_page(content, _write_figures(out, content), out / "verdict.html")
    write_json(out / "verdict.json", content, allow_nan=False)


def _write_figures(out: Path, content: dict[str, Any]) -> dict[str, Path]:
    """Write the figures, a method in its own colour in all of them; returns the PNGs by kind, or by method for PITs."""
    from kappaflow.plots import save_figure
    from kappaflow.plots import verdict_figures as figures

    methods, shown = content["methods"], content["comparison"]["parameter"]
    labels, looks = {name: p.label for name, p in NAMED.items()}, figures.looks_of(list(content["methods"]))
    ranked = {name: verdict for name, verdict in methods.items() if verdict["pit"] is not None}
    joint = {name: verdict for name, verdict in methods.items() if verdict["tarp"]}
    made = {
        f"pit {name}": (figures.pit_histograms(one, looks[name], title=name, labels=labels), f"pit-{_file_name(name)}")
        for name, one in ranked.items()
    }
    if ranked:
        made["ecdf"] = figures.pit_curves(ranked, looks, labels=labels), "pit-ecdf"
    if joint:
        made["tarp"] = figures.tarp_curves(joint, looks), "tarp"
    made["coverage"] = figures.coverage_against_nominal(methods, shown, looks, labels=labels), "coverage"
    made["width"] = figures.width_against_coverage(methods, shown, looks, labels=labels), "width-coverage"
    for figure, name in made.values():
        save_figure(figure, out / name)
    return {kind: out / f"{name}.png" for kind, (_, name) in made.items()}


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
