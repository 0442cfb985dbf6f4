"""A spectrum and trained networks become a posterior and a trust card. NumPy in, NumPy out; nothing is written."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from kappaflow.errors import UserError
from kappaflow.inference.posterior import Posterior, pooled
from kappaflow.inference.resemblance import STATISTICS
from kappaflow.instrument import on_nrs2
from kappaflow.observe.resampling import on_pixels
from kappaflow.observe.spectrum import Spectrum
from kappaflow.parameters import INDEX, PARAMETER_SETS
from kappaflow.randomness import generator
from kappaflow.refinement.refined import Refined
from kappaflow.retrieval.data_checks import brightness_check, faint_check, learned_check
from kappaflow.retrieval.exactness import Exactness, refined_both, refinement_check, share_check
from kappaflow.retrieval.predictive import Predictive, posterior_predictive, predictive_check, structure_check
from kappaflow.retrieval.replicates import Replicates
from kappaflow.retrieval.result import Retrieval, RetrievalSettings
from kappaflow.retrieval.trust import (
    Check,
    coverage_check,
    edge_check,
    familiarity_check,
    line_list_share,
    resemblance_check,
    seed_check,
    snr_check,
)
from kappaflow.simulation.noise import gain
from kappaflow.simulation.opacity_draws import SWAPPED, coefficient_sigma, combinations, sigma_table
from kappaflow.spectra import Forward, OpacityCard, same_pixels
from kappaflow.tables.table_names import recorded_table

__all__ = ["predict", "retrieve_spectrum"]

_CO = INDEX["C_O"]


def retrieve_spectrum(
    native: Spectrum,
    posterior: Posterior,
    *,
    control: Posterior | None = None,
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
        Networks trained with varied and with fixed opacities.
    model
        The forward model on the networks' pixels, for the refinement and the predictive check; or a sentence that says
        why there is none, which the trust card then repeats.
    distance
        In pc; without it the flux scale is not used, and the radius stays at its prior.
    settings
        Sizes and seed.
    """
    _refuse_other_parameters(posterior)
    spectrum = on_pixels(native, posterior.wavelength, distance)
    members = _sample(posterior, spectrum, settings)
    others = None if control is None else _sample(control, spectrum, settings)
    if not isinstance(model, str) and not same_pixels(model.wavelength, spectrum.wavelength):
        model = "the forward model has other pixels than the networks"
    network = pooled(members, settings.draws)
    exact = None if settings.amortized else _exact(native, posterior, model, distance, settings)
    refined = exact if isinstance(exact, Exactness) else None
    draws = refined.marginal.draws if refined is not None and refined.converged else network
    rng = generator("predictive", settings.seed)
    rows = rng.choice(len(draws), size=min(settings.spectra, len(draws)), replace=False)
    if refined is not None and refined.converged and not isinstance(model, str):
        envelope, fits = _refined_predictive(spectrum, refined, rows, rng)
    else:
        envelope, fits = _predictive(spectrum, draws[rows], model, posterior.opacity, rng)
    checks = [
        *_data_checks(posterior, spectrum),
        *([fits] if envelope is None else [fits, structure_check(envelope)]),
        seed_check(list(members[..., _CO])),
        edge_check(draws, posterior.box),
        faint_check(native),
        learned_check(draws, posterior.box),
    ]
    if exact is not None:
        checks.append(refinement_check(exact, network))
    chance = generator("line-list share", settings.seed)
    if refined is not None and refined.converged:
        checks.append(share_check(refined, chance))
    elif others is not None:
        checks.append(line_list_share(others[..., _CO], members[..., _CO], chance))
    made = _provenance(posterior, control, settings)
    found = (spectrum, posterior.box, members, others, envelope, tuple(checks), settings)
    return Retrieval(*found, provenance=made, refined=refined)


def _refuse_other_parameters(posterior: Posterior) -> None:
    if posterior.names not in [known.names for known in PARAMETER_SETS.values()]:
        sets = " or ".join(PARAMETER_SETS)
        raise UserError(f"--model: networks of {', '.join(posterior.names)}; expected the parameters of {sets}")


def _data_checks(posterior: Posterior, spectrum: Spectrum) -> list[Check]:
    bright = brightness_check(spectrum, *posterior.brightness)
    found = [snr_check(spectrum.snr), coverage_check(spectrum.mask), _familiarity(posterior, spectrum)]
    return found if bright is None else [*found, bright]


def _exact(
    native: Spectrum, posterior: Posterior, model: Forward | str, distance: float | None, settings: RetrievalSettings
) -> Exactness | str:
    """Refine, or say why not."""
    if isinstance(model, str):
        return model
    how = replace(settings.refine, draws=settings.draws, seed=settings.seed)
    return refined_both(native, posterior, model, distance, how)


