"""A retrieval as ArviZ's groups: one chain of independent draws, and the networks on an axis of their own.

Draws of networks are no Markov chains: that two of them differ says nothing of convergence, and no R-hat should be made
of it. So `posterior` has one chain, and what each network drew is the group `networks`, on the axis `network`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kappaflow.parameters import NAMED
from kappaflow.retrieval.derived import QUANTITIES

if TYPE_CHECKING:
    import xarray

    from kappaflow.observe.spectrum import Spectrum

__all__ = ["drawn", "each_network", "observed"]


def drawn(draws: np.ndarray, names: Sequence[str], derived: Mapping[str, np.ndarray] | None = None) -> xarray.Dataset:
    """Return draws (n, D) as one chain, with what was derived from them, name -> (n,)."""
    import xarray as xr

    axes = ("chain", "draw")
    columns = {name: (axes, draws[None, :, i], {"units": NAMED[name].unit}) for i, name in enumerate(names)}
    for name, values in (derived or {}).items():
        quantity = QUANTITIES[name]
        columns[name] = (axes, values[None], {"units": quantity.unit, "derived": quantity.how})
    return xr.Dataset(columns, {"chain": [0], "draw": np.arange(len(draws))})


def each_network(members: np.ndarray, names: Sequence[str]) -> xarray.Dataset:
    """Return the draws (M, n, D) of M networks on the axes network and sample."""
    import xarray as xr

    axes = ("network", "sample")
    columns = {name: (axes, members[..., i], {"units": NAMED[name].unit}) for i, name in enumerate(names)}
    return xr.Dataset(columns, {"network": np.arange(members.shape[0]), "sample": np.arange(members.shape[1])})


def observed(spectrum: Spectrum) -> dict[str, xarray.Dataset]:
    """Return observed_data and constant_data: flux, error [mJy] and mask on the pixels [um]; masked ones are NaN."""
    import xarray as xr

    axis = ("wavelength",)
    pixels = {"wavelength": (axis, spectrum.wavelength, {"units": "um"})}
    flux, error = (np.where(spectrum.mask, a, np.nan) for a in (spectrum.flux, spectrum.error))
    constant = {"error": (axis, error, {"units": "mJy"}), "mask": (axis, spectrum.mask.astype(np.int8))}
    return {
        "observed_data": xr.Dataset({"flux": (axis, flux, {"units": "mJy"})}, pixels),
        "constant_data": xr.Dataset(constant, pixels),
    }
