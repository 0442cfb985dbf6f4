"""One object's part of the report, from its summary and its folder: read back from disk as well as fresh."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kappaflow.report.atmosphere_files import atmosphere_figures, derived_notes, derived_table, with_unit
from kappaflow.report.citations import methods_paragraph
from kappaflow.report.page import Figure, Section, Table
from kappaflow.report.refined_files import refined_figures
from kappaflow.retrieval.trust import Check

__all__ = ["failed_section", "object_section", "spectrum_facts"]

_OMITTED = (
    "The model has {absorbers}, equilibrium chemistry with quenching and one grey cloud: no {absent}patchy clouds, no "
    "isotopologues, no condensation of oxygen."
)
_CAPTIONS = {
    "band": "Data on the model's pixels and the 90 % posterior-predictive band, opacities included; "
    "below, what is left of the data after the median, over the file's own errors.",
    "spectrum": "Data on the model's pixels.",
    "c_to_o": "C/O; thick bars hold 68 %, thin ones 90 %.{more} Every density is drawn to the same height.",
    "dial": "C/O by the same networks as line lists are taken to be more and more wrong: 0 trusts them, 1 is the "
    "packaged prior; median, 68 and 90 %.",
    "corner": "C/O, log g and the parameters the spectrum constrains; contours hold 68 and 95 %.",
}
_UNSCALED = "No distance was given: the flux scale was not used, and R is close to its prior."


def object_section(summary: Mapping[str, Any], folder: Path, made: Mapping[str, str] | None = None) -> Section:
    """Return the part of the object whose summary this is and whose figures are in `folder`.

    `made` says how, where that is not said for all objects together.
    """
    c_o = summary["parameters"]["C_O"]
    rows = [
        [with_unit(name, row["unit"]), *(_short(row[q]) for q in _quantiles(row)), f"{row['width_over_prior']:.2f}"]
        for name, row in summary["parameters"].items()
    ]
    header = ["parameter", "5 %", "16 %", "median", "84 %", "95 %", "width / prior"]
    figures = [
        Figure(folder / "spectrum.png", _CAPTIONS["band" if summary["predicted"] else "spectrum"], "spectrum"),
        Figure(folder / "c_to_o.png", _c_to_o_caption(summary), "C/O densities and intervals"),
        Figure(folder / "corner.png", _CAPTIONS["corner"], "corner plot of the informative parameters"),
    ]
    if summary.get("dial"):
        figures.append(Figure(folder / "dial.png", _CAPTIONS["dial"], "C/O against the size of line-list errors"))
    meta = summary["spectrum"]
    kept = [f"A later attempt failed and left this result as it was: {summary['error']}"] if "error" in summary else []
    strong = frozenset({list(summary["parameters"]).index("C_O")})
    return Section(
        summary["title"],
        f"C/O = {c_o['q50']:.2f} +{c_o['q84'] - c_o['q50']:.2f} −{c_o['q50'] - c_o['q16']:.2f}",
        _detail(summary),
        [_check(check) for check in summary["trust"]],
        [
            *_beside(summary),
            Table(header, rows, f"Posterior, {summary['draws']:,} draws{_whose(summary)}.", strong),
            *derived_table(summary),
        ],
        [*figures, *refined_figures(summary, folder), *atmosphere_figures(summary, folder)],
        [
            *kept,
            *([] if meta["scale_known"] else [_UNSCALED]),
            *meta.get("notes", ()),
            _omitted(summary),
            *derived_notes(summary),
        ],
        {**spectrum_facts(meta), **(made or {})},
        methods_paragraph(summary) if "software" in summary else "",
    )


def _detail(summary: Mapping[str, Any]) -> str:
    """Say below the headline what the interval is, and why it is not exact where it is not."""
    told = "68 % interval; bulk elemental ratio, line lists included"
    refinement = summary.get("refinement")
    if summary.get("source") == "refined":
        return f"{told}; refined: exact draws of the likelihood"
    if refinement is None:
        return f"{told}; the networks' estimate, not refined by the likelihood"
    return f"{told}; the networks' estimate: the refinement is no result. {refinement['sentence']}"


def _whose(summary: Mapping[str, Any]) -> str:
    return {"refined": ", refined", "networks": " of the networks"}.get(summary.get("source", ""), "")


def _c_to_o_caption(summary: Mapping[str, Any]) -> str:
    more = {
        "one line list": " One line list: the same likelihood with the base lists taken as they are.",
        "control networks": " Control: the same with the line lists taken as right.",
    }
    return _CAPTIONS["c_to_o"].format(more="".join(more[k] for k in summary.get("c_to_o", {}) if k in more))


def _beside(summary: Mapping[str, Any]) -> list[Table]:
    """C/O by network and likelihood side by side, where there is more than one."""
    found = summary.get("c_to_o", {})
    if len(found) < 2:
        return []
    rows = [[kind, *(f"{value:.3f}" for value in found[kind])] for kind in found]
    return [Table(["C/O", "5 %", "16 %", "median", "84 %", "95 %"], rows, _agreement(summary), frozenset({0}))]


def _agreement(summary: Mapping[str, Any]) -> str:
    """Return the table's caption, with the sentence on network and likelihood where they disagree."""
    told = [c["sentence"] for c in summary["trust"] if c["name"] == "refinement" and c["verdict"] != "pass"]
    return " ".join(["C/O by each method.", *told])


def _omitted(summary: Mapping[str, Any]) -> str:
    """Say what the model has and leaves out."""
    if "log_PH3" in summary["parameters"]:
        return _OMITTED.format(absorbers="seven absorbers (H2O, CH4, CO, CO2, NH3, H2S, PH3)", absent="")
    return _OMITTED.format(absorbers="six absorbers (H2O, CH4, CO, CO2, NH3, H2S)", absent="PH3, no ")


def failed_section(name: str, error: str) -> Section:
    """Return the part of an object without a result."""
    return Section(name, "No result", error)


def spectrum_facts(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return what was read, in the words of the file: files, distance, units, rows."""
    facts = {"file": ", ".join(meta.get("files", ()))}
    pc, error = meta.get("distance_pc"), meta.get("distance_error_pc")
    facts["distance"] = "not given" if pc is None else f"{pc:g}{f' ± {error:g}' if error else ''} pc"
    rows = dict(meta.get("rows", {}))
    read = rows.pop("read", None)
    if read is not None:
        rows |= {"outliers": meta["outliers_masked"]} if "outliers_masked" in meta else {}
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in rows.items())
        facts["rows"] = f"{read:,} read; masked: {reasons or 'none'}"
    for key, name in (("wavelength_unit", "wavelengths"), ("flux_unit", "flux")):
        if key in meta:
            facts[name] = _words(meta[key]) + (f", {_words(meta['medium'])}" if name == "wavelengths" else "")
    seen = [_words(meta[key]) for key in ("instrument", "grating", "filter", "detector") if meta.get(key)]
    return facts | ({"instrument": " ".join(seen)} if seen else {})


def _words(value: Any) -> str:
    return " and ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _check(plain: Mapping[str, Any]) -> Check:
    """Return a line of the trust card from its plain data."""
    value = plain["value"]
    interval = plain.get("interval")
    return Check(
        plain["name"],
        math.nan if value is None else value,
        plain["verdict"],
        plain["sentence"],
        None if interval is None else (interval[0], interval[1]),
    )


def _quantiles(row: Mapping[str, Any]) -> list[str]:
    return [key for key in row if key.startswith("q")]


def _short(value: float) -> str:
    """Three or four figures, no exponents: 1,234 or 0.0312."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
