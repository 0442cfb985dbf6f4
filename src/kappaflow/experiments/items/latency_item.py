"""How long 400 draws take on one core: zuko's sampler, and ours on the same weights."""

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from kappaflow.experiments.cells import cell, table
from kappaflow.experiments.item import Found, Item, Library
from kappaflow.experiments.published import published
from kappaflow.experiments.sizes import Sizes
from kappaflow.experiments.steps import Step
from kappaflow.experiments.study import Study
from kappaflow.inference import Checkpoint, Posterior
from kappaflow.inference.network import Estimator
from kappaflow.inference.recipes import recipe
from kappaflow.observe.example import example_spectrum
from kappaflow.observe.resampling import on_pixels
from kappaflow.plots import PALETTE, style
from kappaflow.presets import preset
from kappaflow.spectra import Spectra

__all__ = ["ITEM"]

DRAWS = 400


class Latency(Item):
    """One spectrum, one core."""

    name, order = "latency", 14
    title = "Time per posterior"
    about = (
        f"{DRAWS} draws for the packaged JWST spectrum on one thread, embedding included, median of repeats taken in "
        "turns: zuko's own inverse, one full pass per parameter, and ours, the same weights and one pass's worth of "
        "work. The paper: appendix."
    )

    def needs(self, study: Study) -> Sequence[Step]:
        """Return the marginalized networks."""
        return [study.network("marginalized", seed) for seed in range(study.pooled("marginalized"))]

    def compute(self, study: Study, library: Library) -> Found:
        """Time networks of this study, one and pooled, and one of the paper's size."""
        networks = [study.network("marginalized", seed) for seed in range(study.pooled("marginalized"))]
        one, several = library.posterior(networks[0]), library.posterior(*networks)
        cases = {
            "one network of this study": (one, "one network"),
            f"{len(networks)} networks of this study": (several, "three networks" if len(networks) == 3 else ""),
            "one of the paper's size, untrained": (_paper_sized(one), "one network"),
        }
        rows, drawn = [], {}
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            for name, (posterior, paper) in cases.items():
                seconds = _race(posterior, study.sizes)
                theirs = published("latency", paper, "seconds")
                cells = [
                    cell(seconds["kappaflow"], None, theirs, digits=3),
                    cell(seconds["zuko"], digits=3),
                    cell(seconds["zuko"] / seconds["kappaflow"], digits=1),
                ]
                rows.append((name, cells))
                drawn[name] = {**seconds, "paper": theirs}
        finally:
            torch.set_num_threads(threads)
        columns = ["ours [s]", "zuko [s]", "times faster"]
        note = f"On {platform.machine()}, {platform.system()}; the paper's on one core of an i5-13600K."
        return Found([table(f"{DRAWS} draws for one spectrum, one thread", columns, rows, note)], drawn)

    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw the times side by side."""
        with style():
            figure = Figure(figsize=(7.4, 0.8 * len(drawn) + 1.2), layout="constrained")
            axes = figure.subplots()
            y = np.arange(len(drawn))
            for k, name in enumerate(("kappaflow", "zuko")):
                times = [one[name] for one in drawn.values()]
                axes.barh(y + 0.36 * (k - 0.5), times, 0.34, color=PALETTE[k], alpha=0.75, label=name)
            paper = [np.nan if one["paper"] is None else one["paper"] for one in drawn.values()]
            axes.plot(paper, y, "D", ms=6, mfc="none", mec="black", label="the paper's (its own machine)")
            axes.set_yticks(y, list(drawn))
            axes.invert_yaxis()
            axes.set(xscale="log", xlabel=f"seconds for {DRAWS} draws")
            axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.25), ncols=3)
        return figure


def _paper_sized(like: Posterior) -> Posterior:
    """Return a network of the paper's recipe and size on the same pixels, for its time, not its draws."""
    card = like.members[0].card
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        estimator = Estimator(recipe("paper", preset("paper").network), len(card.wavelength), len(card.box))
    return Posterior([Checkpoint(estimator.eval(), card, 0)])


def _race(posterior: Posterior, sizes: Sizes) -> dict[str, float]:
    """Median seconds of both samplers, taking turns; the first turn warms up."""
    spectrum = on_pixels(example_spectrum(), posterior.wavelength, None)
    rows = (spectrum.flux[None], spectrum.error[None], spectrum.mask[None])
    seen = Spectra.checked(*rows, False, len(posterior.wavelength))
    each = -(-DRAWS // len(posterior.members))

    @torch.no_grad()
    def zuko() -> None:
        for network in (member.estimator for member in posterior.members):
            context = network.context(network.features.prepare(seen))
            network.flow.nsf(context[0]).sample((each,))

    rivals: dict[str, Callable[[], Any]] = {"zuko": zuko, "kappaflow": lambda: posterior.sample(spectrum, DRAWS)}
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(sizes.repeats + 1):
        for name, run in rivals.items():
            start = time.perf_counter()
            run()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


ITEM = Latency()
