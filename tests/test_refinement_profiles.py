"""How far a posterior reaches: profiles of single parameters, and draws of posteriors that no mode foresees."""

import numpy as np
import pytest
from linear_toy import PIXELS, PLAIN, SIGMA, LinearModel, linear_case, observation
from scipy.special import ndtri
from scipy.stats import norm

from kappaflow.refinement.climb import Climb, climb
from kappaflow.refinement.coordinates import Coordinates
from kappaflow.refinement.likelihood import Joint
from kappaflow.refinement.profiles import FARTHEST, OFF, carried, profiles
from kappaflow.refinement.sampling import sample


def test_a_profile_of_a_linear_model_is_the_marginal_density():
    joint, _, (mean, precision) = linear_case(0)
    (mode,) = joint.expand(mean[None], settle=False)
    found = profiles(joint, mode, np.array([0, 1]))
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert {place.held for place in found} == {0, 1}
    for place in found:
        off = (place.here.z[place.held] - mean[place.held]) / sd[place.held]
        assert place.gain == pytest.approx(-0.5 * off**2, abs=0.01)
    ends = [max(abs(p.here.z[i] - mean[i]) / sd[i] for p in found if p.held == i) for i in (0, 1)]
    assert min(ends) > np.sqrt(2 * OFF)  # both go on until nothing is left


def test_profiles_carried_to_another_density_are_those_of_that_one():
    (one, _, (mean, _)), (other, _, (there, precision)) = linear_case(0), linear_case(1)
    first, second = (joint.expand(z[None], settle=False)[0] for joint, z in ((one, mean), (other, there)))
    found = profiles(one, first, np.array([0, 1]))
    moved = carried(other, second, found, first.z)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert [point.held for point in moved] == [point.held for point in found]
    for point in moved:
        off = (point.here.z[point.held] - there[point.held]) / sd[point.held]
        assert point.gain == pytest.approx(-0.5 * off**2, abs=0.01)


class FadingModel(LinearModel):
    """The first parameter is seen below its median and not above: softplus(-8 u) / 8."""

    def _seen(self, theta):
        u = ndtri(np.clip(self.box.to_unit(theta)[:, :1], 1e-12, 1 - 1e-12))
        return u, np.logaddexp(0.0, -8 * u) / 8

    def __call__(self, theta, field):
        return 10 + self._seen(theta)[1] * self.a[0] + self._parts(theta)[0][:, 1:] * self.a[1] + field @ self.b

    def derivatives(self, theta, field):
        _, of_theta, of_field = super().derivatives(theta, field)
        u, _ = self._seen(theta)
        of_theta[:, 0] *= -1 / (1 + np.exp(8 * u))
        return self(theta, field), of_theta, of_field


@pytest.fixture
def fading():
    """A density that knows its first parameter to be above the median; a climb ends where the plateau begins."""
    model, rng = FadingModel(), np.random.default_rng(3)
    coordinates = Coordinates(PLAIN, SIGMA, structure=False, held=(("sigma_cal", 0.0),))
    truth = np.zeros(coordinates.size)
    truth[0] = 1.5
    point = coordinates.point(truth)
    flux = model(point.theta[None], point.field[None])[0]
    noise = 0.2 * rng.standard_normal(PIXELS)
    joint = Joint(observation(flux + noise, np.full(PIXELS, 0.2)), model, coordinates)
    (top,) = climb(joint.expand, [Climb(np.zeros(truth.size))], steps=80)
    return joint, top


def test_a_profile_goes_on_over_a_plateau_to_where_the_prior_ends(fading):
    joint, top = fading
    held = [place for place in profiles(joint, top.here, np.array([0])) if place.gain > -OFF]
    assert max(place.here.z[0] for place in held) > 0.8 * FARTHEST
    assert min(place.here.z[0] for place in held) > -1.5  # there it is seen


def test_draws_fill_a_plateau_and_not_only_the_end_where_the_fit_is(fading):
    """The marginal density of the first parameter, everything else integrated out, by quadrature."""
    joint, top = fading
    found = sample(joint, top.z, np.linalg.inv(top.here.information), np.random.default_rng(0))
    model, c = joint.predictor, joint.coordinates
    rows = np.vstack([model.a[1:], model.b[c.varied] * SIGMA[c.varied, None]]) / 0.2
    u = np.linspace(-3, 4, 1401)
    left = (joint.data.flux - 10 - np.logaddexp(0.0, -8 * u)[:, None] / 8 * model.a[0]) / 0.2
    inner = np.linalg.cholesky(rows @ rows.T + np.eye(len(rows)))
    along = np.linalg.solve(inner, rows @ left.T)
    ln = norm.logpdf(u) - 0.5 * (left**2).sum(axis=1) + 0.5 * (along**2).sum(axis=0)
    density = np.exp(ln - ln.max()) / np.exp(ln - ln.max()).sum()
    weight = np.exp(found.weights.ln)
    assert found.sound
    for edge in (0.0, 0.5, 1.0, 1.7):
        exact = density[u > edge].sum()
        scatter = np.sqrt(exact * (1 - exact) / found.ess)
        assert weight @ (found.z[:, 0] > edge) == pytest.approx(exact, abs=4 * scatter)
