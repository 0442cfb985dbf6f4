"""What is drawn for a shard depends on its address alone, and follows the prior."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import kappaflow as kf
from kappaflow.errors import UserError
from kappaflow.parameters import COEFFICIENTS, INDEX, PARAMETER_SETS, SPECIES
from kappaflow.randomness import Stream, key
from kappaflow.simulation import make_config
from kappaflow.simulation.config import plan_shards
from kappaflow.simulation.opacity_draws import coefficient_sigma, draw_field, sigma_table
from kappaflow.simulation.prior import draw_prior
from kappaflow.simulation.toy import ToyModel


def plan(seed=0, **options):
    return plan_shards(make_config(model="toy", **options), seed, ToyModel())


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_a_rewound_stream_equals_a_fresh_generator(first, second):
    stream = Stream("theta", 3)
    stream.at(first).standard_normal(7, dtype=np.float32)  # leaves half a word in the buffer
    fresh = np.random.Generator(np.random.Philox(key=key("theta", 3), counter=[0, 0, second, 0]))
    assert np.array_equal(stream.at(second).random(5), fresh.random(5))


@pytest.mark.parametrize("kind", ["uniform", "sobol"])
def test_a_shard_is_the_same_drawn_alone_first_or_last(kind):
    alone = draw_prior(kind, 5, 17)
    several = [draw_prior(kind, 5, i) for i in (0, 17, 3, 17)]
    for again in (several[1], several[3]):
        assert np.array_equal(alone[0], again[0])
        assert np.array_equal(alone[1], again[1])
    assert not np.array_equal(several[0][0], several[2][0])


@pytest.mark.parametrize("kind", ["uniform", "sobol"])
def test_every_parameter_is_uniform_on_its_prior_and_independent_of_the_others(kind):
    theta, snr = (np.concatenate(a) for a in zip(*(draw_prior(kind, 1, i) for i in range(400)), strict=True))
    PARAMETER_SETS["paper"].check(theta)
    for p, column in zip((*kf.PARAMETERS, kf.SNR), [*theta.T, snr], strict=True):
        assert stats.kstest((column - p.low) / p.width, "uniform").pvalue > 1e-3, p.name
    if kind == "uniform":
        assert stats.kstest((theta[:50_000, INDEX["C_O"]] - 0.1) / 1.4, "uniform").pvalue > 0.01
    correlation = np.corrcoef(np.column_stack([theta, snr]).T) - np.eye(16)
    assert np.abs(correlation).max() < 0.02


def test_sobol_fills_space_better_than_independent_draws():
    from scipy.stats import qmc

    def spread(kind):
        theta = np.concatenate([draw_prior(kind, 0, i)[0] for i in range(8)])
        low, high = (np.array([getattr(p, side) for p in kf.PARAMETERS]) for side in ("low", "high"))
        return qmc.discrepancy(np.clip((theta - low) / (high - low), 0, 1)[:, :4], method="L2-star")

    assert spread("sobol") < 0.5 * spread("uniform")


def test_other_seeds_give_other_parameters():
    assert not np.isin(draw_prior("uniform", 0, 0)[0], draw_prior("uniform", 1, 0)[0]).any()


def test_coefficients_have_the_standard_deviations_of_the_packaged_table():
    table = coefficient_sigma(sigma_table())
    draws = np.concatenate([draw_field(table, np.ones(128), 0, i) for i in range(200)])
    assert np.allclose(draws.std(axis=0) / table.ravel(), 1, atol=0.03)
    assert np.abs(draws.mean(axis=0) / table.ravel()).max() < 0.03
    assert table[SPECIES.index("CH4"), 0] == 0.226  # the paper's amplitude table
    assert np.array_equal(table[:, 1:5], table[:, 5:])  # cosine and sine alike
    assert table.shape == (6, COEFFICIENTS)


def test_the_amplitude_scales_the_same_draws():
    one, two = (kf.simulate(n=128, model="toy", seed=7, perturb="smooth", amplitude=a).field for a in (1.0, 2.14))
    assert np.allclose(two, 2.14 * one, rtol=1e-12)
    assert one.any()


@pytest.mark.parametrize("perturb", ["none", "discrete"])
def test_without_the_smooth_field_every_coefficient_is_exactly_zero(perturb):
    assert not kf.simulate(n=128, model="toy", perturb=perturb).field.any()


def test_sets_that_differ_in_opacity_only_share_their_parameters():
    kinds = [kf.simulate(n=200, model="toy", seed=9, perturb=p) for p in ("both", "smooth", "discrete", "none")]
    for other in kinds[1:]:
        assert np.array_equal(kinds[0].theta, other.theta)
        assert np.array_equal(kinds[0].snr, other.snr)
    assert np.array_equal(kinds[0].field, kinds[1].field)
    assert not np.array_equal(kinds[0].flux, kinds[3].flux)


def test_none_is_the_unperturbed_model_bit_for_bit():
    table = kf.simulate(n=128, model="toy", perturb="none")
    assert np.array_equal(table.flux, ToyModel()(table.theta))


def test_the_four_combinations_cycle_over_shards():
    four = plan()
    assert [dict(c) for c in four.combinations] == [
        {"H2O": a, "CH4": b} for a, b in itertools.product(("base", "exomol"), repeat=2)
    ]
    assert [four.combination(i) for i in range(9)] == [0, 1, 2, 3, 0, 1, 2, 3, 0]


def test_carbon_monoxide_and_dioxide_are_further_axes():
    more = plan(axes=("H2O", "CH4", "CO", "CO2"))
    assert len(more.combinations) == len(more.allowed) == 16
    assert dict(more.combinations[15]) == {"H2O": "exomol", "CH4": "exomol", "CO": "air", "CO2": "exomol"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"pin": (("CH4", "base"),)}, [{"H2O": "base", "CH4": "base"}, {"H2O": "exomol", "CH4": "base"}]),
        ({"exclude": (("CH4", "exomol"),)}, [{"H2O": "base", "CH4": "base"}, {"H2O": "exomol", "CH4": "base"}]),
        ({"perturb": "smooth"}, [{"H2O": "base", "CH4": "base"}]),
        ({"perturb": "none", "pin": (("CH4", "exomol"),)}, [{"H2O": "base", "CH4": "exomol"}]),
        ({"perturb": "none", "pin": (("CO", "air"),)}, [{"H2O": "base", "CH4": "base", "CO": "air"}]),
    ],
)
def test_lists_are_pinned_and_held_out(options, expected):
    made = plan(**options)
    assert [dict(made.combinations[i]) for i in made.allowed] == expected


def test_a_stored_combination_means_the_same_with_and_without_a_held_out_list():
    assert plan().combinations == plan(exclude=(("CH4", "exomol"),)).combinations


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"perturb": "all"}, "both, smooth, discrete, none"),
        ({"sequence": "halton"}, "uniform, sobol"),
        ({"preset": "huge"}, "tiny, laptop, paper"),
        ({"amplitude": -1.0}, "at least 0"),
        ({"amplitude": float("nan")}, "at least 0"),
        ({"broadening": (0.0, 0.0)}, "1.30,-0.15"),
        ({"axes": ("H2O", "TiO")}, "TiO"),
        ({"axes": ("H2O", "H2O")}, "twice"),
        ({"pin": (("CH4", "hitemp"),)}, "base, exomol"),
        ({"pin": (("CH4", "base"), ("CH4", "exomol"))}, "twice"),
        ({"exclude": (("CH4", "exomol"), ("CH4", "base"))}, "no combination"),
        ({"amplitude": "large"}, "amplitude"),
    ],
)
def test_a_wrong_option_is_one_line_that_says_what_is_expected(options, words):
    with pytest.raises(UserError) as caught:
        plan(**options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(UserError, match="seed"):
        plan(seed=seed)


def test_the_digest_names_everything_but_the_seed():
    same = {plan(seed=s).digest for s in range(3)}
    others = {
        plan(**o).digest
        for o in (
            {"perturb": "none"},
            {"amplitude": 2.0},
            {"sequence": "sobol"},
            {"broadening": (1.3, -0.15)},
            {"axes": ("CO",)},
        )
    }
    assert len(same) == 1
    assert len(others | same) == 6


def test_the_model_makes_the_table_s_spectra_from_its_columns():
    table = kf.simulate(n=300, model="toy", seed=4)
    model = ToyModel()
    for row in (0, 130, 299):
        chosen = {s: model.names[s][i] for s, i in zip(SPECIES, table.lists[row], strict=True)}
        here = model(table.theta[row : row + 1], table.field[row : row + 1], chosen)
        assert np.array_equal(here[0], table.flux[row])


def test_the_table_has_the_seventy_one_columns_of_the_paper():
    table = kf.simulate(n=130, model="toy", seed=2)
    assert table.columns.shape == (130, 71)
    names = PARAMETER_SETS["paper"].columns
    assert table.names == names
    assert len(names) == len(set(names)) == 71
    assert len(table) == 130
    assert table.combination.tolist() == [0] * 128 + [1] * 2
    assert np.array_equal(table.columns[:, names.index("SNR")], table.snr)
    assert np.array_equal(table.columns[:, names.index("CH4_b1")], table.field[:, 9 + 5])


def test_pins_may_be_a_mapping_in_python():
    table = kf.simulate(n=4, model="toy", perturb="none", pin={"CH4": "exomol"})
    assert table.combinations[table.combination[0]] == {"H2O": "base", "CH4": "exomol"}


def test_a_spectrum_that_fails_stops_the_run_and_is_never_dropped():
    class Broken(ToyModel):
        def __call__(self, theta, field=None, lists=None):
            flux = super().__call__(theta, field, lists)
            flux[3, 5] = np.nan
            return flux

    with pytest.raises(ArithmeticError, match=r"row 3 .*C_O="):
        kf.simulate(n=4, model="toy", load=lambda recipe: Broken())
