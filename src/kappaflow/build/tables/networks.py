"""The networks that travel with the package: in half precision, judged as they are stored, each with a model card.

    python -m kappaflow.build.tables.networks marginalized-0=m0 control-0=c0 --perturbed test --clean clean-test

`NAME=FOLDER` is a run of `kappaflow train`; `--perturbed` and `--clean` are held-out sets of `kappaflow simulate`.
Networks without principal components of their training set get them from `--train DIR`, that set.
For networks with a dial, `--dial DIR DIR ...` are further held-out sets, each of one amplitude (0.43, 1.43, 2.14).
Several networks of one training are pooled: how much narrower each has to be for that is found on the validation split
of `--train DIR`.
Writes NAME.safetensors and NAME.md into --out (the package's own folder by default).
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from kappaflow.errors import UserError
from kappaflow.evaluate.scoring import score
from kappaflow.inference import Checkpoint, Posterior
from kappaflow.inference.posterior import networks_folder
from kappaflow.inference.resemblance import Resemblance
from kappaflow.inference.training import RESEMBLED, RESEMBLING
from kappaflow.randomness import generator
from kappaflow.simulation import Shards
from kappaflow.spectra import Spectra
from kappaflow.storage import written_whole

__all__ = ["at_amplitudes", "band_masks", "card", "held_out", "package", "pool", "refuse_seen", "with_components"]

POOLED, POOLING_DRAWS = 4096, 199  # validation spectra, and draws of each, that say how narrow members have to be

KINDS = {
    "marginalized": "trained on spectra whose opacities were randomized: its intervals include the line lists.",
    "control": "trained on spectra of fixed opacities, the base lists: the error bar of a retrieval that trusts one "
    "list.",
    "dial": "told how wrong line lists may be: at 0 it is the error bar of a retrieval that trusts one list, at 1 its "
    "intervals include the packaged prior of line-list errors, and there is everything between and beyond.",
}
USE = {
    "dial": "`kappaflow retrieve --line-lists 1` and `kf.Posterior.load().sample(spectrum, amplitude=1)` on spectra "
    "that pass the trust card.",
    "marginalized": "`kappaflow retrieve` and `kf.Posterior.load()` on spectra that pass the trust card.",
    "control": "To be compared with: `kappaflow retrieve` shows its C/O beside the marginalized one. Not to be quoted.",
}
LIMITS = """- JWST/NIRSpec G395H, 2.87-5.27 um, SNR 10 to 200 per pixel; parameters inside the prior, which the network
  carries.
- The absorbers of its parameter set, equilibrium chemistry with quenching, one grey cloud: no patchy clouds, no
  isotopologues, no condensation of oxygen.
- Bad pixels: at least 30 % good in training. Lost pixels widen the intervals; masks of another kind are "other masks"
  above.
