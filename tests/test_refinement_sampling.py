"""Exact draws where the exact posterior is known: a linear model, alone and with radius, gains and structure."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from linear_toy import PIXELS, SIGMA, bright_case, linear_case
from scipy.special import ndtri
from scipy.stats import chi2, kstest, multivariate_normal

from kappaflow.errors import UserError
from kappaflow.refinement.climb import Climb, climb
from kappaflow.refinement.collapsed import Collapsed
from kappaflow.refinement.coordinates import Coordinates
from kappaflow.refinement.emulator import About, Emulator, Lessons
from kappaflow.refinement.exact_chains import go_on, state_at
from kappaflow.refinement.importance import judge, smoothed
from kappaflow.refinement.lead import Lead
from kappaflow.refinement.likelihood import Joint, marginal_log_likelihood
from kappaflow.refinement.outer import Outer
from kappaflow.refinement.population import Population, bridged, effective, log_normalization, split_r_hat, walk
from kappaflow.refinement.refresh import Refresh
from kappaflow.refinement.sampling import Effort, Learned, sample

QUICK = Effort(chains=16, last=24, final=256)
LITTLE = Effort(chains=16, rounds=(1, 3), last=16, walks=2, final=128)


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
    """Pixels in double precision, for differences."""
    monkeypatch.setattr("kappaflow.refinement.collapsed.PRECISION", np.float64)


def first_density(joint, z, covariance, lessons):
    """Return the density on an emulator about `z`, the rest looked for by Laplace's `covariance`."""
    about = About(joint, z)
    outer, order = about.outer, np.concatenate(Collapsed.parts(about))
    both = np.concatenate([outer.of(z[None])[0], z[outer.structure], z[outer.field]])[order]
    k = len(Collapsed.parts(about)[0])
    lead = Lead.straight(both[:k], both[k:], outer.covariance(z, covariance)[np.ix_(order, order)])
    return Collapsed(Emulator(about, lessons), lead, covariance)


def taught_density(joint, truth, n=48):
    """Return the density on an emulator about the best fit, and exact spectra that it has not seen."""
    (top,) = climb(joint.expand, [Climb(np.zeros(truth.size))], steps=80)
    covariance = np.linalg.inv(top.here.information)
    rng, outer = np.random.default_rng(0), Outer(joint)
    z = top.z + rng.standard_normal((2 * n, truth.size)) @ np.linalg.cholesky(covariance).T
    flux = joint.fluxes([joint.coordinates.point(row) for row in z]) / outer.factor(z)[:, None]
    return first_density(joint, top.z, covariance, Lessons(z[:n], flux[:n])), Lessons(z[n:], flux[n:])


def test_an_emulator_of_a_bent_model_is_the_model_and_knows_its_derivatives():
    density, fresh = taught_density(*bright_case(1, bend=0.3))
    emulator, about = density.emulator, density.about
    inputs = fresh.z[:6, about.outer.inputs]

    def shares(inputs):
        theta, _, field = about.points(inputs)
        return emulator.shares(inputs, about.thin.at(theta), field)

    made, bends = shares(inputs)
    factor = about.outer.factor(fresh.z[:6])[:, None]
    np.testing.assert_allclose(made @ emulator.rows * factor, fresh.flux[:6] * about.white * factor, atol=0.05)
    # What bends is 0 at the mode, and so are its slopes.
    few, step = bends.shape[2], 1e-5
    assert np.abs(shares(about.centre[None])[0][:, -few:]).max() < 1e-9
    for i in range(about.outer.inputs.size):
        ends = [
            shares(at + s * step * np.eye(inputs.shape[1])[i])[0]
            for at in (inputs, about.centre[None])
            for s in (1, -1)
        ]
        slope = (ends[0] - ends[1]) / (2 * step)
        if i >= about.count:
            np.testing.assert_allclose(bends[:, i - about.count], slope[:, -few:], rtol=1e-5, atol=1e-6)
        assert np.abs(ends[2] - ends[3])[:, -few:].max() / (2 * step) < 1e-5


