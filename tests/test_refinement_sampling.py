"""Exact draws where the exact posterior is known: a linear model, alone and with radius, gains and structure."""

import numpy as np
import pytest
from linear_toy import PIXELS, SIGMA, bright_case, linear_case, observation
from scipy.special import ndtri
from scipy.stats import chi2, kstest, multivariate_normal
from whole_thin import WholeThin

from kappaflow.errors import UserError
from kappaflow.refinement.climb import Climb, climb
from kappaflow.refinement.collapsed import Collapsed
from kappaflow.refinement.coordinates import Coordinates
from kappaflow.refinement.emulator import About, Emulator, Lessons
from kappaflow.refinement.importance import judge
from kappaflow.refinement.lead import Lead, tangent
from kappaflow.refinement.likelihood import Joint, marginal_log_likelihood
from kappaflow.refinement.outer import Outer
from kappaflow.refinement.sampling import Effort, sample
from kappaflow.spectra import Box

QUICK = Effort()
LITTLE = Effort(rounds=(1, 3), places=(100, 200), final=128, passes=2)


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
    found = sample(joint, mean, np.linalg.inv(precision), np.random.default_rng(0), effort=QUICK)
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
    covariance_there = outer.covariance(z, covariance)[np.ix_(order, order)]
    lead = Lead.fitted(*tangent(both[:k], both[k:], covariance_there), covariance_there[:k, :k])
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
    joint, _, (mean, _) = linear_case(1)
    density, fresh = taught_density(joint, mean)
    x = density.of(fresh.z[:12])
    exact = [exact_marginal(joint, row) for row in x]
    np.testing.assert_allclose(density.value(x) - density.lead.fence(x), exact, atol=1e-6)


def test_pixels_in_single_precision_are_off_by_less_than_a_hundredth_of_a_nat():
    joint, _, (mean, _) = linear_case(1)
    density, fresh = taught_density(joint, mean)
    x = density.of(fresh.z[:12])
    exact = [exact_marginal(joint, row) for row in x]
    np.testing.assert_allclose(density.value(x) - density.lead.fence(x), exact, atol=0.01)


def test_integrated_out_brightness_is_a_quadrature_of_it(double):
    joint, truth = bright_case(2)
    density, fresh = taught_density(joint, truth)
    x = density.of(fresh.z[:6])
    for row, value in zip(x, density.value(x) - density.lead.fence(x), strict=True):
        levels = density.middle[0] + np.linspace(-0.02, 0.02, 201)  # twelve standard deviations either way
        ln = np.array([exact_marginal(joint, row, level) for level in levels])
        exact = np.logaddexp.reduce(ln) + np.log(levels[1] - levels[0])
        assert value == pytest.approx(exact, abs=0.02)  # it is nearly normal in L


def test_weights_of_an_emulator_that_is_right_are_all_the_same():
    """Everything else is drawn for every place, and what that costs is paid in full."""
    density, fresh = taught_density(*bright_case(2, bend=0.3, structure=True))
    x = density.of(fresh.z)
    ln = judge(density.joint, *density.complete(x, np.random.default_rng(0))).ln_weight
    assert (ln + density.lead.fence(x)).std() < 0.2  # what is drawn more seldom beyond the fence weighs more


def test_a_lead_of_a_tangent_is_the_conditional_mean_of_a_normal_density():
    rng = np.random.default_rng(1)
    root = np.tril(rng.standard_normal((5, 5))) + 2 * np.eye(5)
    covariance = root @ root.T
    known = tangent(np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0]), covariance)
    lead = Lead.fitted(*known, covariance[:2, :2])
    x = rng.standard_normal((4, 2))
    exact = np.array([3.0, 4.0, 5.0]) + (x - [1.0, 2.0]) @ np.linalg.solve(covariance[:2, :2], covariance[:2, 2:])
    np.testing.assert_allclose(lead(x), exact, atol=1e-5)


def test_gains_without_anything_to_measure_them_by_are_refused():
    joint, _, _ = linear_case(0)
    loose = Joint(joint.data, joint.predictor, Coordinates(joint.coordinates.box, SIGMA, structure=False))
    with pytest.raises(UserError, match="hold sigma_cal at 0"):
        Outer(loose)


MOVING = Box(("a", "v_r", "v_sin_i", "sigma_cal"), (1.0, -100.0, 0.0, 0.0), (3.0, 100.0, 30.0, 0.05))


class MovingModel:
    """F = 10 + A u of one parameter, and powers of velocities, each with its own effect."""

    def __init__(self, still=False):
        rng = np.random.default_rng(4)
        self.box, self.still = MOVING, still
        self.a, self.b = rng.standard_normal(PIXELS), rng.standard_normal((SIGMA.size, PIXELS))
        self.powers = rng.standard_normal((4, PIXELS))

    def __call__(self, theta, field):
        v, w = 0.0 * theta[:, 1:3].T if self.still else theta[:, 1:3].T / np.array([[20.0], [30.0]])
        moved = np.stack([v, v**2, w**2, w**4], axis=1) @ self.powers
        return 10 + ndtri(np.clip(self.box.to_unit(theta)[:, :1], 1e-9, 1 - 1e-9)) * self.a + moved + field @ self.b

    def thinned(self, good):
        return WholeThin(MovingModel(still=True), every=10)

    def derivatives(self, theta, field):
        steps = np.diag(1e-6 * np.asarray(self.box.widths))
        by_theta = [(self(theta + s, field) - self(theta - s, field)) / (2 * s.sum()) for s in steps]
        return self(theta, field), np.stack(by_theta, axis=1), np.tile(self.b, (len(theta), 1, 1))


def test_an_emulator_knows_how_a_spectrum_changes_with_velocities_that_no_wavenumber_knows_of():
    model, rng = MovingModel(), np.random.default_rng(0)
    coordinates = Coordinates(MOVING, SIGMA, structure=False, held=(("sigma_cal", 0.0),))
    truth = np.concatenate([[0.3, 0.1, -0.8], 0.1 * rng.standard_normal(coordinates.size - 3)])
    point = coordinates.point(truth)
    data = observation(model(point.theta[None], point.field[None])[0], np.full(PIXELS, 0.8))
    about = About(Joint(data, model, coordinates), truth)
    z = truth + np.concatenate([[0.5, 0.3, 1.0], np.full(truth.size - 3, 0.2)]) * rng.standard_normal((60, truth.size))
    flux = about.joint.fluxes([coordinates.point(row) for row in z])
    emulator = Emulator(about, Lessons(z[:40], flux[:40]))
    inputs = z[40:, about.outer.inputs]
    theta, _, field = about.points(inputs)
    shares, _ = emulator.shares(inputs, about.thin.at(theta), field)
    straight = shares[:, : 1 + inputs.shape[1]] @ emulator.rows[: 1 + inputs.shape[1]]
    exact = flux[40:] * about.white
    assert np.abs(straight - exact).max() > 1.0
    np.testing.assert_allclose(shares @ emulator.rows, exact, atol=0.02)


def test_a_draw_that_is_likelier_than_the_mode_is_told():
    """The mode was a side valley, or the climb stopped short: here it is displaced on purpose."""
    joint, _, (mean, precision) = linear_case(0)
    covariance = np.linalg.inv(precision)
    off = mean + 4.0 * np.linalg.cholesky(covariance)[:, 0]
    found = sample(joint, off, 9.0 * covariance, np.random.default_rng(0), effort=LITTLE)
    assert found.higher is not None
    assert joint(found.higher[None])[0] > joint(off[None])[0]
    assert sample(joint, mean, covariance, np.random.default_rng(0), effort=LITTLE).higher is None
