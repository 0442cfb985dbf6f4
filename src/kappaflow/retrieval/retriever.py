"""`kf.retrieve`: files or a spectrum in, a posterior with its trust card out; networks and model are found here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Unpack

from kappaflow.errors import UserError
from kappaflow.inference.posterior import Posterior
from kappaflow.observe.distances import as_distance, stated_distance
from kappaflow.observe.read import Hint, read_spectrum
from kappaflow.observe.resampling import on_pixels
from kappaflow.observe.spectrum import Spectrum
from kappaflow.observe.targets import name_objects
from kappaflow.parameters import INDEX
from kappaflow.retrieval.derived import derive
from kappaflow.retrieval.dial import c_to_o_by_dial, turned
from kappaflow.retrieval.distance_error import with_distance_error
from kappaflow.retrieval.interior import columns_of, interior
from kappaflow.retrieval.pipeline import retrieve_spectrum
from kappaflow.retrieval.result import Retrieval, RetrievalSettings
from kappaflow.spectra import Forward, same_pixels
from kappaflow.tables.cited import cited_sources
from kappaflow.tables.table_names import recorded_table, table_name

__all__ = ["Retriever", "forward_for", "retrieve"]

File = str | os.PathLike[str]


@dataclass(frozen=True)
class Retriever:
    """All that is the same for every object: networks, control, opacity table and settings; made by `load`."""

    posterior: Posterior
    control: Posterior | None = None
    opacity: File | None = None
    settings: RetrievalSettings = RetrievalSettings()

    @classmethod
    def load(
        cls,
        model: File | Sequence[File] | Posterior = (),
        control: File | Sequence[File] | Posterior = (),
        *,
        opacity: File | None = None,
        settings: RetrievalSettings = RetrievalSettings(),  # noqa: B008 (frozen)
    ) -> Retriever:
        """Load networks, the packaged ones by default, and refuse what does not belong together.

        Parameters
        ----------
        model, control
            Networks trained with varied and with fixed opacities: files, folders of `kappaflow train`, or loaded. No
            control by default (what line lists do to the error bar is the likelihood's to say); networks with a dial
            are their own, at 0.
        opacity
            The opacity table that the networks were trained with, where it is not the packaged one.
        settings
            Sizes and seed.
        """
        posterior = _loaded(model) or Posterior.load()
        others = _loaded(control)
        if others is not None:
            posterior.refuse_other_table(others.opacity, "--control")
            if others.box != posterior.box or not same_pixels(others.wavelength, posterior.wavelength):
                raise UserError(
                    "--control: networks of other parameters, priors or pixels than --model; give a control trained "
                    "like them, on `kappaflow simulate --perturb none`"
                )
        refuse_other_table(posterior, opacity)
        try:
            return cls(*turned(posterior, others, settings.line_lists), opacity, settings)
        except UserError as error:
            raise UserError(f"--line-lists: {error}") from None

    @cached_property
    def forward(self) -> Forward | str:
        """The forward model on the networks' pixels, or a sentence that says why there is none."""
        return forward_for(self.posterior, self.opacity)

    @cached_property
    def sources(self) -> dict[str, list[str]]:
        """Whom the line lists, the chemistry and the CIA stand on, as their tables say."""
        table = recorded_table(self.posterior.opacity)
        card = self.posterior.opacity
        used = [{}] if card is None else card.combinations
        lists = {
            species: list(dict.fromkeys([names[0], *(one[species] for one in used if species in one)]))
            for species, names in table.lists.items()
            if card is None or species in card.lists
        }
        return cited_sources(self.opacity, lists, table.cia)

    def __call__(self, native: Spectrum, distance: float | tuple[float, float] | None = None) -> Retrieval:
        """Retrieve one spectrum; `distance` in pc (or with its error), else what the file states, else unknown."""
        known = as_distance(distance) or stated_distance(native.meta)
        pc, settings = None if known is None else known.pc, self.settings
        seen = on_pixels(native, self.posterior.wavelength, pc)
        with ThreadPoolExecutor(1) as beside:  # torch here and JAX there leave Python's lock to each other
            curve = beside.submit(c_to_o_by_dial, self.posterior, seen, draws=settings.draws, seed=settings.seed)
            found = retrieve_spectrum(
                native, self.posterior, control=self.control, model=self.forward, distance=pc, settings=settings
            )
        return self._described(found, with_distance_error(replace(found, dial=curve.result()), known))

    def _described(self, found: Retrieval, wide: Retrieval) -> Retrieval:
        """Add what follows from the draws: derived quantities and the atmosphere; `wide` has the distance's error."""
        stretch = wide.draws[:, INDEX["R"]] / found.draws[:, INDEX["R"]]
        model = self.forward
        fits = not isinstance(model, str) and same_pixels(model.wavelength, self.posterior.wavelength)
        columns = columns_of(model, found.draws) if fits else None
        best = None if found.refined is None or found.source != "refined" else found.refined.marginal.best
        shown = None if best is None else (best.theta, best.field, best.lists)
        inside = interior(model, found.draws, columns, shown)
        return replace(wide, derived=derive(wide, columns, stretch), interior=inside, sources=self.sources)


def _loaded(networks: File | Sequence[File] | Posterior) -> Posterior | None:
    if isinstance(networks, Posterior):
        return networks
    paths = (networks,) if isinstance(networks, str | os.PathLike) else tuple(networks)
    return Posterior.load(*paths) if paths else None


def refuse_other_table(posterior: Posterior, opacity: File | None) -> None:
    """Refuse an opacity table, given or packaged, that is not the one the networks were trained with."""
    needed, there = recorded_table(posterior.opacity), table_name(opacity)
    if needed.digest == there.digest:
        return
    where = "the packaged one is" if opacity is None else f"--opacity {opacity} is"
    raise UserError(
        f"retrieve: the networks were trained with opacity table {needed}; {where} {there}: give theirs with --opacity "
        "FILE"
    )


def forward_for(posterior: Posterior, opacity: File | None = None) -> Forward | str:
    """Load the forward model on the networks' pixels, with their opacities, or say in a sentence why there is none."""
    card = posterior.members[0].card
    try:
        from kappaflow.model.forward import ForwardModel

        cia = recorded_table(card.opacity).cia
        return ForwardModel.load(card.preset, opacity=opacity, cia=cia, parameters=card.parameters)
    except UserError as error:
        return f"no forward model ({error})"


def retrieve(
    *source: File | Spectrum,
    distance: float | tuple[float, float] | None = None,
    model: File | Sequence[File] | Posterior | Retriever = (),
    opacity: File | None = None,
    settings: RetrievalSettings = RetrievalSettings(),  # noqa: B008 (frozen)
    **hints: Unpack[Hint],
) -> Retrieval:
    """Retrieve one object: mask outliers, resample, scale to 10 pc, sample the networks, refine, fill in the card.

    Parameters
    ----------
    *source
        Files of one object (several are merged), or a `Spectrum`.
    distance
        In pc, or with its error, (5.71, 0.06), which widens R; else the file's own `distance_pc`. Without any, the flux
        scale is not used and R stays at its prior.
    model, opacity, settings
        See `Retriever.load`; the packaged networks and table by default. For many objects `model` is a `Retriever`,
        which has the other two. `settings=kf.RetrievalSettings(amortized=True)` leaves the refinement out.
    **hints
        See `read_spectrum`, for files that do not say all.

    Examples
    --------
    >>> result = kf.retrieve("x1d.fits", distance=5.7)  # doctest: +SKIP
    >>> result.draws.shape, result.verdict  # doctest: +SKIP
    ((2000, 17), 'warn')
    """
    spectra = [one for one in source if isinstance(one, Spectrum)]
    if spectra and (len(source) > 1 or hints):
        raise UserError("retrieve: a Spectrum stands alone; expected one Spectrum, or files and how to read them")
    as_distance(distance)  # refused before anything is loaded
    files = [Path(one) for one in source if not isinstance(one, Spectrum)]
    native = spectra[0] if spectra else read_spectrum(*files, **hints)
    name = name_objects([files])[0][0] if files else "spectrum"
    with_these = model if isinstance(model, Retriever) else Retriever.load(model, opacity=opacity, settings=settings)
    return replace(with_these(native, distance), name=name)
