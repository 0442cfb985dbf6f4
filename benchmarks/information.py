"""Where are the nats lost? Widths of networks over widths of the posterior linearized at the truth, per parameter.

    python benchmarks/information.py --data DIR [--n 24] [--model NETWORK ...] [--out FOLDER] [--json] [--masks]

DIR is a held-out set of `kappaflow simulate`, of the networks' own parameters; the networks are the packaged ones
unless given. Linearized: the derivatives of the noise-free spectrum at the truth with respect to parameters and opacity
coefficients, the latter and the two gains integrated out with their priors, structure f by its Fisher information, the
box by a Gaussian of its variance; line lists as they were. Where a parameter is not constrained the ratio is 1.18, the
half-width of the uniform prior's 68 % over its standard deviation. --out gets information.png and information.json.

--masks asks something else: by how much bad pixels alone widen the linearized C/O, for the masks of `kappaflow paper
masks`; no network is needed.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from kappaflow.build.tables.networks import refuse_seen
from kappaflow.experiments.treatments import MASKS
from kappaflow.inference import Posterior
from kappaflow.instrument import on_nrs2
from kappaflow.model.forward import ForwardModel
from kappaflow.parameters import INDEX
from kappaflow.plots import PALETTE, QUIET, save_figure, style
from kappaflow.refinement.likelihood import ListedModel
from kappaflow.simulation import Shards
from kappaflow.simulation.noise import structure
from kappaflow.simulation.opacity_draws import coefficient_sigma
from kappaflow.unmodelled import structure_shape


def precision(theta, made, error, mask, prior):
    """Return the linearized posterior precision (D, D) of one spectrum; `prior` is (widths, sigma of coefficients)."""
    flux, of_theta, of_field = (a[..., mask] for a in made[:3])
    widths, sigma = prior
    shape, _ = structure_shape(flux, theta[INDEX["R"]], made[3][mask])
    unmodelled = float(structure(theta[None])[0]) * shape * flux
    variance = error[mask] ** 2 + unmodelled**2
    nrs2 = on_nrs2(made[3])[mask]
    gains = theta[INDEX["sigma_cal"]] * np.stack([flux * ~nrs2, flux * nrs2])
    basis = np.vstack([sigma[:, None] * of_field, gains]) / np.sqrt(variance)
    slopes = of_theta / np.sqrt(variance)
    inner = np.linalg.solve(np.eye(len(basis)) + basis @ basis.T, basis @ slopes.T)
    fisher = slopes @ slopes.T - (slopes @ basis.T) @ inner
    if len(theta) > INDEX["log_f"]:  # acts on the noise: half the squared derivative of ln variance
        of_f = 2 * np.log(10) * unmodelled**2 / variance
        fisher[INDEX["log_f"], INDEX["log_f"]] += 0.5 * float((of_f**2).sum())
    return fisher + np.diag(12 / widths**2)


def linearized(shards, seen, model, widths):
    """Return standard deviations (n, D) and nats from the prior (n,), linearized at the truth of each spectrum."""
    sigma = coefficient_sigma(np.array(shards.card.opacity.sigma)).ravel()
    spreads, nats = [], []
    for i, place in enumerate(seen.index):
        lists = tuple(model.list_indices(shards.combinations[seen.combination[i]]).tolist())
        theta, field = shards.theta[place], shards.field[place]
        made = [a[0] for a in ListedModel(model, lists).derivatives(theta[None], field[None])]
        whole = precision(theta, (*made, shards.wavelength), seen.error[i], seen.mask[i], (widths, sigma))
        spreads.append(np.sqrt(np.diag(np.linalg.inv(whole))))
        nats.append(0.5 * (np.linalg.slogdet(whole)[1] - np.log(12 / widths**2).sum()))
    return np.array(spreads), np.array(nats)


@style()
def drawn(rows):
    """One line per parameter: median and 16 to 84 % of network width over linearized width."""
    figure = Figure(figsize=(6.4, 0.27 * len(rows) + 1.0), layout="constrained")
    axes = figure.subplots()
    for i, row in enumerate(rows):
        axes.plot(row["ratio_68"], [-i, -i], color=PALETTE[0], lw=3, alpha=0.5, solid_capstyle="butt")
        axes.plot([row["ratio"]], [-i], "o", color=PALETTE[0], ms=5)
    axes.axvline(1, color=QUIET, lw=1)
    axes.set_xscale("log")
    ticks = [1, 2, 5, 10, 20, 50, 100]
    axes.set_yticks([-i for i in range(len(rows))], [row["parameter"] for row in rows])
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("width of the networks / linearized width (median, 68 % of spectra)")
    return figure


def measured(given):
    posterior, shards = Posterior.load(*given.model), Shards(given.data, seed=3)
    refuse_seen(posterior, given.data)
    seen, box = shards.evaluation(given.n), posterior.box
    draws = posterior.sample_spectra(seen, n=1000)
    half = np.diff(np.quantile(draws, [0.16, 0.84], axis=1), axis=0)[0] / 2
    card = posterior.members[0].card
    spreads, nats = linearized(shards, seen, ForwardModel.load(card.preset, parameters=card.parameters), box.widths)
    ratio = half / spreads
    rows = []
    for i, name in enumerate(box.names):
        low, middle, high = np.quantile(ratio[:, i], [0.16, 0.5, 0.84])
        rows.append({"parameter": name, "linearized": float(np.median(spreads[:, i]) / box.widths[i])})
        rows[-1] |= {"network": float(np.median(half[:, i]) / box.widths[i]), "ratio": float(middle)}
        rows[-1] |= {"ratio_68": [float(low), float(high)], "nats": float(np.log(np.maximum(ratio[:, i], 1e-9)).mean())}
    gained = posterior.log_prob_spectra(seen.truth, seen) + np.log(box.widths).sum()
    total = {"linearized": float(nats.mean()), "network": float(gained.mean())}
    return {"n": len(seen), "nats": total, "rows": sorted(rows, key=lambda row: -row["ratio"])}


def lost_to_masks(given):
    """Print the linearized width of C/O with bad pixels over that without, for each kind of masks."""
    shards = Shards(given.data, seed=3)
    seen, box = shards.evaluation(given.n), shards.card.box
    model = ForwardModel.load(shards.card.preset, parameters=shards.card.parameters)
    widths = {}
    for kind in ("none", "drawn", "bands", "comb"):
        masks = MASKS[kind](shards, len(shards), ())[: given.n]
        widths[kind] = linearized(shards, replace(seen, mask=masks), model, box.widths)[0][:, INDEX["C_O"]]
        ratio = np.quantile(widths[kind] / widths["none"], [0.16, 0.5, 0.84])
        over = np.median(widths[kind]) / np.median(widths["none"])
        print(f"{kind}: {masks.mean():.2f} of pixels good; width {over:.2f} times (medians), ratio {ratio.round(2)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--n", type=int, default=24)
    parser.add_argument("--model", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--masks", action="store_true")
    given = parser.parse_args()
    if given.masks:
        lost_to_masks(given)
        return
    found = measured(given)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        save_figure(drawn(found["rows"]), given.out / "information")
        (given.out / "information.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if given.json:
        print(json.dumps(found))
        return
    print("| parameter | linearized / prior | networks / prior | networks / linearized (68 %) | mean of ln |")
    print("|---|---|---|---|---|")
    for row in found["rows"]:
        low, high = row["ratio_68"]
        ends = f"{row['ratio']:.2f} ({low:.2f} to {high:.2f})"
        print(f"| {row['parameter']} | {row['linearized']:.4f} | {row['network']:.4f} | {ends} | {row['nats']:.1f} |")
    nats = "{linearized:.1f} linearized, {network:.1f} networks".format(**found["nats"])
    print(f"\n{found['n']} spectra; nats from the prior: {nats}")


if __name__ == "__main__":
    main()
