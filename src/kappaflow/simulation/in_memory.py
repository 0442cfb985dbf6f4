"""Spectra in memory: the table that `kappaflow.simulate(n=...)` returns."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.simulation.config import SpectraConfig, load_model, make_config, plan_shards
from kappaflow.simulation.prior import SHARD_SIZE
from kappaflow.simulation.shard import draw_shard
from kappaflow.spectra import Forward

__all__ = ["SimulatedTable", "simulate"]


@dataclass(frozen=True)
class SimulatedTable:
    """Noise-free spectra with everything that made them, `n` rows.

    `model(t.theta, t.field, t.lists)` is `t.flux` where the half-widths are the table's own.
    """

    theta: np.ndarray  # (n, D)
    field: np.ndarray  # (n, species * c), coefficients; all zero where the smooth field is off
    lists: np.ndarray  # (n, species), which line list of each species
    amplitude: np.ndarray  # (n,), of the field
    broadening: np.ndarray  # (n, 2), half-width scale and exponent shift
    combination: np.ndarray  # (n,), index into `combinations`
    snr: np.ndarray  # (n,)
    flux: np.ndarray  # (n, p)
    wavelength: np.ndarray  # (p,), um
    combinations: tuple[dict[str, str], ...]  # species -> line list
    names: tuple[str, ...]  # of `columns`

    def __len__(self) -> int:
        return len(self.theta)

    @property
    def columns(self) -> np.ndarray:
        """The parameter table, in the order of `names`: theta, field, combination, SNR."""
        return np.column_stack([self.theta, self.field, self.combination, self.snr])


def simulate(
    n: int = 1024,
    *,
    seed: int = 0,
    opacity: str | Path | None = None,
    load: Callable[[SpectraConfig], Forward] | None = None,
    **config: Any,
) -> SimulatedTable:
    """Simulate `n` noise-free spectra and return them: the first `n` rows that a directory of the same config holds.

    Parameters
    ----------
    n : number of spectra
    seed : of the draws; the same seed gives the same parameters whatever the opacities
    opacity : file of an opacity table made by `kappaflow opacity build`; the packaged one by default
    load : makes the forward model in place of the packaged one
    config : preset, parameters, sequence, perturb, amplitude, axes, sigma, pin, exclude, broadening, cia, as on the
        command line

    Examples
    --------
    >>> import kappaflow as kf
    >>> table = kf.simulate(n=4, perturb="none", model="toy")
    >>> table.theta.shape, table.field.shape, bool(table.field.any())
    ((4, 15), (4, 54), False)
    """
    if n < 1:
        raise UserError(f"n: {n}; expected at least 1 spectrum")
    settings = make_config(**config)
    model = (load or partial(load_model, opacity=opacity))(settings)
    plan = plan_shards(settings, seed, model)
    shards = [draw_shard(plan, model, i) for i in range(-(-n // SHARD_SIZE))]

    def rows(name: str) -> np.ndarray:
        return np.concatenate([getattr(shard, name) for shard in shards])[:n]

    chosen = [dict(choice) for choice in plan.combinations]
    index = np.array([[model.names[s].index(c.get(s, model.names[s][0])) for s in model.names] for c in chosen])
    return SimulatedTable(
        theta=rows("theta"),
        field=rows("field"),
        lists=index[rows("combination")],
        amplitude=rows("amplitude"),
        broadening=rows("broadening"),
        combination=rows("combination"),
        snr=rows("snr"),
        flux=rows("flux"),
        wavelength=shards[0].wavelength,
        combinations=tuple(chosen),
        names=plan.parameters.columns,
    )
