"""Spectra at scale: prior and opacity draws, shards that cannot be lost, and the batches read from them."""

from kappaflow.simulation.config import SpectraConfig, make_config
from kappaflow.simulation.in_memory import SimulatedTable, simulate
from kappaflow.simulation.reader import Shards
from kappaflow.simulation.run import simulate_directory
from kappaflow.simulation.shard import read_shard

__all__ = [
    "SpectraConfig",
    "Shards",
    "SimulatedTable",
    "make_config",
    "read_shard",
    "simulate",
    "simulate_directory",
]
