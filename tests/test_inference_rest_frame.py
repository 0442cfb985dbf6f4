"""Spectra at rest: velocity, holes and scatter, on made-up lines whose truth is known."""

import numpy as np
import pytest
import torch

from kappaflow.inference import recipe
from kappaflow.inference.features import Features
from kappaflow.inference.rest_frame import WINDOWS
from kappaflow.presets import NetworkSize
from kappaflow.spectra import Box, Spectra

PIXELS = 400
BOX = Box(names=("depth", "v_r"), low=(0.0, -100.0), high=(1.0, 100.0))
SIZE = NetworkSize(transforms=2, hidden=(16, 16), embedding=8)
VELOCITY, SCATTER = slice(-2, None), slice(4, 4 + WINDOWS)  # of the scalars


def lines(n, seed=0):
    """Noise-free spectra (n, PIXELS) of ten depths of sixty lines, and velocities: 100 are a pixel and a half."""
    rng = np.random.default_rng(seed)
    velocity = rng.uniform(-100, 100, n)
    place = np.linspace(5, PIXELS - 5, 60) + np.random.default_rng(7).uniform(-2, 2, 60)
    which = np.random.default_rng(8).integers(0, 10, 60)
    depth = np.exp(0.5 * rng.standard_normal((n, 10)))[:, which]
    pixel = np.arange(PIXELS)
    flux = np.full((n, PIXELS), 1.0)
    for k in range(60):
        flux += depth[:, k, None] * np.exp(-0.5 * ((pixel - place[k] - 0.015 * velocity[:, None]) / 1.2) ** 2)
    return flux.astype(np.float32), np.column_stack([rng.random(n), velocity])


def batch(flux, error, mask, seed=0, f=0.0):
    wide = np.hypot(error, f * flux)
    noisy = (flux + wide * np.random.default_rng(seed).standard_normal(flux.shape)).astype(np.float32)
    return Spectra(noisy, np.broadcast_to(error, flux.shape).astype(np.float32), mask, np.ones(len(flux), bool))


@pytest.fixture(scope="module")
def features():
    flux, theta = lines(4000)
    made = Features(recipe("kappaflow", SIZE).inputs, PIXELS)
    made.learn(flux, theta, BOX, [batch(flux[:500], 0.02 * flux[:500], np.ones((500, PIXELS), bool))])
    return made


def holes(n, seed=3):
    """Masks (n, PIXELS): single pixels and one wide stretch are bad."""
    rng = np.random.default_rng(seed)
    mask = rng.random((n, PIXELS)) < 0.8
    start = rng.integers(0, PIXELS - 60, n)[:, None]
    at = np.arange(PIXELS)
    return mask & ~((at >= start) & (at < start + 60))


@pytest.mark.parametrize("masked", [False, True])
def test_a_velocity_is_measured_to_its_error(features, masked):
    flux, theta = lines(400, seed=1)
    mask = holes(400) if masked else np.ones(flux.shape, bool)
    told = features.prepare(batch(flux, 0.05 * flux, mask)).scalars[:, VELOCITY].numpy()
    off = 100 * told[:, 0] - theta[:, 1]
    spread = 100 * np.exp(told[:, 1])
    assert np.median(np.abs(off)) < 3.0  # of 200, a twentieth of a pixel
    assert abs(np.median(off / spread)) < 0.3
    # What is expected in a hole looks like measured: the spread of spectra with holes is told too small.
    assert 0.7 < np.std(off / spread) < (3.0 if masked else 1.6)


def test_an_unknown_velocity_is_not_told():
    flux, theta = lines(1000)
    made = Features(recipe("kappaflow", SIZE).inputs, PIXELS)
    seen = batch(flux, 0.02 * flux, np.ones(flux.shape, bool))
    made.learn(flux, theta[:, :1], Box(names=("depth",), low=(0.0,), high=(1.0,)), [seen])
    assert (made.prepare(seen).scalars[:, VELOCITY] == 0).all()


def test_spectra_are_seen_at_rest_and_whole(features):
    """Moved or not, with holes or without, they look the same but for noise."""
    flux, _ = lines(100, seed=2)
    whole = np.ones(flux.shape, bool)
    at_rest = features.prepare(batch(flux, 0.01 * flux, whole)).channels[:, 0].numpy()
    filled = features.prepare(batch(flux, 0.01 * flux, holes(100))).channels[:, 0].numpy()
    # A hole that takes a line away is filled from lines of the same depth elsewhere.
    away = np.abs(filled - at_rest)[~holes(100)]
    assert np.median(away) < 0.03
    rng = np.random.default_rng(5)
    order = rng.permutation(100)
    assert at_rest.std(axis=0).mean() > 0.2  # they are different spectra
    assert np.abs(at_rest - at_rest[order]).mean() > 5 * np.median(away)


@pytest.mark.parametrize("f", [0.0, 0.05, 0.2])
def test_scatter_beyond_the_errors_is_told_window_by_window(features, f):
    """Ln of s / error, s^2 = error^2 + (f F)^2, less what the directions take."""
    flux, _ = lines(300, seed=1)
    seen = batch(flux, 0.05 * flux, np.ones(flux.shape, bool), f=f)
    told = features.prepare(seen).scalars[:, SCATTER].numpy().mean(axis=0)
    expected = np.log(np.hypot(0.05, f) / 0.05) + 0.5 * np.log(1 - 64 / PIXELS)
    np.testing.assert_allclose(told, expected, atol=0.12)


def test_scatter_of_good_pixels_does_not_know_of_the_others(features):
    flux, _ = lines(200, seed=2)
    mask = np.random.default_rng(2).random(flux.shape) < 0.8
    mask[:, :50] = False  # the whole first window
    seen = batch(flux, 0.05 * flux, mask)
    told = features.prepare(seen).scalars
    assert (told[:, SCATTER.start] == 0).all()
    assert (told[:, SCATTER.start + 1 : SCATTER.stop] != 0).all()
    spoiled = Spectra(np.where(mask, seen.flux, 1e3).astype(np.float32), seen.error, mask, seen.scale_known)
    assert torch.equal(features.prepare(spoiled).scalars, told)
