"""The incremental sampler against zuko's `sample`: same weights, one spectrum, one core, the same run.

    python benchmarks/sampler.py [--draws 400] [--transforms 10] [--hidden 256] [--members 1] [--repeats 15] [--json]

The rivals take turns, so that whatever else the machine does falls on both; the speed-up is the ratio of medians.
"""

import argparse
import json
import statistics
import time

import torch
from zuko.flows import NSF

from kappaflow.inference import IncrementalSampler

CONTEXT = 129  # the paper's: an embedding of 128, and the SNR


def flows(transforms, hidden, members):
    torch.manual_seed(0)
    return [NSF(15, CONTEXT, transforms=transforms, hidden_features=(hidden, hidden)) for _ in range(members)]


def largest_difference(nets, sampler, draws):
    """Against zuko's inverse on the same noise, the largest over draws and parameters."""
    context, noise = torch.randn(len(nets), 1, CONTEXT), torch.randn(len(nets), 1, draws, 15)
    ours = sampler(context, noise)
    theirs = [net(c[0]).transform.inv(z[0]) for net, c, z in zip(nets, context, noise, strict=True)]
    return float((ours[:, 0] - torch.stack(theirs)).abs().max())


def race(rivals, repeats):
    """Median seconds of each rival; the first turn warms up and does not count."""
    times = {name: [] for name in rivals}
    for turn in range(repeats + 1):
        for name, run in rivals.items():
            start = time.perf_counter()
            run()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--transforms", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    nets = flows(given.transforms, given.hidden, given.members)
    sampler = IncrementalSampler(nets)
    context = torch.randn(given.members, 1, CONTEXT)

    def ours():
        sampler(context, torch.randn(given.members, 1, given.draws, 15))

    def zuko():
        for net, c in zip(nets, context, strict=True):
            net(c[0]).sample((given.draws,))

    with torch.no_grad():
        difference = largest_difference(nets, sampler, given.draws)
        seconds = race({"zuko": zuko, "kappaflow": ours}, given.repeats)
    result = {
        "draws": given.draws,
        "transforms": given.transforms,
        "hidden": [given.hidden] * 2,
        "members": given.members,
        "milliseconds": {name: round(1e3 * s, 2) for name, s in seconds.items()},
        "speedup": round(seconds["zuko"] / seconds["kappaflow"], 2),
        "largest_difference": difference,
        "target": 8,
    }
    print(json.dumps(result) if given.json else "\n".join(f"{k}: {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
