"""Posteriors: exact on a toy, pooled fairly, inside the box, and refusing files that are not networks."""

import json
import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from inference_toy import BOX, PIXELS, batches, exact, exact_draws, small, spectra, trainer, variant
from safetensors.numpy import load_file, save_file
from scipy import stats

import kappaflow as kf
from kappaflow.errors import UserError
from kappaflow.inference import Checkpoint, Familiarity, Posterior, recipe
from kappaflow.inference.checkpoint import FILE
from kappaflow.presets import NetworkSize
from kappaflow.spectra import Box

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Three briefly trained members."""
    where = tmp_path_factory.mktemp("members")
    data = batches(800)
    for seed in range(3):
        trainer(where / str(seed), data=data, seed=seed, epochs=2).fit()
    return [where / str(seed) for seed in range(3)]


@pytest.fixture(scope="module")
def pooled(folders):
    return Posterior.load(*folders)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One network of the recipe that ships, trained until it is good: its inputs, its projections, its box.

    Smaller are the flow and the embedding; batch, rate and average suit 1,400 steps instead of 40,000.
    """
    shipped = recipe("kappaflow", NetworkSize(transforms=2, hidden=(32, 32), embedding=16))
    quick = shipped.training.model_copy(update={"batch": 256, "learning_rate": 2e-3, "ema": 0.995})
    folder = tmp_path_factory.mktemp("trained")
    settings = shipped.model_copy(update={"training": quick})
    return Posterior([trainer(folder, settings, data=batches(80_000), epochs=5).fit()])


def noisy(n, seed):
    theta, flux = spectra(n, seed)
    flux = flux + np.random.default_rng(seed + 1).normal(size=flux.shape)
    return theta, flux, np.ones_like(flux), np.ones(flux.shape, bool)


@pytest.fixture
def spectrum():
    _, flux, error, mask = noisy(1, 3)
    return SimpleNamespace(flux=flux[0], error=error[0], mask=mask[0])


def test_posterior_of_the_linear_gaussian_toy_is_told_from_the_exact_one_by_no_classifier(trained):
    """A classifier two-sample test (sbi's): 0.5 is indistinguishable.

    The classifier is a small network. sbi's default, a random forest, fits the noise of 1,000 draws in two dimensions:
    exact draws displaced by 0.2, which the best classifier tells in 66 % of cases, it tells in 58 % only.
    """
    from sbi.utils.metrics import c2st

    _, flux, error, mask = noisy(2, 11)
    ours = trained.sample_batch(flux, error, mask, n=1000, scale_known=True)
    true = [exact_draws(f, 1000)[0] for f in flux]

    def score(a, b):
        return float(c2st(torch.tensor(a).float(), torch.tensor(b).float(), seed=1, classifier="mlp"))

    assert max(score(a, b) for a, b in zip(ours, true, strict=True)) < 0.55
    assert min(score(ours[0] + [shift, 0.0], true[0]) for shift in (-0.2, 0.2)) > 0.6  # it can fail


def test_coverage_on_the_toy_is_nominal_at_four_levels_within_binomial_error(trained):
    n = 1000
    theta, flux, error, mask = noisy(n, 21)
    draws = trained.sample_batch(flux, error, mask, n=499, scale_known=True)
    ranks = (draws < theta[:, None]).mean(axis=1)
    for level in (0.50, 0.68, 0.90, 0.95):
        covered = (np.abs(ranks - 0.5) < level / 2).mean(axis=0)
        assert np.abs(covered - level).max() < 3 * np.sqrt(level * (1 - level) / n), level


def test_density_of_the_toy_is_the_exact_one(trained):
    _, flux, error, mask = noisy(1, 31)
    draws, share = exact_draws(flux[0], 2000)
    truth = stats.multivariate_normal(*exact(flux[0])).logpdf(draws) - np.log(share)
    ours = trained.log_prob(draws, SimpleNamespace(flux=flux[0], error=error[0], mask=mask[0], scale_known=True))
    assert np.mean(truth - ours) == pytest.approx(0, abs=0.1)  # Kullback-Leibler divergence, nats


