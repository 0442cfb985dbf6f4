"""`kappaflow reference`: NUTS on the likelihood, the slow truth."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from kappaflow.cli.command_line import FluxUnit, WavelengthUnit
from kappaflow.errors import UserError

__all__ = ["reference"]

HELP = """The slow truth: NUTS (numpyro) on the likelihood that fit and refinement use. Needs the extra `reference`.

--opacity fixed takes the base line lists as they are; marginal integrates the opacity field out by linearization;
sampled samples its coefficients with the parameters; lists pools one fixed run per combination of line lists. Chains
start from the best fits, whitened by Laplace's approximation. Killed at any moment, the same command goes on; with
more --samples it goes on too. Writes into --out, for each object: posterior.nc (ArviZ's layout) and summary.json
(quantiles, R-hat, effective sizes), beside what it needs to go on.

Example: [bold]kappaflow reference jw01189_x1d.fits --distance 5.7 --opacity sampled --out truth[/bold]
simulated spectra, their truth stored too: [bold]kappaflow reference --data test --rows 0:4 --out truth[/bold]
"""


def _objects(files: list[Path], data: Path | None, rows: str | None, seed: int, units: dict[str, Any]) -> Iterator[Any]:
    """Name, spectrum and, of simulated ones, truth of every object."""
    if data is not None:
        from kappaflow.refinement.simulated import parsed_rows, simulated

        for one in simulated(data, parsed_rows(rows or "0"), seed=seed):
            yield f"row-{one.row:06d}", lambda one=one: one.spectrum, one.truth()
        return
    from kappaflow.observe import read_spectrum
    from kappaflow.observe.targets import name_objects

    for name, group in name_objects([[file] for file in files]):
        yield name, lambda group=group: read_spectrum(*group, **units), None


def _line(summary: dict[str, Any]) -> str:
    c_o = summary["parameters"]["C_O"]
    state = "converged" if summary["converged"] else f"NOT converged: {'; '.join(summary['shortcomings'])}"
    return (
        f"{summary['name']}: C/O {c_o['q50']:.3f} ({c_o['q16']:.3f} to {c_o['q84']:.3f}), opacity "
        f"{summary['opacity']}, {summary['forces']} forces in {summary['chain_seconds']:.0f} s of chains; {state}"
    )


def reference(
    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILE]...", help="Spectra, one object each.")] = None,
    data: Annotated[Path | None, typer.Option(help="Set made by `kappaflow simulate`, instead of FILEs.")] = None,
    rows: Annotated[str | None, typer.Option(help="Places in --data, as 0:4 or 3,7,9 (default: 0).")] = None,
    opacity: Annotated[str, typer.Option(help="fixed, marginal, sampled or lists.")] = "marginal",
    out: Annotated[Path, typer.Option(help="Folder for everything written.")] = Path("reference"),
    distance: Annotated[float | None, typer.Option(help="In pc; without it the flux scale is free.")] = None,
    lists: Annotated[list[str] | None, typer.Option(help="SPECIES=LIST: one combination of line lists.")] = None,
    chains: Annotated[int, typer.Option(min=2, max=64, help="Chains per combination of line lists.")] = 4,
    warmup: Annotated[int, typer.Option(min=1, help="Transitions that adapt step and scales.")] = 200,
    samples: Annotated[int, typer.Option(min=4, help="Draws of each chain.")] = 500,
    depth: Annotated[int, typer.Option(min=1, max=12, help="At most 2^depth - 1 forces per draw.")] = 8,
    starts: Annotated[int, typer.Option(min=1, max=64, help="Starts of the fit before the chains.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of starts, chains and, with --data, noise.")] = 0,
    wavelength_unit: WavelengthUnit = None,
    flux_unit: FluxUnit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Run the chains (see `HELP`)."""
    from kappaflow.cli.command_line import need_extra
    from kappaflow.cli.fit_command import parsed_lists

    need_extra("numpyro")
    if bool(files) == (data is not None):
        raise UserError("give either FILE... or --data DIR: what to sample the posterior of")
    if rows is not None and data is None:
        raise UserError("--rows: places in a simulated set; expected with --data DIR")
    from kappaflow.progress import progress
    from kappaflow.refinement import FitSettings, ReferenceSettings, Running
    from kappaflow.refinement import reference as long_chains
    from kappaflow.refinement.simulated import model_of
    from kappaflow.report.reference_files import write_reference

    settings = ReferenceSettings(
        opacity=opacity,  # type: ignore[arg-type]  # checked there
        lists=parsed_lists(lists),
        chains=chains,
        warmup=warmup,
        samples=samples,
        depth=depth,
        seed=seed,
        fit=FitSettings(starts=starts),
    )
    units = {"wavelength_unit": wavelength_unit, "flux_unit": flux_unit}
    objects = list(_objects(files or [], data, rows, seed, units))
    model = None if data is None else model_of(data)
    found, failed = [], False
    with progress("chains", 100 * len(objects), unit="%") as advance:
        for name, read, truth in objects:
            running = Running(out / name, lambda share, name=name: advance(100 * share, note=name))
            try:
                made = long_chains(read(), distance=distance, model=model, settings=settings, running=running)
                found.append(write_reference(made, out / name, name, truth))
            except UserError as error:
                failed = True
                print(f"kappaflow: {error}", file=sys.stderr)
    print(json.dumps(found) if as_json else "\n".join([*map(_line, found), str(out)]))
    if failed:
        raise typer.Exit(2)
