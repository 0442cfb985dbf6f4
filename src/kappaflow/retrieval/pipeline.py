"""A spectrum and trained networks become a posterior and a trust card. NumPy in, NumPy out; nothing is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kappaflow.constants import REFERENCE_PC
from kappaflow.errors import UserError
from kappaflow.observe.resampling import mask_outliers, resample
from kappaflow.observe.spectrum import Spectrum
from kappaflow.parameters import INDEX, PARAMETERS
from kappaflow.retrieval.predictive import Predictive, posterior_predictive, predictive_check
from kappaflow.retrieval.trust import (
    Check,
    coverage_check,
    edge_check,
    familiarity_check,
    line_list_share,
    seed_check,
    snr_check,
)
from kappaflow.simulation.noise import gain
from kappaflow.simulation.opacity_draws import SWAPPED, coefficient_sigma, combinations, sigma_table
from kappaflow.spectra import Forward, OpacityCard, same_pixels

__all__ = ["Retrieval", "RetrievalSettings", "on_pixels", "predict", "retrieve"]

_CO = INDEX["C_O"]


@dataclass(frozen=True)
class RetrievalSettings:
    """How many draws, how many of them predicted, and the seed of everything random."""

    draws: int = 2001
    predicted: int = 400  # half of them are the null: p-values reach down to 1 in 201
    seed: int = 0


@dataclass(frozen=True)
class Retrieval:
    """One object: its spectrum on the pixels, draws by member (M, n, 15), what they predict, and the trust card."""

    spectrum: Spectrum
    members: np.ndarray
    control: np.ndarray | None
    envelope: Predictive | None
    checks: tuple[Check, ...]

    @property
    def draws(self) -> np.ndarray:
        """Pooled draws (M n, 15)."""
        return self.members.reshape(-1, self.members.shape[-1])

    @property
    def control_draws(self) -> np.ndarray | None:
        """Pooled draws of the control networks, where there are any."""
        return None if self.control is None else self.control.reshape(-1, self.control.shape[-1])


def on_pixels(native: Spectrum, pixels: np.ndarray, distance: float | None = None) -> Spectrum:
    """Mask outliers, resample onto `pixels` [um] and, with a `distance` [pc], scale the flux to 10 pc."""
    spectrum = resample(mask_outliers(native), pixels)
    if distance is None:
        return spectrum.noted(scale_known=False)
    if not 0.1 <= distance <= 1e5:
        raise UserError(f"--distance: {distance:g} pc; expected between 0.1 and 100,000")
    factor = (distance / REFERENCE_PC) ** 2
    meta = {**spectrum.meta, "scale_known": True, "distance_pc": distance}
    return Spectrum(spectrum.wavelength, spectrum.flux * factor, spectrum.error * factor, spectrum.mask, meta)


def retrieve(
    native: Spectrum,
    posterior: Any,
    *,
    control: Any = None,
    model: Forward | str = "no forward model was given",
    distance: float | None = None,
    settings: RetrievalSettings = RetrievalSettings(),  # noqa: B008 (frozen)
) -> Retrieval:
    """Sample the posterior of `native` and judge it.

    Parameters
    ----------
    native
        As `read_spectrum` gives it.
    posterior, control
        `kappaflow.Posterior` of networks trained with varied and with fixed opacities.
    model
        The forward model on the networks' pixels, for the predictive check; or a sentence that says why there is
        none, which the trust card then repeats.
    distance
        In pc; without it the flux scale is not used, and the radius stays at its prior.
    settings
        Sizes and seed.
    """
    if tuple(posterior.names) != tuple(p.name for p in PARAMETERS):
        raise UserError(f"--model: networks of {', '.join(posterior.names)}; expected the fifteen parameters")
    spectrum = on_pixels(native, posterior.wavelength, distance)
    members = _sample(posterior, spectrum, settings)
    others = None if control is None else _sample(control, spectrum, settings)
    rng = np.random.default_rng((settings.seed, 7))
    draws = members.reshape(-1, members.shape[-1])
    theta = draws[rng.choice(len(draws), size=min(settings.predicted, len(draws)), replace=False)]
    envelope, fits = _predictive(spectrum, theta, model, posterior.members[0].card.opacity, rng)
    checks = [
        snr_check(spectrum.snr),
        coverage_check(spectrum.mask),
        _familiarity(posterior, spectrum),
        fits,
        seed_check(list(members[..., _CO])),
        edge_check(draws),
    ]
    if others is not None:
        checks.append(line_list_share(others[..., _CO], members[..., _CO], rng))
    return Retrieval(spectrum, members, others, envelope, tuple(checks))


def _sample(posterior: Any, spectrum: Spectrum, settings: RetrievalSettings) -> np.ndarray:
    each = -(-settings.draws // len(posterior.members))
    return posterior.sample_members(spectrum, n=each, seed=settings.seed)


def _familiarity(posterior: Any, spectrum: Spectrum) -> Check:
    try:
        return familiarity_check([row["p_value"] for row in posterior.familiarity(spectrum)])
    except UserError as error:
        return Check("embedding distance", float("nan"), "warn", f"Not computed: {error}.")


def _predictive(
    spectrum: Spectrum, theta: np.ndarray, model: Forward | str, card: OpacityCard | None, rng: np.random.Generator
) -> tuple[Predictive | None, Check]:
    """Return what draws with varied opacities predict, and its grade beside that of the base lists."""
    if not isinstance(model, str) and not same_pixels(model.wavelength, spectrum.wavelength):
        model = "the forward model has other pixels than the networks"
    if isinstance(model, str):
        return None, Check("posterior predictive", float("nan"), "warn", f"Not computed: {model}.")
    data = (spectrum.flux, spectrum.error, spectrum.mask)
    found = []
    for vary in (True, False):
        flux = predict(model, theta, rng, vary=vary, card=card)
        if not spectrum.meta["scale_known"]:
            flux = _scaled(flux, spectrum)
        found.append(posterior_predictive(*data, flux, rng))
    return found[0], predictive_check(*found)


def predict(
    model: Forward, theta: np.ndarray, rng: np.random.Generator, *, vary: bool, card: OpacityCard | None = None
) -> np.ndarray:
    """Spectra (n, p) of `theta` (n, 15), each with its own gain and, if `vary`, its own opacities.

    The opacities are drawn from their prior, not from their posterior given the spectrum: the envelope is what
    line lists can do to such an atmosphere, and the check that uses it is lenient rather than strict. The prior is that
    of the networks' training, on their `card`; the packaged one where they have none.
    """
    lists = [dict(c) for c in combinations(model.names, SWAPPED)] if card is None else list(card.combinations)
    lists = lists if vary else [{}]
    flux = np.empty((len(theta), model.wavelength.size))
    sigma = coefficient_sigma(sigma_table() if card is None else np.array(card.sigma)).ravel()
    field = rng.standard_normal((len(theta), sigma.size)) * sigma if vary else None
    for i, combination in enumerate(lists):
        rows = np.arange(i, len(theta), len(lists))
        if rows.size:
            flux[rows] = model(theta[rows], None if field is None else field[rows], combination or None)
    return flux * gain(theta, rng.standard_normal((len(theta), 2)), model.wavelength)


def _scaled(flux: np.ndarray, spectrum: Spectrum) -> np.ndarray:
    """Each of `flux` (n, p) times the factor that fits it best: without a distance only the shape is predicted."""
    good = spectrum.mask
    weight = spectrum.error[good] ** -2.0
    rows = flux[:, good]
    factor = (rows * spectrum.flux[good] * weight).sum(axis=1) / (rows**2 * weight).sum(axis=1)
    return flux * factor[:, None]
