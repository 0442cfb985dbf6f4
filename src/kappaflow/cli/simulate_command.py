"""`kappaflow simulate`: a directory of shards from one command."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from kappaflow.cli.command_line import need_extra
from kappaflow.cli.config_file import ConfigFile, stated_sigma
from kappaflow.errors import UserError

__all__ = ["simulate"]

HELP = """Simulate noise-free spectra with randomized opacities into a directory of shards.

A shard is 128 spectra, named by (config, seed, index): a directory holds the same bytes wherever it was made, and a
run that was killed is continued with --resume. Noise, masks and gain are drawn when the spectra are read.

Example: [bold]kappaflow simulate --out train --n 100000 --seed 0[/bold]
and a held-out set of the same config: [bold]kappaflow simulate --out test --n 2048 --seed 1[/bold]
the same again, from the config.json it wrote: [bold]kappaflow simulate --config train/config.json --out again[/bold]
for networks with a dial (amplitude drawn in 0:2.5, a fifth of the shards at exactly 0, where lists and half-widths are
fixed too, a fifth at 1): [bold]kappaflow simulate --out train --parameters full --amplitude dial[/bold]
your own line lists, with the spread measured between them:
[bold]kappaflow opacity build --source POKAZATEL.h5 --species H2O --name pokazatel --out mine.h5[/bold]
[bold]kappaflow opacity compare mine.h5:H2O/base mine.h5:H2O/pokazatel --out spread[/bold]
[bold]kappaflow simulate --opacity mine.h5 --prior spread/compare-H2O-base-pokazatel.json --out train[/bold]
"""


def _pairs(option: str, values: list[str] | None) -> tuple[tuple[str, str], ...]:
    """["CH4=base", ...] as (("CH4", "base"), ...)."""
    pairs = []
    for value in values or []:
        species, _, name = value.partition("=")
        if not species or not name:
            raise UserError(f"--{option} {value}: expected SPECIES=LIST, for example CH4=base")
        pairs.append((species, name))
    return tuple(pairs)


def _broadening(value: str) -> tuple[float, float]:
    try:
        scale, shift = (float(word) for word in value.split(","))
    except ValueError:
        raise UserError(f"--broadening {value}: expected SCALE,SHIFT, for example 1.30,-0.15") from None
    return scale, shift


def _span(value: str) -> Any:
    """Read "1", "0:2.5", or a dial: "dial", which is "0:2.5:0.2:0.2" (range, shares of shards at 0 and at 1)."""
    if value == "dial":
        return value
    try:
        numbers = [float(word) for word in value.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) == 4:
        return dict(zip(("low", "high", "at_zero", "at_one"), numbers, strict=True))  # checked with the config
    if len(numbers) not in (1, 2) or not 0 <= numbers[0] <= numbers[-1] < float("inf"):
        raise UserError(f"--amplitude {value}: expected a number of at least 0, LOW:HIGH, for example 0:2.5, or dial")
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def _check(directory: Path, as_json: bool) -> None:
    """Verify every shard and say what is wrong; exit code 2 if anything is."""
    from kappaflow.simulation.directory import check_directory, shard_path

    state = check_directory(directory)
    missing = [shard_path(directory, i).name for i in state["missing"]]
    if as_json:
        print(json.dumps({**state, "missing": missing}))
    else:
        print(f"{directory}: {state['good']} of {state['shards']} shards whole")
        for name, trouble in [*((name, "missing") for name in missing), *state["damaged"].items()]:
            print(f"  {name}: {trouble}")
    if state["good"] < state["shards"]:
        raise UserError(f"{directory}: not whole; run the command that made it again, with --resume")


def _keep_masks(masks: Path, out: Path) -> int:
    """Store the user's masks beside the shards, on their pixels."""
    import io

    import numpy as np

    from kappaflow.simulation.directory import shard_path, write_bytes
    from kappaflow.simulation.masks import read_masks
    from kappaflow.simulation.reader import USER_MASKS
    from kappaflow.simulation.shard import read_shard

    wavelength = read_shard(shard_path(out, 0))[0].wavelength
    buffer = io.BytesIO()
    found = read_masks(masks, wavelength)
    np.save(buffer, found)
    write_bytes(out / USER_MASKS, buffer.getvalue())
    return len(found)


