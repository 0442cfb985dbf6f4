"""The likelihood of one spectrum, said once; it is the noise model of the simulation (`simulation/reader.py`).

y = (1 + sigma_cal g_d) F(theta, c) + noise on the good pixels, g_d ~ N(0, 1) per detector, the noise's variance
v = sigma^2 + (f w F)^2, w the structure's shape (`unmodelled.py`). In the coordinates z of `coordinates.py` the prior
is standard normal, so that coefficients and gains can be fitted or sampled with the parameters (`Joint`), held, or
integrated out to first order (`marginal_log_likelihood`): then y is normal with covariance v + B'B, B the derivatives
with respect to what is integrated, of low rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from kappaflow.instrument import on_nrs2
from kappaflow.observe.spectrum import Spectrum
from kappaflow.refinement.coordinates import DETECTORS, Coordinates, Point
from kappaflow.refinement.thin import ThinModel
from kappaflow.unmodelled import structure_shape

__all__ = [
    "Expansion",
    "Joint",
    "ListedModel",
    "Observation",
    "Predictor",
    "ThinFluxes",
    "ThinPredictor",
    "log_likelihood",
    "marginal_log_likelihood",
    "score",
]

LEAST = 8  # spectra computed at once
TOGETHER = 2  # spectra whose derivatives are: they share one reading of the opacity table, and more gain little


class ThinFluxes(Protocol):
    """Columns of one batch, and their fluxes at a few wavenumbers (`thin.ThinColumns`)."""

    def local(self, field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Fluxes (b, few) with the coefficients `field` (b, K), and their derivatives (b, K, few) by these."""
        ...

    def pulled(self, weight: np.ndarray) -> np.ndarray:
        """Gradient (b, D) by the parameters of the sum of `weight` (b, few) times the fluxes last computed."""
        ...


class ThinPredictor(Protocol):
    """Fluxes that bend as the pixels of a spectrum do (`thin.ThinModel`)."""

    def at(self, theta: np.ndarray) -> ThinFluxes:
        """Columns of `theta` (b, D)."""
        ...


