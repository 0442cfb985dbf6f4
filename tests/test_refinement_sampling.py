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
from kappaflow.refinement.emulator import Emulator, design
from kappaflow.refinement.importance import smoothed
from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.outer import Outer
from kappaflow.refinement.population import Population, efficiency, log_normalization, split_r_hat, walk
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


def test_an_emulator_of_a_bent_model_is_the_model_and_knows_its_derivatives():
    joint, truth = bright_case(1, bend=0.3)
    rng = np.random.default_rng(0)
    (top,) = climb(joint.expand, [Climb(np.zeros(truth.size))], steps=80)
    covariance = np.linalg.inv(top.here.information)
    z = top.z + rng.standard_normal((12, truth.size)) @ np.linalg.cholesky(covariance).T
    z[0] = top.z
    made, outer = design(joint, z), Outer(joint)
    emulator = Emulator(Warp(joint, top.z, made.flux[0], made.slopes[0]), made, covariance)
    fresh = top.z + rng.standard_normal((6, truth.size)) @ np.linalg.cholesky(covariance).T
    exact = joint.fluxes([joint.coordinates.point(row) for row in fresh])
    none = np.zeros((6, 0))
    made, pulled = emulator(fresh[:, outer.inputs], none)
    np.testing.assert_allclose(made * outer.factor(fresh)[:, None], emulator.project(exact), atol=0.05)
    weight, step = rng.standard_normal(made.shape), 1e-5
    for i in range(outer.inputs.size):
        shift = step * np.eye(outer.inputs.size)[i]
        ends = [emulator(fresh[:, outer.inputs] + s * shift, none)[0] for s in (1, -1)]
        slope = (weight * (ends[0] - ends[1])).sum(axis=1) / (2 * step)
        np.testing.assert_allclose(pulled(weight)[0][:, i], slope, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bend", [0.0, 0.3])
def test_the_force_of_the_emulated_density_is_its_gradient(bend):
    joint, truth = bright_case(2, bend=bend)
    (top,) = climb(joint.expand, [Climb(np.zeros(truth.size))], steps=80)
    covariance = np.linalg.inv(top.here.information)
    rng = np.random.default_rng(0)
    z = np.vstack([top.z, top.z + 0.5 * rng.standard_normal((8, truth.size)) @ np.linalg.cholesky(covariance).T])
    lessons = design(joint, z[:6]).joined(
        design(joint, z[6:], joint.fluxes([joint.coordinates.point(row) for row in z[6:]]))
    )
    warp = Warp(joint, top.z, lessons.flux[0], lessons.slopes[0])
    density = EmulatedDensity(joint, Emulator(warp, lessons, covariance), top.z, covariance)
    density.soft = 0.0  # the one thing that is blurred on purpose
    v = density.of(z[1:4])
    _, force = density(v)
    step = 1e-5
    for i in range(v.shape[1]):
        ends = [density(v + s * step * np.eye(v.shape[1])[i])[0] for s in (1, -1)]
        np.testing.assert_allclose(force[:, i], (ends[0] - ends[1]) / (2 * step), rtol=1e-3, atol=2e-3)


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
    assert 0.05 < efficiency(path) <= 1
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


def test_gains_without_anything_to_measure_them_by_are_refused():
    joint, _, _ = linear_case(0)
    loose = Joint(joint.data, joint.predictor, Coordinates(joint.coordinates.box, SIGMA, structure=False))
    with pytest.raises(UserError, match="hold sigma_cal at 0"):
        Outer(loose)
