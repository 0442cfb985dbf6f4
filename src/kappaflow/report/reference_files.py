"""What `kappaflow reference` leaves behind: posterior.nc in ArviZ's layout, and summary.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kappaflow.parameters import NAMED
from kappaflow.refinement.long_chains import SCHEMA, Reference
from kappaflow.retrieval.quantiles import KEYS, quantiles
from kappaflow.storage import write_json, written_whole

if TYPE_CHECKING:
    import xarray

__all__ = ["reference_summary", "write_reference"]


def reference_summary(found: Reference, name: str, truth: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Plain data of one run; `truth` where the spectrum is a simulated one."""
    settings = found.settings
    rows = zip(found.lists, found.evidence.tolist(), found.weights.tolist(), found.quality, strict=True)
    return {
        "schema": SCHEMA,
        "name": name,
        "target": found.problem.spectrum.meta.get("target"),
        "opacity": settings.opacity,
        "converged": found.converged,
        "shortcomings": list(found.shortcomings),
        "chains": settings.chains,
        "warmup": settings.warmup,
        "samples": settings.samples,
        "seed": settings.seed,
        "snr": found.problem.spectrum.snr,
        "parameters": {
            p: {"unit": NAMED[p].unit, **dict(zip(KEYS, column, strict=True))}
            for p, column in zip(found.names, quantiles(found.draws).T.tolist(), strict=True)
        },
        "combinations": [
            {"lists": dict(lists), "ln_evidence": e, "weight": w, **asdict(quality)} for lists, e, w, quality in rows
        ],
        "forces": found.forces,
        "chain_seconds": found.seconds,
        "truth": truth,
        "files": ["posterior.nc", "summary.json"],
    }


def datasets(found: Reference, truth: Mapping[str, Any] | None = None) -> dict[str, xarray.Dataset]:
    """ArviZ's groups: posterior, sample_stats, observed_data, constant_data and, of a simulated spectrum, truth."""
    import xarray as xr

    axes, chains, n = ("chain", "draw"), *found.theta.shape[:2]
    columns: dict[str, Any] = {
        name: (axes, found.theta[..., i], {"units": NAMED[name].unit}) for i, name in enumerate(found.names)
    }
    columns |= {
        "f": (axes, found.f),
        "gains": ((*axes, "detector"), found.gains),
        "combination": (axes, found.combination, {"lists": json.dumps([dict(one) for one in found.lists])}),
    }
    if found.field is not None:
        columns["field"] = ((*axes, "coefficient"), found.field)
    rows = (found.combination, np.arange(chains)[:, None], np.arange(n)[None])
    stats = {
        name: (axes, np.array([[getattr(c, own)[:n] for c in some] for some in found.walked])[rows])
        for name, own in (("n_steps", "steps"), ("acceptance_rate", "accepted"), ("diverging", "diverging"))
    }
    draws = {"chain": np.arange(chains), "draw": np.arange(n)}
    data, axis = found.problem.spectrum, ("wavelength",)
    pixels = {"wavelength": (axis, data.wavelength, {"units": "um"})}
    flux, error = (np.where(data.mask, a, np.nan) for a in (data.flux, data.error))
    constant = {"error": (axis, error, {"units": "mJy"}), "mask": (axis, data.mask.astype(np.int8))}
    groups = {
        "posterior": xr.Dataset(columns, draws).assign_attrs(opacity=found.settings.opacity, seed=found.settings.seed),
        "sample_stats": xr.Dataset(stats, draws),
        "observed_data": xr.Dataset({"flux": (axis, flux, {"units": "mJy"})}, pixels),
        "constant_data": xr.Dataset(constant, pixels),
    }
    if truth is not None:
        values = {name: ((), value) for name, value in zip(found.names, truth["theta"], strict=True)}
        groups["truth"] = xr.Dataset({**values, "field": (("coefficient",), np.array(truth["field"]))}).assign_attrs(
            lists=json.dumps(truth["lists"]), amplitude=truth["amplitude"], row=truth["row"]
        )
    return groups


def write_reference(
    found: Reference, folder: Path, name: str, truth: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Write posterior.nc and, last, summary.json into `folder`; return what the second holds."""
    write_groups(datasets(found, truth), folder / "posterior.nc")
    summary = reference_summary(found, name, truth)
    write_json(folder / "summary.json", summary)
    return summary


def write_groups(groups: Mapping[str, xarray.Dataset], path: Path) -> None:
    """Write ArviZ's groups as netCDF.

    With xarray: importing arviz takes seconds and leaves a stamp in the user's cache folder.
    """
    with written_whole(path) as part:
        for i, (name, data) in enumerate(groups.items()):
            data.to_netcdf(part, mode="a" if i else "w", group=name, engine="h5netcdf")