class Predictor(Protocol):
    """Noise-free spectra on all pixels, and their derivatives."""

    def thinned(self, good: np.ndarray) -> ThinPredictor:
        """Return what bends in them, cheap, for the pixels that are `good` (p,)."""
        ...

    def __call__(self, theta: np.ndarray, field: np.ndarray) -> np.ndarray:
        """Spectra (b, p) of `theta` (b, D) and coefficients `field` (b, K)."""
        ...

    def derivatives(self, theta: np.ndarray, field: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Spectra (b, p) and their derivatives (b, D, p) and (b, K, p), of `theta` (b, D) and `field` (b, K)."""
        ...


@dataclass(frozen=True)
class ListedModel:
    """The forward model with its line lists chosen."""

    model: Any  # kappaflow.ForwardModel
    lists: tuple[int, ...]  # of each species

    def thinned(self, good: np.ndarray) -> ThinModel:
        """Return the same at a few wavenumbers."""
        return ThinModel(self.model, self.lists, good)

    def __call__(self, theta: np.ndarray, field: np.ndarray) -> np.ndarray:
        """Spectra (b, p) [mJy at 10 pc]."""
        # One or two go as a batch of eight: another size would have to be compiled.
        rows = np.arange(max(len(theta), LEAST)) % len(theta)
        return np.asarray(self.model(theta[rows], field[rows], np.array(self.lists)), float)[: len(theta)]

    def derivatives(self, theta: np.ndarray, field: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Spectra and all their derivatives, in batches of one or of two."""
        size = 1 if len(theta) == 1 else TOGETHER
        parts = [self._derivatives(theta[i : i + size], field[i : i + size], size) for i in range(0, len(theta), size)]
        flux, of_theta, of_field = (np.concatenate(some) for some in zip(*parts, strict=True))
        return flux, of_theta, of_field

    def _derivatives(self, theta: np.ndarray, field: np.ndarray, size: int) -> tuple[np.ndarray, ...]:
        rows = np.arange(size) % len(theta)
        coefficients = np.asarray(field, np.float32)[rows].reshape(size, len(self.lists), -1)
        lists = np.array(self.lists, np.int32)
        found = _compiled()(np.asarray(theta, np.float32)[rows], coefficients, lists, self.model.tables)
        flux, of_theta, of_field = (np.asarray(a, float)[: len(theta)] for a in found)
        return flux, of_theta, of_field.reshape(len(theta), -1, flux.shape[-1])


@cache
def _compiled() -> Any:
    import jax

    from kappaflow.physics.sensitivity import sensitivities

    return jax.jit(sensitivities)


@dataclass(frozen=True, eq=False)
class Observation:
    """The good pixels of a spectrum."""

    flux: np.ndarray  # (n,)
    error: np.ndarray  # (n,)
    detector: np.ndarray  # (n,), 0 or 1
    good: np.ndarray  # (p,), which of all pixels they are
    wavelength: np.ndarray  # (n,), micron

    @classmethod
    def of(cls, spectrum: Spectrum) -> Observation:
        """Pick the good pixels."""
        good = np.asarray(spectrum.mask, bool)
        detector = on_nrs2(spectrum.wavelength).astype(int)
        return cls(spectrum.flux[good], spectrum.error[good], detector[good], good, spectrum.wavelength[good])


def log_likelihood(residual: Any, variance: Any) -> Any:
    """Ln of the normal density, (..., n) -> (...), without its constant."""
    xp = variance.__array_namespace__()
    return -0.5 * xp.sum(residual**2 / variance + xp.log(variance), axis=-1)


def marginal_log_likelihood(residual: Any, basis: Any, variance: Any) -> Any:
    """Return the same with standard normal amplitudes of the rows of `basis` (..., k, n) integrated out.

    The covariance is diag(variance) + basis' basis; its inverse and determinant come from the k x k matrix
    1 + basis diag(1/variance) basis' (Woodbury): never pixels x pixels. NumPy or JAX arrays, of which the first need
    double precision where the signal-to-noise ratio is high.
    """
    xp = variance.__array_namespace__()
    white = basis / xp.sqrt(variance)[..., None, :]
    inner = white @ xp.matrix_transpose(white) + xp.eye(basis.shape[-2], dtype=variance.dtype)
    factor = xp.linalg.cholesky(inner)
    along = xp.linalg.solve(factor, white @ (residual / xp.sqrt(variance))[..., None])[..., 0]
    ln_det = xp.sum(xp.log(xp.linalg.diagonal(factor)), axis=-1)
    return log_likelihood(residual, variance) + 0.5 * xp.sum(along**2, axis=-1) - ln_det


def score(
    d_mean: np.ndarray, d_ln_variance: np.ndarray, residual: np.ndarray, squared: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """Gradient (k,) of the ln likelihood; `squared` is what the residual's square is expected to be."""
    return d_mean @ (residual / variance) + 0.5 * d_ln_variance @ (squared / variance - 1)


class Expansion(NamedTuple):
    """Value, gradient (k,) and expected information (k, k) of a log density at z (k,), prior included."""

    z: np.ndarray
    value: float
    gradient: np.ndarray
    information: np.ndarray


@dataclass(frozen=True, eq=False)
class Joint:
    """Ln posterior density of z, but for a constant: parameters, structure, coefficients, gains and scale together."""

    data: Observation
    predictor: Predictor
    coordinates: Coordinates

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """Ln density (b,) of z (b, k)."""
        points = [self.coordinates.point(row) for row in z]
        flux = self.fluxes(points)
        mean = np.stack([self.predicted(point, row) for point, row in zip(points, flux, strict=True)])
        variance = np.stack([self.variance(point, row) for point, row in zip(points, flux, strict=True)])
        return log_likelihood(self.data.flux - mean, variance) - 0.5 * (self.coordinates.precision * z**2).sum(axis=1)

    def fluxes(self, points: Sequence[Point]) -> np.ndarray:
        """Noise-free spectra (b, n) on the good pixels, in the data's unit."""
        scale = np.exp([point.ln_scale for point in points])
        made = self.predictor(np.stack([p.theta for p in points]), np.stack([p.field for p in points]))
        return made[:, self.data.good] * scale[:, None]

    def predicted(self, point: Point, flux: np.ndarray) -> np.ndarray:
        """Multiply a noise-free spectrum `flux` (n,) by the gains."""
        return flux * (1 + point.sigma_cal * point.gains[self.data.detector])

    def variance(self, point: Point, flux: np.ndarray) -> np.ndarray:
        """Variance (n,) of the noise about a noise-free spectrum `flux` (n,)."""
        return self.data.error**2 + (point.f * self._shape(point, flux)[0] * flux) ** 2

    def _shape(self, point: Point, flux: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Structure over f times `flux` (n,), and the derivative of its ln by ln flux where the radius is held."""
        return structure_shape(flux * np.exp(-point.ln_scale), point.radius, self.data.wavelength)

    def expand(self, z: np.ndarray, *, settle: bool = True) -> list[Expansion]:
        """Expand about each of z (b, k): the information is Fisher's, of mean and variance, plus the prior's.

        With `settle` the gains of each are first set to their best given the rest, and what they have in common is
        shared with the radius, which costs nothing: otherwise the bent valley of equal radius^2 times gain is walked in
        tiny steps, or not at all where a kink of the model (two knots of one temperature) lies across it.
        """
        points = [self.coordinates.point(row) for row in z]
        made = self.predictor.derivatives(np.stack([p.theta for p in points]), np.stack([p.field for p in points]))
        return [self._expanded(*row, settle=settle) for row in zip(z, points, *made, strict=True)]

    def _settled(self, z: np.ndarray, point: Point, flux: np.ndarray) -> np.ndarray:
        """Return `z` with the likeliest gains of a noise-free spectrum `flux` (n,)."""
        basis, variance = gain_basis(self.data, point, flux), self.variance(point, flux)
        precision = 1 + (basis**2 / variance).sum(axis=1)
        z = z.copy()
        z[self.coordinates.places["gains"]] = basis @ ((self.data.flux - flux) / variance) / precision
        return z

    def _brighter(self, seen: Sequence[np.ndarray], factor: float) -> list[np.ndarray]:
        """Return a spectrum and its derivatives with the radius larger: flux is proportional to its square."""
        if factor == 1.0:
            return list(seen)
        flux, of_theta, of_field = (factor * a for a in seen)
        of_theta[self.coordinates.box.names.index("R")] /= np.sqrt(factor)
        return [flux, of_theta, of_field]

    def _expanded(self, z: np.ndarray, point: Point, *made: np.ndarray, settle: bool) -> Expansion:
        prior = self.coordinates.precision
        seen = [a[..., self.data.good] * np.exp(point.ln_scale) for a in made]
        if settle:
            z, factor = self.coordinates.balanced(self._settled(z, point, seen[0]))
            point = self.coordinates.point(z)
            seen = self._brighter(seen, factor)
        mean, variance, d_mean, d_ln_variance = self.slopes(point, *seen)
        residual = self.data.flux - mean
        white = d_mean / np.sqrt(variance)
        value = log_likelihood(residual, variance) - 0.5 * (prior * z**2).sum()
        gradient = score(d_mean, d_ln_variance, residual, residual**2, variance) - prior * z
        information = white @ white.T + 0.5 * d_ln_variance @ d_ln_variance.T + np.diag(prior)
        return Expansion(z, float(value), gradient, information)

    def slopes(self, point: Point, *seen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Mean and variance (n,) of the data, and the derivatives (k, n) of the mean and of ln variance by z.

        `seen` are a spectrum and its derivatives as `Predictor` gives them, on the good pixels, in the data's unit.
        """
        flux, d_flux, d_mean = self._derivatives(point, *seen)
        variance = self.variance(point, flux)
        shape, slope = self._shape(point, flux)
        d_ln_variance = 2 * (point.f * shape) ** 2 * flux / variance * d_flux
        d_ln_variance[~self.coordinates.sizing] *= 1 + slope
        structure = self.coordinates.places["structure"]
        d_ln_variance[structure] = 2 * (point.f * shape * flux) ** 2 / variance * point.ln_f_slope
        return self.predicted(point, flux), variance, d_mean, d_ln_variance

    def _derivatives(
        self, point: Point, flux: np.ndarray, of_theta: np.ndarray, of_field: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Noise-free spectrum (n,), its derivatives (k, n) and those of the mean, all with respect to z."""
        where, data = self.coordinates.places, self.data
        free, varied = self.coordinates.free, self.coordinates.varied
        d_flux = np.zeros((self.coordinates.size, flux.size))
        d_flux[where["theta"]] = of_theta[free] * point.slope[free, None]
        d_flux[where["field"]] = of_field[varied] * np.asarray(self.coordinates.sigma)[varied, None]
        d_flux[where["scale"]] = flux
        d_mean = self.predicted(point, d_flux)
        d_mean[where["gains"]] += gain_basis(data, point, flux)
        names = [self.coordinates.box.names[i] for i in free]
        if "sigma_cal" in names:
            i = names.index("sigma_cal")
            d_mean[where["theta"]][i] += flux * point.gains[data.detector] * point.slope[free[i]]
        return flux, d_flux, d_mean


def gain_basis(data: Observation, point: Point, flux: np.ndarray) -> np.ndarray:
    """Return what a unit of each gain adds to `flux` (n,): shape (2, n)."""
    return point.sigma_cal * flux * (data.detector == np.arange(DETECTORS)[:, None])