def test_draws_lie_strictly_inside_the_box(pooled, spectrum):
    draws = pooled.sample(spectrum, n=3000)
    assert draws.shape == (3000, 2)
    assert draws.dtype == np.float64
    assert ((draws > -1) & (draws < 1)).all()


def test_members_are_pooled_by_concatenation_with_equal_counts(pooled, spectrum):
    draws, members = pooled.sample(spectrum, n=300), pooled.sample_members(spectrum, n=100)
    assert members.shape == (3, 100, 2)
    assert np.array_equal(draws, members.reshape(300, 2))
    assert len(pooled.sample(spectrum, n=200)) == 200


def test_a_member_draws_the_same_alone_and_in_the_ensemble(folders, pooled, spectrum):
    alone = Posterior.load(folders[0]).sample(spectrum, n=100)
    assert np.allclose(alone, pooled.sample_members(spectrum, n=100)[0], atol=1e-5)


def test_networks_of_other_data_are_not_pooled(folders):
    first, other = (Checkpoint.load(folder) for folder in folders[:2])
    elsewhere = replace(other, card=replace(other.card, digest="0123456789abcdef"))
    with pytest.raises(UserError, match="network 1 was trained on data 0123456789abcdef, network 0 on"):
        Posterior([first, elsewhere])


def test_seed_addresses_the_draws_and_rows_do_not_depend_on_the_batch(pooled):
    _, flux, error, mask = noisy(5, 5)
    whole = pooled.sample_batch(flux, error, mask, n=60)
    assert np.allclose(whole[:2], pooled.sample_batch(flux[:2], error[:2], mask[:2], n=60), atol=1e-5)
    assert not np.allclose(whole, pooled.sample_batch(flux, error, mask, n=60, seed=1))


def test_pooled_density_is_the_mean_of_the_members(folders, pooled, spectrum):
    theta = np.random.default_rng(0).uniform(-1, 1, (4, 5, 2))
    members = [Posterior.load(f).log_prob(theta, spectrum) for f in folders]
    assert np.allclose(np.exp(pooled.log_prob(theta, spectrum)), np.mean(np.exp(members), axis=0), rtol=1e-4)


def test_density_integrates_to_one_over_the_box_and_is_nothing_outside(pooled, spectrum):
    edge = (np.arange(200) + 0.5) / 100 - 1
    grid = np.stack(np.meshgrid(edge, edge), axis=-1)
    assert np.exp(pooled.log_prob(grid, spectrum)).mean() * 4 == pytest.approx(1, abs=0.01)
    assert pooled.log_prob(np.array([0.0, 1.5]), spectrum) == -np.inf


def test_one_spectrum_and_a_batch_agree_on_the_density(pooled):
    theta, flux, error, mask = noisy(3, 9)
    rows = pooled.log_prob_batch(theta, flux, error, mask, scale_known=True)
    one = SimpleNamespace(flux=flux[1], error=error[1], mask=mask[1], scale_known=True)
    assert pooled.log_prob(theta[1], one) == pytest.approx(rows[1], abs=1e-5)


def test_a_spectrum_without_distance_does_not_use_the_flux_scale(pooled, spectrum):
    brighter = SimpleNamespace(flux=1e3 * spectrum.flux, error=1e3 * spectrum.error, mask=spectrum.mask)
    assert np.allclose(pooled.sample(spectrum, n=30), pooled.sample(brighter, n=30), atol=1e-3)
    known = [SimpleNamespace(**vars(s), scale_known=True) for s in (spectrum, brighter)]
    assert not np.allclose(pooled.sample(known[0], n=30), pooled.sample(known[1], n=30), atol=1e-3)
    told = SimpleNamespace(**vars(spectrum), meta={"scale_known": True})
    assert np.array_equal(pooled.sample(told, n=30), pooled.sample(known[0], n=30))


