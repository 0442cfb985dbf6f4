"""What concerns all objects of a folder: the wide table (CSV and ECSV), the overview of the report, its two figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kappaflow.report.page import Figure, Section, Table
from kappaflow.retrieval.quantiles import KEYS
from kappaflow.retrieval.result import Failed, row_of
from kappaflow.storage import written_whole

__all__ = ["INLINED", "catalogue_row", "overview", "write_ecsv"]

INLINED = 5  # objects whose parts stand in the report itself; beyond, each has a page of its own
# Of the table in the report, where they are known, with the names that a reader knows.
_COLUMNS = {"C_O": "C/O", "M_H": "[M/H]", "log_g": "log g", "R": "R", "T_eff": "T_eff", "mass": "mass"}


def catalogue_row(summary: Mapping[str, Any]) -> dict[str, Any]:
    """One line of summary.csv: what `row_of` has, every parameter and derived quantity, and every check's verdict."""
    if "parameters" not in summary:
        return Failed(summary["name"], summary["error"]).row()
    row = row_of(summary)
    for name, values in {**summary["parameters"], **summary.get("derived", {})}.items():
        row |= {f"{name}_{key}": values[key] for key in KEYS}
    row |= {
        f"check_{check['name'].replace(' ', '_').replace('-', '_')}": check["verdict"] for check in summary["trust"]
    }
    row["distance_pc"] = summary["spectrum"].get("distance_pc")
    return row | {"title": summary["title"], "file": " + ".join(summary["spectrum"].get("files", ()))}


def _units(summaries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Units of the columns, as astropy writes them; of what has one."""
    every = {"distance_pc": "pc"}
    for summary in summaries:
        for name, values in {**summary.get("parameters", {}), **summary.get("derived", {})}.items():
            unit = str({"R_Jup": "jupiterRad", "M_Jup": "jupiterMass"}.get(values["unit"], values["unit"]))
            unit = "" if unit.startswith("dex") else unit  # logarithms: said in the description
            every |= {f"{name}_{key}": unit for key in KEYS if unit}
    return every


def write_ecsv(summaries: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the table of all objects as ECSV, with units; what is missing is masked."""
    from astropy.table import MaskedColumn
    from astropy.table import Table as Rows
    from astropy.units import Unit

    rows = [catalogue_row(summary) for summary in summaries]
    units = _units(summaries)
    logarithms = {
        f"{name}_{key}": f"log10, {values['unit']}"
        for summary in summaries
        for name, values in {**summary.get("parameters", {}), **summary.get("derived", {})}.items()
        for key in KEYS
        if values["unit"].startswith("dex")
    }
    table = Rows()
    for name in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(name) for row in rows]
        missing = [value is None for value in values]
        number = name in units or any(isinstance(value, float | int) for value in values)
        filled = [(0.0 if number else "") if value is None else value for value in values]
        unit = Unit(units[name]) if name in units else None
        table[name] = MaskedColumn(filled, mask=missing, unit=unit, description=logarithms.get(name))
    table.meta = {"quantiles": "q05, q16, q50, q84, q95: 5, 16, 50, 84 and 95 % of the posterior draws"}
    with written_whole(path) as part:
        table.write(part, format="ascii.ecsv", overwrite=True)


def overview(summaries: Sequence[Mapping[str, Any]], folder: Path) -> Section:
    """Return the first section of a report on many: a table to sort, and two figures, written into `folder`."""
    from kappaflow.plots import save_figure
    from kappaflow.plots.catalogue_figures import Placed, metallicity_against_ratio, ratio_against_snr

    good = [summary for summary in summaries if "parameters" in summary]
    figures = []
    if good:
        shown = [Placed(s["title"], s["snr"], _quantiles(s, "C_O"), _quantiles(s, "M_H"), s["verdict"]) for s in good]
        drawn = {
            "c_to_o_snr": (ratio_against_snr(shown), "C/O against SNR; thick bars hold 68 %, thin ones 90 %."),
            "m_h_c_to_o": (metallicity_against_ratio(shown), "[M/H] against C/O; bars hold 68 %."),
        }
        for name, (figure, caption) in drawn.items():
            figures.append(Figure(save_figure(figure, folder / name)[0], caption, caption.partition(";")[0]))
    return Section("All objects", tables=[_table(summaries, good)], figures=figures)


def _table(summaries: Sequence[Mapping[str, Any]], good: Sequence[Mapping[str, Any]]) -> Table:
    known = [name for name in _COLUMNS if any(_row(s, name) for s in good)]
    units = {name: next(_row(s, name)["unit"] for s in good if _row(s, name)) for name in known}
    rows = []
    for summary in summaries:
        if "parameters" not in summary:
            rows.append([summary["name"], "error", "", *("" for _ in known)])
        else:
            cells = [_cell(_row(summary, name)) for name in known]
            rows.append([summary["title"], summary["verdict"], f"{summary['snr']:.0f}", *cells])
    shown = {n: f" ({units[n]})" if units[n] and not units[n].startswith("dex") else "" for n in known}
    heads = [f"{_COLUMNS[n]}{shown[n]}" for n in known]
    apart = len(summaries) > INLINED
    links = [f"{quote(s['name'])}/report.html" if apart and "parameters" in s else "" for s in summaries]
    told = f"{len(good)} of {len(summaries)} retrieved; medians with 68 % intervals, no radius without a distance."
    return Table(["object", "trust", "SNR", *heads], rows, told, links=links, sortable=True)


def _row(summary: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the quantiles of `name`; none of a radius that is its prior's, for want of a distance."""
    if name == "R" and not summary["spectrum"].get("scale_known"):
        return {}
    return {**summary["parameters"], **summary.get("derived", {})}.get(name, {})


def _cell(row: Mapping[str, Any]) -> str:
    """Median and 68 % interval: 0.53 (0.49 to 0.58)."""
    if not row:
        return ""
    digits = 0 if abs(row["q50"]) >= 100 else 1 if abs(row["q50"]) >= 10 else 2
    middle, low, high = (f"{row[key]:.{digits}f}" for key in ("q50", "q16", "q84"))
    return f"{middle} ({low}\u00a0to\u00a0{high})"  # broken before the interval or not at all


def _quantiles(summary: Mapping[str, Any], name: str) -> list[float]:
    return [summary["parameters"][name][key] for key in KEYS]
