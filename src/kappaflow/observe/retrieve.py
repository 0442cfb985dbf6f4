"""A spectrum and trained networks become a posterior and a trust card. NumPy in, NumPy out; nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kappaflow.errors import UserError
from kappaflow.observe.predictive import Predictive, posterior_predictive, predictive_check
from kappaflow.observe.resample import mask_outliers, resample
from kappaflow.observe.spectrum import Spectrum
from kappaflow.observe.trust import (
    Check,
    coverage_check,
    edge_check,
    familiarity_check,
    line_list_share,
    seed_check,
    snr_check,
)
from kappaflow.parameters import INDEX, PARAMETERS
from kappaflow.simulate.noise import gain
from kappaflow.simulate.perturbation import combinations, sigma

__all__ = ["Forward", "Retrieval", "Settings", "on_pixels", "predict", "retrieve"]

REFERENCE_PC = 10.0  # the distance of the forward model's flux
_CO = INDEX["C_O"]


class Forward(Protocol):
    """What a forward model must offer: its pixels, its line lists, and spectra [mJy at 10 pc]."""

    @property
    def wavelength(self) -> np.ndarray:
        """Pixel centres [um]."""
        ...

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Species -> its line lists, the base first."""
        ...

    def __call__(self, theta: Any, field: Any = None, lists: Any = None) -> np.ndarray:
        """Spectra (n, p) of `theta` (n, 15)."""
        ...


@dataclass(frozen=True)
class Settings:
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
    settings: Settings = Settings(),  # noqa: B008 (frozen)
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
    envelope, fits = _predictive(spectrum, members, model, settings, rng)
    draws = members.reshape(-1, members.shape[-1])
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


def _sample(posterior: Any, spectrum: Spectrum, settings: Settings) -> np.ndarray:
    each = -(-settings.draws // len(posterior.members))
    return posterior.sample_members(spectrum, n=each, seed=settings.seed)


def _familiarity(posterior: Any, spectrum: Spectrum) -> Check:
    try:
        return familiarity_check([row["p_value"] for row in posterior.familiarity(spectrum)])
    except UserError as error:
        return Check("embedding distance", float("nan"), "warn", f"Not computed: {error}.")


def _predictive(
    spectrum: Spectrum, members: np.ndarray, model: Forward | str, settings: Settings, rng: np.random.Generator
) -> tuple[Predictive | None, Check]:
    """Return what draws with varied opacities predict, and its grade beside that of the base lists."""
    if not isinstance(model, str) and not _same_pixels(model.wavelength, spectrum.wavelength):
        model = "the forward model has other pixels than the networks"
    if isinstance(model, str):
        return None, Check("posterior predictive", float("nan"), "warn", f"Not computed: {model}.")
    draws = members.reshape(-1, members.shape[-1])
    theta = draws[rng.choice(len(draws), size=min(settings.predicted, len(draws)), replace=False)]
    data = (spectrum.flux, spectrum.error, spectrum.mask)
    found = []
    for vary in (True, False):
        flux = predict(model, theta, rng, vary=vary)
        if not spectrum.meta["scale_known"]:
            flux = _scaled(flux, spectrum)
        found.append(posterior_predictive(*data, flux, rng))
    return found[0], predictive_check(*found)


def predict(model: Forward, theta: np.ndarray, rng: np.random.Generator, *, vary: bool) -> np.ndarray:
    """Spectra (n, p) of `theta` (n, 15), each with its own gain and, if `vary`, its own opacities.

    The opacities are drawn from their prior, not from their posterior given the spectrum: the envelope is what
    line lists can do to such an atmosphere, and the check that uses it is lenient rather than strict.
    """
    lists = combinations(model.names, ("H2O", "CH4")) if vary else ((),)
    flux = np.empty((len(theta), model.wavelength.size))
    field = rng.standard_normal((len(theta), sigma().size)) * sigma().ravel() if vary else None
    for i, combination in enumerate(lists):
        rows = np.arange(i, len(theta), len(lists))
        if rows.size:
            flux[rows] = model(theta[rows], None if field is None else field[rows], dict(combination) or None)
    return flux * gain(theta, rng.standard_normal((len(theta), 2)), model.wavelength)


def _scaled(flux: np.ndarray, spectrum: Spectrum) -> np.ndarray:
    """Each of `flux` (n, p) times the factor that fits it best: without a distance only the shape is predicted."""
    good = spectrum.mask
    weight = spectrum.error[good] ** -2.0
    rows = flux[:, good]
    factor = (rows * spectrum.flux[good] * weight).sum(axis=1) / (rows**2 * weight).sum(axis=1)
    return flux * factor[:, None]


def _same_pixels(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-5))