def _sample(posterior: Posterior, spectrum: Spectrum, settings: RetrievalSettings) -> np.ndarray:
    each = -(-settings.draws // len(posterior.members))
    return posterior.sample_members(spectrum, n=each, seed=settings.seed)


def _provenance(posterior: Posterior, control: Posterior | None, settings: RetrievalSettings) -> dict[str, str]:
    import kappaflow

    def named(networks: Posterior) -> str:
        card = networks.members[0].card
        each = "; ".join(f"seed {m.seed}, {m.card.n_train:,} spectra" for m in networks.members)
        dial = "" if networks.dial is None else f", dial at {networks.amplitude:g}"
        return f"{len(networks.members)} of preset {card.preset}, data {card.digest} ({each}){dial}"

    made = {"kappaflow": kappaflow.__version__, "networks": named(posterior)}
    made |= {"opacity table": str(recorded_table(posterior.opacity)), "seed": str(settings.seed)}
    return made | ({"control networks": named(control)} if control is not None else {})


def _familiarity(posterior: Posterior, spectrum: Spectrum) -> Check:
    """Grade the distance from training: in the space of spectra, or of embeddings where that is all there is."""
    found = posterior.resemblance(spectrum)
    if found is not None:
        return resemblance_check(found[0], STATISTICS[found[1]])
    try:
        return familiarity_check([row["p_value"] for row in posterior.familiarity(spectrum)])
    except UserError as error:
        return Check("embedding distance", float("nan"), "warn", f"Not computed: {error}.")


def _predictive(
    spectrum: Spectrum, theta: np.ndarray, model: Forward | str, card: OpacityCard | None, rng: np.random.Generator
) -> tuple[Predictive | None, Check]:
    """Return what draws with varied opacities predict, and its grade beside that of the base lists."""
    if isinstance(model, str):
        return None, Check("posterior predictive", float("nan"), "warn", f"Not computed: {model}.")

    def predictive(theta: np.ndarray, vary: bool) -> Predictive:
        return _predicted(spectrum, predict(model, theta, rng, vary=vary, card=card), theta, rng)

    envelope = predictive(theta, vary=True)
    check = predictive_check(envelope)
    if check.verdict != "pass":
        return envelope, check
    # What fixed opacities would say is told only where varied ones pass, and is half a sentence: fewer spectra do.
    fewer = theta[: max(len(theta) // 4, 50)]
    return envelope, predictive_check(envelope, predictive(fewer, vary=False))


def _predicted(spectrum: Spectrum, flux: np.ndarray, theta: np.ndarray, rng: np.random.Generator) -> Predictive:
    """Compare with noise-free spectra `flux` (m, p) of `theta` (m, D)."""
    replicates = Replicates.of(flux, theta, spectrum.wavelength)
    if not spectrum.meta["scale_known"]:
        replicates = replicates.scaled(_best_scale(flux, spectrum))
    data = (spectrum.flux, spectrum.error, spectrum.mask)
    return posterior_predictive(*data, replicates, rng, wavelength=spectrum.wavelength)


def _refined_predictive(
    spectrum: Spectrum, exact: Exactness, rows: np.ndarray, rng: np.random.Generator
) -> tuple[Predictive, Check]:
    """Return the same of exact draws, each with the opacities, gains and structure that belong to it."""

    def predictive(refined: Refined) -> Predictive:
        predictor: Any = refined.best.mode.joint.predictor
        model = predictor.model  # as the file's own pixels see it, if the fit took it so
        flux = np.empty((len(rows), model.wavelength.size))
        for i, lists in enumerate(refined.lists):
            own = np.flatnonzero(refined.combination[rows] == i)
            if own.size:
                flux[own] = model(refined.draws[rows[own]], refined.field[rows[own]], lists or None)
        flux *= refined.gains[rows][:, on_nrs2(model.wavelength).astype(int)]
        return _predicted(spectrum, flux, refined.draws[rows], rng)

    envelope = predictive(exact.marginal)
    check = predictive_check(envelope)
    if check.verdict != "pass" or exact.one_list is None:
        return envelope, check
    return envelope, predictive_check(envelope, predictive(exact.one_list))


def predict(
    model: Forward, theta: np.ndarray, rng: np.random.Generator, *, vary: bool, card: OpacityCard | None = None
) -> np.ndarray:
    """Spectra (n, p) of `theta` (n, D), each with its own gain and, if `vary`, its own opacities.

    The opacities are drawn from their prior, not from their posterior given the spectrum: the envelope is what
    line lists can do to such an atmosphere, and the check that uses it is lenient rather than strict. The prior is that
    of the networks' training, on their `card`; the packaged one where they have none.
    """
    lists = [dict(c) for c in combinations(model.names, SWAPPED)] if card is None else list(card.combinations)
    lists = lists if vary else [{}]
    flux = np.empty((len(theta), model.wavelength.size))
    sigma = coefficient_sigma(sigma_table((), model.parameters) if card is None else np.array(card.sigma)).ravel()
    field = rng.standard_normal((len(theta), sigma.size)) * sigma if vary else None

    def fill(i: int) -> None:
        rows = np.arange(i, len(theta), len(lists))
        if rows.size:
            flux[rows] = model(theta[rows], None if field is None else field[rows], lists[i] or None)

    # What shares its lists is one chunk, which one core computes: the cores share the combinations.
    with ThreadPoolExecutor(getattr(model, "threads", 1)) as pool:
        list(pool.map(fill, range(len(lists))))
    return flux * gain(theta, rng.standard_normal((len(theta), 2)), model.wavelength)


def _best_scale(flux: np.ndarray, spectrum: Spectrum) -> np.ndarray:
    """Return the factor (n,) by which each of `flux` (n, p) fits best: without a distance only the shape is known."""
    good = spectrum.mask
    weight = spectrum.error[good] ** -2.0
    rows = flux[:, good]
    return (rows * spectrum.flux[good] * weight).sum(axis=1) / (rows**2 * weight).sum(axis=1)
