"""Weighted places of a density: proposals learnt on the way, and few of many that stand for all."""

import numpy as np
import pytest
from scipy.stats import multivariate_t

from kappaflow.refinement.bridge import bridged, log_normalization
from kappaflow.refinement.importance import smoothed
from kappaflow.refinement.sampling import grouped_r_hat
from kappaflow.refinement.weighted_places import FREEDOM, Mixture, Student, WeightedPlaces, explored, thinned

NARROW = 0.3
ROUND = Mixture.equal(Student(np.zeros(2), np.eye(2)))


def banana(x):
    """Ln density, not normalized, of N(0, 1) in the first coordinate and N(its square, NARROW) in the second."""
    return 3.0 - 0.5 * (x[:, 0] ** 2 + ((x[:, 1] - x[:, 0] ** 2) / NARROW) ** 2)


LN_BANANA = 3.0 + np.log(2 * np.pi * NARROW)


def weighted(seen, values):
    weight = np.exp(seen.ln_weight - np.logaddexp.reduce(seen.ln_weight))
    return weight @ values


def test_a_proposal_is_the_t_density_that_it_draws():
    root = np.array([[0.7, 0.0], [0.4, 0.2]])
    student, rng = Student(np.array([1.0, -2.0]), root), np.random.default_rng(0)
    x = student.draw(20000, rng)
    exact = multivariate_t(student.centre, root @ root.T, df=FREEDOM)
    np.testing.assert_allclose(student.ln_density(x[:100]), exact.logpdf(x[:100]), atol=1e-9)
    np.testing.assert_allclose(np.cov(x.T), root @ root.T * FREEDOM / (FREEDOM - 2), rtol=0.06)


@pytest.mark.parametrize("seed", range(3))
def test_a_cloud_begun_far_off_finds_a_curved_density_and_its_integral(seed):
    first = Mixture.equal(Student(np.array([3.0, -3.0]), 0.5 * np.eye(2)))
    seen = explored(banana, first, np.random.default_rng(seed), wanted=3000, most=80)
    assert seen.ess >= 3000
    error = 5 / np.sqrt(seen.ess)
    assert seen.ln_total == pytest.approx(LN_BANANA, abs=error)
    assert weighted(seen, seen.x[:, 0]) == pytest.approx(0.0, abs=error)
    assert weighted(seen, seen.x[:, 0] ** 2) == pytest.approx(1.0, abs=np.sqrt(2) * error)
    assert weighted(seen, (seen.x[:, 1] - seen.x[:, 0] ** 2) ** 2) == pytest.approx(
        NARROW**2, abs=np.sqrt(2) * NARROW**2 * error
    )


def test_the_search_ends_when_enough_places_count_or_there_were_as_many_batches_as_allowed():
    rng = np.random.default_rng(0)
    assert len(explored(banana, ROUND, rng, wanted=1, batch=64).x) == 64
    assert len(explored(banana, ROUND, rng, wanted=1e9, batch=64, most=3).x) == 3 * 64


@pytest.mark.parametrize("seed", range(4))
def test_ends_of_a_curved_density_are_neither_missed_nor_invented(seed):
    """A twentieth of the density is beyond 1.96 standard deviations along the curve."""
    along = [Student(np.array([u, u**2]), np.array([[0.5, 0.0], [u, NARROW]])) for u in (-2.0, 0.0, 2.0)]
    first = Mixture.equal(*along)
    seen = explored(banana, first, np.random.default_rng(seed), wanted=1000, most=40)
    beyond = weighted(seen, np.abs(seen.x[:, 0]) > 1.96)
    assert beyond == pytest.approx(0.05, abs=4 * np.sqrt(0.05 / seen.ess))
    # What it is proposed from is a normalized density: its own integral, by draws of a wide one.
    wide = Student(np.array([0.0, 2.0]), np.diag([4.0, 8.0]))
    x = wide.draw(40000, np.random.default_rng(seed))
    ratio = np.exp(seen.proposal.ln_density(x) - wide.ln_density(x))
    assert ratio.mean() == pytest.approx(1.0, abs=5 * ratio.std() / 200)


