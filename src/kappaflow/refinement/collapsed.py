"""The posterior of parameters, brightness and coefficients integrated out, on an emulator: what places are weighed by.

At given parameters the rest, L and all coefficients, is nearly normal, about a middle that moves along a curve far
longer than it is wide: in both together the posterior is a sheet that no simple density resembles. So at every
place the middle is searched for, in a few Gauss-Newton steps from where it is expected (`lead.py`), and the rest is
integrated about it as if the spectrum were linear in it there. What that misses is made good where draws are completed:
of several draws of the rest one is taken, by the emulator's own density, and what all of them weigh counts.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from kappaflow.refinement.best_fit import THREADS
from kappaflow.refinement.emulator import About, Emulator
from kappaflow.refinement.lead import Lead
from kappaflow.refinement.likelihood import ThinFluxes
from kappaflow.refinement.outer import Completed
from kappaflow.refinement.thin import TOGETHER
from kappaflow.unmodelled import structure_shape

__all__ = ["Collapsed", "Searched"]

SEARCH = 3  # Gauss-Newton steps to the middle: two miss ends of long valleys by a hundred nats
LONGER = 6  # more of them, where the last step may still gain what counts
ENOUGH = 1.0  # nats that it may leave to gain
HOPELESS = 40.0  # nats: places that would still be less likely than the mode by more go no further
LARGEST = 10.0  # of a step in any coordinate
SHORTER = 0.25  # what is left of a step that has led down
WIDEST = 1.0  # that ln brightness may be from the mode's
NODES = 12  # of the structure, between which the information is interpolated
APART = (8.0, 0.1)  # how far these reach: standard deviations, and more
TRIED = 8  # draws of the rest per place
TINY = 1e-9  # share of the structure's prior beyond which it is outside
PRECISION = np.float32  # of pixels: a thousandth of a nat, and half the time
LN_2PI = float(np.log(2 * np.pi))


class _Rest(NamedTuple):
    """Brightness and coefficients of a batch, and the emulator's rows there."""

    level: np.ndarray  # (b,), L
    coefficients: np.ndarray  # (b, c)
    shares: np.ndarray  # (b, m)


class _Seen(NamedTuple):
    """Ln density of everything at one place, and its slopes."""

    value: np.ndarray  # (b,)
    of_shares: np.ndarray  # (b, m), likelihood alone
    of_level: np.ndarray  # (b, 0 or 1), by L


class _Looked(NamedTuple):
    """An expansion about places of the rest."""

    value: np.ndarray  # (b,), of everything
    rest: np.ndarray  # (b, r)
    step: np.ndarray  # (b, r), Gauss and Newton's
    information: np.ndarray  # (b, r, r)
    shares: np.ndarray  # (b, m) of the emulator's rows
    bends: np.ndarray  # (b, c, bends)
    left: np.ndarray  # (b,), nats that the step should gain


class Searched(NamedTuple):
    """The rest integrated out at x (b, k)."""

    value: np.ndarray  # (b,), ln density of x
    middle: np.ndarray  # (b, r) of the rest
    root: np.ndarray  # (b, r, r), lower, of its information
    foreseen: np.ndarray  # (b,), nats that the last step was to gain

    @property
    def ln_det(self) -> np.ndarray:
        """Of the rest's information."""
        return 2 * np.log(np.diagonal(self.root, axis1=1, axis2=2)).sum(axis=1)


