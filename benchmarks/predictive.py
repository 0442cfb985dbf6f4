"""Is the trust card's posterior-predictive check fair? Its p-values on simulated spectra, which the model can fit.

    python benchmarks/predictive.py --data DIR [--n 24] [--json]

DIR is a held-out set of `kappaflow simulate`. Draws are of the packaged marginalized networks, 400 per spectrum, each
predicted with opacities of its own and given structure of its own. A fair check has p below 0.05 in at most about 5 %
of cases; exits with 1 where more than 20 % are. Also said: how far two seeds of the null are apart against the error
that the check states, how often their verdicts differ, and f as the card states it over the true one.
"""

import argparse
import json
import sys

import numpy as np

from kappaflow.inference import Posterior
from kappaflow.model.forward import ForwardModel
from kappaflow.parameters import INDEX
from kappaflow.retrieval.pipeline import predict
from kappaflow.retrieval.predictive import posterior_predictive, predictive_check
from kappaflow.retrieval.replicates import Replicates
from kappaflow.retrieval.result import RetrievalSettings
from kappaflow.simulation import Shards
from kappaflow.simulation.noise import structure
from kappaflow.unmodelled import structure_shape


def judged(data, n):
    """Return the check of each spectrum, by two seeds of the null, and the true structure as a share of the light."""
    posterior, shards = Posterior.load(), Shards(data, seed=5)
    seen = shards.evaluation(n)
    card, rng = posterior.members[0].card, np.random.default_rng(3)
    model = ForwardModel.load(card.preset, parameters=card.parameters)
    draws = posterior.sample_spectra(seen, n=RetrievalSettings().predicted)
    found = []
    for i, theta in enumerate(draws):
        cloud = Replicates.of(predict(model, theta, rng, vary=True, card=posterior.opacity), theta, model.wavelength)
        arrays = (seen.flux[i], seen.error[i], seen.mask[i], cloud)
        found.append([posterior_predictive(*arrays, np.random.default_rng(seed)) for seed in (0, 1)])
        print(f"{i}: {found[-1][0].p_words}, f {found[-1][0].misfit.f:.3g}", file=sys.stderr, flush=True)
    flux = shards.flux(np.arange(n))
    shape, _ = structure_shape(flux, seen.truth[:, INDEX["R"]], model.wavelength)
    light = np.where(seen.mask, flux, 0.0)
    return found, structure(seen.truth) * (shape * light).sum(axis=1) / light.sum(axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--n", type=int, default=24)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    pairs, f = judged(given.data, given.n)
    p = np.array([pair[0].p_value for pair in pairs])
    result = {"n": len(p), "below 0.05": float((p < 0.05).mean()), "below 0.01": float((p < 0.01).mean())}
    result |= {"median": float(np.median(p)), "smallest": float(p.min())}
    apart = [abs(a.p_value - b.p_value) / np.sqrt(2) / max(a.p_error, 1e-4) for a, b in pairs]
    result |= {"seeds apart, over the stated error": float(np.sqrt(np.mean(np.square(apart))))}
    result["verdicts that differ"] = float(
        np.mean([predictive_check(a).verdict != predictive_check(b).verdict for a, b in pairs])
    )
    ratio = np.array([pair[0].misfit.f for pair in pairs]) / f
    strong = f > np.array([pair[0].errors for pair in pairs])
    result["f over the true one, where above the errors"] = float(np.median(ratio[strong])) if strong.any() else None
    print(json.dumps(result) if given.json else "\n".join(f"{k}: {v}" for k, v in result.items()))
    sys.exit(int(result["below 0.05"] > 0.2))


if __name__ == "__main__":
    main()
