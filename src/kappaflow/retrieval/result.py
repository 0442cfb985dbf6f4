"""What a retrieval found: the draws, what they predict, the trust card; as numbers, as ArviZ, as files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kappaflow.inference.posterior import pooled
from kappaflow.observe.spectrum import Spectrum
from kappaflow.parameters import DRAWS, INDEX, NAMED
from kappaflow.refinement.refined import RefineSettings
from kappaflow.retrieval.derived import derived_rows
from kappaflow.retrieval.dial import DialCurve
from kappaflow.retrieval.exactness import Exactness
from kappaflow.retrieval.groups import drawn, each_network, observed
from kappaflow.retrieval.interior import Interior
from kappaflow.retrieval.predictive import Predictive
from kappaflow.retrieval.quantiles import KEYS, LEVELS, quantiles
from kappaflow.retrieval.trust import Check, Grade, worst
from kappaflow.spectra import Box

if TYPE_CHECKING:
    import arviz
    import xarray

__all__ = ["SCHEMA", "Failed", "Retrieval", "RetrievalSettings", "row_of"]

SCHEMA = "kappaflow-retrieval-1"  # of an object's summary.json


@dataclass(frozen=True)
class RetrievalSettings:
    """How many draws and predictions, the seed, where the dial stands, and whether the likelihood decides."""

    draws: int = DRAWS
    predicted: int = 400  # model spectra; each gives several null draws of the predictive check
    seed: int = 0
    amortized: bool = False  # the networks alone, in seconds; otherwise their draws are refined
    refine: RefineSettings = RefineSettings()  # how; draws and seed are those above
    line_lists: float = 1.0  # amplitude of line-list errors, for networks with a dial: 0 none, 1 the packaged prior

    @property
    def spectra(self) -> int:
        """Model spectra that are predicted: at most 200 of a quick look, most of whose cost they are."""
        return min(self.predicted, 200) if self.amortized else self.predicted


@dataclass(frozen=True)
class Failed:
    """An object that could not be retrieved, and why."""

    name: str
    error: str

    def summary(self) -> dict[str, Any]:
        """Plain data, for summary.json."""
        return {"name": self.name, "error": self.error}

    def row(self) -> dict[str, Any]:
        """One line of the table of many objects."""
        return {"name": self.name, "verdict": "error", "error": self.error}


@dataclass(frozen=True, eq=False)
class Retrieval:
    """One object: its spectrum on the networks' pixels, its posterior, and how far to trust it.

    `members` (M, n, D) are the draws of each network, D the parameters of `box`, `control` those of networks of fixed
    opacities, `envelope` what draws with varied opacities predict, `refined` what the likelihood says. `draws` are the
    refined ones where these are exact, else the networks'.

    Examples
    --------
    >>> result = kf.retrieve("x1d.fits", distance=5.7)  # doctest: +SKIP
    >>> result.summary()["parameters"]["C_O"]["q50"]  # doctest: +SKIP
    >>> result.save("result")  # doctest: +SKIP
    """

    spectrum: Spectrum
    box: Box
    members: np.ndarray
    control: np.ndarray | None
    envelope: Predictive | None
    checks: tuple[Check, ...]
    settings: RetrievalSettings = RetrievalSettings()
    name: str = "spectrum"
    provenance: Mapping[str, str] = field(default_factory=dict)  # what made the numbers
    dial: DialCurve | None = None  # C/O against the amplitude, of networks that are told it
    refined: Exactness | None = None  # None with --amortized, or where it was not possible
    derived: Mapping[str, np.ndarray] = field(default_factory=dict)  # name -> (n,), of `draws`: see `derived.py`
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)  # whom the tables stand on
    request: str = ""  # digest of all that was asked, so that a second run can tell whether this is its answer
    interior: Interior | None = None  # the atmosphere of `draws`; None without a forward model

    @property
    def source(self) -> Literal["refined", "networks"]:
        """Whose draws are the result: an unconverged refinement is none."""
        return "refined" if self.refined is not None and self.refined.converged else "networks"

    @property
    def draws(self) -> np.ndarray:
        """The posterior (n, D): refined where that converged, else the networks' pooled draws."""
        if self.refined is not None and self.refined.converged:
            return self.refined.marginal.draws
        return self.network_draws

    @property
    def network_draws(self) -> np.ndarray:
        """Pooled draws (n, D) of the networks."""
        return pooled(self.members, self.settings.draws)

    @property
    def one_list_draws(self) -> np.ndarray | None:
        """Exact draws (n, D) with the base line lists taken as they are, where there are any."""
        fixed = None if self.refined is None else self.refined.one_list
        return None if fixed is None else fixed.draws

    @property
    def control_draws(self) -> np.ndarray | None:
        """Pooled draws of the control networks, where there are any."""
        return None if self.control is None else pooled(self.control, self.settings.draws)

    @property
    def title(self) -> str:
        """The target's name where the file states one, else the file's."""
        target = self.spectrum.meta.get("target")
        return target if isinstance(target, str) and target else self.name

    @property
    def verdict(self) -> Grade:
        """The worst grade of the trust card."""
        return worst(self.checks)

    @property
    def quantiles(self) -> np.ndarray:
        """Quantiles (5, D) of the draws at LEVELS."""
        return quantiles(self.draws)

    @property
    def control_c_to_o(self) -> np.ndarray | None:
        """Quantiles (5,) of the control's C/O at LEVELS."""
        return None if self.control_draws is None else quantiles(self.control_draws[:, INDEX["C_O"]])

    def parameters(self) -> list[dict[str, Any]]:
        """One row per parameter: name, unit, quantiles, width of the 90 % interval over the prior's.

        Where the draws are refined, also the quantiles of the networks.
        """
        table = self.quantiles
        others = quantiles(self.network_draws) if self.source == "refined" else np.empty((0, len(self.box)))
        networks = [f"network_{q}" for q in KEYS][: len(others)]
        return [
            {"parameter": name, "unit": NAMED[name].unit}
            | dict(zip(KEYS, map(float, table[:, i]), strict=True))
            | {"width_over_prior": float((table[4, i] - table[0, i]) / (0.9 * self.box.widths[i]))}
            | dict(zip(networks, map(float, others[:, i]), strict=True))
            for i, name in enumerate(self.box.names)
        ]

    def c_to_o(self) -> dict[str, list[float]]:
        """Quantiles of C/O at LEVELS by whatever gives one: refined, one line list, networks, control networks."""
        refined = self.draws if self.source == "refined" else None
        every = {"refined": refined, "one line list": self.one_list_draws, "networks": self.network_draws}
        every["control networks"] = self.control_draws
        return {k: quantiles(v[:, INDEX["C_O"]]).tolist() for k, v in every.items() if v is not None}

    def derived_quantities(self) -> list[dict[str, Any]]:
        """One row per derived quantity: name, unit, quantiles, how it was found."""
        return derived_rows(self.derived, lambda draws: dict(zip(KEYS, quantiles(draws).tolist(), strict=True)))

    def summary(self) -> dict[str, Any]:
        """Plain data: parameters, trust card, the spectrum's own facts, and what made the numbers."""
        control = self.control_c_to_o
        rows, more = self.parameters(), self.derived_quantities()
        return {
            "schema": SCHEMA,
            "name": self.name,
            "title": self.title,
            "verdict": self.verdict,
            "trust": [check.as_dict() for check in self.checks],
            "parameters": {row.pop("parameter"): row for row in rows},
            "derived": {row.pop("parameter"): row for row in more},
            "control_c_to_o": None if control is None else control.tolist(),
            "levels": list(LEVELS),
            "source": self.source,
            "c_to_o": self.c_to_o(),
            "refinement": None if self.refined is None else self.refined.summary(),
            "snr": self.spectrum.snr,
            "covered_fraction": float(self.spectrum.mask.mean()),
            "draws": len(self.draws),
            "predicted": self.envelope is not None,
            "line_lists": self.settings.line_lists,
            "dial": None if self.dial is None else self.dial.as_dict(),
            "spectrum": {k: list(v) if isinstance(v, tuple) else v for k, v in self.spectrum.meta.items()},
            "priors": {n: [lo, hi] for n, lo, hi in zip(self.box.names, self.box.low, self.box.high, strict=True)},
            "provenance": dict(self.provenance),
            "request": self.request,
            "sources": {what: list(cited) for what, cited in self.sources.items()},
        }

    def row(self) -> dict[str, Any]:
        """One line of the table of many objects."""
        return row_of(self.summary())

    def datasets(self) -> dict[str, xarray.Dataset]:
        """ArviZ's groups: posterior (one chain, with what was derived), networks; one_list, control where there are."""
        names, one_list = self.box.names, self.one_list_draws
        told = {**self.provenance, "source": self.source}
        groups = {
            "posterior": drawn(self.draws, names, self.derived).assign_attrs(told),
            **observed(self.spectrum),
            "networks": each_network(self.members, names),
        }
        groups |= {} if one_list is None else {"one_list": drawn(one_list, names)}
        return groups if self.control is None else groups | {"control": each_network(self.control, names)}

    def to_arviz(self) -> arviz.InferenceData:
        """Return ArviZ's InferenceData, the same as in posterior.nc."""
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # arviz announces its next version once a day
            import arviz

        return arviz.InferenceData(**self.datasets())  # pyright: ignore[reportArgumentType]

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write posterior.nc, summary.json, summary.csv, figures and report.html; return the report's path."""
        from kappaflow.report.files import write_object, write_page

        folder = Path(folder)
        return write_page([(write_object(self, folder), folder)], folder / "report.html")


def row_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """One line of the table of many objects, from an object's summary."""
    row = {key: summary[key] for key in ("name", "verdict", "snr", "covered_fraction")}
    row |= {f"C_O_{q}": summary["parameters"]["C_O"][q] for q in KEYS}
    row["source"] = summary.get("source", "networks")
    others = {"one line list": "one_list", "networks": "network"} if row["source"] == "refined" else {}
    for kind, short in others.items():
        if kind in summary["c_to_o"]:
            row |= {f"{short}_C_O_{q}": v for q, v in zip(KEYS, summary["c_to_o"][kind], strict=True)}
    if summary["control_c_to_o"] is not None:
        row |= {f"control_C_O_{q}": value for q, value in zip(KEYS, summary["control_c_to_o"], strict=True)}
    return row | ({"error": summary["error"]} if "error" in summary else {})
