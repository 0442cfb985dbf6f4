"""How well does the model fit the sky? Best fits of real spectra, opacities fixed and free, with and without structure.

    python benchmarks/sky.py --data DIR [--out FILE.json] [--figure NAME] [--only TEXT] [--every-list] [--starts 8]
        [--parameters paper|full]

DIR holds the seven public spectra: *_apparent_SED.txt with their *_results.txt (distances), 2MASS J0415-0935 (.dat,
5.71 pc) and Wolf 1130C (.csv, 16.6 pc). Four fits each with the base lists (or the best combination): opacity field
fixed and free, f = 0 and f free. Prints a table, and per band the smooth residual (25 pixels), the fine one, what the
errors explain of it, and its autocorrelation at lag one. FILE.json is kept up to date: fits that it holds are not
done again.
"""

import argparse
import json
import re
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from kappaflow.inference import Posterior
from kappaflow.instrument import GAP
from kappaflow.model.forward import ForwardModel
from kappaflow.observe import read_spectrum
from kappaflow.plots import INK, PALETTE, QUIET, save_figure, style
from kappaflow.plots.object_figures import pieces
from kappaflow.refinement import FitSettings, fit
from kappaflow.report.fit_files import fit_summary
from kappaflow.storage import written_whole

DISTANCE = {"2M0415": 5.71, "Wolf1130C": 16.6}  # pc: Dupuy & Liu 2012; Gaia DR3 of Wolf 1130A
ARMS = {
    "fixed": FitSettings(field=False, structure=False),
    "free": FitSettings(field=True, structure=False),
    "fixed, f": FitSettings(field=False),
    "free, f": FitSettings(field=True),
}
SHOWN = ("M_H", "C_O", "log_g", "log_kzz", "R", "T1", "T4")


def objects(folder, only):
    for path in sorted(Path(folder).glob("*")):
        if path.name.endswith("_results.txt") or (only and only not in path.name):
            continue
        name = next((n for n in DISTANCE if n in path.name), path.name.removesuffix("_apparent_SED.txt"))
        if name in DISTANCE:
            distance = DISTANCE[name]
        else:
            results = path.with_name(f"{name}_results.txt").read_text()
            distance = float(re.search(r"^\s*distance\s+(\S+)", results, re.M)[1])
        hint = {"flux_unit": "erg/s/cm2/um"} if path.suffix == ".csv" else {}
        yield name, read_spectrum(path, **hint), distance


def row_of(name, arm, s):
    p = s["parameters"]
    values = " ".join(f"{p[k]['value']:8.3g}" for k in SHOWN)
    return (
        f"{name[:26]:26} {arm:9} {s['chi2_over_n']:7.2f} {s['f']:6.3f} {s['reduced_chi2_with_f']:6.2f} {values}  "
        f"+-{p['C_O']['laplace_error']:.3f} {','.join(s['lists'].values())} {s['seconds']:.0f} s"
    )


def bands_of(s):
    return "\n".join(
        f"    {b['low']:.2f}-{b['high']:.2f} um"
        f"  smooth {100 * b['smooth']:6.2f} % (noise {100 * b['smooth_noise']:5.2f})"
        f"  fine {100 * b['fine']:6.2f} % (noise {100 * b['fine_noise']:5.2f})  lag one {b['lag_one']:+.2f}"
        for b in s["residuals"]
    )


def run(given):
    posterior = Posterior.load()
    model = ForwardModel.load(posterior.members[0].card.preset, parameters=given.parameters)
    kept = json.loads(given.out.read_text()) if given.out and given.out.exists() else {}
    gallery = {}
    print(
        f"{'object':26} {'arm':9} {'chi2/n':>7} {'f':>6} {'red.':>6} {' '.join(f'{k:>8}' for k in SHOWN)}", flush=True
    )
    for arm in given.arms or ARMS:
        for name, spectrum, distance in objects(given.data, given.only):
            key = f"{name} | {arm}"
            if key not in kept:
                began = time.time()
                lists = None if given.every_list else {}
                settings = FitSettings(**{**vars(ARMS[arm]), "starts": given.starts})
                best = fit(
                    spectrum, distance=distance, lists=lists, model=model, posterior=posterior, settings=settings
                )
                data = best.spectrum
                kept[key] = fit_summary(best, name) | {"seconds": time.time() - began}
                kept[key]["ratio"] = np.nan_to_num(best.smooth / best.flux).tolist()
                kept[key]["data"] = [np.where(data.mask, a, 0).tolist() for a in (data.flux, data.error, data.mask)]
                if given.out:
                    with written_whole(given.out) as part:
                        part.write_text(json.dumps(kept))
            print(row_of(name, arm, kept[key]), flush=True)
            if given.bands:
                print(bands_of(kept[key]), flush=True)
            data = tuple(np.array(a) for a in kept[key]["data"])
            lines = gallery.setdefault(name, (data, {}))[1]
            if arm.endswith("f"):
                label = "opacities fixed" if arm.startswith("fixed") else "opacities free"
                lines[label] = np.where(data[2], kept[key]["ratio"], np.nan)  # no line where there are no data
    if given.figure:
        save_figure(fits_gallery(model.wavelength, gallery), given.figure)


@style()
def fits_gallery(wavelength, objects):
    """Draw relative residuals of several fits, smoothed: name -> (flux, error, mask) and label -> smooth / fit (p,)."""
    figure = Figure(figsize=(9, 1.5 * len(objects) + 0.6), layout="constrained")
    panels = figure.subplots(len(objects), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, ((flux, error, mask), lines)) in zip(panels, objects.items(), strict=True):
        good = np.asarray(mask, bool)
        band = np.where(good, error / np.where(good, np.maximum(flux, error), 1.0), np.nan) * 100
        for i, part in enumerate(pieces(wavelength)):
            axes.fill_between(wavelength[part], -band[part], band[part], color=QUIET, alpha=0.35, lw=0)
            for colour, (label, ratio) in zip((PALETTE[1], PALETTE[0]), lines.items(), strict=False):
                axes.plot(wavelength[part], 100 * ratio[part], color=colour, lw=1, label=None if i else label)
        axes.axhline(0, color=INK, lw=0.6)
        axes.set_ylim(-25, 25)
        axes.axvspan(*GAP, color=QUIET, alpha=0.18, lw=0)
        axes.set_title(name, loc="left", fontsize=9, y=0.8, x=0.01)
    panels[0].legend(loc="upper right", ncols=2, fontsize=8)
    panels[-1].set_xlabel("wavelength (µm)")
    figure.supylabel("(data - fit) / fit, mean of 25 pixels (%)", fontsize=10)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--only", help="part of a file's name")
    parser.add_argument("--arms", nargs="*", choices=list(ARMS))
    parser.add_argument("--every-list", action="store_true", help="every combination of line lists, not the base ones")
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--parameters", default="full", choices=["paper", "full"])
    parser.add_argument("--bands", action="store_true")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
