"""`kappaflow demo`: a spectrum with every packaged line list, and what their disagreement does to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]

# A late-T dwarf: T1..T5 [K], C/O, [M/H], log kzz, log g, R, f_sed, sigma_c, v_r, v sin i, sigma_cal.
LATE_T = (350.0, 450.0, 700.0, 1500.0, 2800.0, 0.55, 0.0, 7.0, 5.0, 0.9, 4.0, 2.0, 0.0, 10.0, 0.0)


def register(app: typer.Typer) -> None:
    """Add `demo` to `app`."""
    app.command()(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure and the numbers.")] = Path("kappaflow-demo"),
    draws: Annotated[int, typer.Option(min=2, help="Perturbed opacities.")] = 64,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Compute a late-T dwarf as JWST/NIRSpec G395H would see it, with every packaged line list.

    Shows how far the spectrum moves when one list is swapped for another, and when the opacities are perturbed
    within their prior: the uncertainty that a retrieval with one fixed list leaves out.

    Example: kappaflow demo --out kappaflow-demo
    """
    import numpy as np

    from kappaflow.forward import ForwardModel
    from kappaflow.plots import save_figure
    from kappaflow.plots.opacity import demo_figure
    from kappaflow.simulate.perturbation import sigma
    from kappaflow.storage import written_whole

    model = ForwardModel.load()
    base = model(LATE_T)
    swaps = {(s, name): model(LATE_T, lists={s: name}) for s, names in model.names.items() for name in names[1:]}
    random = np.random.Generator(np.random.Philox(key=0))
    field = random.standard_normal((draws, *sigma().shape)) * sigma()
    perturbed = model(np.tile(LATE_T, (draws, 1)), field=field)
    spread = np.log(perturbed / base).std(axis=0)
    numbers = {
        "median absolute change of flux": {
            f"{s}: {name} for base": round(float(np.median(np.abs(np.log(flux / base)))), 4)
            for (s, name), flux in swaps.items()
        },
        "standard deviation of ln flux under the perturbation prior": {
            "median over pixels": round(float(np.median(spread)), 4),
            "largest": round(float(spread.max()), 4),
        },
        "pixels": int(model.wavelength.size),
    }
    figure = demo_figure(model.wavelength, base, perturbed, {f"{s} {n}": f for (s, n), f in swaps.items()})
    png, _ = save_figure(figure, out / "spectrum")
    with written_whole(out / "demo.json") as part:
        part.write_text(json.dumps(numbers, indent=2) + "\n")
    if as_json:
        print(json.dumps({**numbers, "figure": str(png)}, indent=2))
        return
    print("A late-T dwarf (C/O 0.55, solar metallicity) with the packaged opacities, JWST/NIRSpec G395H:")
    for what, change in numbers["median absolute change of flux"].items():
        print(f"  {what:24s} changes the flux by {100 * change:4.1f} % (median over pixels)")
    print(
        f"  opacities perturbed within their prior scatter it by {100 * float(np.median(spread)):.0f} % (median), "
        f"{100 * float(spread.max()):.0f} % at most"
    )
    print(f"figure: {png}")
