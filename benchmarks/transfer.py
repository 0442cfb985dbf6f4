"""Transfer against ExoJAX `ArtEmisPure` on the same optical depths, and the fit of the six angles.

python benchmarks/transfer.py [--json]       # largest difference over random columns
python benchmarks/transfer.py --fit          # the weights in physics/transfer.py
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog
from scipy.special import expn

from kappaflow.physics.transfer import QUADRATURE, emergent_flux, gauss, planck

UNIT, POWERS = 1.04 / 5, (5, 6, 9, 20, 64, 256)


def fit():
    """Weights with the least largest relative error of 2 E3 and of 1 - 2 E3 over tau < 14: a linear programme."""
    tau = np.geomspace(1e-3, 14, 80)
    exact = 2 * expn(3, tau)
    tolerance = np.minimum(exact, 1 - exact)
    ratio = np.exp(-UNIT * tau[:, None] * np.array(POWERS)) / tolerance[:, None]
    wanted = exact / tolerance
    ones = np.ones((tau.size, 1))
    found = linprog(
        np.r_[np.zeros(len(POWERS)), 1.0],
        A_ub=np.block([[ratio, -ones], [-ratio, -ones]]),
        b_ub=np.r_[wanted, -wanted],
        A_eq=np.r_[np.ones(len(POWERS)), 0.0][None],
        b_eq=[1.0],
    )
    return found.x[:-1], found.x[-1]


def columns(count, layers=60, points=200):
    """Random warming and inverted columns whose depths span ten decades."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        depth = np.geomspace(10 ** rng.uniform(-8, -3), 10 ** rng.uniform(2, 6), layers + 1)[:, None]
        depth = depth * 10 ** rng.uniform(-2, 2, points)
        knots = np.array([rng.uniform(*r) for r in ((150, 1500), (200, 2000), (300, 2500), (500, 3000), (800, 3500))])
        yield np.diff(depth, axis=0), np.interp(np.linspace(0, 4, layers + 1), np.arange(5), knots)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.fit:
        weights, error = fit()
        print(f"weights {weights.round(8).tolist()}  largest relative error {error:.2e}")
        return
    from exojax.rt import ArtEmisPure

    nu = np.linspace(1850.0, 3550.0, 200)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), jax.enable_x64(True):
        warnings.simplefilter("ignore")
        arts = {
            n: ArtEmisPure(
                pressure_top=1e-5, pressure_btm=1e3, nlayer=60, nu_grid=nu, rtsolver="ibased_linsap", nstream=2 * n
            )
            for n in (5, 32)
        }
    worst = {"same 5 Gauss angles": 0.0, "our 6 angles against its 32": 0.0}
    for dtau, temperature in columns(50):
        with jax.enable_x64(True):
            theirs = {n: np.asarray(a.run(jnp.asarray(dtau), jnp.asarray(temperature))) for n, a in arts.items()}
        single, source = jnp.asarray(dtau, jnp.float32), planck(jnp.asarray(nu), jnp.asarray(temperature))
        pairs = ((gauss(5), 5), (QUADRATURE, 32))
        for key, (quadrature, n) in zip(worst, pairs, strict=True):
            ratio = np.asarray(emergent_flux(single, source, quadrature)) / theirs[n] - 1
            worst[key] = max(worst[key], float(np.abs(ratio).max()))
    print(
        json.dumps(worst) if options.json else "\n".join(f"{k}: largest difference {v:.2e}" for k, v in worst.items())
    )


if __name__ == "__main__":
    main()
