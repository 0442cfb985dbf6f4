"""What an item is, and what it hands on: plain data that decide its table, its figure and its place on the page."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from kappaflow.errors import UserError
from kappaflow.experiments.measures import Measured
from kappaflow.experiments.steps import Drawn, Step, TrainedNetwork
from kappaflow.experiments.store import StepStore
from kappaflow.experiments.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kappaflow.inference import Posterior

__all__ = ["Found", "Item", "Library", "claim", "items", "items_named"]


@dataclass(frozen=True)
class Found:
    """What an item found, ready for JSON."""

    tables: Sequence[dict[str, Any]]  # of `cells.table`
    drawn: dict[str, Any]  # what the figure is drawn from
    claims: Sequence[dict[str, Any]] = ()  # of `claim`
    notes: Sequence[str] = field(default=())


def claim(text: str, ours: float | None, met: bool, target: str) -> dict[str, Any]:
    """Return a statement that a number is to meet, whether it does or not."""
    return {"claim": text, "ours": ours, "target": target, "met": bool(met)}


class Library:
    """The finished steps, as items read them."""

    def __init__(self, store: StepStore) -> None:
        self._store = store
        self._kept: dict[tuple[str, ...], Measured] = {}

    def measured(self, steps: Sequence[Drawn]) -> Measured:
        """Return what networks, pooled, say of one test set; the last few are kept."""
        key = tuple(step.key for step in steps)
        if key not in self._kept:
            told = self._store.read_draws(*steps)
            self._kept = dict(list(self._kept.items())[-3:])  # draws are large
            self._kept[key] = Measured(told.draws, told.snr, told.log_prob)
        return self._kept[key]

    def good_share(self, steps: Sequence[Drawn]) -> float:
        """Return the median share of good pixels that was shown."""
        import numpy as np

        return float(np.median(self._store.read_draws(steps[0]).good))

    def posterior(self, *networks: TrainedNetwork) -> Posterior:
        """Return networks, pooled."""
        from kappaflow.inference import Posterior

        return Posterior.load(*(self._store.path(network) for network in networks))


class Item(ABC):
    """One table or figure of the paper."""

    name: ClassVar[str]
    order: ClassVar[int]  # of the items on the page
    title: ClassVar[str]
    reads_files: ClassVar[bool] = False  # does it look at real spectra itself?
    about: ClassVar[str]  # one or two sentences: what is compared, and where the paper has it

    @abstractmethod
    def needs(self, study: Study) -> Sequence[Step]:
        """Return the steps to be made first."""

    @abstractmethod
    def compute(self, study: Study, library: Library) -> Found:
        """Return what was found."""

    @abstractmethod
    def figure(self, drawn: dict[str, Any]) -> Figure:
        """Draw `Found.drawn`."""


@cache
def items() -> dict[str, Item]:
    """Return every item by name, in the order of the page: one of each module of `items`."""
    from kappaflow.experiments import items as folder

    names = [found.name for found in pkgutil.iter_modules(folder.__path__)]
    modules = [importlib.import_module(f"{folder.__name__}.{name}") for name in names]
    return {item.name: item for item in sorted((m.ITEM for m in modules), key=lambda item: item.order)}


def items_named(names: Sequence[str]) -> list[Item]:
    """Return the items that a user asks for, in the order of the page; "all", or none, is every one."""
    known = items()
    for name in names:
        if name not in known and name != "all":
            raise UserError(f"paper: no item {name!r}; expected all, or any of {', '.join(known)}")
    wanted = set(known) if not names or "all" in names else set(names)
    return [item for name, item in known.items() if name in wanted]