class Collapsed:
    """Ln density of x = (smooth parameters, D, structure), L and coefficients integrated out.

    Priors are normalized but for those of smooth parameters, structure and coefficients, exp(-u^2/2); the data's
    constant is `Joint`'s. D and L where there is a radius or a free scale. The structure is a share of the flux with
    the mean of its gains: of the radius alone nothing is known.

    Parameters
    ----------
    emulator : of the spectra
    lead : where the rest is looked for
    covariance : (size, size) of all coordinates about the mode, by Laplace
    """

    def __init__(self, emulator: Emulator, lead: Lead, covariance: np.ndarray) -> None:
        self.emulator, self.lead, self.covariance = emulator, lead, covariance
        self.about: About = emulator.about
        self.outer, self.joint = self.about.outer, self.about.joint
        self.bright = int(self.outer.bright)
        w = self.outer.of(self.about.z[None])[0]
        self.middle = w[-2:] if self.bright else np.zeros(2)  # L and D of the mode
        data, white = self.joint.data, self.about.white
        self.rows = emulator.rows.astype(PRECISION)
        self.data = (data.flux * white).astype(PRECISION)
        self.variance = ((data.error * white) ** 2).astype(PRECISION)
        self.constant = float(np.log(white).sum())
        # Rows are fluxes of a source of unit radius, but where a free scale stands for the radius.
        self.radius = 1.0 if self.outer.radius is not None else self.joint.coordinates.point(self.about.z).radius

    @staticmethod
    def parts(about: About) -> tuple[np.ndarray, np.ndarray]:
        """Places of x and of the rest among the outer coordinates, structure and coefficients."""
        outer = about.outer
        n, bright, size = outer.smooth.size, outer.bright, outer.size
        structure = np.arange(size, size + outer.structure.size)
        field = np.arange(size + outer.structure.size, size + outer.structure.size + outer.field.size)
        x = np.concatenate([np.arange(n), [size - 1] if bright else [], structure]).astype(int)
        return x, np.concatenate([[size - 2] if bright else [], field]).astype(int)

    def of(self, z: np.ndarray) -> np.ndarray:
        """Return x of z (b, size)."""
        both = np.concatenate([self.outer.of(z), z[:, self.outer.structure], z[:, self.outer.field]], axis=1)
        return both[:, self.parts(self.about)[0]]

    def value(self, x: np.ndarray) -> np.ndarray:
        """Ln density (b,) of x (b, k)."""
        return self.found(x).value

    def found(self, x: np.ndarray) -> Searched:
        """Search for the middle of the rest, and integrate about it; longer where that may still gain what counts."""

        def search(rows: np.ndarray) -> Searched:
            return self._searched(x[rows], self._columns(x[rows]), self.lead(x[rows]))

        with ThreadPoolExecutor(THREADS) as pool:
            parts = pool.map(search, _batches(len(x)))
            out = Searched(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        hopeful = out.value + out.foreseen > max(out.value.max(), self._top) - HOPELESS
        left = np.flatnonzero((out.foreseen > ENOUGH) & hopeful)
        for rows in _batches(len(left)):
            some = left[rows]
            again = self._searched(x[some], self._columns(x[some]), out.middle[some], LONGER)
            better = again.value > out.value[some]
            for old, new in zip(out, again, strict=True):
                old[some[better]] = new[better]
        return out

    @cached_property
    def _top(self) -> float:
        """Ln density of the mode."""
        x = self.of(self.about.z[None])
        return float(self._searched(x, self._columns(x), self.lead(x)).value[0])

    def _columns(self, x: np.ndarray) -> ThinFluxes:
        inputs = np.pad(x[:, : self.about.count], ((0, 0), (0, self.outer.field.size)))
        return self.about.thin.at(self.about.points(inputs)[0])

    @np.errstate(over="ignore", invalid="ignore")  # far out a density is 0, and not worth a warning
    def _searched(self, x: np.ndarray, columns: ThinFluxes, rest: np.ndarray, steps: int = SEARCH) -> Searched:
        """Take `steps` Gauss-Newton steps from `rest` (b, r); one that leads down is taken again, shorter."""
        u, _, _ = self._split(x)
        base = self._looked(x, u, self._bounded(rest), columns)
        for _ in range(steps - 1):
            there = self._looked(x, u, self._bounded(base.rest + base.step), columns)
            up = there.value >= base.value
            stay = base._replace(step=SHORTER * base.step)
            base = _Looked(
                *(np.where(up.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in zip(there, stay, strict=True))
            )
        shift = base.step[:, self.bright :]
        shares = base.shares.copy()
        shares[:, self._places] += shift
        shares[:, self._bent] += (shift[:, None] @ base.bends)[:, 0]
        level = base.rest[:, 0] + base.step[:, 0] if self.bright else np.zeros(len(x))
        value = self._seen(x, _Rest(level, base.rest[:, self.bright :] + shift, shares)).value
        stays = ~(value >= base.value)
        middle = base.rest + np.where(stays[:, None], 0.0, base.step)
        found = Searched(np.where(stays, base.value, value), middle, np.linalg.cholesky(base.information), base.left)
        value = found.value + self.lead.fence(x) - 0.5 * found.ln_det + 0.5 * LN_2PI * middle.shape[1]
        return found._replace(value=np.where(np.isnan(value), -np.inf, value))

    def _looked(self, x: np.ndarray, u: np.ndarray, rest: np.ndarray, columns: ThinFluxes) -> _Looked:
        """Expand about `rest` (b, r)."""
        at, bends = self._at(u, rest, columns)
        seen = self._seen(x, at)
        slope = seen.of_shares[:, self._places] + (bends @ seen.of_shares[:, self._bent, None])[..., 0]
        gradient = np.concatenate([seen.of_level, slope - at.coefficients], axis=1)
        information = self._information(x, at, bends)
        wrong = ~(np.isfinite(gradient).all(axis=1) & np.isfinite(information).all(axis=(1, 2)))
        gradient[wrong], information[wrong] = 0.0, np.eye(gradient.shape[1])
        step = np.linalg.solve(information, gradient[..., None])[..., 0]
        left = 0.5 * (gradient * step).sum(axis=1)
        # As a whole: a step that is cut in single coordinates leaves the valley it was to follow.
        step = step * np.minimum(1.0, LARGEST / np.maximum(np.abs(step).max(axis=1, keepdims=True), 1e-300))
        value = np.where(wrong | np.isnan(seen.value), -np.inf, seen.value)
        return _Looked(value, rest, step, information, at.shares, bends, left)

    @property
    def _places(self) -> slice:
        """Rows of the coefficients."""
        return slice(1 + self.about.count, 1 + self.outer.inputs.size)

    @property
    def _bent(self) -> slice:
        return slice(1 + self.outer.inputs.size, len(self.rows))

    def _split(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Smooth parameters, D and the structure's coordinate (b, 0 or 1)."""
        n = self.about.count
        difference = x[:, n] if self.bright else np.zeros(len(x))
        return x[:, :n], difference, x[:, n + self.bright :]

    def _bounded(self, rest: np.ndarray) -> np.ndarray:
        """Keep the rest where exponentials are finite."""
        out = np.clip(np.nan_to_num(rest), -6.0, 6.0)
        if self.bright:
            out[:, 0] = np.clip(np.nan_to_num(rest[:, 0]), self.middle[0] - WIDEST, self.middle[0] + WIDEST)
        return out

    def _at(self, u: np.ndarray, rest: np.ndarray, columns: ThinFluxes) -> tuple[_Rest, np.ndarray]:
        """Rows of the emulator with the rest (b, r), and the derivatives of its bends by the coefficients."""
        inputs = np.concatenate([u, rest[:, self.bright :]], axis=1)
        shares, bends = self.emulator.shares(inputs, columns, self.about.points(inputs)[2])
        level = rest[:, 0] if self.bright else np.zeros(len(rest))
        return _Rest(level, rest[:, self.bright :], shares), bends

    def _seen(self, x: np.ndarray, at: _Rest) -> _Seen:
        """Ln density of everything, on pixels."""
        u, difference, s = self._split(x)
        sign = (0.5 - self.joint.data.detector).astype(PRECISION)
        # A chain that leaves for infinity is refused, but must not overflow on its way.
        off = np.clip(difference, self.middle[1] - WIDEST, self.middle[1] + WIDEST)
        bright = np.exp((at.level[:, None] + off[:, None] * sign).astype(PRECISION))
        f, _ = self.joint.coordinates.structures(s)
        share = (f * np.exp(at.level))[:, None].astype(PRECISION)
        made = at.shares.astype(PRECISION) @ self.rows
        shape, slope = self._shape(made)
        share = share * shape
        mean, noise = bright * made, share * made
        left, variance = self.data - mean, self.variance + noise**2
        pull = left / variance
        wider = (left * pull - 1) / variance * noise  # by the structure's standard deviation
        w = np.column_stack([u, at.level, difference]) if self.bright else u
        prior, of_level = self.outer.prior(w)
        value = prior - 0.5 * ((at.coefficients**2).sum(axis=1) + (s**2).sum(axis=1)) + self.constant
        value = value - 0.5 * (left * pull + np.log(variance)).sum(axis=1, dtype=float)
        of_level = of_level + (mean * pull + wider * noise).sum(axis=1, keepdims=True)[:, : self.bright]
        of_shares = ((bright * pull + wider * share * (1 + slope)) @ self.rows.T).astype(float)
        return _Seen(value, of_shares, of_level)

    def _shape(self, made: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shape of the structure at fluxes over the plain factor and the noise, (..., n), and its slope."""
        flux = made / self.about.white.astype(made.dtype)
        shape, slope = structure_shape(flux, self.radius, self.joint.data.wavelength.astype(made.dtype))
        return shape.astype(made.dtype), slope.astype(made.dtype)

    @cached_property
    def _grams(self) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates (nodes,) of the structure and the rows' products (nodes, m, m) over the noise with each."""
        rows, first = self.emulator.rows, self.emulator.rows[0]
        level, difference = self.middle
        bright = np.exp(level + difference * (0.5 - self.joint.data.detector))
        error = (self.joint.data.error * self.about.white) ** 2
        nodes = self._nodes()
        f = self.joint.coordinates.structures(nodes[:, None] if self.outer.structure.size else np.zeros((1, 0)))[0]
        noise = np.exp(level) * first * self._shape(first)[0]
        scaled = (rows * bright / np.sqrt(error + (each * noise) ** 2) for each in f)
        return nodes, np.stack([some @ some.T for some in scaled])

    def _nodes(self) -> np.ndarray:
        """Equally far from each other, about the mode's structure."""
        if not self.outer.structure.size:
            return np.zeros(1)
        i = self.outer.structure[0]
        reach = APART[0] * float(np.sqrt(self.covariance[i, i])) + APART[1]
        return np.linspace(max(self.about.z[i] - reach, -6.0), min(self.about.z[i] + reach, 6.0), NODES)

    def _products(self, x: np.ndarray) -> np.ndarray:
        """Products (b, m, m) of the rows over the noise with the structure of each place."""
        nodes, grams = self._grams
        return np.tensordot(_between(nodes, self._split(x)[2]), grams, axes=1)

    def _information(self, x: np.ndarray, at: _Rest, bends: np.ndarray) -> np.ndarray:
        """Fisher's information (b, r, r) of the rest, priors included; the noise is that of the mode's spectrum."""
        products = self._products(x)
        brighter = np.exp(2 * (at.level - self.middle[0]))[:, None, None]
        field, bent = self._places, self._bent
        half = products[:, field] + bends @ products[:, bent]
        b, c, k = len(x), half.shape[1], self.bright
        out = np.empty((b, c + k, c + k))
        out[:, k:, k:] = brighter * (half[:, :, field] + half[:, :, bent] @ np.swapaxes(bends, 1, 2)) + np.eye(c)
        if k:
            out[:, 0, 1:] = out[:, 1:, 0] = brighter[:, :, 0] * (half @ at.shares[..., None])[..., 0]
            along = (at.shares[:, None] @ products @ at.shares[..., None])[:, 0, 0]
            out[:, 0, 0] = brighter[:, 0, 0] * along + self._stiffness(x, at.level)
        return out

    def _stiffness(self, x: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Minus the curvature of the prior of L, where it is one."""
        u, difference, _ = self._split(x)
        step = 1e-3
        ends = [self.outer.prior(np.column_stack([u, level + way * step, difference]))[1][:, 0] for way in (-1, 1)]
        return np.maximum((ends[0] - ends[1]) / (2 * step), 0.0)

    def complete(self, x: np.ndarray, rng: np.random.Generator) -> tuple[Completed, np.ndarray]:
        """Draw everything else for each of `x` (b, k); also ln of the density (b,) they were drawn from.

        Of some draws of the rest one is taken by the emulator's density; radius, gains and sigma_cal follow by their
        priors, and the structure the radius: what the data know is its share of the flux with its gains.
        """
        columns = self._columns(x)
        found = self.found(x)
        u, difference, s = self._split(x)
        rest, ln_weight, ln_density = self._tried(x, found, columns, rng)
        rows = np.arange(len(x))
        total = np.logaddexp.reduce(ln_weight, axis=0)
        edges = np.cumsum(np.exp(ln_weight - total), axis=0)
        one = (rng.random(len(x)) > edges).sum(axis=0).clip(0, TRIED - 1)
        ln_drawn = ln_density[one, rows] + found.value - (total - np.log(TRIED))
        rest = rest[one, rows]
        z = np.tile(self.about.z, (len(x), 1))
        z[:, self.outer.field] = rest[:, self.bright :]
        w = np.column_stack([u, rest[:, 0], difference]) if self.bright else u
        drawn = self.outer.complete(w, z, rng)
        return self._with_structure(drawn, s, rest), ln_drawn

    @np.errstate(over="ignore", invalid="ignore")
    def _tried(
        self, x: np.ndarray, found: Searched, columns: ThinFluxes, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draws of the rest (TRIED, b, r), ln of their weights (TRIED, b), and of the emulator's density there."""
        tries, ln_weight, ln_density = [], [], []
        half = 0.5 * (found.ln_det - LN_2PI * found.middle.shape[1])
        for _ in range(TRIED):
            unit = rng.standard_normal(found.middle.shape)
            rest = found.middle + np.linalg.solve(np.swapaxes(found.root, 1, 2), unit[..., None])[..., 0]
            at, _ = self._at(x[:, : self.about.count], rest, columns)
            value = self._seen(x, at).value
            tries.append(rest)
            ln_density.append(value)
            ln_weight.append(np.nan_to_num(value - (half - 0.5 * (unit**2).sum(axis=1)), nan=-np.inf, neginf=-1e30))
        return np.stack(tries), np.stack(ln_weight), np.stack(ln_density)

    def _with_structure(self, drawn: Completed, s: np.ndarray, rest: np.ndarray) -> Completed:
        c = self.joint.coordinates
        if not c.structure:
            return drawn
        f, slope = c.structures(s)
        level = rest[:, 0] - np.log(self.outer.factor(drawn.z)) if self.bright else 0.0
        bottom, top = c.structure_bounds
        unit = (np.log10(f) + level / np.log(10.0) - bottom) / (top - bottom)
        moved = ndtri(np.clip(unit, TINY, 1 - TINY))
        drawn.z[:, self.outer.structure[0]] = moved
        odds = np.log(slope / c.structures(moved[:, None])[1])
        return drawn._replace(ln_odds=np.where((unit > TINY) & (unit < 1 - TINY), drawn.ln_odds + odds, -np.inf))


def _batches(n: int) -> list[np.ndarray]:
    """Places of `n` rows, as many together as stay in the processor's cache."""
    return np.split(np.arange(n), range(TOGETHER, n, TOGETHER)) if n else []


def _between(nodes: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Weights (b, nodes) with which values at `nodes` give that at `at` (b, 0 or 1): linear, so none is negative."""
    if nodes.size == 1:
        return np.ones((len(at), 1))
    off = np.abs(np.clip(at, nodes[0], nodes[-1]) - nodes) / (nodes[1] - nodes[0])
    return np.maximum(0.0, 1.0 - off)
