"""The forward model on the packaged tables: no draw of the prior fails, and the tables do what their names say."""

import itertools

import numpy as np
import pytest

import kappaflow as kf
from kappaflow.parameters import INDEX, bounds

THETA = np.array([300.0, 450.0, 800.0, 1400.0, 2300.0, 0.55, 0.0, 6.0, 5.0, 1.0, 8.0, 1.5, 0.0, 3.0, 0.0])


@pytest.fixture(scope="module")
def model():
    return kf.ForwardModel.load("tiny")


def test_no_draw_of_the_prior_fails_corners_included(model):
    low, high = bounds()
    rng = np.random.default_rng(0)
    theta = rng.uniform(low, high, (2000, low.size))
    corners = rng.permutation(list(itertools.product((0, 1), repeat=low.size)))[:500]
    theta[:500] = np.where(corners, high, low)
    flux = model(theta, rng.normal(0, 0.4, (2000, 6, 9)))
    assert np.isfinite(flux).all()
    assert (flux > 0).all()


def test_every_pair_of_lists_differs_and_every_name_is_accepted(model):
    base = model(THETA)
    for species, names in model.names.items():
        for name in names[1:]:
            assert not np.allclose(model(THETA, lists={species: name}), base, rtol=1e-4), species


def test_methane_and_carbon_monoxide_absorb_in_their_bands(model):
    """CH4 around 3.3 um, CO at 4.5-4.9 um: ten times less of each brightens its band most."""
    for species, low, high in (("CH4", 3.2, 3.5), ("CO", 4.5, 4.9)):
        field = np.zeros((6, 9))
        field[list(model.names).index(species), 0] = -2.3
        gain = np.log(model(THETA, field=field) / model(THETA))
        band = (model.wavelength > low) & (model.wavelength < high)
        assert gain[band].mean() > 2 * abs(gain[~band].mean()), species


def test_a_hotter_photosphere_is_brighter(model):
    hot = THETA.copy()
    hot[INDEX["T1"] : INDEX["T5"] + 1] += 100.0
    assert (model(hot) > model(THETA)).all()


def test_wider_lines_dim_the_spectrum(model):
    wide = kf.ForwardModel.load("tiny", broadening=(1.3, -0.15))
    assert np.median(wide(THETA) / model(THETA)) < 0.99


def test_the_other_cia_family_changes_little(model):
    other = kf.ForwardModel.load("tiny", cia="petitradtrans")
    ratio = other(THETA) / model(THETA)
    assert 0 < np.abs(ratio - 1).max() < 0.3
