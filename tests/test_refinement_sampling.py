"""Exact draws where the exact posterior is known: a linear model, alone and with radius, gains and structure."""

import numpy as np
import pytest
from linear_toy import PIXELS, SIGMA, bright_case, linear_case
from scipy.special import ndtri
from scipy.stats import chi2, kstest, multivariate_normal

from kappaflow.errors import UserError
from kappaflow.refinement.climb import Climb, climb
from kappaflow.refinement.coordinates import Coordinates
from kappaflow.refinement.emulated import EmulatedDensity
from kappaflow.refinement.emulator import Emulator, Lessons, expansion
from kappaflow.refinement.exact_chains import go_on, state_at
from kappaflow.refinement.follow import Follow, Followed, Places, places
from kappaflow.refinement.importance import judge, smoothed
from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.outer import Outer
from kappaflow.refinement.population import Population, bridged, effective, log_normalization, split_r_hat, walk
from kappaflow.refinement.sampling import Effort, sample
from kappaflow.refinement.warp import Warp

QUICK = Effort(chains=16, last=24, final=256)
LITTLE = Effort(chains=16, rounds=(1, 3), tuned=10, walked=10, last=16, final=128)


def moments(found, kept):
    weight = np.exp(found.weights.ln)
    mean = weight @ found.z[:, kept]
    off = found.z[:, kept] - mean
    return mean, (weight[:, None] * off).T @ off


def sampled(joint, seed=0, effort=QUICK):
    (top,) = climb(joint.expand, [Climb(np.zeros(joint.coordinates.size))], steps=80)
    assert top.here is not None
    return sample(joint, top.z, np.linalg.inv(top.here.information), np.random.default_rng(seed), effort=effort)


def test_draws_of_a_linear_model_have_the_exact_mean_and_covariance():
    joint, _, (mean, precision) = linear_case(0)
    found = sample(joint, mean, np.linalg.inv(precision), np.random.default_rng(0), effort=Effort(last=64))
    kept = np.arange(mean.size - 2)  # the gains are none
    covariance = np.linalg.inv(precision)[np.ix_(kept, kept)]
    m, c = moments(found, kept)
    error = np.sqrt(np.diag(covariance) / found.ess)
    assert (np.abs(m - mean[kept]) < 4.5 * error).all()
    np.testing.assert_allclose(np.diag(c), np.diag(covariance), rtol=5 * np.sqrt(2 / found.ess))
    assert found.pareto_k < 0.5
    assert found.r_hat < 1.1
    assert found.ess > 150


def test_the_evidence_of_a_linear_model_is_the_exact_one():
    joint, _, (mean, precision) = linear_case(2)
    found = sample(joint, mean, np.linalg.inv(precision), np.random.default_rng(0), effort=QUICK)
    model = joint.predictor
    rows = np.vstack([model.a, model.b[SIGMA > 0] * SIGMA[SIGMA > 0, None]])
    exact = multivariate_normal(np.full(PIXELS, 10.0), 0.64 * np.eye(PIXELS) + rows.T @ rows).logpdf(joint.data.flux)
    assert found.log_evidence == pytest.approx(exact, abs=0.05)


@pytest.fixture(scope="module")
def linear_runs():
    """Truth, mean and covariance of the parameters of forty linear models, data from the prior."""
    runs = []
    for seed in range(40):
        joint, truth, (mean, precision) = linear_case(seed)
        found = sample(joint, mean, np.linalg.inv(precision), np.random.default_rng(seed), effort=LITTLE)
        runs.append((truth[:2], *moments(found, np.arange(2))))
    return runs


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1.5, False), (1 / 1.5, False)])
def test_sampled_widths_are_neither_too_wide_nor_too_narrow(linear_runs, factor, passes):
    """The truth's distance from the draws' mean, by their covariance, is chi2 distributed over data from the prior."""
    total = sum((t - m) @ np.linalg.solve(c, t - m) for t, m, c in linear_runs) / factor**2
    dof = 2 * len(linear_runs)
    assert (chi2.ppf(0.001, dof) < total < chi2.ppf(0.999, dof)) == passes


