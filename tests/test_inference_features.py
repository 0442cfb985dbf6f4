"""What the network sees of a spectrum, and the embeddings against the plain layers they stand for."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from kappaflow.inference import recipe, variant
from kappaflow.inference.embedding import PooledCNN, Projected, StridedCNN
from kappaflow.inference.features import CHANNELS, Features, asinh
from kappaflow.presets import NetworkSize
from kappaflow.spectra import Spectra

PIXELS = 50
SIZE = NetworkSize(transforms=2, hidden=(16, 16), embedding=8)


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    flux = rng.lognormal(1, 0.5, (6, PIXELS)) * 10.0 ** rng.uniform(-3, 3, (6, 1))
    error = flux.mean(axis=1, keepdims=True) * rng.uniform(0.02, 0.05, (6, PIXELS))
    mask = rng.random((6, PIXELS)) < 0.7
    return Spectra(*(a.astype(np.float32) for a in (flux, error)), mask, np.ones(6, bool))


def features(name, batch, instead=None):
    whole = recipe(name, SIZE)
    made = Features((variant(whole, instead) if instead else whole).inputs, PIXELS)
    made.fit([batch])
    return made


@pytest.mark.parametrize("name", ["paper", "kappaflow"])
def test_masked_pixels_do_not_matter_whatever_they_hold(name, batch):
    made = features(name, batch)
    spoiled = replace(batch, flux=np.where(batch.mask, batch.flux, np.nan), error=np.where(batch.mask, batch.error, -1))
    one, other = made.prepare(batch), made.prepare(spoiled)
    assert torch.equal(one.channels, other.channels)
    assert torch.equal(one.scalars, other.scalars)


@pytest.mark.parametrize("name", ["paper", "kappaflow"])
def test_channels_do_not_know_the_absolute_flux(name, batch):
    made = features(name, batch)
    brighter = replace(batch, flux=100 * batch.flux, error=100 * batch.error)
    assert torch.allclose(made.prepare(batch).channels, made.prepare(brighter).channels, atol=1e-4)


def test_arrays_may_run_backwards_in_memory(batch):
    made = features("kappaflow", batch)
    views = {name: getattr(batch, name)[:, ::-1] for name in ("flux", "error", "mask")}
    copies = {name: view.copy() for name, view in views.items()}
    one, other = (made.prepare(replace(batch, **arrays)) for arrays in (views, copies))
    assert torch.equal(one.channels, other.channels)


def test_flux_scale_is_in_the_context_only_where_it_is_known(batch):
    made = features("kappaflow", batch)
    brighter = replace(batch, flux=100 * batch.flux, error=100 * batch.error)
    hidden = np.zeros(6, bool)
    known, unknown = made.prepare(batch).scalars, made.prepare(replace(batch, scale_known=hidden)).scalars
    assert torch.allclose(made.prepare(replace(brighter, scale_known=hidden)).scalars, unknown, atol=1e-4)
    moved = (made.prepare(brighter).scalars - known)[:, 1]
    assert torch.allclose(moved, np.log(100) / made.scale[1].expand(6), rtol=1e-3)
    assert known[:, 2].eq(1).all()
    assert unknown[:, 1:3].eq(0).all()


def test_snr_is_the_median_over_good_pixels(batch):
    context = features("paper", batch).prepare(batch).scalars[:, 0]
    expected = [np.median((f / e)[m]) for f, e, m in zip(batch.flux, batch.error, batch.mask, strict=True)]
    assert np.allclose(context * 95 + 105, expected, rtol=1e-4)


def test_papers_channel_is_log_flux_with_its_own_mean_and_deviation_out(batch):
    whole = replace(batch, mask=np.ones_like(batch.mask))
    channel = features("paper", whole).prepare(whole).channels[:, 0]
    log = np.log(whole.flux)
    expected = (log - log.mean(axis=1, keepdims=True)) / log.std(axis=1, ddof=1, keepdims=True)
    assert np.allclose(channel, expected, atol=1e-3)


def test_non_positive_flux_is_floored_where_logarithms_are_taken(batch):
    flux = batch.flux.copy()
    flux[:, 3] *= -1
    mask = np.ones_like(batch.mask)
    once = replace(batch, flux=flux, mask=mask)
    deeper = replace(once, flux=np.where(np.arange(PIXELS) == 3, 2 * flux, flux))
    for name, instead in (("paper", None), ("kappaflow", "strided CNN on log flux")):
        ours = features(name, replace(batch, mask=mask), instead)
        assert torch.isfinite(ours.prepare(once).channels).all()
        assert torch.allclose(ours.prepare(deeper).channels, ours.prepare(once).channels, atol=1e-5)


def test_the_context_keeps_the_spread_that_the_log_channel_divides_by(batch):
    whole = replace(batch, mask=np.ones_like(batch.mask))
    spread = features("kappaflow", whole).prepare(whole).scalars[:, 3]
    assert np.allclose(spread, np.log(np.log(whole.flux).std(axis=1, ddof=1)), atol=1e-4)


def test_scaling_standardizes_good_pixels(batch):
    rng = np.random.default_rng(1)
    flux = (5 + rng.normal(size=(4000, PIXELS))).astype(np.float32)
    mask = rng.random(flux.shape) < 0.5
    many = Spectra(flux, np.ones_like(flux), mask, np.ones(4000, bool))
    channel = features("kappaflow", many, "four channels").prepare(many).channels[:, 0].numpy()
    for i in range(0, PIXELS, 10):
        good = channel[mask[:, i], i]
        assert abs(good.mean()) < 1e-3
        assert good.std() == pytest.approx(1, abs=1e-3)
    assert (channel[~mask] == 0).all()


def test_asinh_is_numpys():
    x = np.concatenate([-np.logspace(-6, 6, 100), [0.0], np.logspace(-6, 6, 100)]).astype(np.float32)
    assert np.allclose(asinh(torch.from_numpy(x)), np.arcsinh(x), rtol=1e-6)


def test_every_channel_a_recipe_names_exists():
    for name in ("paper", "kappaflow"):
        assert set(recipe(name, SIZE).inputs.channels) <= set(CHANNELS)


def test_pooled_embedding_is_the_plain_stack_of_layers():
    torch.manual_seed(0)
    config = recipe("paper", SIZE).embedding
    ours = PooledCNN(config, 1, 203)
    layers = []
    for conv in ours.blocks:
        layers += [conv, nn.ReLU(), nn.MaxPool1d(2)]
    plain = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), ours.out)
    x = torch.randn(5, 1, 203)
    assert torch.allclose(ours(x), plain(x), atol=1e-5)
    assert len(ours.blocks) == 5
    assert all(conv.kernel_size == (7,) for conv in ours.blocks)


@pytest.mark.parametrize("pixels", [200, 203])
def test_strided_embedding_is_the_plain_stack_of_layers(pixels):
    torch.manual_seed(0)
    ours = StridedCNN(variant(recipe("kappaflow", SIZE), "strided CNN on log flux").embedding, 4, pixels).eval()
    x = torch.randn(5, 4, pixels)
    y = x
    for conv in ours.blocks:
        y = torch.relu(conv(y))
    flat = torch.relu(ours.flat(y.flatten(1)))
    assert torch.allclose(ours(x), ours.out(torch.relu(ours.mix(flat))), atol=1e-5)


def test_projections_begin_as_components_of_the_clean_spectra_with_unit_variance_over_noisy_ones():
    rng = np.random.default_rng(1)
    clean = torch.as_tensor(rng.normal(size=(400, 6)) @ rng.normal(size=(6, PIXELS)) + 3.0, dtype=torch.float32)
    size = recipe("kappaflow", SIZE).embedding.model_copy(update={"components": 6})
    made = Projected(size, 2, PIXELS)
    noisy = clean + torch.as_tensor(rng.normal(size=clean.shape), dtype=torch.float32)
    made.begin(clean, noisy)
    seen = made.first(clean).detach().numpy()
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-3)
    covariance = np.cov(seen.T)
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=0.02)
    assert (np.diag(covariance) < 1).all()  # the rest of it is noise
    np.testing.assert_allclose(made.first(noisy).detach().numpy().std(axis=0), 1, rtol=0.02)
    assert made(torch.stack((clean, torch.ones_like(clean)), dim=1)).shape == (400, SIZE.embedding)
