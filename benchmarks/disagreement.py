"""How far apart are networks of other seeds on spectra that they should know? The null of the trust card's check.

    python benchmarks/disagreement.py FOLDER FOLDER [FOLDER ...] --data DIR [--n 512] [--json]

A FOLDER is a run of `kappaflow train`, DIR a held-out set, observed with masks. The value is the trust card's: the
largest distance of two networks' C/O medians over half the pooled 68 % interval.
"""

import argparse
import json

import numpy as np

from kappaflow.build.tables.networks import refuse_seen
from kappaflow.inference import Posterior
from kappaflow.retrieval.trust import THRESHOLDS, seed_check
from kappaflow.simulation import Shards

PERCENTILES = (5, 25, 50, 75, 90, 95, 99)


def disagreements(posterior, seen, draws):
    """Value of the check for every spectrum."""
    spectra, target = (seen.flux, seen.error, seen.mask), posterior.names.index("C_O")
    alone = (Posterior([member]) for member in posterior.members)
    singly = [one.sample_batch(*spectra, n=draws, scale_known=seen.scale_known)[..., target] for one in alone]
    return np.array([seed_check(members).value for members in zip(*singly, strict=True)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+", metavar="FOLDER")
    parser.add_argument("--data", required=True)
    parser.add_argument("--n", type=int, default=512)
    parser.add_argument("--draws", type=int, default=399)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    posterior = Posterior.load(*given.networks)
    refuse_seen(posterior, given.data)
    found = disagreements(posterior, Shards(given.data, masks=True, seed=1).evaluation(given.n), given.draws)
    result = {f"percentile {p}": float(np.percentile(found, p)) for p in PERCENTILES}
    limits = zip(("not a pass", "fail"), THRESHOLDS["seed disagreement"], strict=True)
    result |= {name: float((found > limit).mean()) for name, limit in limits}
    print(json.dumps(result) if given.json else "\n".join(f"{k}: {v:.3g}" for k, v in result.items()))


if __name__ == "__main__":
    main()