- Coverage is an average over the prior. One object's interval is as good as its trust card: read that first.
- Errors of real line lists are assumed to lie within the perturbation prior (docs/opacity.md)."""


def held_out(
    perturbed: str | Path, clean: str | Path | None = None, n: int | None = None, *, start: int = 0, seed: int = 1
) -> dict[str, Spectra]:
    """Observe `n` spectra of the held-out sets, from the one at `start`.

    Perturbed spectra whole, with new masks of the kind that training drew (those that kept every pixel left out), and
    with masks of another kind (bands of any width, anywhere); and clean spectra, whole, where there are some.
    """
    whole = Shards(perturbed, seed=seed).evaluation(n, start=start)
    drawn = Shards(perturbed, masks=True, seed=seed).evaluation(n, start=start)
    lossy = np.flatnonzero(~drawn.mask.all(axis=1))
    mask = band_masks(whole.mask.shape, generator("networks' masks", seed))
    sets = {
        "perturbed": whole,
        "perturbed, masked": drawn[lossy],
        "perturbed, other masks": replace(whole, flux=np.where(mask, whole.flux, 0.0), mask=mask),
    }
    if clean is not None:
        sets["clean"] = Shards(clean, seed=seed).evaluation(n, start=start)
    return sets


def at_amplitudes(paths: Sequence[str | Path], n: int | None = None, *, seed: int = 1) -> dict[str, Spectra]:
    """Observe `n` spectra of each held-out set, whole, under the amplitude that all of its spectra have."""
    sets = {}
    for path in paths:
        seen = Shards(path, seed=seed).evaluation(n)
        values = np.unique(np.asarray(seen.amplitude))
        if len(values) != 1:
            raise UserError(f"--dial {path}: amplitudes from {values[0]:g} to {values[-1]:g}; expected a set of one")
        sets[f"amplitude {values[0]:g}"] = seen
    return sets


def with_components(network: Checkpoint, train: str | Path) -> Checkpoint:
    """Give a network the principal components of the set `train` that it was trained on, where it carries none."""
    if network.resemblance is not None:
        return network
    shards = Shards(train, masks=network.card.masked)
    if shards.card.digest != network.card.digest:
        raise UserError(f"--train {train}: data {shards.card.digest}; the network was trained on {network.card.digest}")
    parts = [shards.validation(0, min(RESEMBLING, shards.card.n_validation))]
    return replace(network, resemblance=Resemblance.of(shards.clean(RESEMBLED)[0], parts))


def refuse_seen(posterior: Posterior, *sets: str | Path) -> None:
    """Refuse held-out sets that share their seed with what a member was trained on."""
    for path in sets:
        posterior.refuse_training_seed(Shards(path).card.seed, path)


def band_masks(shape: tuple[int, int], rng: np.random.Generator, median: float = 0.47) -> np.ndarray:
    """Masks (n, p), True where good: bad bands, up to a 17th of the spectrum wide, pile up until a drawn share is left.

    The share of good pixels is uniform within 0.17 of `median`.
    """
    n, pixels = shape
    masks = np.ones(shape, dtype=bool)
    for mask, share in zip(masks, rng.uniform(median - 0.17, median + 0.17, n), strict=True):
        while mask.mean() > share:
            start, width = rng.integers(pixels), int((pixels / 17) ** rng.random())
            mask[start : start + width] = False
    return masks


def package(
    name: str, source: Path, observed: Mapping[str, Spectra], out: Path, *, train: str | Path | None = None
) -> Path:
    """Store the network in half precision, judge what was stored, and write it with what was found."""
    target = out / f"{name}.safetensors"
    target.parent.mkdir(parents=True, exist_ok=True)
    network = Checkpoint.load(source)
    (network if train is None else with_components(network, train)).save(target, half=True)
    stored = Checkpoint.load(target)
    found = {kind: score(Posterior([stored]), seen) for kind, seen in observed.items()}
    stored = replace(stored, metrics={**stored.metrics, "held_out": found})
    stored.save(target, half=True)
    with written_whole(out / f"{name}.md") as part:
        part.write_text(card(name, stored), encoding="utf-8")
    return target


def pool(files: Sequence[Path], train: str | Path, n: int = POOLED) -> float:
    """Find how narrow networks have to be for their mixture to cover what it says, and store it with each.

    By bisection of the mean excess of coverage of C/O over the levels, on whole validation spectra of amplitude 1.
    """
    networks = [Checkpoint.load(file) for file in files]
    shards = Shards(train)
    seen = shards.validation(0, shards.card.n_validation)
    if seen.amplitude is not None and networks[0].card.dial is not None:
        seen = seen[np.flatnonzero(np.asarray(seen.amplitude) == 1)]
    seen, posterior = seen[np.arange(min(n, len(seen)))], Posterior(networks)
    low, high = 0.7, 1.0
    for _ in range(6):
        posterior.spread = (low + high) / 2
        found = score(posterior, seen, draws=POOLING_DRAWS)["coverage"]
        excess = np.mean([share - float(level) for level, share in found.items()])
        low, high = (low, posterior.spread) if excess > 0 else (posterior.spread, high)
    told = {"seeds": sorted(network.seed for network in networks), "spread": round((low + high) / 2, 3), "n": len(seen)}
    for file, network in zip(files, networks, strict=True):
        network = replace(network, metrics={**network.metrics, "pool": told})
        network.save(file, half=True)
        with written_whole(file.with_suffix(".md")) as part:
            part.write_text(card(file.stem, network), encoding="utf-8")
    return told["spread"]


def card(name: str, network: Checkpoint) -> str:
    """Write the model card of a network that carries its held-out scores, in Markdown."""
    data, metrics, recipe = network.card, network.metrics, network.estimator.recipe
    kind = name.split("-")[0] if data.dial is None else "dial"
    levels = list(next(iter(metrics["held_out"].values()))["coverage"])
    head = ["held-out spectra", "n", *(f"C/O at {level}" for level in levels)]
    head += ["all parameters at 0.90", "90 % width", "interval score"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for where, row in metrics["held_out"].items():
        cells = [*row["coverage"].values(), row["overall"]["0.90"], row["width"], row["interval_score"]]
        lines.append(f"| {where} | {row['n']:,} | " + " | ".join(f"{c:.3f}" for c in cells) + " |")
    rows = {
        "recipe": f"`{recipe.name}`, digest {recipe.digest}, seed {network.seed}",
        "training data": f"{data.n_train:,} spectra and {data.n_validation:,} for validation, preset {data.preset}, "
        f"digest {data.digest}; {'bad-pixel masks drawn anew every epoch' if data.masked else 'no masks'}",
        "training": f"{metrics['seconds'] / 60:.0f} minutes on {metrics['threads']} CPU thread(s), {metrics['epochs']} "
        f"epochs, best validation loss {metrics['validation']:.2f} nats from the prior",
        "dial": "none" if data.dial is None else "amplitude of line-list errors from {:g} to {:g}".format(*data.dial),
        "pixels": f"{len(data.wavelength):,} from {data.wavelength[0]:.2f} to {data.wavelength[-1]:.2f} um",
        "weights": "half precision; the scores below are of the network as stored",
    }
    if told := metrics.get("pool"):
        rows["pooled"] = (
            f"with seeds {', '.join(map(str, told['seeds']))}: each with {told['spread']:g} times its base noise, so "
            f"that the mixture covers what it says (found on {told['n']:,} validation spectra)"
        )
    return f"""# {name}

