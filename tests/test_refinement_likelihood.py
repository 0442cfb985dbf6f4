"""The likelihood against dense algebra, differences and the simulation; a linear model against its exact answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import chi2, multivariate_normal

from kappaflow.errors import UserError
from kappaflow.refinement.climb import Climb, climb
from kappaflow.refinement.coordinates import Coordinates
from kappaflow.refinement.likelihood import Expansion, Joint, Observation, log_likelihood, marginal_log_likelihood
from kappaflow.simulation.noise import gain
from kappaflow.spectra import Box

PIXELS, COEFFICIENTS = 120, 5
WAVELENGTH = np.linspace(2.9, 5.2, PIXELS)
BOX = Box(("a", "b", "sigma_cal"), (1.0, -2.0, 0.0), (3.0, 5.0, 0.05))
SIGMA = np.array([0.3, 0.2, 0.0, 0.1, 0.2])  # one coefficient is held


class Curved:
    """Lines whose depth and width two parameters set, times a field."""

    def __call__(self, theta, field):
        x = np.linspace(-3, 3, PIXELS)
        shape = np.exp(-((x[None] - theta[:, :1] + 2) ** 2) * np.exp(0.2 * theta[:, 1:2]))
        return (1.5 + shape) * np.exp(field @ self.basis)

    basis = np.stack([np.cos(k * np.linspace(0, 3, PIXELS)) for k in range(COEFFICIENTS)])

    def derivatives(self, theta, field):
        def differences(at, make):
            step = 1e-5
            shifts = step * np.eye(at.size)
            return (make(at + shifts) - make(at - shifts)) / (2 * step)

        def one(t, c):
            of_theta = differences(t, lambda some: self(some, np.tile(c, (len(some), 1))))
            return of_theta, differences(c, lambda some: self(np.tile(t, (len(some), 1)), some))

        both = [one(t, c) for t, c in zip(theta, field, strict=True)]
        return self(theta, field), np.stack([b[0] for b in both]), np.stack([b[1] for b in both])


class Bright(Curved):
    """The same lines of an object of radius `b`, here called R: flux is proportional to its square."""

    box = Box(("a", "R", "sigma_cal"), (1.0, 0.5, 0.0), (3.0, 2.0, 0.05))

    def __call__(self, theta, field):
        still = np.column_stack([theta[:, 0], np.ones(len(theta))])
        return theta[:, 1:2] ** 2 * super().__call__(still, field)


class Linear:
    """F = 10 + A u + B c, u the normal quantile of a parameter's place in its box: the posterior is exactly normal."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.a, self.b = rng.standard_normal((2, PIXELS)) * 0.3, rng.standard_normal((COEFFICIENTS, PIXELS))

    def __call__(self, theta, field):
        return 10 + ndtri(BOX.to_unit(theta)[:, :2]) @ self.a + field @ self.b

    def derivatives(self, theta, field):
        u = ndtri(BOX.to_unit(theta)[:, :2, None])
        slope = np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi) * BOX.widths[:2, None]
        of_theta = np.concatenate([self.a / slope, np.zeros((len(theta), 1, PIXELS))], axis=1)
        return self(theta, field), of_theta, np.tile(self.b, (len(theta), 1, 1))


def observation(flux, error):
    return Observation(flux, error, (WAVELENGTH > 3.736).astype(int), np.ones(PIXELS, bool), WAVELENGTH)


def linear_case(seed, error=0.8):
    """A linear model, z drawn from the prior, and the exact posterior of z."""
    rng = np.random.default_rng((seed, 1))
    model = Linear()
    coordinates = Coordinates(BOX, SIGMA, structure=False, held=(("sigma_cal", 0.0),))
    truth = rng.standard_normal(coordinates.size)
    point = coordinates.point(truth)
    data = model(point.theta[None], point.field[None])[0] + error * rng.standard_normal(PIXELS)
    joint = Joint(observation(data, np.full(PIXELS, error)), model, coordinates)
    design = np.vstack([model.a, model.b[SIGMA > 0] * SIGMA[SIGMA > 0, None], np.zeros((2, PIXELS))])
    precision = design @ design.T / error**2 + np.eye(len(design))
    mean = np.linalg.solve(precision, design @ (data - 10) / error**2)
    return joint, truth, (mean, precision, design)


def test_low_rank_covariance_is_the_dense_one_in_numpy_and_in_jax():
    rng = np.random.default_rng(0)
    residual, basis, variance = rng.standard_normal(30), rng.standard_normal((4, 30)), rng.uniform(0.5, 2, 30)
    dense = multivariate_normal(np.zeros(30), np.diag(variance) + basis.T @ basis).logpdf(residual)
    found = marginal_log_likelihood(residual, basis, variance) - 15 * np.log(2 * np.pi)
    assert found == pytest.approx(dense, rel=1e-10)
    in_jax = marginal_log_likelihood(jnp.asarray(residual), jnp.asarray(basis), jnp.asarray(variance))
    assert float(in_jax) - 15 * np.log(2 * np.pi) == pytest.approx(dense, rel=1e-4)
    assert np.isfinite(
        jax.grad(lambda r: marginal_log_likelihood(r, jnp.asarray(basis), jnp.asarray(variance)))(jnp.asarray(residual))
    ).all()