def test_a_density_that_is_nowhere_known_where_proposals_fall_costs_places_only():
    def broken(x):
        value = -0.5 * (x**2).sum(axis=1)
        return np.where(x[:, 0] > 1, np.nan, np.where(x[:, 1] > 1, -np.inf, value))

    seen = explored(broken, ROUND, np.random.default_rng(0), wanted=500)
    assert np.isfinite(seen.ln_total)
    assert (seen.x[np.isfinite(seen.ln_weight)] < 1).all()


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_few_of_many_places_stand_for_all_and_none_comes_twice(spread):
    rng = np.random.default_rng(1)
    share = np.exp(spread * rng.standard_normal(500))
    share /= share.sum()
    values, exact = rng.standard_normal(500), []
    for _ in range(400):
        kept, ln = thinned(share, 60, rng)
        assert len(np.unique(kept)) == len(kept) <= 60
        assert np.exp(ln).sum() == pytest.approx(1.0, abs=0.05)
        exact.append(np.exp(ln) @ values[kept])
    # Sums keep their expectation, and scatter no more than independent draws by the same weights.
    assert np.mean(exact) == pytest.approx(share @ values, abs=4.5 * np.std(exact) / np.sqrt(400))
    assert np.std(exact) < 1.1 * np.sqrt(share @ values**2 / 60)


def test_few_places_are_all_kept():
    kept, ln = thinned(np.array([0.2, 0.0, 0.8]), 5, np.random.default_rng(0))
    assert kept.tolist() == [0, 2]
    np.testing.assert_allclose(np.exp(ln), [0.2, 0.8])


def test_where_one_place_takes_all_the_weight_others_are_looked_at_too_and_weigh_nothing():
    rng = np.random.default_rng(0)
    ln_weight = rng.standard_normal(400)
    ln_weight[7] = 40.0
    seen = WeightedPlaces(rng.standard_normal((400, 2)), ln_weight, ROUND)
    kept, ln = seen.thinned(64, rng)
    assert len(kept) > 50
    assert np.exp(ln[kept == 7]) == pytest.approx(1.0)
    assert np.exp(ln[kept != 7]).sum() < 1e-10
    assert len(np.unique(seen.drawn(64, rng), axis=0)) > 40


def test_a_bridge_between_two_sets_of_draws_finds_the_ratio_of_their_constants():
    rng = np.random.default_rng(0)
    narrow, wide = rng.normal(0, 1, 4000), rng.normal(0, 1.5, 4000)

    def ln_weight(x):  # of a normal density of standard deviation 1, times e^3, over one of 1.5
        return 3.0 - 0.5 * x**2 + 0.5 * (x / 1.5) ** 2 + np.log(1.5)

    assert bridged(ln_weight(wide), ln_weight(narrow)) == pytest.approx(3.0, abs=0.05)


def test_draws_of_a_curved_density_are_bridged_to_its_integral():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(4000)
    draws = np.stack([x, x**2 + NARROW * rng.standard_normal(4000)], axis=1)
    found = log_normalization(banana, draws, banana(draws), rng, about=np.eye(2))
    assert found == pytest.approx(LN_BANANA, abs=0.1)


def test_groups_that_disagree_and_weights_with_a_heavy_tail_are_noticed():
    rng = np.random.default_rng(0)
    values, group = rng.standard_normal((4000, 2)), np.arange(4000) % 4
    even = np.full(4000, 1 / 4000)
    assert grouped_r_hat(values, even, group) < 1.01
    assert grouped_r_hat(values + group[:, None], even, group) > 1.3
    few = even.copy()
    few[:12] = 1.0  # three of each group have all the weight
    assert grouped_r_hat(values, few / few.sum(), group) > 1.1
    assert smoothed(0.1 * rng.standard_normal(1000)).ess > 900
    heavy = smoothed(3.0 * np.abs(rng.standard_normal(1000)))
    assert heavy.ess < 100
    assert heavy.pareto_k > smoothed(0.3 * rng.standard_normal(1000)).pareto_k
