"""Spectra at scale: prior and opacity draws, shards that cannot be lost, and the batches read from them.

The package is callable: `kappaflow.simulate(n=1024, perturb="both", seed=0)` returns a `Table` in memory.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from kappaflow.simulate.noise import median_snr
from kappaflow.simulate.reader import Observed, Shards
from kappaflow.simulate.recipe import Recipe, make_recipe
from kappaflow.simulate.run import simulate_directory
from kappaflow.simulate.shard import COLUMNS, read_shard
from kappaflow.simulate.table import Table, simulate_table

__all__ = [
    "COLUMNS",
    "Observed",
    "Recipe",
    "Shards",
    "Table",
    "make_recipe",
    "median_snr",
    "read_shard",
    "simulate",
    "simulate_directory",
    "simulate_table",
]


class _CallablePackage(ModuleType):
    """The package under the name of its main function: importing a subpackage binds its name, whoever asks first."""

    def __call__(self, n: int = 1024, **options: Any) -> Table:
        """See `simulate_table`."""
        return simulate_table(n, **options)


sys.modules[__name__].__class__ = _CallablePackage
simulate = sys.modules[__name__]  # what `kappaflow.simulate` resolves to, lazily or not
