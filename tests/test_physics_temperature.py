"""The temperature profile against SciPy's monotone cubic, and its promises on any knots."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads
from scipy.interpolate import PchipInterpolator

from kappaflow.model.arrays import on_device
from kappaflow.model.prepare import hermite
from kappaflow.parameters import KNOT_LOG_PRESSURE
from kappaflow.physics.temperature import Hermite, profile

LOG_P = np.linspace(-5, 3, 81)
AT = on_device(Hermite, hermite(LOG_P))
KNOTS = st.tuples(*(st.floats(lo, hi) for lo, hi in ((150, 1500), (200, 2000), (300, 2500), (500, 3000), (800, 3500))))
run = jax.jit(profile)


@settings(max_examples=200, deadline=None)
@given(KNOTS)
def test_the_profile_is_scipys_monotone_cubic(knots):
    expected = PchipInterpolator(KNOT_LOG_PRESSURE, knots)(LOG_P)
    np.testing.assert_allclose(run(jnp.array(knots), AT), expected, rtol=2e-5, atol=0.05)


@settings(max_examples=200, deadline=None)
@given(KNOTS)
def test_the_profile_never_leaves_the_interval_between_two_knots(knots):
    found = np.asarray(run(jnp.array(knots), AT)).reshape(-1)
    for i in range(4):
        inside = found[20 * i : 20 * i + 21]
        low, high = sorted(knots[i : i + 2])
        assert inside.min() >= low - 0.1
        assert inside.max() <= high + 0.1


def test_equal_knots_are_isothermal_with_a_finite_gradient():
    knots = jnp.full(5, 900.0)
    np.testing.assert_allclose(run(knots, AT), 900.0, rtol=1e-6)
    assert np.isfinite(jax.jacrev(profile)(knots, AT)).all()


def test_the_gradient_is_that_of_finite_differences():
    check_grads(lambda k: profile(k, AT), (jnp.array([400.0, 600.0, 1000.0, 1500.0, 2600.0]),), 1, eps=1.0, rtol=1e-2)