def test_bad_pixels_are_masked_and_an_empty_spectrum_is_refused(pooled, spectrum):
    flux = spectrum.flux.copy()
    flux[3] = np.nan
    masked = SimpleNamespace(flux=spectrum.flux, error=spectrum.error, mask=np.arange(PIXELS) != 3)
    broken = SimpleNamespace(flux=flux, error=spectrum.error, mask=spectrum.mask)
    assert np.array_equal(pooled.sample(masked, n=30), pooled.sample(broken, n=30))
    with pytest.raises(UserError, match="spectrum 0: no good pixel"):
        pooled.sample(SimpleNamespace(flux=flux * np.nan, error=flux, mask=spectrum.mask))


def test_spectra_on_other_pixels_are_refused(pooled, spectrum):
    with pytest.raises(UserError, match=rf"flux has shape \(1, 5\); expected \(spectra, {PIXELS}\)"):
        pooled.sample(SimpleNamespace(flux=np.ones(5), error=np.ones(5), mask=np.ones(5, bool)))
    with pytest.raises(UserError, match="not the network's 32 pixels; resample"):
        pooled.sample(SimpleNamespace(**vars(spectrum), wavelength=pooled.wavelength + 0.1))
    with pytest.raises(UserError, match="no attribute 'mask'"):
        pooled.sample(SimpleNamespace(flux=spectrum.flux, error=spectrum.error))
    with pytest.raises(UserError, match=r"theta: shape \(3,\)"):
        pooled.log_prob(np.zeros(3), spectrum)


def test_summary_names_every_parameter_with_ordered_intervals(pooled, spectrum):
    rows = pooled.summary(spectrum, n=600)
    assert tuple(rows) == BOX.names
    for row in rows.values():
        assert row["90"][0] < row["68"][0] < row["median"] < row["68"][1] < row["90"][1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"box": Box(("a", "c"), (-1, -1), (1, 1))}, "network 1 has c and lacks b, unlike network 0"),
        ({"box": Box(("a", "b"), (-1, -1), (1, 2))}, "network 1 has other priors than network 0"),
        ({"wavelength": np.linspace(3, 5, PIXELS)}, "same pixels can be pooled"),
    ],
)
def test_networks_of_different_parameters_or_pixels_are_not_pooled(folders, change, said):
    one, other = (Checkpoint.load(f) for f in folders[:2])
    with pytest.raises(UserError, match=said):
        Posterior([one, replace(other, card=replace(other.card, **change))])


def test_no_network_at_all_is_refused():
    with pytest.raises(UserError, match="no network given"):
        Posterior([])


def test_without_packaged_networks_load_says_what_to_do(monkeypatch):
    monkeypatch.setattr("kappaflow.inference.posterior.packaged", list)
    with pytest.raises(UserError, match="carries no trained networks; make some with `kappaflow train"):
        kf.Posterior.load()


def test_a_checkpoint_comes_back_as_it_was(folders, tmp_path):
    one = Checkpoint.load(folders[0])
    again = Checkpoint.load(one.save(tmp_path / "copy.safetensors"))
    assert (tmp_path / "copy.safetensors").read_bytes() == (folders[0] / FILE).read_bytes()
    assert again.estimator.recipe == one.estimator.recipe
    assert again.card.digest == batches(800).card.digest
    assert again.metrics["spectra"] == 2 * 5 * 128


def test_half_precision_halves_the_file_and_keeps_the_posterior(trained, spectrum, tmp_path):
    whole, half = (trained.members[0].save(tmp_path / f"{h}.safetensors", half=h) for h in (False, True))
    assert half.stat().st_size < 0.65 * whole.stat().st_size
    one, other = (Posterior.load(path).sample(spectrum, n=2000) for path in (whole, half))
    assert np.abs(one - other).max() < 0.1 * one.std(axis=0).min()


def damaged(folders, path, change):
    """A copy of a network with its header changed."""
    source = folders[0] / FILE
    from safetensors import safe_open

    with safe_open(source, framework="numpy") as stream:
        header = json.loads(stream.metadata()["kappaflow"])
    arrays = change(header, load_file(source))
    save_file(arrays, path, metadata={"kappaflow": json.dumps(header)})


def other_version(header, arrays):
    header["version"] = 99
    return arrays


