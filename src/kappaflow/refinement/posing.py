"""A fit put together: the data on the model's pixels, a density per combination of line lists, and where to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.observe.resampling import on_pixels
from kappaflow.observe.spectrum import Spectrum
from kappaflow.refinement.coordinates import Coordinates
from kappaflow.refinement.file_pixels import seen_by
from kappaflow.refinement.likelihood import Joint, ListedModel, Observation
from kappaflow.refinement.starts import candidates
from kappaflow.simulation.opacity_draws import SWAPPED, coefficient_sigma, combinations, sigma_table
from kappaflow.spectra import Box

__all__ = ["FitSettings", "Posed", "posed"]


@dataclass(frozen=True)
class FitSettings:
    """What is free, from how many starts, and the seed of those."""

    field: bool = True  # the opacity field; otherwise the lists are taken as they are
    structure: bool = True  # f, see `unmodelled.py`; otherwise 0
    starts: int = 8
    screened: int = 64  # draws among which they are chosen
    kept: int = 2  # starts that go on, with every combination of line lists
    steps: tuple[int, int, int] = (6, 10, 50)  # per easing, with every combination, and of the best at most
    tolerance: float = 0.02  # nats that the last step may still gain
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Posed:
    """All that a fit needs: the data on the model's pixels, a density per combination of line lists, and starts."""

    spectrum: Spectrum
    names: tuple[str, ...]
    species: tuple[str, ...]
    joints: tuple[tuple[Mapping[str, str], Joint], ...]
    theta: np.ndarray  # (n, D)
    seen: Any = None  # the forward model as the file's own pixels see it; None where they are the model's


def posed(
    spectrum: Spectrum,
    *,
    distance: float | None,
    lists: Mapping[str, str] | None,
    model: Any,
    posterior: Any,
    settings: FitSettings,
) -> Posed:
    """Put the data, the densities and the starts together; see `fit`."""
    networks, forward = _defaults(posterior, model)
    told = spectrum.meta.get("distance_pc")
    distance = distance if distance is not None else float(told) if isinstance(told, int | float) else None
    data = on_pixels(spectrum, forward.wavelength, distance)
    table, mixture = _opacities(networks, forward)
    sigma = table.ravel() if settings.field else np.zeros(table.size)
    box = Box.of(forward.parameters)
    radius = box.names.index("R")
    free = not data.meta["scale_known"]
    # The radius is a factor like the scale, and nothing else: it stays in the middle of its prior.
    held = (("R", float(np.mean([box.low[radius], box.high[radius]]))),) if free else ()
    coordinates = Coordinates(box, sigma, settings.structure, free, held=held)
    choices = [dict(lists)] if lists is not None else mixture
    observed = Observation.of(data)
    joints = tuple(
        (choice, Joint(observed, ListedModel(forward, tuple(forward.list_indices(choice).tolist())), coordinates))
        for choice in choices
    )
    theta = candidates(data, box, networks, n=settings.screened, seed=settings.seed)
    return Posed(data, box.names, forward.parameters.species, joints, theta, seen_by(forward, spectrum))


def _opacities(networks: Any, forward: Any) -> tuple[np.ndarray, list[dict[str, str]]]:
    """Return the coefficients' standard deviations and the combinations of line lists: those of the networks' training.

    The packaged ones where there are no networks, or they do not tell.
    """
    card = getattr(networks, "opacity", None)
    if card is None or len(card.sigma) != len(forward.parameters.species):
        table = sigma_table((), forward.parameters)
        return coefficient_sigma(table), [dict(c) for c in combinations(forward.names, SWAPPED)]
    return coefficient_sigma(np.array(card.sigma)), [dict(c) for c in card.combinations]


def _defaults(posterior: Any, model: Any) -> tuple[Any, Any]:
    """Networks, or None, and the forward model on their pixels."""
    if isinstance(posterior, str):
        from kappaflow.inference import Posterior

        if posterior != "packaged":
            raise UserError(f"posterior: {posterior!r}; expected `kappaflow.Posterior`, 'packaged' or None")
        posterior = Posterior.load()
    if model is None:
        from kappaflow.model.forward import ForwardModel

        card = None if posterior is None else posterior.members[0].card
        preset, parameters = ("laptop", "full") if card is None else (card.preset, card.parameters)
        model = ForwardModel.load(preset, parameters=parameters)
    return posterior, model