@pytest.fixture(scope="module")
def bright_runs():
    """Truth, draws and weights of forty bent models with radius, gains, sigma_cal and structure."""
    runs = []
    for seed in range(40):
        joint, truth = bright_case(seed, bend=0.3, structure=True)
        found = sampled(joint, seed, LITTLE)
        runs.append((truth, found.z, np.exp(found.weights.ln)))
    return joint.coordinates.places, runs


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1.6, False), (1 / 1.6, False)])
def test_ranks_of_radius_structure_coefficients_and_a_bent_parameter_are_uniform(bright_runs, factor, passes):
    """Simulation-based calibration: truth from the prior, ranks among draws stretched by `factor`."""
    places, runs = bright_runs
    kept = [*range(3), places["structure"].start, *range(places["field"].start, places["field"].stop)]
    ranks = []
    for truth, z, weight in runs:
        draws = weight @ z + factor * (z - weight @ z)
        ranks.append((weight @ (draws < truth))[kept])
    each = [kstest(column, "uniform").pvalue for column in np.array(ranks).T]
    # Ranks of one run are dependent, which makes the pooled test lenient: its middle is what the arms move.
    inner = (np.abs(np.array(ranks) - 0.5) < 0.25).mean()
    assert (min(each) > 0.001 and abs(inner - 0.5) < 0.1) == passes


def test_without_a_distance_the_scale_is_sampled_in_place_of_the_radius():
    joint, truth = bright_case(3)
    held = Coordinates(joint.coordinates.box, SIGMA, structure=False, scale_free=True, held=(("R", 1.0),))
    free = Joint(joint.data, joint.predictor, held)
    found = sampled(free)
    radius2 = joint.coordinates.point(truth).theta[2] ** 2
    gains = 1 + joint.coordinates.point(truth).sigma_cal * joint.coordinates.point(truth).gains
    scale = found.z[:, held.places["scale"].start]
    weight = np.exp(found.weights.ln)
    mean = weight @ scale
    assert abs(mean - np.log(radius2 * gains.mean())) < 4 * np.sqrt(weight @ (scale - mean) ** 2)


@pytest.fixture
def double(monkeypatch):
    """Emulators in double precision, for differences."""
    monkeypatch.setattr("kappaflow.refinement.emulator.PRECISION", np.float64)


def taught_density(joint, truth, n=48):
    """Return an emulated density about the best fit, its covariance's root and exact spectra that it has not seen."""
    (top,) = climb(joint.expand, [Climb(np.zeros(truth.size))], steps=80)
    root = np.linalg.cholesky(np.linalg.inv(top.here.information))
    rng, outer = np.random.default_rng(0), Outer(joint)
    z = top.z + rng.standard_normal((2 * n, truth.size)) @ root.T
    flux = joint.fluxes([joint.coordinates.point(row) for row in z]) / outer.factor(z)[:, None]
    expanded = expansion(joint, top.z)
    emulator = Emulator(Warp(joint, top.z, *expanded), *expanded, Lessons(z[:n], flux[:n]))
    return EmulatedDensity(joint, emulator, top.z, root @ root.T), Lessons(z[n:], flux[n:])