def other_format(header, arrays):
    header["format"] = "something else"
    return arrays


def other_weights(header, arrays):
    return {k: v + 1 for k, v in arrays.items()}


def other_recipe(header, arrays):
    header["recipe"]["flow"]["transforms"] = 5
    return arrays


def huge_recipe(header, arrays):
    header["recipe"]["embedding"]["features"] = 10**9
    return arrays


def no_recipe(header, arrays):
    del header["recipe"]
    return arrays


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_version, "version 99; this kappaflow reads version 1"),
        (other_format, "not a kappaflow-network"),
        (other_weights, "digest of its tensors does not match"),
        (other_recipe, "do not fit together"),
        (huge_recipe, "do not fit together"),
        (no_recipe, "do not fit together"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_refused(folders, tmp_path, change, said):
    damaged(folders, tmp_path / "x.safetensors", change)
    with pytest.raises(UserError, match=said):
        Posterior.load(tmp_path / "x.safetensors")


@pytest.mark.parametrize("kept", [0, 4, 100, 5000, -1])
def test_a_truncated_file_is_refused(folders, tmp_path, kept):
    (tmp_path / "x.safetensors").write_bytes((folders[0] / FILE).read_bytes()[:kept])
    with pytest.raises(UserError, match="truncated, damaged or not a safetensors file"):
        Posterior.load(tmp_path / "x.safetensors")


class Evil:
    """What a malicious checkpoint would hold."""

    def __reduce__(self):
        return (exec, ("import builtins; builtins.kappaflow_was_here = True",))


def test_a_pickle_that_would_execute_something_is_refused_and_executes_nothing(tmp_path):
    import builtins

    path = tmp_path / "evil.safetensors"
    for payload in (pickle.dumps(Evil()), None):
        if payload is None:
            torch.save({"weights": Evil()}, path)
        else:
            path.write_bytes(payload)
        with pytest.raises(UserError, match="pickles are never read"):
            Posterior.load(path)
    assert not hasattr(builtins, "kappaflow_was_here")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="nothing/network.safetensors: no such file"):
        Posterior.load(tmp_path / "nothing")


def test_familiar_spectra_have_ordinary_p_values_and_strange_ones_small(pooled, trained, spectrum, tmp_path):
    """Told by a network whose channels keep the contrast, which the shipped ones divide out of 32 noisy pixels."""
    flux = np.random.default_rng(0).uniform(1, 300, PIXELS)
    strange = SimpleNamespace(flux=flux, error=spectrum.error, mask=spectrum.mask)
    assert [row["p_value"] > 0.01 for row in pooled.familiarity(spectrum)] == [True] * 3
    assert trained.familiarity(spectrum)[0]["p_value"] > 0.01
    contrast = trainer(tmp_path, variant(small(), "four channels"), data=batches(4000), epochs=3).fit()
    assert Posterior([contrast]).familiarity(spectrum)[0]["p_value"] > 0.01
    assert Posterior([contrast]).familiarity(strange)[0]["p_value"] < 0.05


def test_p_values_of_the_distance_are_uniform_on_the_distribution_they_come_from():
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(6, 6))
    known = Familiarity.of(rng.normal(size=(4000, 6)) @ mix, rng.normal(size=(4000, 6)) @ mix)
    new = rng.normal(size=(4000, 6)) @ mix
    p = known.p_value(known.distance(new))
    assert np.allclose(np.quantile(p, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.03)
    # In whitened coordinates the squared distance is chi-squared with as many degrees of freedom as dimensions.
    assert (known.distance(new) ** 2).mean() == pytest.approx(6, rel=0.05)


def test_a_direction_training_never_used_does_not_break_the_distance():
    rng = np.random.default_rng(0)
    cloud = rng.normal(size=(500, 4))
    cloud[:, 2] = 0.0
    known = Familiarity.of(cloud[:250], cloud[250:])
    assert np.isfinite(known.distance(np.ones(4)))
    assert known.p_value(known.distance(np.array([0.0, 0.0, 5.0, 0.0]))) < 0.05
