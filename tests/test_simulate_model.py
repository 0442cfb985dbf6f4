"""Simulation with the packaged forward model: nothing is lost, and every switch does one thing."""

import numpy as np
import pytest

import kappaflow as kf
from kappaflow.parameters import bounds
from kappaflow.simulation import Backend, make_config, read_shard, simulate_directory
from kappaflow.simulation.config import load_model, plan_shards
from kappaflow.simulation.directory import shard_path
from kappaflow.simulation.run import ShardJob


@pytest.fixture(scope="module")
def model():
    return load_model(make_config(preset="tiny"))


@pytest.fixture(scope="module")
def table(model):
    return simulate(model, n=512)


def simulate(model, n=128, **options):
    return kf.simulate(n=n, preset="tiny", seed=11, load=lambda recipe: model, **options)


def test_every_draw_of_the_prior_gives_a_finite_positive_spectrum(table, model):
    assert table.flux.shape == (512, len(model.wavelength))
    assert np.isfinite(table.flux).all()
    assert (table.flux > 0).all()


def test_no_corner_of_the_prior_is_discarded(model):
    low, high = bounds()
    rng = np.random.default_rng(0)
    corners = np.where(rng.random((256, 15)) < 0.5, low, high)
    flux = model(corners, field=3 * np.ones(54))
    assert np.isfinite(flux).all()
    assert (flux > 0).all()


def test_a_shard_has_the_same_bytes_alone_and_after_others(model):
    job = ShardJob(plan_shards(make_config(preset="tiny"), 3, model))
    first = job.make(model, 2)
    job.make(model, 1)
    assert job.make(model, 2) == first


def test_none_is_the_model_without_a_field_bit_for_bit(model):
    clean = simulate(model, perturb="none")
    assert not clean.field.any()
    assert np.array_equal(clean.flux, model(clean.theta))


def test_a_pinned_list_is_the_model_with_that_list(model):
    pinned = simulate(model, perturb="none", pin={"CH4": model.names["CH4"][1]})
    assert np.array_equal(pinned.flux, model(pinned.theta, lists={"CH4": model.names["CH4"][1]}))
    assert not np.array_equal(pinned.flux, model(pinned.theta))


def test_the_smooth_field_moves_the_flux_and_leaves_the_parameters(table, model):
    clean = simulate(model, n=512, perturb="none")
    assert np.array_equal(clean.theta, table.theta)
    change = np.abs(np.log(table.flux / clean.flux))
    assert 0.005 < np.median(change.max(axis=1)) < 3


def test_broadening_changes_the_spectra_and_not_the_71_columns(model):
    wide = load_model(make_config(preset="tiny", broadening=(1.30, -0.15)))
    narrow, broad = simulate(model), simulate(wide, broadening=(1.30, -0.15))
    assert np.array_equal(narrow.columns, broad.columns)
    response = np.abs(np.log(broad.flux / narrow.flux)).max(axis=1)
    assert (response > 1e-4).mean() > 0.5
    assert wide.digest != model.digest


def test_worker_processes_write_what_the_same_model_computes(tmp_path, model):
    """The path of the command line: processes of their own that load the packaged tables themselves."""
    simulate_directory(tmp_path, make_config(preset="tiny"), 256, seed=5, backend=Backend(1))
    plan = plan_shards(make_config(preset="tiny"), 5, model)
    for index in range(2):
        shard, address = read_shard(shard_path(tmp_path, index))
        here = model(shard.theta, field=shard.field, lists=dict(plan.combinations[shard.combination[0]]))
        # Tables are prepared by BLAS, whose number of threads (one in a worker) decides the last bits.
        assert np.allclose(shard.flux, here, rtol=1e-4)
        assert address["digest"] == plan.digest