def _report(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
        return
    rate = result["spectra_per_second"]
    made = f"{result['made']} made now at {rate:,.0f} spectra/s" if rate else "all there and whole, nothing to do"
    print(f"{result['out']}: {result['spectra']:,} spectra in {result['shards']} shards ({made})")


def simulate(
    out: Annotated[Path | None, typer.Option(help="Directory of the shards.")] = None,
    config: ConfigFile = None,
    n: Annotated[int | None, typer.Option(help="Spectra, rounded up to whole shards (default: the preset's).")] = None,
    preset: Annotated[str, typer.Option(help="tiny, laptop or paper.")] = "laptop",
    parameters: Annotated[str, typer.Option(help="paper, or full: wider priors, PH3, structure, slopes.")] = "paper",
    seed: Annotated[int, typer.Option(help="Of all draws; another seed for another set.")] = 0,
    sequence: Annotated[str, typer.Option(help="uniform, or sobol for a space-filling sequence.")] = "uniform",
    opacity: Annotated[Path | None, typer.Option(help="Table of `kappaflow opacity build`; default: packaged.")] = None,
    cia: Annotated[str, typer.Option(help="Collision-induced absorption: borysow or petitradtrans.")] = "borysow",
    prior: Annotated[
        list[Path] | None, typer.Option(help="Width of the field, as `opacity compare --out` writes it. Repeatable.")
    ] = None,
    perturb: Annotated[str, typer.Option(help="both, smooth, discrete or none.")] = "both",
    amplitude: Annotated[str, typer.Option(help="Scale of the smooth field; 0:2.5 draws it; dial (see above).")] = "1",
    axes: Annotated[str | None, typer.Option(help="Species that swap lists: H2O,CH4=base+mine.")] = None,
    pin: Annotated[list[str] | None, typer.Option(help="Keep one list: CH4=base. Repeatable.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Hold a list out: CH4=exomol. Repeatable.")] = None,
    broadening: Annotated[
        list[str] | None, typer.Option(help="Half-width scale and exponent shift: 1.30,-0.15. Repeatable.")
    ] = None,
    masks: Annotated[Path | None, typer.Option(help="Folder of your own masks, kept for training.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue, and remake damaged shards.")] = False,
    workers: Annotated[int | None, typer.Option(help="Processes on this machine (default: its processors).")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    check: Annotated[Path | None, typer.Option(help="Only verify every shard of this directory.")] = None,
    toy: Annotated[bool, typer.Option("--toy", help="Made-up spectra, to try out a cluster or a disk.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run the command."""
    if check is not None:
        return _check(check, as_json)
    if out is None:
        raise UserError("--out: missing; give the directory of the shards (or --check DIR)")
    if workers is not None and workers < 0:
        raise UserError(f"--workers {workers}: expected a number of processes, or 0 for this one")
    if scheduler is not None:
        need_extra("distributed")
    import numpy as np

    from kappaflow.instrument import WINDOW
    from kappaflow.presets import preset as preset_named
    from kappaflow.simulation.config import load_model, make_config
    from kappaflow.simulation.field_widths import read_priors
    from kappaflow.simulation.masks import read_masks
    from kappaflow.simulation.run import Backend, simulate_directory

    measured = read_priors(prior or [])
    settings = make_config(
        preset=preset,
        model="toy" if toy else "forward",
        sequence=sequence,
        perturb=perturb,
        parameters=parameters,
        amplitude=_span(amplitude),
        axes=measured.axes(axes),
        sigma=measured.sigma or stated_sigma(config, opacity),
        pin=_pairs("pin", pin),
        exclude=_pairs("exclude", exclude),
        broadening=tuple(map(_broadening, broadening or ["1,0"])),
        cia=cia,
    )
    if masks is not None:  # before the long part, not after it
        read_masks(masks, np.linspace(*WINDOW, 200))
    count = preset_named(preset).spectra if n is None else n
    backend = Backend(scheduler if scheduler is not None else workers, partial(load_model, opacity=opacity))
    result = simulate_directory(out, settings, count, seed=seed, resume=resume, backend=backend)
    if masks is not None:
        result["masks"] = _keep_masks(masks, out)
    return _report(result, as_json)