def test_the_gradient_is_that_of_the_density_in_every_coordinate():
    """Parameters, gain width, structure, coefficients, gains and flux scale, by central differences."""
    rng = np.random.default_rng(1)
    joint = Joint(
        observation(2 + rng.standard_normal(PIXELS), rng.uniform(0.1, 0.3, PIXELS)),
        Curved(),
        Coordinates(BOX, SIGMA, structure=True, scale_free=True),
    )
    z = 0.5 * rng.standard_normal(joint.coordinates.size)
    (here,) = joint.expand(z[None], settle=False)
    assert here.value == pytest.approx(joint(z[None])[0])
    step = 1e-4 * np.eye(z.size)
    differences = (joint(z + step) - joint(z - step)) / 2e-4
    np.testing.assert_allclose(here.gradient, differences, rtol=1e-4, atol=1e-4)
    assert np.linalg.eigvalsh(here.information).min() > 0


def test_settled_gains_are_the_best_given_the_rest():
    rng = np.random.default_rng(4)
    data = observation(2.5 + 0.3 * rng.standard_normal(PIXELS), np.full(PIXELS, 0.1))
    joint = Joint(data, Curved(), Coordinates(BOX, SIGMA))
    z = 0.5 * rng.standard_normal(joint.coordinates.size)
    (here,) = joint.expand(z[None])
    place = joint.coordinates.places["gains"]
    assert not np.allclose(here.z[place], z[place])
    np.testing.assert_allclose(
        np.delete(here.z, range(place.start, place.stop)), np.delete(z, range(place.start, place.stop))
    )
    np.testing.assert_allclose(here.gradient[place], 0, atol=1e-8)
    assert here.value > joint(z[None])[0]