def exact_marginal(joint, x, level=None):
    """Ln density of smooth parameters and D of a linear model without structure, its coefficients integrated out."""
    model, c, data = joint.predictor, joint.coordinates, joint.data
    rows = model.b[c.varied] * SIGMA[c.varied, None]
    bright = np.ones(PIXELS) if level is None else np.exp(level + x[2] * (0.5 - data.detector))
    left = data.flux - bright * (10 + x[:2] @ model.a)
    prior = -0.5 * (x[:2] @ x[:2]) if level is None else Outer(joint).prior(np.array([[*x[:2], level, x[2]]]))[0][0]
    return prior + marginal_log_likelihood(left, bright * rows, data.error**2) + 0.5 * np.log(2 * np.pi) * len(rows)


def test_integrated_out_coefficients_of_a_linear_model_leave_the_exact_marginal_likelihood(double):
    joint, _, (mean, precision) = linear_case(1)
    density, fresh = taught_density(joint, mean)
    x = density.of(fresh.z[:12])
    exact = [exact_marginal(joint, row) for row in x]
    np.testing.assert_allclose(density.value(x) - density.lead.fence(x)[0], exact, atol=1e-6)
    # All of the information is in the parameters, and it is that of the marginal posterior.
    marginal = np.linalg.inv(np.linalg.inv(precision)[:2, :2])
    np.testing.assert_allclose(density.information(x), np.tile(marginal, (len(x), 1, 1)), rtol=1e-5, atol=1e-5)


def test_pixels_in_single_precision_are_off_by_less_than_a_hundredth_of_a_nat():
    joint, _, (mean, _) = linear_case(1)
    density, fresh = taught_density(joint, mean)
    x = density.of(fresh.z[:12])
    exact = [exact_marginal(joint, row) for row in x]
    np.testing.assert_allclose(density.value(x) - density.lead.fence(x)[0], exact, atol=0.01)


def test_integrated_out_brightness_is_a_quadrature_of_it(double):
    joint, truth = bright_case(2)
    density, fresh = taught_density(joint, truth)
    x = density.of(fresh.z[:6])
    for row, value in zip(x, density.value(x) - density.lead.fence(x)[0], strict=True):
        levels = density.middle[0] + np.linspace(-0.02, 0.02, 201)  # twelve standard deviations either way
        ln = np.array([exact_marginal(joint, row, level) for level in levels])
        exact = np.logaddexp.reduce(ln) + np.log(levels[1] - levels[0])
        assert value == pytest.approx(exact, abs=0.02)  # it is nearly normal in L


def test_information_is_that_of_the_normal_density_about_the_mode():
    """Smooth parameters, D and structure held, brightness and coefficients integrated out."""
    density, _ = taught_density(*bright_case(2))
    about, outer = density.about, density.outer
    precision = np.linalg.inv(outer.covariance(about.z, density.covariance))
    n, rest = about.count, Collapsed.parts(about)[1]
    cross = precision[:n, rest]
    marginal = precision[:n, :n] - cross @ np.linalg.solve(precision[np.ix_(rest, rest)], cross.T)
    found = density.information(density.of(about.z[None]))[0]
    np.testing.assert_allclose(found[:n, :n], marginal, atol=0.02 * marginal.diagonal().max())


@pytest.mark.parametrize("structure", [False, True])
@pytest.mark.parametrize("bend", [0.0, 0.3])
def test_the_force_is_the_gradient_but_for_how_the_width_of_the_rest_changes(double, bend, structure):
    density, fresh = taught_density(*bright_case(2, bend=bend, structure=structure))
    density.soft = 0.0  # the one thing that is blurred on purpose
    density.lead = replace(density.lead, radius=-0.5)  # most are beyond the fence
    x = density.of(fresh.z[:6])
    assert (density.lead.fence(x)[0] < 0).any()

    def plain(at):
        found = density.found(at)
        return found.value + 0.5 * found.ln_det

    force = density(x)[1] + density.lead.tilt
    step = 1e-5
    for i in range(x.shape[1]):
        ends = [plain(x + s * step * np.eye(x.shape[1])[i]) for s in (1, -1)]
        np.testing.assert_allclose(force[:, i], (ends[0] - ends[1]) / (2 * step), rtol=1e-3, atol=2e-3)