def test_an_emulator_of_a_bent_model_is_the_model_and_knows_its_derivatives(double):
    density, fresh = taught_density(*bright_case(1, bend=0.3))
    emulator, outer = density.emulator, density.outer
    inputs = fresh.z[:6, outer.inputs]
    plain, made, pulled = emulator(inputs)
    np.testing.assert_array_equal(plain, inputs)  # nothing is known of columns: nothing is sheared
    factor = outer.factor(fresh.z[:6])[:, None]
    np.testing.assert_allclose(made * factor, fresh.flux[:6] * emulator.warp.white * factor, atol=0.05)
    weight, step = np.random.default_rng(1).standard_normal(made.shape), 1e-5
    slopes = pulled(np.zeros_like(inputs), weight)
    for i in range(outer.inputs.size):
        ends = [emulator(inputs + s * step * np.eye(outer.inputs.size)[i])[1] for s in (1, -1)]
        slope = (weight * (ends[0] - ends[1])).sum(axis=1) / (2 * step)
        np.testing.assert_allclose(slopes[:, i], slope, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("structure", [False, True])
@pytest.mark.parametrize("bend", [0.0, 0.3])
def test_the_force_of_the_emulated_density_is_its_gradient(double, bend, structure):
    density, fresh = taught_density(*bright_case(2, bend=bend, structure=structure))
    density.soft = 0.0  # the one thing that is blurred on purpose
    v = density.of(fresh.z[:3])
    _, force = density(v)
    step = 1e-5
    for i in range(v.shape[1]):
        ends = [density(v + s * step * np.eye(v.shape[1])[i])[0] for s in (1, -1)]
        np.testing.assert_allclose(force[:, i], (ends[0] - ends[1]) / (2 * step), rtol=1e-3, atol=2e-3)


def test_weights_of_an_emulator_that_is_right_are_all_the_same():
    """Radius, gains and structure are drawn for every place, and what that costs is paid in full."""
    density, fresh = taught_density(*bright_case(2, bend=0.3, structure=True))
    v = density.of(fresh.z)
    ln = judge(density.joint, density.complete(v, np.random.default_rng(0)), density(v)[0]).ln_weight
    assert ln.std() < 0.2


def test_exact_chains_forget_what_the_emulator_gets_wrong():
    """Stretched and shifted emulators propose; chains end at the exact posterior, which weights alone miss."""
    joint, _, (mean, precision) = linear_case(0)
    density, _ = taught_density(joint, mean)
    shifted = EmulatedDensity(joint, density.emulator, density.mode, density.covariance)
    shifted.data = density.data + 0.3  # a third of the noise, in every pixel
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(density.outer.covariance(mean, np.linalg.inv(precision)))
    start = density.of(mean[None]) + 0.5 * rng.standard_normal((32, len(root))) @ root.T
    seen = places(density, start)
    wrong = Followed(shifted, Follow.fitted(seen))
    chains = Population(wrong.of(start), wrong.root(seen))
    chains, _, _ = walk(wrong, chains, 20, rng, tune=True)
    _, biased, _ = walk(wrong, chains, 60, rng)
    state, _ = go_on(wrong, state_at(wrong, chains.at, rng), chains, 20, rng, trajectories=2)
    _, path = go_on(wrong, state, chains, 900, rng, trajectories=2)
    kept = np.arange(mean.size - 2)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))[kept]
    off = {
        name: np.abs(wrong.back(draws.reshape(-1, draws.shape[2])).mean(axis=0) - mean[kept]) / sd
        for name, draws in (("emulated", biased), ("exact", path.v))
    }
    error = 4.5 / np.sqrt(path.ess)
    assert off["emulated"].max() > 2 * error
    assert off["exact"].max() < error
    assert 0.1 < path.accepted < 0.95


def test_a_bridge_between_two_sets_of_draws_finds_the_ratio_of_their_constants():
    rng = np.random.default_rng(0)
    narrow, wide = rng.normal(0, 1, 4000), rng.normal(0, 1.5, 4000)

    def ln_weight(x):  # of a normal density of standard deviation 1, times e^3, over one of 1.5
        return 3.0 - 0.5 * x**2 + 0.5 * (x / 1.5) ** 2 + np.log(1.5)

    assert bridged(ln_weight(wide), ln_weight(narrow)) == pytest.approx(3.0, abs=0.05)


def test_a_walk_samples_a_normal_density_whatever_its_force_and_bridges_to_its_constant():
    covariance = np.array([[2.0, 0.6], [0.6, 0.5]])
    inverse = np.linalg.inv(covariance)

    def density(x, lie=0.8):
        return -0.5 * np.einsum("bi,ij,bj->b", x, inverse, x), -lie * x @ inverse

    rng = np.random.default_rng(0)
    start = Population(rng.standard_normal((32, 2)), np.eye(2))
    start, _, _ = walk(density, start, 100, rng, tune=True)
    _, path, values = walk(density, start, 300, rng)
    flat = path.reshape(-1, 2)
    np.testing.assert_allclose(np.cov(flat.T), covariance, atol=0.15)
    assert split_r_hat(path) < 1.05
    chain = np.tile(np.arange(32), 300)
    assert 1000 < effective(flat, np.ones(len(flat)), chain) <= len(flat)
    order = rng.permutation(len(flat))[:2000]
    exact = np.log(2 * np.pi) + 0.5 * np.log(np.linalg.det(covariance))
    assert log_normalization(density, flat[order], values.ravel()[order], rng, about=np.eye(2)) == pytest.approx(
        exact, abs=0.05
    )


def test_chains_that_disagree_and_weights_with_a_heavy_tail_are_noticed():
    rng = np.random.default_rng(0)
    path = rng.standard_normal((50, 8, 1))
    assert split_r_hat(path) < 1.05
    assert split_r_hat(path + np.arange(8)[None, :, None]) > 1.5
    assert smoothed(0.1 * rng.standard_normal(1000)).ess > 900
    heavy = smoothed(3.0 * np.abs(ndtri(rng.random(1000))))
    assert heavy.ess < 100
    assert heavy.pareto_k > smoothed(0.3 * rng.standard_normal(1000)).pareto_k


