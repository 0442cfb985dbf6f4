"""`kappaflow fit`: telescope files become best fits."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kappaflow.cli.command_line import AsOne, FluxUnit, WavelengthUnit
from kappaflow.errors import UserError

__all__ = ["parsed_lists", "fit"]

HELP = """From telescope files to the spectra that fit them best.

All parameters, the opacity field, both gains and the structure f (scatter beyond the errors, over the flux) are
fitted at once, from several of the networks' draws, for every combination of line lists or a given one. Writes into
--out, for each FILE: fit.json (parameters with Laplace errors, chi2, f, field, residuals per band, every start),
fit.ecsv (data and fit), fit.png and fit.pdf.

Example: [bold]kappaflow fit jw01189_x1d.fits --distance 5.7[/bold]
one combination, the lists as they are: [bold]kappaflow fit x1d.fits --lists CH4=exomol --no-field[/bold]
"""


def parsed_lists(given: list[str] | None) -> dict[str, str] | None:
    """Turn ["CH4=exomol", "H2O=base"] into a mapping; None stays None: every combination.

    Examples
    --------
    >>> parsed_lists(["CH4=exomol"])
    {'CH4': 'exomol'}
    """
    if not given:
        return None
    pairs = [one.partition("=") for entry in given for one in entry.split(",") if one]
    for species, sign, name in pairs:
        if not (species and sign and name):
            raise UserError(f"--lists {species + sign + name}: expected SPECIES=LIST, as CH4=exomol")
    return {species: name for species, _, name in pairs}


def _line(summary: dict[str, Any]) -> str:
    c_o = summary["parameters"]["C_O"]
    return (
        f"{summary['name']}: chi2/n {summary['chi2_over_n']:.2f} (n = {summary['n']}), f {100 * summary['f']:.1f} %, "
        f"C/O {c_o['value']:.3f} +- {c_o['laplace_error']:.3f} (Laplace)"
    )


def fit(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Spectra, one object each.")],
    out: Annotated[Path, typer.Option(help="Folder for everything written.")] = Path("fitted"),
    distance: Annotated[float | None, typer.Option(help="In pc; without it the flux scale is free.")] = None,
    lists: Annotated[list[str] | None, typer.Option(help="SPECIES=LIST; every combination if none.")] = None,
    field: Annotated[bool, typer.Option(help="Fit the opacity field.")] = True,
    structure: Annotated[bool, typer.Option(help="Fit the structure f.")] = True,
    starts: Annotated[int, typer.Option(min=1, max=64, help="Draws of the networks to start from.")] = 8,
    seed: Annotated[int, typer.Option(help="Of the starts.")] = 0,
    merge: AsOne = False,
    wavelength_unit: WavelengthUnit = None,
    flux_unit: FluxUnit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Fit (see `HELP`)."""
    from kappaflow.inference import Posterior
    from kappaflow.model.forward import ForwardModel
    from kappaflow.observe import read_spectrum
    from kappaflow.observe.targets import name_objects
    from kappaflow.progress import progress
    from kappaflow.refinement import FitSettings
    from kappaflow.refinement import fit as best_fit
    from kappaflow.report.fit_files import write_fit

    chosen = parsed_lists(lists)
    posterior = Posterior.load()
    card = posterior.members[0].card
    model = ForwardModel.load(card.preset, parameters=card.parameters)
    if chosen is not None:
        model.list_indices(chosen)  # a wrong name is refused before anything is fitted
    settings = FitSettings(field=field, structure=structure, starts=starts, seed=seed)
    found, failed = [], False
    with progress("fitting", len(files), unit="spectra") as advance:
        for name, group in name_objects([files] if merge else [[file] for file in files]):
            try:
                native = read_spectrum(*group, wavelength_unit=wavelength_unit, flux_unit=flux_unit)
                best = best_fit(
                    native, distance=distance, lists=chosen, model=model, posterior=posterior, settings=settings
                )
                found.append(write_fit(best, out / name, name))
            except UserError as error:
                failed = True
                print(f"kappaflow: {error}", file=sys.stderr)
            advance(1, note=name)
    print(json.dumps(found) if as_json else "\n".join([*map(_line, found), str(out)]))
    if failed:
        raise typer.Exit(2)
