"""The public forward model: prepared tables and checked parameters in, spectra out; NumPy on both sides."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from kappaflow.errors import UserError
from kappaflow.instrument import pixel_grid
from kappaflow.model.arrays import PreparedArrays, on_device
from kappaflow.model.cache import cached, prepared_key
from kappaflow.parameters import ParameterSet, parameter_set
from kappaflow.physics.emission import Tables, clamped_layers, spectra
from kappaflow.presets import Preset
from kappaflow.presets import preset as preset_named
from kappaflow.storage import digest
from kappaflow.tables.chemistry import load_chemistry
from kappaflow.tables.cia import load_cia
from kappaflow.tables.opacity import OpacityTable, load_opacity

__all__ = ["ForwardModel"]

CHUNK = 64  # spectra computed together: enough to reuse the table, few enough to stay in cache
SIZES = (1, 8, CHUNK)  # batch sizes that are compiled; others are padded to the next

Lists = Mapping[str, str] | Sequence[int] | np.ndarray | None


@dataclass(frozen=True)
class ForwardModel:
    """Parameters to a noise-free JWST/NIRSpec G395H spectrum.

    Fluxes are flux densities in mJy at 10 pc: multiply by (10 pc / d)^2 for another distance.

    Examples
    --------
    >>> model = ForwardModel.load("tiny")
    >>> flux = model([300, 500, 900, 1500, 2500, 0.55, 0, 8, 5, 1, 3, 2, 0, 5, 0])
    >>> flux.shape == model.wavelength.shape
    True
    """

    tables: Tables
    names: Mapping[str, tuple[str, ...]]  # species -> its line lists, the base first
    wavelength: np.ndarray  # um, centres of the pixels
    meta: Mapping[str, Any]
    parameters: ParameterSet  # what theta, the species and their coefficients are
    threads: int = os.cpu_count() or 1  # chunks computed at once
    load_broadened: Callable[..., ForwardModel] | None = None  # loads the same with other half-widths

    @classmethod
    def load(
        cls,
        preset: str | Preset = "laptop",
        *,
        opacity: OpacityTable | str | os.PathLike[str] | None = None,
        broadening: tuple[float, float] = (1.0, 0.0),
        cia: str = "borysow",
        parameters: str = "paper",
    ) -> ForwardModel:
        """Read the packaged tables and prepare them for the sizes of `preset`.

        Parameters
        ----------
        preset
            Name of a preset, or a preset.
        opacity
            An opacity table or the path of one; the packaged table if None.
        broadening
            (scale, shift): every Lorentz half-width times `scale`, every temperature exponent plus `shift`.
        cia
            Family of the collision-induced absorption.
        parameters
            Name of the parameter set, `paper` or `full`.
        """
        sizes = preset_named(preset) if isinstance(preset, str) else preset
        scale, chosen = _check_broadening(broadening), parameter_set(parameters)

        def make() -> PreparedArrays:
            # Here, because SciPy takes as long to import as a set of arrays to find.
            from kappaflow.model.prepare import layer_centres, prepare, prepare_chemistry, prepare_cia

            table = opacity if isinstance(opacity, OpacityTable) else load_opacity(opacity)
            chemistry = prepare_chemistry(load_chemistry(), layer_centres(sizes))
            return prepare(table, chemistry, prepare_cia(load_cia(), cia), sizes, scale, chosen)

        # A table that was made here and perhaps never again is not worth a place on the disk.
        in_memory = isinstance(opacity, OpacityTable)
        made = make() if in_memory else cached(prepared_key(opacity, sizes, scale, cia, parameters), make)
        again = partial(cls.load, preset, opacity=opacity, cia=cia, parameters=parameters)
        return replace(cls.of(made), load_broadened=again)

    @classmethod
    def of(cls, prepared: PreparedArrays) -> ForwardModel:
        """Make the model of `prepared` arrays."""
        low, high = pixel_grid(prepared.meta["sizes"]["pixel_bin"])
        parameters = parameter_set(prepared.meta["parameters"])
        return cls(on_device(Tables, prepared.arrays), prepared.names, 0.5 * (low + high), prepared.meta, parameters)

    def broadened(self, broadening: tuple[float, float]) -> ForwardModel:
        """Return the same model with other half-widths; see `load`."""
        if _check_broadening(broadening) == tuple(self.meta["broadening"]):
            return self
        if self.load_broadened is None:
            raise UserError("broadening: this model was not made by `load`, so other half-widths cannot be prepared")
        return self.load_broadened(broadening=broadening)

    def __call__(self, theta: ArrayLike, field: ArrayLike | None = None, lists: Lists = None) -> np.ndarray:
        """Spectra [mJy at 10 pc], shape (..., pixel), float32, of `theta` (..., parameter).

        `field`: perturbation coefficients, (..., species, c) or (..., species * c), broadcast against `theta`; none is
        the identity. `lists`: the line list of each species, as {"H2O": "name"} (the base elsewhere) or as indices in
        the order of `names`; one choice for all spectra, or one per spectrum as indices (..., species).
        """
        values = self.parameters.check(theta)
        coefficients = self._check_field(field, values.shape[:-1])
        rows = self._check_lists(lists, values.shape[:-1])
        flat = values.reshape(-1, values.shape[-1]).astype(np.float32)
        flux = np.empty((flat.shape[0], self.wavelength.size), np.float32)
        if rows.ndim == 1:
            self._fill(flux, np.arange(flat.shape[0]), flat, coefficients, rows)
        else:  # the tables are gathered per choice, so spectra that share one go together
            choices, member = np.unique(rows, axis=0, return_inverse=True)
            for i, choice in enumerate(choices):
                self._fill(flux, np.flatnonzero(member.ravel() == i), flat, coefficients, choice)
        return flux.reshape(*values.shape[:-1], self.wavelength.size)

    def _fill(
        self, flux: np.ndarray, which: np.ndarray, theta: np.ndarray, field: np.ndarray, lists: np.ndarray
    ) -> None:
        """Compute the spectra `which`, in chunks of the compiled sizes, into `flux`."""

        def fill(part: np.ndarray) -> None:
            size = next(s for s in SIZES if s >= part.size)
            padded = np.concatenate([part, np.repeat(part[-1:], size - part.size)])
            flux[part] = np.asarray(_compiled(theta[padded], field[padded], lists, self.tables))[: part.size]

        parts = [which[first : first + CHUNK] for first in range(0, which.size, CHUNK)]
        # XLA runs a chunk on one core, its loops being short; the cores share the chunks instead.
        with ThreadPoolExecutor(max(1, min(self.threads, len(parts)))) as pool:
            list(pool.map(fill, parts))

    def clamped(self, theta: ArrayLike) -> np.ndarray:
        """Count the layers outside the opacity table's temperatures, (..., 2): colder, hotter.

        The opacity there is that of the table's edge.
        """
        values = self.parameters.check(theta)
        flat = jnp.asarray(values.reshape(-1, values.shape[-1]), jnp.float32)
        counts = jax.vmap(clamped_layers, in_axes=(0, None))(flat, self.tables)
        return np.asarray(counts).reshape(*values.shape[:-1], 2)

    @property
    def table_digest(self) -> str:
        """Digest of the opacity table."""
        return self.meta["opacity"]

    @property
    def digest(self) -> str:
        """Digest of tables, sizes and version: equal digests mean equal spectra."""
        return digest(dict(self.meta))

    def list_indices(self, lists: Mapping[str, str]) -> np.ndarray:
        """Return the indices of the named lists, one per species; species not named keep their base."""
        for species in lists:
            if species not in self.names:
                raise UserError(f"lists: no species {species!r}; the table has {', '.join(self.names)}")
        indices = []
        for species, names in self.names.items():
            wanted = lists.get(species, names[0])
            if wanted not in names:
                raise UserError(f"lists: {species} has no list {wanted!r}; expected one of {', '.join(names)}")
            indices.append(names.index(wanted))
        return np.array(indices, np.int32)

    def _check_lists(self, lists: Lists, batch: tuple[int, ...]) -> np.ndarray:
        species = self.parameters.species
        if lists is None:
            return np.zeros(len(species), np.int32)
        if isinstance(lists, Mapping):
            return self.list_indices(lists)
        rows = np.asarray(lists)
        if rows.shape not in ((len(species),), (*batch, len(species))) or rows.dtype.kind not in "iu":
            raise UserError(
                f"lists: shape {rows.shape}, type {rows.dtype}; expected {{species: name}} or integers of shape "
                f"{(len(species),)} or {(*batch, len(species))}, in the order {', '.join(species)}"
            )
        for i, (name, names) in enumerate(self.names.items()):
            bad = (rows[..., i] < 0) | (rows[..., i] >= len(names))
            if bad.any():
                came = rows[..., i][bad].flat[0]
                raise UserError(f"lists: {name} index {came}; expected 0..{len(names) - 1} ({', '.join(names)})")
        return rows.astype(np.int32) if rows.ndim == 1 else rows.reshape(-1, len(species)).astype(np.int32)

    def _check_field(self, field: ArrayLike | None, batch: tuple[int, ...]) -> np.ndarray:
        species = self.parameters.species
        shape = (len(species), self.parameters.coefficients)
        count = int(np.prod(batch))
        if field is None:
            return np.zeros((count, *shape), np.float32)
        values = np.asarray(field, dtype=np.float32)
        if values.ndim and values.shape[-1] == shape[0] * shape[1]:
            values = values.reshape(*values.shape[:-1], *shape)
        try:
            values = np.broadcast_to(values, (*batch, *shape))
        except ValueError:
            raise UserError(
                f"field: shape {np.shape(field)}; expected {(*batch, *shape)} or "
                f"{(*batch, shape[0] * shape[1])}: per species ({', '.join(species)}) c0, a1..a4, b1..b4"
                + (", slope" if self.parameters.slopes else "")
            ) from None
        if not np.isfinite(values).all():
            raise UserError("field: coefficients must be finite; found NaN or infinity")
        return values.reshape(count, *shape)


_compiled = jax.jit(spectra)


def _check_broadening(broadening: tuple[float, float]) -> tuple[float, float]:
    scale, shift = (float(x) for x in broadening)
    if not (0.1 <= scale <= 10 and -1 <= shift <= 1):
        raise UserError(
            f"broadening: ({scale:g}, {shift:g}); expected a half-width scale in [0.1, 10] "
            "and a shift of the temperature exponents in [-1, 1]"
        )
    return scale, shift
