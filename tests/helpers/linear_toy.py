"""A model whose posterior is known: linear in normal quantiles of its parameters and in coefficients, times R^2."""

import numpy as np
from scipy.special import ndtri
from whole_thin import WholeThin

from kappaflow.refinement.coordinates import Coordinates
from kappaflow.refinement.likelihood import Joint, Observation
from kappaflow.spectra import Box

PIXELS, COEFFICIENTS = 120, 5
WAVELENGTH = np.linspace(2.9, 5.2, PIXELS)
SIGMA = np.array([0.3, 0.2, 0.0, 0.1, 0.2])  # one coefficient is held
PLAIN = Box(("a", "b", "sigma_cal"), (1.0, -2.0, 0.0), (3.0, 5.0, 0.05))
BRIGHT = Box(("a", "b", "R", "sigma_cal"), (1.0, -2.0, 0.5, 0.0), (3.0, 5.0, 2.0, 0.05))


class LinearModel:
    """F = R^2 (10 + A u + B c), u the normal quantile of a parameter's place in its box; R = 1 where it has none."""

    def __init__(self, box=PLAIN, bend=0.0):
        rng = np.random.default_rng(0)
        self.box, self.bend = box, bend
        self.a, self.b = rng.standard_normal((2, PIXELS)) * 0.3, rng.standard_normal((COEFFICIENTS, PIXELS))

    def _parts(self, theta):
        u = ndtri(np.clip(self.box.to_unit(theta)[:, :2], 1e-12, 1 - 1e-12))
        radius = theta[:, self.box.names.index("R")] if "R" in self.box.names else np.ones(len(theta))
        return u, radius

    def __call__(self, theta, field):
        u, radius = self._parts(theta)
        bent = np.stack([u[:, 0], u[:, 1] + self.bend * u[:, 0] ** 2], axis=1)
        return radius[:, None] ** 2 * (10 + bent @ self.a + field @ self.b)

    def thinned(self, good):
        return WholeThin(self, every=10)

    def derivatives(self, theta, field):
        flux = self(theta, field)
        u, radius = self._parts(theta)
        slope = np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi) * self.box.widths[:2]
        factor = radius[:, None, None] ** 2
        of_theta = np.zeros((len(theta), len(self.box), PIXELS))
        of_theta[:, 0] = self.a[0] + 2 * self.bend * u[:, :1] * self.a[1]
        of_theta[:, 1] = self.a[1]
        of_theta[:, :2] *= factor / slope[..., None]
        if "R" in self.box.names:
            of_theta[:, 2] = 2 * flux / radius[:, None]
        return flux, of_theta, np.tile(self.b, (len(theta), 1, 1)) * factor


def observation(flux, error):
    return Observation(flux, error, (WAVELENGTH > 3.736).astype(int), np.ones(PIXELS, bool), WAVELENGTH)


def linear_case(seed, error=0.8):
    """Return a density, the z that made its data, drawn from the prior, and mean and precision of its posterior."""
    rng = np.random.default_rng((seed, 1))
    model = LinearModel()
    coordinates = Coordinates(PLAIN, SIGMA, structure=False, held=(("sigma_cal", 0.0),))
    truth = rng.standard_normal(coordinates.size)
    point = coordinates.point(truth)
    data = model(point.theta[None], point.field[None])[0] + error * rng.standard_normal(PIXELS)
    joint = Joint(observation(data, np.full(PIXELS, error)), model, coordinates)
    design = np.vstack([model.a, model.b[SIGMA > 0] * SIGMA[SIGMA > 0, None], np.zeros((2, PIXELS))])
    precision = design @ design.T / error**2 + np.eye(len(design))
    mean = np.linalg.solve(precision, design @ (data - 10) / error**2)
    return joint, truth, (mean, precision)


def bright_case(seed, *, error=0.3, bend=0.0, structure=False):
    """Return a density with radius, gains and sigma_cal, and the z that made its data, drawn from the prior."""
    rng = np.random.default_rng((seed, 2))
    model = LinearModel(BRIGHT, bend)
    coordinates = Coordinates(BRIGHT, SIGMA, structure=structure)
    truth = rng.standard_normal(coordinates.size)
    point = coordinates.point(truth)
    flux = model(point.theta[None], point.field[None])[0]
    errors = np.full(PIXELS, error)
    joint = Joint(observation(flux, errors), model, coordinates)
    noise = np.sqrt(joint.variance(point, flux)) * rng.standard_normal(PIXELS)
    return Joint(observation(joint.predicted(point, flux) + noise, errors), model, coordinates), truth
