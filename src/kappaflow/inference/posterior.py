"""`Posterior`: one or several trained networks as one distribution. NumPy in, NumPy out."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kappaflow.errors import UserError
from kappaflow.inference.checkpoint import Checkpoint
from kappaflow.inference.features import Prepared
from kappaflow.inference.incremental import IncrementalSampler, same_masks
from kappaflow.inference.mixing import refuse_to_mix
from kappaflow.parameters import DRAWS, NAMED
from kappaflow.randomness import generator
from kappaflow.spectra import Box, OpacityCard, Spectra, same_pixels
from kappaflow.tables.table_names import recorded_table

__all__ = ["Posterior", "networks_folder", "packaged", "pooled"]

CHUNK = 256  # spectra embedded at once


def networks_folder() -> Path:
    """Where the networks that came with the package lie, each beside its model card."""
    return Path(str(resources.files("kappaflow.data"))) / "networks"


def packaged() -> list[Path]:
    """Networks that came with the package: seeds of one training, with a dial."""
    return sorted(networks_folder().glob("*.safetensors"))


def pooled(members: np.ndarray, n: int) -> np.ndarray:
    """Concatenate draws (M, ..., k, D) to (..., n, D): equal counts, one more of the first where `n` does not divide.

    Examples
    --------
    >>> pooled(np.arange(6).reshape(2, 3, 1), 5).ravel().tolist()
    [0, 1, 2, 3, 4]
    """
    each, extra = divmod(n, len(members))
    return np.concatenate([m[..., : each + (i < extra), :] for i, m in enumerate(members)], axis=-2)


class Posterior:
    """p(theta | spectrum) of one network, or of several pooled with equal weight.

    A spectrum is any object with `flux`, `error` and `mask` (True: good) on the network's own pixels,
    `posterior.wavelength`. Whether its absolute flux may be used is its `scale_known` (or its `meta`'s), else not: a
    flux scaled to the network's reference distance measures the radius, any other must not. Methods ending in
    `_batch` take arrays of many spectra and the same word, `scale_known`.

    Networks with a `dial` were told how strongly the opacities were randomized: `amplitude` is 1 for the packaged prior
    of line-list errors, 0 for fixed line lists; 1 unless given, or what `at` set. Others know one amplitude, their
    training's, and take no other.

    A mixture is wider than members that are right alone. Networks that were calibrated together say by how much
    narrower each has to be (`spread`, of the base noise of the flow; Gneiting & Ranjan 2013, Electron. J. Stat. 7,
    1747); it is 1 for one network, and for others.

    Examples
    --------
    >>> import kappaflow as kf
    >>> from kappaflow.observe.example import example_spectrum
    >>> posterior = Posterior.load()  # the packaged networks
    >>> posterior.sample(kf.resample(example_spectrum(), posterior.wavelength), n=20).shape
    (20, 17)
    """

    def __init__(self, members: Sequence[Checkpoint]) -> None:
        if not members:
            raise UserError("posterior: no network given; expected at least one")
        refuse_to_mix(members)
        self.members = tuple(members)
        self.amplitude = 1.0  # where the dial stands
        self.spread = _agreed_spread(members)
        # Members whose flows have the same masks go through the sampler together.
        self._groups: list[tuple[list[int], IncrementalSampler]] = []
        flows = [m.estimator.flow.nsf for m in members]
        left = list(range(len(flows)))
        while left:
            group = [i for i in left if same_masks(flows[left[0]], flows[i])]
            self._groups.append((group, IncrementalSampler([flows[i] for i in group])))
            left = [i for i in left if i not in group]

    @classmethod
    def load(cls, *paths: str | os.PathLike[str]) -> Posterior:
        """Load networks (files or folders of `kappaflow train`); without arguments, the packaged ensemble."""
        if not paths:
            paths = tuple(packaged())
            if not paths:
                raise UserError(
                    "posterior: this installation carries no trained networks; make some with `kappaflow train "
                    "--data DIR --out MODEL` and load them with Posterior.load(MODEL)"
                )
        return cls([Checkpoint.load(path) for path in paths])

    def refuse_training_seed(self, seed: int | None, where: str | os.PathLike[str]) -> None:
        """Refuse to be judged on the set `where` if a member was trained on parameters drawn from its `seed`."""
        if seed is not None and any(member.card.seed == seed for member in self.members):
            raise UserError(
                f"{where}: drawn from seed {seed}, like the spectra a network was trained on; simulate the held-out "
                "set with another --seed"
            )

    def refuse_other_table(self, opacity: OpacityCard | None, where: str | os.PathLike[str]) -> None:
        """Refuse the set (or networks) `where` if its opacities are not those the members were trained with."""
        ours, theirs = recorded_table(self.opacity), recorded_table(opacity)
        if not ours.same(theirs):
            raise UserError(
                f"{where}: made with opacity table {theirs}, the networks with {ours}; give what was made with the same"
            )

    @property
    def opacity(self) -> OpacityCard | None:
        """Which opacities the members were trained with; None, as in the first release, means the packaged ones.

        With a dial, their randomization is the one at its place: at 0 there is none.
        """
        card = self.members[0].card.opacity
        if card is None or self.dial is None or self.amplitude == 1:
            return card
        scaled = [[self.amplitude * width for width in row] for row in card.sigma]
        if self.amplitude > 0:
            return replace(card, sigma=scaled)
        return replace(card, sigma=scaled, combinations=list(card.combinations)[:1], broadening=((1.0, 0.0),))

    @property
    def brightness(self) -> tuple[float, float]:
        """Mean and spread, over the training set, of ln of a spectrum's median flux [mJy at 10 pc]."""
        mean, spread = self.members[0].estimator.features.scale.tolist()
        return mean, spread

    @property
    def box(self) -> Box:
        """Names and bounds of the parameters."""
        return self.members[0].box

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters, in the order of the last axis of draws."""
        return self.box.names

    @property
    def wavelength(self) -> np.ndarray:
        """The network's pixels [micron], (p,)."""
        return self.members[0].card.wavelength

    @property
    def dial(self) -> tuple[float, float] | None:
        """Range of the amplitude that the networks are told; None where they know their training's alone."""
        return self.members[0].card.dial

    def at(self, amplitude: float) -> Posterior:
        """Return the same networks with the dial at `amplitude`, for every call that is not given another."""
        turned = copy.copy(self)
        turned.amplitude = self._allowed(float(amplitude))
        return turned

    def sample(self, spectrum: Any, n: int = DRAWS, seed: int = 0, *, amplitude: float | None = None) -> np.ndarray:
        """Draw (n, D) parameters for one spectrum, strictly inside the prior box."""
        return self._sample(self._of(spectrum, amplitude), n, seed)[0]

    def sample_batch(
        self,
        flux: np.ndarray,
        error: np.ndarray,
        mask: np.ndarray,
        *,
        n: int = DRAWS,
        seed: int = 0,
        scale_known: bool | np.ndarray = False,
    ) -> np.ndarray:
        """Draw (b, n, D) for spectra (b, p); the draws of a row depend on the row and its place only.

        Members contribute equal counts, concatenated; where `n` is not a multiple, the first give one more.
        """
        return self._sample(self._turned(self._checked(flux, error, mask, scale_known)), n, seed)

    def sample_spectra(self, spectra: Spectra, n: int = DRAWS, seed: int = 0) -> np.ndarray:
        """Draw (b, n, D) as `sample_batch` does, each spectrum at its own amplitude: how simulated ones are judged."""
        return self._sample(self._own(spectra), n, seed)

    def sample_members(
        self, spectrum: Any, n: int = DRAWS, seed: int = 0, *, amplitude: float | None = None
    ) -> np.ndarray:
        """Draw (M, n, D): each member's own, to see whether they agree."""
        return self._draws(self._of(spectrum, amplitude), n, seed)[:, 0]

    def sample_many(self, spectra: Sequence[Any], n: int = DRAWS, seed: int = 0) -> np.ndarray:
        """Draw (b, M, n, D) for `b` spectra in one pass: of each what `sample_members` gives it alone, to rounding."""
        each = Spectra.joined([self._of(spectrum) for spectrum in spectra])
        return np.moveaxis(self._draws(each, n, seed, alike=True), 0, 1)

    def log_prob(self, theta: np.ndarray, spectrum: Any, *, amplitude: float | None = None) -> np.ndarray:
        """Log of the pooled density at `theta` (..., D), per unit of each parameter; -inf outside the box."""
        theta = np.asarray(theta, dtype=float)
        if theta.shape[-1:] != (len(self.box),):
            raise UserError(f"theta: shape {theta.shape}; expected (..., {len(self.box)}), in the order {self.names}")
        flat = theta.reshape(1, -1, len(self.box))
        return self._log_prob(flat, self._of(spectrum, amplitude))[0].reshape(theta.shape[:-1])

    def log_prob_batch(
        self,
        theta: np.ndarray,
        flux: np.ndarray,
        error: np.ndarray,
        mask: np.ndarray,
        *,
        scale_known: bool | np.ndarray = False,
    ) -> np.ndarray:
        """Log of the pooled density (b,) of `theta` (b, D), a row for each spectrum (b, p)."""
        spectra = self._turned(self._checked(flux, error, mask, scale_known))
        return self._log_prob(np.asarray(theta, dtype=float)[:, None], spectra)[:, 0]

    def log_prob_spectra(self, theta: np.ndarray, spectra: Spectra) -> np.ndarray:
        """Log of the pooled density (b,) of `theta` (b, D), a row for each spectrum, at its own amplitude."""
        return self._log_prob(np.asarray(theta, dtype=float)[:, None], self._own(spectra))[:, 0]

    def summary(
        self, spectrum: Any, n: int = DRAWS, seed: int = 0, *, amplitude: float | None = None
    ) -> dict[str, dict[str, Any]]:
        """Median and central 68 % and 90 % intervals of each parameter, with unit."""
        draws = self.sample(spectrum, n, seed, amplitude=amplitude)
        # Weibull's rule: linear interpolation between few draws reads tails too narrow.
        quantiles = np.quantile(draws, (0.05, 0.16, 0.5, 0.84, 0.95), axis=0, method="weibull")
        rows = {}
        for i, name in enumerate(self.names):
            q05, q16, q50, q84, q95 = (float(q) for q in quantiles[:, i])
            unit = NAMED[name].unit if name in NAMED else ""
            rows[name] = {"median": q50, "68": [q16, q84], "90": [q05, q95], "unit": unit}
        return rows

    def embed(self, spectrum: Any) -> list[np.ndarray]:
        """Each member's embedding (E,) of one spectrum."""
        any_amplitude = self.dial[0] if self.dial else None  # it stands beside the embedding, not in it
        contexts = self._contexts(self._of(spectrum, any_amplitude))
        return [c[0, : m.estimator.recipe.embedding.features].numpy() for m, c in contexts]

    def familiarity(self, spectrum: Any) -> list[dict[str, float]]:
        """How far from training each member finds the spectrum: distance and p-value on validation spectra."""
        rows = []
        for member, embedding in zip(self.members, self.embed(spectrum), strict=True):
            if member.familiarity is None:
                raise UserError(
                    "posterior: a network without embedding statistics cannot say how familiar a spectrum is"
                )
            distance = float(member.familiarity.distance(embedding))
            rows.append({"distance": distance, "p_value": float(member.familiarity.p_value(np.array(distance)))})
        return rows

    def resemblance(self, spectrum: Any) -> tuple[float, str] | None:
        """p-value of the spectrum's distance from the training set, and in what it is strangest; None if not known."""
        known, one = self.members[0].resemblance, self._of(spectrum, self.dial[0] if self.dial else None)
        return None if known is None else known.p_value(one.flux[0], one.error[0], one.mask[0])

    def _sample(self, spectra: Spectra, n: int, seed: int) -> np.ndarray:
        if n < 1:
            raise UserError(f"n: {n} draws; expected at least 1")
        return pooled(self._draws(spectra, -(-n // len(self.members)), seed), n)

    @torch.no_grad()
    def _draws(self, spectra: Spectra, n: int, seed: int, *, alike: bool = False) -> np.ndarray:
        """(M, b, n, D); `alike`: every row has the noise of the first."""
        out = np.empty((len(self.members), len(spectra), n, len(self.box)))
        for start in range(0, len(spectra), CHUNK):
            rows = slice(start, min(start + CHUNK, len(spectra)))
            contexts = [c for _, c in self._contexts(spectra, rows)]
            noise = _noise(len(self.members), slice(0, 1) if alike else rows, (n, len(self.box)), seed)
            noise = self.spread * (noise.expand(-1, rows.stop - rows.start, -1, -1) if alike else noise)
            for group, sampler in self._groups:
                v = sampler(torch.stack([contexts[i] for i in group]), noise[group])
                for i, one in zip(group, v, strict=True):
                    unit = self.members[i].estimator.flow.to_unit(one, contexts[i]).numpy()
                    out[i, rows] = np.asarray(self.box.low) + self.box.widths * unit
        return out

    @torch.no_grad()
    def _log_prob(self, theta: np.ndarray, spectra: Spectra) -> np.ndarray:
        """Pooled ln density (b, k) of theta (b, k, D)."""
        b, k, d = theta.shape
        unit = self.box.to_unit(theta)
        inside = np.asarray(((unit >= 0) & (unit <= 1)).all(axis=-1))
        flat = torch.as_tensor(np.where(inside[..., None], unit, 0.5).reshape(b * k, d))
        total = []
        for member, context in self._contexts(spectra):
            context = context.repeat_interleave(k, dim=0)
            total.append(member.estimator.flow(flat, context, self.spread).double())
        pooled = torch.logsumexp(torch.stack(total), dim=0).numpy() - np.log(len(total))
        return np.where(inside, pooled.reshape(b, k) - np.log(self.box.widths).sum(), -np.inf)

    @torch.no_grad()
    def _contexts(self, spectra: Spectra, rows: slice | None = None) -> list[tuple[Checkpoint, Tensor]]:
        """Each member with its context (b, E + S) of the spectra."""
        start, stop, _ = (rows or slice(0, len(spectra))).indices(len(spectra))
        pairs = []
        for member in self.members:
            parts = []
            for i in range(start, stop, CHUNK):
                prepared: Prepared = member.estimator.features.prepare(spectra[i : min(i + CHUNK, stop)])
                parts.append(member.estimator.context(prepared))
            pairs.append((member, torch.cat(parts)))
        return pairs

    def _of(self, spectrum: Any, amplitude: float | None = None) -> Spectra:
        """One spectrum object as a batch of one, with the dial at `amplitude`."""
        arrays = []
        for name in ("flux", "error", "mask"):
            if not hasattr(spectrum, name):
                raise UserError(f"spectrum: no attribute {name!r}; expected an object with flux, error and mask")
            arrays.append(np.atleast_1d(np.asarray(getattr(spectrum, name)))[None])
        pixels = getattr(spectrum, "wavelength", None)
        if pixels is not None:
            pixels = np.asarray(getattr(pixels, "value", pixels), dtype=float)
            if not same_pixels(pixels, self.wavelength):
                raise UserError(
                    f"spectrum: {pixels.size} wavelengths, not the network's {self.wavelength.size} pixels; resample "
                    "it onto `posterior.wavelength` first"
                )
        flux, error, mask = arrays
        return self._turned(self._checked(flux, error, mask, _scale_known(spectrum)), amplitude)

    def _turned(self, spectra: Spectra, amplitude: float | None = None) -> Spectra:
        """Return the spectra with the dial at `amplitude`, or where it stands."""
        value = self._allowed(self.amplitude if amplitude is None else float(amplitude))
        return replace(spectra, amplitude=np.full(len(spectra), value))

    def _own(self, spectra: Spectra) -> Spectra:
        """Return the spectra checked, with a dial at their own amplitudes, or where it stands if they have none."""
        checked = self._checked(spectra.flux, spectra.error, spectra.mask, spectra.scale_known)
        if self.dial is None:
            return checked
        if spectra.amplitude is None:
            return self._turned(checked)
        for end in (spectra.amplitude.min(), spectra.amplitude.max()):
            self._allowed(float(end))
        return replace(checked, amplitude=spectra.amplitude)

    def _allowed(self, amplitude: float) -> float:
        """Refuse an amplitude outside the dial, and any but 1 where there is none."""
        if self.dial is None:
            if amplitude != 1:
                raise UserError(
                    f"amplitude {amplitude:g}: these networks have no dial and know their training's alone; expected "
                    "1, or networks trained on `kappaflow simulate --amplitude dial`"
                )
        elif not self.dial[0] <= amplitude <= self.dial[1]:
            low, high = self.dial
            raise UserError(f"amplitude {amplitude:g}: outside the dial of these networks, {low:g} to {high:g}")
        return amplitude

    def _checked(
        self, flux: np.ndarray, error: np.ndarray, mask: np.ndarray, scale_known: bool | np.ndarray
    ) -> Spectra:
        return Spectra.checked(flux, error, mask, scale_known, len(self.wavelength))


def _scale_known(spectrum: Any) -> bool:
    """Whether a spectrum says that its flux is on the network's absolute scale, as attribute or in its `meta`."""
    return bool(getattr(spectrum, "scale_known", (getattr(spectrum, "meta", None) or {}).get("scale_known", False)))


def _agreed_spread(members: Sequence[Checkpoint]) -> float:
    """Return the spread that all of exactly these members carry, else 1."""
    first, seeds = members[0].metrics.get("pool"), sorted(member.seed for member in members)
    if len(members) < 2 or first is None or first["seeds"] != seeds:
        return 1.0
    return float(first["spread"]) if all(member.metrics.get("pool") == first for member in members) else 1.0


def _noise(members: int, rows: slice, shape: tuple[int, int], seed: int) -> Tensor:
    """Draw base noise (M, b, n, D) at the address (seed, member, row)."""
    draws = [
        [
            generator("posterior", seed, m, row).standard_normal(shape, dtype=np.float32)
            for row in range(rows.start, rows.stop)
        ]
        for m in range(members)
    ]
    return torch.from_numpy(np.asarray(draws))