@pytest.mark.parametrize("slow", [1, 20])
def test_effective_draws_count_what_weights_and_slow_chains_cost(slow):
    """Independent draws, and draws that come twenty times each: the error of a mean says how many there are."""
    rng = np.random.default_rng(0)
    values = np.repeat(rng.standard_normal((8000 // slow, 1)), slow, axis=0)
    chain = np.arange(8000) // 125
    found = effective(values, np.ones(8000), chain)
    assert 0.6 < found * slow / 8000 < 1.6
    uneven = effective(values, np.exp(1.0 * rng.standard_normal(8000)), chain)
    assert uneven < 0.8 * found if slow == 1 else uneven < 1.2 * found


def cubic_places(n=3, count=60):
    """Places at which the rest follows a cubic of the parameters exactly."""
    rng = np.random.default_rng(3)
    u = 0.7 * rng.standard_normal((count, n))
    middle = np.stack([u[:, 0] ** 2 + 0.3 * u[:, 1] * u[:, 2], u[:, 0] - 0.1 * u[:, 2] ** 3], axis=1)
    slopes = np.zeros((count, n, 2))
    slopes[:, 0, 0], slopes[:, 1, 0], slopes[:, 2, 0] = 2 * u[:, 0], 0.3 * u[:, 2], 0.3 * u[:, 1]
    slopes[:, 0, 1], slopes[:, 2, 1] = 1.0, -0.3 * u[:, 2] ** 2
    return Places(u, middle, slopes, np.zeros((count, 5)), np.zeros((count, 5, 5)))


def test_the_rest_follows_a_cubic_and_its_slopes_are_differences():
    at = cubic_places()
    follow = Follow.fitted(at)
    value, slopes = follow(at.u)
    assert np.abs(value - at.middle).max() < 0.1 * np.abs(at.middle).max()
    step = 1e-5
    for i in range(3):
        ends = [follow(at.u + s * step * np.eye(3)[i])[0] for s in (1, -1)]
        np.testing.assert_allclose(slopes[:, i], (ends[0] - ends[1]) / (2 * step), atol=1e-6)
    far = at.u * 1e3
    push = follow.fence(far)
    assert (push[0] < 0).all()
    assert ((push[1] * far).sum(axis=1) < 0).all()
    assert (follow.fence(at.u)[0] == 0).all()


def test_a_few_places_make_a_quadratic_only():
    assert np.abs(Follow.fitted(cubic_places(count=8)).cubic).max() == 0


@pytest.mark.parametrize("structure", [False, True])
def test_coordinates_that_follow_keep_the_density_and_its_information_is_its_curvature(double, structure):
    density, fresh = taught_density(*bright_case(2, bend=0.3, structure=structure))
    density.soft = 0.0
    v = density.of(fresh.z[:40])
    seen = places(density, v)
    followed = Followed(density, Follow.fitted(seen))
    x = followed.of(v)
    np.testing.assert_allclose(followed.back(x), v, atol=1e-9)
    np.testing.assert_allclose(followed(x)[0], density(v)[0], atol=1e-4)
    force, step = followed(x[:2])[1], 1e-5
    for i in range(v.shape[1]):
        ends = [followed(x[:2] + s * step * np.eye(v.shape[1])[i])[0] for s in (1, -1)]
        np.testing.assert_allclose(force[:, i], (ends[0] - ends[1]) / (2 * step), rtol=1e-3, atol=2e-3)
    # Over data drawn from the model the mean of minus the curvature is the information; here the mean over places.
    curvature = np.zeros((v.shape[1], v.shape[1]))
    for i in range(v.shape[1]):
        ends = [density(v + s * 1e-3 * np.eye(v.shape[1])[i])[1] for s in (1, -1)]
        curvature[i] = -((ends[0] - ends[1]) / 2e-3).mean(axis=0)
    mean = seen.information.mean(axis=0)
    kept = np.arange(density.outer.smooth.size)
    scale = np.sqrt(np.diag(mean))
    off = np.abs(curvature - mean) / scale / scale[:, None]
    assert off[np.ix_(kept, kept)].max() < 0.25


def test_gains_without_anything_to_measure_them_by_are_refused():
    joint, _, _ = linear_case(0)
    loose = Joint(joint.data, joint.predictor, Coordinates(joint.coordinates.box, SIGMA, structure=False))
    with pytest.raises(UserError, match="hold sigma_cal at 0"):
        Outer(loose)