@pytest.mark.parametrize("structure", [True, False])
def test_brightness_is_shared_between_radius_and_gains_and_the_data_cannot_tell(structure):
    """Gains of ten per cent, three of their standard deviations, are a wrong radius."""
    rng = np.random.default_rng(5)
    coordinates = Coordinates(Bright.box, SIGMA, structure=structure)
    data = observation(2.5 * (1 + 0.05 * rng.standard_normal(PIXELS)), np.full(PIXELS, 0.05))
    joint = Joint(data, Bright(), coordinates)
    z = np.zeros(coordinates.size)
    z[coordinates.places["theta"]] = 0.2, -1.2, 0.3
    z[coordinates.places["gains"]] = 3.5, 3.0
    there, factor = coordinates.balanced(z)
    before, after = coordinates.point(z), coordinates.point(there)
    old, new = joint.fluxes([before, after])
    np.testing.assert_allclose(new, factor * old, rtol=1e-9)
    np.testing.assert_allclose(joint.predicted(after, new), joint.predicted(before, old), rtol=1e-9)
    np.testing.assert_allclose(joint.variance(after, new), joint.variance(before, old), rtol=1e-9)
    assert factor > 1.05
    assert (there**2).sum() < (z**2).sum() - 10
    assert coordinates.balanced(there)[1] == pytest.approx(1, abs=1e-3)
    (settled,) = joint.expand(z[None])
    (as_it_is,) = joint.expand(settled.z[None], settle=False)
    assert settled.value == pytest.approx(as_it_is.value)
    np.testing.assert_allclose(settled.gradient, as_it_is.gradient, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(settled.information, as_it_is.information, rtol=1e-5, atol=1e-5)


def test_a_held_structure_or_radius_leaves_the_brightness_alone():
    rng = np.random.default_rng(6)
    held = Coordinates(Bright.box, SIGMA, held=(("R", 1.0),), scale_free=True)
    for coordinates in (Coordinates(Bright.box, SIGMA, structure=False, f=0.1), held, Coordinates(BOX, SIGMA)):
        z = rng.standard_normal(coordinates.size)
        there, factor = coordinates.balanced(z)
        assert factor == 1
        np.testing.assert_array_equal(there, z)


def test_the_information_is_the_variance_of_the_gradient():
    """Fisher's matrix of mean and variance: over data drawn at z, the score has it as its covariance."""
    rng = np.random.default_rng(2)
    coordinates = Coordinates(BOX, SIGMA, structure=True)
    z = 0.3 * rng.standard_normal(coordinates.size)
    z[coordinates.places["structure"]] = 0.5
    point = coordinates.point(z)
    error = np.full(PIXELS, 0.1)
    blank = Joint(observation(np.zeros(PIXELS), error), Curved(), coordinates)
    flux = blank.fluxes([point])[0]
    mean, spread = blank.predicted(point, flux), np.sqrt(blank.variance(point, flux))
    scores = []
    for _ in range(600):
        joint = Joint(observation(mean + spread * rng.standard_normal(PIXELS), error), Curved(), coordinates)
        (here,) = joint.expand(z[None], settle=False)
        scores.append(here.gradient + z)
    expected = here.information - np.eye(z.size)
    found = np.cov(np.array(scores).T)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert np.abs(found - expected).max() < 0.2 * scale.max()
    np.testing.assert_allclose(np.diag(found), np.diag(expected), rtol=0.25)


def test_gains_are_those_of_the_simulation():
    coordinates = Coordinates(BOX, SIGMA, structure=False)
    z = np.random.default_rng(3).standard_normal(coordinates.size)
    point = coordinates.point(z)
    joint = Joint(observation(np.ones(PIXELS), np.ones(PIXELS)), Curved(), coordinates)
    theta = np.zeros((1, 15))
    theta[0, 14] = point.sigma_cal
    np.testing.assert_allclose(
        joint.predicted(point, np.ones(PIXELS)), gain(theta, point.gains[None], WAVELENGTH)[0], rtol=1e-6
    )


def test_a_climb_in_a_linear_model_finds_the_exact_posterior():
    joint, _, (mean, precision, _) = linear_case(0)
    start = np.zeros(joint.coordinates.size)
    (found,) = climb(joint.expand, [Climb(start)], steps=30, tolerance=1e-9)
    assert found.converged
    np.testing.assert_allclose(found.z, mean, atol=1e-4)
    assert found.here is not None
    np.testing.assert_allclose(found.here.information, precision, rtol=1e-6)


def kinked(points):
    """Ln density with a ridge at z0 = 0.3, expanded with the information of a smooth one: full steps swing across."""
    out = []
    for z in points:
        value = -20 * abs(z[0] - 0.3) - 2 * (z[1] - 2 * z[0]) ** 2 - 0.5 * z @ z
        side = np.array([-20 * np.sign(z[0] - 0.3), 0.0])
        gradient = side - 4 * (z[1] - 2 * z[0]) * np.array([-2.0, 1.0]) - z
        information = np.array([[16.0, -8.0], [-8.0, 4.0]]) + np.eye(2)
        out.append(Expansion(z, float(value), gradient, information))
    return out


def test_a_climb_reaches_the_top_of_a_ridge_and_ends_there():
    """At the ridge z1 is best at 2.4 / 5: there the density has no gradient that could tell."""
    (found,) = climb(kinked, [Climb(np.array([-2.0, 1.0]))], steps=200, tolerance=0.02)
    (best,) = kinked([np.array([0.3, 0.48])])
    assert found.steps < 60
    assert found.value > best.value - 0.1


def test_laplaces_evidence_of_a_linear_model_is_the_exact_one():
    joint, _, (mean, precision, design) = linear_case(1)
    evidence = multivariate_normal(np.full(PIXELS, 10.0), 0.64 * np.eye(PIXELS) + design.T @ design).logpdf(
        joint.data.flux
    )
    laplace = joint(mean[None])[0] - 0.5 * np.linalg.slogdet(precision)[1]
    assert laplace - PIXELS / 2 * np.log(2 * np.pi) == pytest.approx(evidence, rel=1e-9)


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1.5, False), (1 / 1.5, False)])
def test_laplace_errors_of_a_linear_model_are_neither_too_wide_nor_too_narrow(factor, passes):
    distances = []
    for seed in range(60):
        joint, truth, _ = linear_case(seed)
        start = np.zeros(truth.size)
        (found,) = climb(joint.expand, [Climb(start)], steps=20)
        assert found.here is not None
        off = truth - found.z
        distances.append(off @ found.here.information @ off / factor**2)
    total, dof = np.sum(distances), truth.size * len(distances)
    assert (chi2.ppf(0.001, dof) < total < chi2.ppf(0.999, dof)) == passes


def test_coordinates_hold_what_is_held_and_never_leave_the_box():
    coordinates = Coordinates(BOX, SIGMA, held=(("a", 1.5),))
    point = coordinates.point(np.full(coordinates.size, 40.0))
    assert point.theta[0] == 1.5
    assert (point.theta <= BOX.high).all()
    assert (point.theta >= BOX.low).all()
    assert coordinates.point(coordinates.at(np.array([2.0, 1.0, 0.02]), f=0.03)).f == pytest.approx(0.03)
    with pytest.raises(UserError, match="no parameter 'c'"):
        Coordinates(BOX, SIGMA, held=(("c", 0.0),))
    with pytest.raises(UserError, match=r"a = 9; expected in \[1, 3\]"):
        Coordinates(BOX, SIGMA, held=(("a", 9.0),))


def test_white_noise_has_the_plain_normal_density():
    residual, variance = np.array([1.0, -2.0]), np.array([1.0, 4.0])
    exact = multivariate_normal(np.zeros(2), np.diag(variance)).logpdf(residual)
    assert log_likelihood(residual, variance) - np.log(2 * np.pi) == pytest.approx(exact)
