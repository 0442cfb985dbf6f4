"""Is the trust card's posterior-predictive check fair? Its p-values on simulated spectra, which the model can fit.

    python benchmarks/predictive.py --data DIR [--n 24] [--json]

DIR is a held-out set of `kappaflow simulate`. Draws are of the packaged marginalized networks, 400 per spectrum, each
predicted with opacities of its own. A fair check has p below 0.05 in at most about 5 % of cases; exits with 1 where
more than 20 % are.
"""

import argparse
import json
import sys

import numpy as np

from kappaflow.inference import Posterior
from kappaflow.model.forward import ForwardModel
from kappaflow.retrieval.pipeline import predict
from kappaflow.retrieval.predictive import posterior_predictive
from kappaflow.retrieval.result import RetrievalSettings
from kappaflow.simulation import Shards


def p_values(data, n):
    posterior, seen = Posterior.load(), Shards(data, seed=5).evaluation(n)
    card, rng = posterior.members[0].card, np.random.default_rng(3)
    model = ForwardModel.load(card.preset, parameters=card.parameters)
    arrays, count = (seen.flux, seen.error, seen.mask), RetrievalSettings().predicted
    draws = posterior.sample_batch(*arrays, n=count, scale_known=seen.scale_known)
    found = []
    for i, theta in enumerate(draws):
        predicted = predict(model, theta, rng, vary=True)
        found.append(posterior_predictive(seen.flux[i], seen.error[i], seen.mask[i], predicted, rng).p_value)
    return np.array(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--n", type=int, default=24)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    p = p_values(given.data, given.n)
    result = {"n": len(p), "below 0.05": float((p < 0.05).mean()), "below 0.01": float((p < 0.01).mean())}
    result |= {"median": float(np.median(p)), "smallest": float(p.min())}
    print(json.dumps(result) if given.json else "\n".join(f"{k}: {v:.3g}" for k, v in result.items()))
    sys.exit(int(result["below 0.05"] > 0.2))


if __name__ == "__main__":
    main()