A posterior estimator for {len(data.box)} parameters (the set `{data.parameters}`) of a brown dwarf or giant exoplanet,
{KINDS.get(kind, "")}

| | |
|---|---|
{chr(10).join(f"| {what} | {value} |" for what, value in rows.items())}

## Measured calibration

Coverage of central intervals at their nominal level; widths and interval scores of C/O over the prior's width.

{chr(10).join(lines)}

## Intended use

{USE.get(kind, "")}

## Limits

{LIMITS}
"""


def main(words: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--perturbed", required=True)
    parser.add_argument("--clean", required=True)
    parser.add_argument("--dial", nargs="*", default=[], metavar="DIR")
    parser.add_argument("--train", metavar="DIR")
    parser.add_argument("--n", type=int, default=2048)
    parser.add_argument("--out", type=Path, default=networks_folder())
    given = parser.parse_args(words)
    observed = held_out(given.perturbed, given.clean, given.n) | at_amplitudes(given.dial, given.n)
    files = []
    for pair in given.networks:
        name, _, folder = pair.partition("=")
        refuse_seen(Posterior.load(folder), given.perturbed, given.clean, *given.dial)
        files.append(package(name, Path(folder), observed, given.out, train=given.train))
        print(files[-1])
    if given.train and len(files) > 1:
        print(f"pooled: base noise times {pool(files, given.train):g}")


if __name__ == "__main__":
    main()
