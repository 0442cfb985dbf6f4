"""The distance in the space of spectra: what training holds passes, what it does not hold is noticed."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from array_batches import ArrayBatches
from inference_toy import trainer
from retrieval_toy import MODEL, simulated

from kappaflow.build.tables.networks import with_components
from kappaflow.errors import UserError
from kappaflow.inference import Checkpoint, Posterior
from kappaflow.inference.resemblance import STATISTICS, Resemblance
from kappaflow.retrieval.trust import resemblance_check
from kappaflow.simulation import Shards
from kappaflow.spectra import Spectra

RNG = np.random.default_rng


def seen(n, seed, structure=0.02):
    """Made-up spectra with noise, untold structure and holes."""
    _, flux, error = simulated(n, seed, True)
    rng = RNG(seed)
    noisy = flux + np.sqrt(error**2 + (structure * flux) ** 2) * rng.standard_normal(flux.shape)
    mask = rng.random(flux.shape) > 0.1
    return Spectra(np.where(mask, noisy, 0.0), error, mask, np.ones(n, bool))


@pytest.fixture(scope="module")
def known():
    return Resemblance.of(simulated(1500, 1, True)[1], [seen(300, 2)])


def p_values(known, flux, spectra):
    rows = zip(flux, spectra.error, spectra.mask, strict=True)
    return np.array([known.p_value(*row)[0] for row in rows])


def test_false_alarms_are_as_many_as_they_should_be(known):
    new = seen(300, 3)
    p = p_values(known, new.flux, new)
    assert (p < 0.05).mean() == pytest.approx(0.05, abs=0.045)
    assert np.abs(np.sort(p) - (np.arange(300) + 0.5) / 300).max() < 1.63 * np.sqrt(2 / 300)  # two samples, 1 %


@pytest.mark.parametrize(
    "spoil",
    [
        lambda f, e: RNG(1).permuted(f, axis=1),
        lambda f, e: f[:, ::-1],
        lambda f, e: f * (1 - 0.8 * (np.abs(np.arange(f.shape[1]) - 40) < 5)),
        lambda f, e: f * (1 + 0.6 * RNG(2).standard_normal(f.shape)),
    ],
    ids=["shuffled", "reversed", "a deep band of its own", "wild scatter"],
)
def test_what_training_does_not_hold_is_noticed(known, spoil):
    new = seen(60, 4)
    assert (p_values(known, spoil(new.flux, new.error), new) < 0.05).mean() > 0.7


def test_masked_pixels_do_not_count_and_the_flux_scale_does_not(known):
    new = seen(5, 5)
    once = p_values(known, new.flux, new)
    assert np.array_equal(p_values(known, np.where(new.mask, new.flux, 1e9), new), once)
    louder = replace(new, error=7 * new.error)
    assert p_values(known, 7 * new.flux, louder) == pytest.approx(once, abs=0.02)


def test_few_pixels_and_drowned_spectra_give_a_number(known):
    new = seen(2, 6)
    few = np.zeros_like(new.mask)
    few[:, 10:20] = True
    drowned = RNG(7).normal(0, 1, new.flux.shape)
    for flux, error, mask in ((new.flux, new.error, few), (drowned, np.ones_like(drowned), new.mask)):
        for row in zip(flux, error, mask, strict=True):
            assert 0 < known.p_value(*row)[0] <= 1


def test_a_trained_network_carries_the_components_of_its_data(tmp_path, one_thread):
    data = ArrayBatches(*simulated(600, 5, True), seed=5)
    trainer(tmp_path / "m", data=data, epochs=1).fit()
    network = Checkpoint.load(tmp_path / "m")
    network.save(tmp_path / "half.safetensors", half=True)
    stored = Checkpoint.load(tmp_path / "half.safetensors").resemblance
    assert stored is not None
    assert stored.components.shape == (MODEL.pixels // 4, MODEL.pixels)
    assert np.array_equal(stored.components, network.resemblance.components)
    new = seen(1, 8)
    spectrum = SimpleNamespace(flux=new.flux[0], error=new.error[0], mask=new.mask[0])
    p, name = Posterior([network]).resemblance(spectrum)
    assert p == stored.p_value(new.flux[0], new.error[0], new.mask[0])[0]
    assert name in STATISTICS
    assert Posterior([replace(network, resemblance=None)]).resemblance(spectrum) is None


def test_packaging_gives_components_to_a_network_that_has_none(tmp_path, toy_shards, one_thread):
    data = toy_shards(tmp_path / "train", 768)
    trainer(tmp_path / "m", data=Shards(data, masks=True), epochs=1).fit()
    whole = Checkpoint.load(tmp_path / "m")
    again = with_components(replace(whole, resemblance=None), data)
    assert np.allclose(np.abs(again.resemblance.components), np.abs(whole.resemblance.components), atol=1e-3)
    assert again.resemblance.null == pytest.approx(whole.resemblance.null, rel=1e-3, abs=1e-3)
    assert with_components(whole, tmp_path / "nowhere") is whole
    with pytest.raises(UserError, match="the network was trained on"):
        with_components(replace(whole, resemblance=None), toy_shards(tmp_path / "other", 128, amplitude=2.0))


@pytest.mark.parametrize(("p", "verdict"), [(0.4, "pass"), (0.02, "warn"), (0.002, "fail")])
def test_the_card_says_what_is_strange(p, verdict):
    check = resemblance_check(p, STATISTICS["blur"])
    assert check.verdict == verdict
    assert ("lower resolution" in check.sentence) == (verdict != "pass")