def test_the_force_tilts_as_the_width_of_the_rest_was_seen_to():
    density, fresh = taught_density(*bright_case(2, bend=0.3, structure=True))
    x = density.of(fresh.z)
    found = density.found(x)
    tilted = replace(density.lead, tilt=np.arange(1.0, 1 + x.shape[1]))
    other = Collapsed(density.emulator, tilted, density.covariance).found(x, force=True)
    np.testing.assert_allclose(other.force, density(x)[1] - tilted.tilt, atol=1e-9)
    np.testing.assert_array_equal(other.value, found.value)


def test_weights_of_an_emulator_that_is_right_are_all_the_same():
    """Everything else is drawn for every place, and what that costs is paid in full."""
    density, fresh = taught_density(*bright_case(2, bend=0.3, structure=True))
    x = density.of(fresh.z)
    ln = judge(density.joint, *density.complete(x, np.random.default_rng(0))).ln_weight
    assert (ln + density.lead.fence(x)[0]).std() < 0.2  # what is drawn more seldom beyond the fence weighs more


def test_a_lead_is_a_quadratic_and_fences_what_was_seen():
    rng = np.random.default_rng(0)
    root = np.array([[0.5, 0.0, 0.0], [0.2, 0.3, 0.0], [0.0, -0.1, 0.4]])
    x = 1.0 + rng.standard_normal((300, 3)) @ root.T
    y = np.linalg.solve(root, (x - 1.0).T).T
    middle = np.stack([y[:, 0] + 0.3 * y[:, 1] * y[:, 2], 2.0 - 0.2 * y[:, 0] ** 2], axis=1)
    tilt = np.array([0.4, -0.2, 0.0])
    lead = Lead.fitted(x, middle, 3.0 + 2 * x @ tilt, root @ root.T)
    inside = np.linalg.norm(y, axis=1) < 2
    assert np.abs(lead(x) - middle)[inside].max() < 0.1  # products are bounded, which bends them
    np.testing.assert_allclose(lead.tilt, tilt, atol=0.01)
    far = x * 1e3
    assert np.isfinite(lead(far)).all()
    assert (lead.fence(x)[0] == 0).all()
    assert (lead.fence(x)[1] == 0).all()
    out = x[:5] + 10 * (x[:5] - lead.centre)
    value, push = lead.fence(out)
    assert (value < 0).all()
    assert ((push * (out - lead.centre)).sum(axis=1) < 0).all()
    step = 1e-6
    for i in range(3):
        ends = [lead.fence(out + s * step * np.eye(3)[i])[0] for s in (1, -1)]
        np.testing.assert_allclose(push[:, i], (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-4)


def test_a_straight_lead_is_the_conditional_mean_of_a_normal_density():
    rng = np.random.default_rng(1)
    root = np.tril(rng.standard_normal((5, 5))) + 2 * np.eye(5)
    covariance = root @ root.T
    lead = Lead.straight(np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0]), covariance)
    x = rng.standard_normal((4, 2))
    exact = np.array([3.0, 4.0, 5.0]) + (x - [1.0, 2.0]) @ np.linalg.solve(covariance[:2, :2], covariance[:2, 2:])
    np.testing.assert_allclose(lead(x), exact, atol=1e-9)


NARROW = 0.1


def banana(x):
    """Ln density and force of N(0, 1) in the first coordinate and N(its square, NARROW) in the second."""
    off = (x[:, 1] - x[:, 0] ** 2) / NARROW**2
    value = -0.5 * (x[:, 0] ** 2 + NARROW**2 * off**2)
    return value, np.stack([-x[:, 0] + 2 * x[:, 0] * off, -off], axis=1)


