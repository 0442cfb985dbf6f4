"""Which wrong spectra does the trust card notice? Its checks on simulated spectra that were spoiled on purpose.

    python benchmarks/familiarity.py --data DIR [--train DIR] [--n 100] [--fits 6] [--json]

DIR is a held-out set of `kappaflow simulate`; the networks are the packaged ones. For each way to spoil a spectrum: in
which share of --n the distance in the space of spectra (resemblance) and that of embeddings have p below 0.05, and in
which share of the first --fits of them the posterior-predictive check has. Untouched spectra should be at 5 % and
below. Networks that carry no principal components are judged with those of --train, a set like their training's.
"""

import argparse
import json
from types import SimpleNamespace

import numpy as np
from scipy.ndimage import gaussian_filter1d

from kappaflow.build.tables.networks import refuse_seen
from kappaflow.inference import Posterior
from kappaflow.inference.resemblance import Resemblance
from kappaflow.inference.training import RESEMBLED, RESEMBLING
from kappaflow.model.forward import ForwardModel
from kappaflow.retrieval.pipeline import predict
from kappaflow.retrieval.predictive import posterior_predictive
from kappaflow.retrieval.replicates import Replicates
from kappaflow.retrieval.result import RetrievalSettings
from kappaflow.simulation import Shards

LIMIT = 0.05
RNG = np.random.default_rng


def dip(depth):
    """Spoil by a band that the model does not have, where PH3 has one."""
    return lambda f, e, w: f * (1 - depth * np.exp(-0.5 * ((w - 4.3) / 0.05) ** 2))


def blurred(resolution):
    """Spoil by a lower resolution, as the PRISM's or G395M's."""
    return lambda f, e, w: gaussian_filter1d(f, 4.0 / resolution / np.median(np.diff(w)) / 2.355, axis=1)


# name -> (flux, error, wavelength) -> flux
SPOILED = {
    "untouched": lambda f, e, w: f,
    "dip of 30 % at 4.3 um": dip(0.3),
    "dip of 80 % at 4.3 um": dip(0.8),
    "veiled: its median added": lambda f, e, w: f + np.median(f, axis=1, keepdims=True),
    "noise five times the error": lambda f, e, w: f + 5 * e * RNG(2).normal(size=f.shape),
    "featureless": lambda f, e, w: np.median(f, axis=1, keepdims=True) + e * RNG(0).normal(size=f.shape),
    "shifted by 30 pixels": lambda f, e, w: np.roll(f, 30, axis=1),
    "reversed in wavelength": lambda f, e, w: f[:, ::-1],
    "pixels shuffled": lambda f, e, w: RNG(1).permuted(f, axis=1),
    "resolution of 1,000": blurred(1000),
    "resolution of 100": blurred(100),
}


def familiar(posterior, flux, seen):
    """Median p-value over networks for every spectrum."""
    rows = zip(flux, seen.error, seen.mask, strict=True)
    spectra = [SimpleNamespace(flux=f, error=e, mask=m, scale_known=True) for f, e, m in rows]
    return np.array([np.median([row["p_value"] for row in posterior.familiarity(s)]) for s in spectra])


def components(posterior, train):
    """Components that the networks carry, or those of a set like their training's."""
    known = posterior.members[0].resemblance
    if known is None and train is not None:
        shards = Shards(train)
        known = Resemblance.of(
            shards.clean(RESEMBLED)[0], [shards.validation(0, min(RESEMBLING, shards.card.n_validation))]
        )
    return known


def resembling(known, flux, seen):
    """P-value of the distance in the space of spectra for every spectrum."""
    return np.array([known.p_value(*row)[0] for row in zip(flux, seen.error, seen.mask, strict=True)])


def fits(posterior, model, flux, seen):
    """P-value of the posterior-predictive check for every spectrum."""
    rng, part = RNG(3), slice(len(flux))
    count = RetrievalSettings().predicted
    draws = posterior.sample_batch(flux, seen.error[part], seen.mask[part], n=count, scale_known=True)
    predicted = (predict(model, t, rng, vary=True, card=posterior.opacity) for t in draws)
    clouds = (Replicates.of(made, t, model.wavelength) for made, t in zip(predicted, draws, strict=True))
    rows = zip(flux, seen.error, seen.mask, clouds, strict=False)
    return np.array([posterior_predictive(f, e, m, cloud, rng).p_value for f, e, m, cloud in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--train")
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--fits", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    posterior = Posterior.load()
    refuse_seen(posterior, given.data)
    card = posterior.members[0].card
    model = ForwardModel.load(card.preset, parameters=card.parameters) if given.fits else None
    seen = Shards(given.data, seed=7).evaluation(given.n)
    known, found = components(posterior, given.train), {}
    for name, spoil in SPOILED.items():
        flux = spoil(seen.flux, seen.error, posterior.wavelength)
        p = {"resemblance": resembling(known, flux, seen)} if known else {}
        p["embedding distance"] = familiar(posterior, flux, seen)
        if given.fits:
            p["predictive"] = fits(posterior, model, flux[: given.fits], seen)
        found[name] = {check: float((values < LIMIT).mean()) for check, values in p.items()}
        if not given.json:
            print(f"{name:28s}" + "".join(f"  {check} {share:.2f}" for check, share in found[name].items()), flush=True)
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
