"""The tables that `kappaflow calibrate` prints."""

from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["print_verdict"]


def print_verdict(content: dict[str, Any]) -> None:
    """Print what was found: methods compared, parameters of a single method, a pair, and the checks."""
    console = Console()
    methods = content["methods"]
    if len(methods) == 1:
        console.print(_parameters(next(iter(methods.values()))))
    console.print(_comparison(content["comparison"]))
    if "pair" in content:
        console.print(_pair(content["pair"], content["comparison"]["parameter"]))
    for name, verdict in methods.items():
        passed = verdict["calibrated"]
        console.print(
            f"[bold]{escape(name)}[/bold]: "
            + ("[green]no check failed[/green]" if passed else "[red]not calibrated[/red]")
        )
        for check in verdict["checks"]:
            mark = "[green]pass[/green]" if check["passed"] else "[red]fail[/red]"
            text = f"{check['check']}: {check['finding']} (p = {check['p_value']:.2g})"
            console.print(f"  {mark}  {escape(text)}", soft_wrap=True)
        readings = verdict["readings"]
        for fault in dict.fromkeys(text for text in readings.values() if text != "sound"):
            names = ", ".join(name for name, text in readings.items() if text == fault)
            console.print(f"        {escape(fault)}: {escape(names)}", soft_wrap=True)


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"


def _comparison(comparison: dict[str, Any]) -> Table:
    table = _table(f"{comparison['parameter']}; all parameters where it says so")
    table.add_column("", no_wrap=True)
    for name in comparison["methods"]:
        table.add_column(escape(name), justify="right")
    for row in comparison["rows"]:
        if any(row[name] is not None for name in comparison["methods"]):
            told = row["quantity"].replace("overall", "all, coverage").replace("informative", "informative, coverage")
            table.add_row(escape(told), *(_number(row[name]) for name in comparison["methods"]))
    return table


def _parameters(verdict: dict[str, Any]) -> Table:
    covered, pit = verdict["coverage"], verdict["pit"]
    table = _table(f"{covered['objects']} objects, {covered['draws']} draws each")
    table.add_column("")
    for level in covered["levels"]:
        table.add_column(f"{level:g}", justify="right")
    for name in ("width/prior", "PIT chi2", "rank mean"):
        table.add_column(name, justify="right")
    at = min(range(len(covered["levels"])), key=lambda i: abs(covered["levels"][i] - 0.9))
    for k, name in enumerate(covered["names"]):
        width = None if covered["width_over_prior"] is None else covered["width_over_prior"][at][k]
        shares = (_number(row[k]) for row in covered["coverage"])
        marginal = (None, None) if pit is None else (pit["chi2"][k], pit["rank_mean"][k])
        table.add_row(escape(name), *shares, _number(width), *map(_number, marginal))
    return table


def _pair(pair: dict[str, Any], parameter: str) -> Table:
    table = _table(f"{pair['first']} - {pair['second']}, {parameter} [95 % of paired bootstraps]")
    k = pair["names"].index(parameter)
    unit = "/prior" if pair["over_prior"] else ""
    for name in ("level", "coverage", f"width{unit}", f"interval score{unit}", "overall coverage"):
        table.add_column(name, justify="right")
    for i, level in enumerate(pair["levels"]):
        cells = []
        for key in ("coverage", "width", "interval_score"):
            ends = [pair[f"{key}_interval"][side][i][k] for side in (0, 1)]
            cells.append(_signed(pair[key][i][k], ends))
        ends = [pair["overall_coverage_interval"][side][i] for side in (0, 1)]
        table.add_row(f"{level:g}", *cells, _signed(pair["overall_coverage"][i], ends))
    return table


def _signed(value: float, ends: list[float | None]) -> str:
    if None in ends:
        return f"{value:+.3f}"
    return f"{value:+.3f} [{ends[0]:+.3f}, {ends[1]:+.3f}]"