def bananas(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    return np.stack([x, x**2 + NARROW * rng.standard_normal(n)], axis=1)


@pytest.mark.parametrize("among", [1, 2])
def test_refreshed_draws_of_a_curved_density_stay_its_draws(among):
    refresh, rng = Refresh.learnt(bananas(300, 1), among), np.random.default_rng(2)
    begin = at = bananas(4000, 3)
    value = banana(at)[0]
    for _ in range(25):
        at, value = refresh(lambda x: banana(x)[0], at, value, rng)
    np.testing.assert_array_equal(value, banana(at)[0])
    assert (at[:, 0] != begin[:, 0]).mean() > 0.95
    assert kstest(at[:, 0], "norm").pvalue > 0.001
    assert kstest((at[:, 1] - at[:, 0] ** 2) / NARROW, "norm").pvalue > 0.001
    assert np.corrcoef(at[:, 0], at[:, 1] - at[:, 0] ** 2)[0, 1] == pytest.approx(0.0, abs=0.06)


def test_coordinates_that_are_no_parameters_are_moved_along_only():
    """The second coordinate follows the first, and is never drawn anew itself."""
    assert len(Refresh.learnt(bananas(300, 1), 1).curves) == 1


def test_a_walk_with_refreshed_parameters_crosses_what_trajectories_do_not():
    refresh = Refresh.learnt(bananas(300, 1), 1)
    start = Population(np.tile([[-1.5, 2.25]], (200, 1)), np.eye(2), step=0.005)

    def crossed(between):
        _, path, values = walk(banana, start, 8, np.random.default_rng(0), between=between)
        np.testing.assert_allclose(values, np.stack([banana(x)[0] for x in path]))
        return (path[-1, :, 0] > 0).mean()

    assert crossed(None) < 0.1
    assert 0.3 < crossed(partial(refresh, lambda x: banana(x)[0])) < 0.7


def test_what_happens_between_trajectories_keeps_the_density_they_walk_on():
    begin, refresh = bananas(2000, 5), Refresh.learnt(bananas(300, 1), 1)
    start = Population(begin, np.diag([0.3, NARROW]), step=0.5)
    seen = []

    def between(at, value, rng):
        seen.append(np.abs(value - banana(at)[0]).max())
        return refresh(lambda x: banana(x)[0], at, value, rng)

    _, path, _ = walk(banana, start, 10, np.random.default_rng(6), between=between)
    assert len(seen) == 10
    assert max(seen) == 0
    at = path[-1]
    assert kstest(at[:, 0], "norm").pvalue > 0.001
    assert kstest((at[:, 1] - at[:, 0] ** 2) / NARROW, "norm").pvalue > 0.001


def test_exact_chains_forget_what_the_emulator_gets_wrong():
    """A shifted emulator proposes; chains end at the exact posterior."""
    joint, _, (mean, precision) = linear_case(0)
    density, fresh = taught_density(joint, mean)
    wrong = Collapsed(density.emulator, density.lead, density.covariance)
    wrong.data = density.data + np.float32(0.3)  # a third of the noise, in every pixel
    rng = np.random.default_rng(0)
    root = density.lead.root
    start = density.lead.centre + 0.5 * rng.standard_normal((32, len(root))) @ root.T
    known = density.lead.centre + rng.standard_normal((200, len(root))) @ root.T
    walker = Learned(wrong, Population(start, root), fresh, Refresh.learnt(known, wrong.about.count))
    chains, _, _ = walker.walk(walker.chains, 20, rng, tune=True)
    walker = replace(walker, chains=chains)
    _, biased, _ = walker.walk(chains, 60, rng)
    state, _ = go_on(state_at(wrong, chains.at, rng), walker, 20, rng)
    _, path = go_on(state, walker, 400, rng)
    kept = np.arange(mean.size - 2)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))[kept]
    emulated = wrong.complete(biased.reshape(-1, biased.shape[2]), rng)[0].z
    off = {
        name: np.abs(draws.reshape(-1, mean.size)[:, kept].mean(axis=0) - mean[kept]) / sd
        for name, draws in (("emulated", emulated), ("exact", path.z))
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


def test_gains_without_anything_to_measure_them_by_are_refused():
    joint, _, _ = linear_case(0)
    loose = Joint(joint.data, joint.predictor, Coordinates(joint.coordinates.box, SIGMA, structure=False))
    with pytest.raises(UserError, match="hold sigma_cal at 0"):
        Outer(loose)
