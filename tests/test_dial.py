"""The dial: shards at 0, at 1 and between; a network that is told, and widens as it should; networks without one."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from dial_toy import BOX, DIAL, PIXELS, DialBatches, exact_draws, observed, without_dial
from inference_toy import small, trainer
from retrieval_toy import MODEL, write_text
from retrieval_toy import observed as one_observed
from typer.testing import CliRunner

from kappaflow.build.tables.networks import at_amplitudes, card
from kappaflow.cli import app
from kappaflow.errors import UserError
from kappaflow.evaluate.scoring import score
from kappaflow.inference import Checkpoint, Posterior
from kappaflow.inference.features import SCALARS
from kappaflow.plots.dial_figure import c_to_o_against_dial
from kappaflow.retrieval.dial import turned
from kappaflow.simulation import Shards, make_config
from kappaflow.simulation.config import plan_shards
from kappaflow.simulation.opacity_draws import Dial
from kappaflow.simulation.shard import draw_shard
from kappaflow.simulation.toy import ToyModel
from kappaflow.spectra import OpacityCard

pytestmark = pytest.mark.usefixtures("one_thread")
BROAD = ((1.0, 0.0), (1.3, -0.15), (0.8, 0.1))


@pytest.fixture(scope="module")
def plan():
    return plan_shards(make_config(model="toy", amplitude="dial", broadening=BROAD), 5, ToyModel())


def test_a_fifth_of_the_shards_is_at_nought_and_a_fifth_at_one():
    held = [Dial().held(i) for i in range(1000)]
    assert held.count(0.0) == pytest.approx(200, abs=3)
    assert held.count(1.0) == pytest.approx(200, abs=3)
    assert {0.0, 1.0, None} == set(held[:6])  # small sets have some of each


def test_at_nought_nothing_varies_and_at_one_everything_does(plan):
    at_one = set()
    for index in range(400):
        held, choice = plan.config.amplitude.held(index), (plan.combination(index), plan.broadening(index))
        if held == 0:
            assert choice == (0, (1.0, 0.0))
        elif held == 1:
            at_one.add(choice)
    assert len(at_one) == 4 * len(BROAD)


def test_the_stored_amplitude_is_what_scaled_the_field(plan):
    shards = {plan.config.amplitude.held(i): draw_shard(plan, ToyModel(), i) for i in range(6)}
    assert not shards[0.0].amplitude.any()
    assert not shards[0.0].field.any()
    assert (shards[1.0].amplitude == 1).all()
    assert shards[1.0].field.any()
    drawn = shards[None].amplitude
    assert len(np.unique(drawn)) == 128
    assert (drawn.min() >= 0) & (drawn.max() <= 2.5)


def test_shards_of_a_dial_do_not_depend_on_what_was_drawn_before(plan):
    for index in (0, 2, 3):
        first, again = draw_shard(plan, ToyModel(), index), draw_shard(plan, ToyModel(), index)
        assert np.array_equal(first.flux, again.flux)


def test_a_set_of_one_amplitude_keeps_its_digest():
    """Sets that were simulated before there was a dial are still found."""
    told = make_config(model="toy").model_dump(mode="json")
    assert told["amplitude"] == 1.0
    assert make_config(model="toy", amplitude=(0.0, 2.5)).model_dump(mode="json")["amplitude"] == [0.0, 2.5]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"amplitude": "dial", "perturb": "discrete"}, "no field to turn"),
        ({"amplitude": {"at_zero": 0.7, "at_one": 0.7}}, "sum up to 1"),
        ({"amplitude": {"low": 2.0, "high": 1.0}}, "amplitude: 2 to 1"),
        ({"amplitude": {"low": 0.5}}, "outside the range"),
    ],
)
def test_a_wrong_dial_is_one_line(options, said):
    with pytest.raises(UserError, match=said):
        make_config(model="toy", **options)


def test_a_set_with_a_dial_is_made_again_from_its_own_config(command, tmp_path):
    words = ["--toy", "--n", 700, "--amplitude", "0:2:0.3:0.1", "--workers", 0]
    assert command("simulate", *words, "--out", tmp_path / "a")[0] == 0
    code, _, error = command(
        "simulate", "--config", tmp_path / "a/config.json", "--workers", 0, "--out", tmp_path / "b"
    )
    assert (code, error) == (0, "")
    for path in sorted((tmp_path / "a").iterdir()):
        assert (tmp_path / "b" / path.name).read_bytes() == path.read_bytes()
    assert Shards(tmp_path / "b").card.dial == (0.0, 2.0)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A network of the toy with a dial, trained for some seconds."""
    folder = tmp_path_factory.mktemp("dial") / "network"
    settings = small(learning_rate=2e-3, batch=128, ema=0.98)
    trainer(folder, settings, data=DialBatches(), epochs=30).fit()
    return folder


@pytest.fixture(scope="module")
def posterior(network):
    return Posterior.load(network)


def one(spectra, i=0):
    return SimpleNamespace(flux=spectra.flux[i], error=spectra.error[i], mask=spectra.mask[i], scale_known=True)


def test_intervals_widen_with_the_dial_as_the_exact_posterior_does(posterior):
    """The nuisance looks like the first parameter: its exact interval grows with the dial, the second's does not."""
    theta = np.random.default_rng(1).uniform(-0.3, 0.3, (40, 2))
    found, exact = {}, {}
    for amplitude in (0.0, 1.0, 2.5):
        spectra = observed(theta, np.full(40, amplitude), np.random.default_rng(2))
        found[amplitude] = np.median(posterior.sample_spectra(spectra, n=400).std(axis=1), axis=0)
        exact[amplitude] = np.median([exact_draws(flux, amplitude).std(axis=0) for flux in spectra.flux], axis=0)
        assert found[amplitude] == pytest.approx(exact[amplitude], rel=0.3)
    assert exact[1.0][0] > 1.6 * exact[0.0][0]
    assert found[1.0][0] > 1.4 * found[0.0][0]
    assert found[2.5][0] > 1.1 * found[1.0][0]
    assert found[1.0][1] == pytest.approx(found[0.0][1], rel=0.2)


def test_coverage_holds_at_the_amplitude_that_is_told_and_not_at_nought(posterior):
    theta = np.random.default_rng(3).uniform(-0.5, 0.5, (400, 2))
    spectra = observed(theta, np.full(400, 1.0), np.random.default_rng(4))
    assert score(posterior, spectra)["coverage"]["0.90"] == pytest.approx(0.9, abs=0.06)
    lied = replace(spectra, amplitude=np.zeros(400))
    assert score(posterior, lied)["coverage"]["0.90"] < 0.8


def test_the_dial_stays_where_it_was_set(posterior):
    spectra = observed(np.zeros((1, 2)), np.zeros(1), np.random.default_rng(5))
    still = posterior.at(0)
    assert posterior.amplitude == 1
    assert np.array_equal(still.sample(one(spectra), 50), posterior.sample(one(spectra), 50, amplitude=0))
    assert np.array_equal(still.sample(one(spectra), 50, amplitude=1), posterior.sample(one(spectra), 50))


def test_the_density_knows_the_dial(posterior):
    theta = np.random.default_rng(6).uniform(-0.5, 0.5, (200, 2))
    spectra = observed(theta, np.zeros(200), np.random.default_rng(7))
    told = posterior.log_prob_spectra(theta, spectra)
    lied = posterior.log_prob_spectra(theta, replace(spectra, amplitude=np.ones(200)))
    assert told.mean() > lied.mean() + 0.1  # sharper, and right
    assert told[3] == pytest.approx(posterior.log_prob(theta[3], one(spectra, 3), amplitude=0), abs=1e-4)


def test_a_dial_comes_back_from_its_file_and_others_have_none(network, posterior, tmp_path):
    assert posterior.dial == DIAL
    features = Checkpoint.load(network).estimator.features
    assert features.width == sum(SCALARS[name] for name in features.inputs.scalars) + 2
    trainer(tmp_path / "plain", data=without_dial(), epochs=1).fit()
    plain = Posterior.load(tmp_path / "plain")
    assert plain.dial is None
    spectra = observed(np.zeros((1, 2)), np.zeros(1), np.random.default_rng(5))
    assert plain.sample(one(spectra), 10, amplitude=1).shape == (10, 2)
    assert np.array_equal(plain.sample_spectra(spectra, 10)[0], plain.sample(one(spectra), 10))
    for refused in (lambda: plain.sample(one(spectra), amplitude=0.5), lambda: plain.at(0)):
        with pytest.raises(UserError, match="no dial"):
            refused()


def test_amplitudes_outside_the_dial_are_refused(posterior):
    spectra = observed(np.zeros((2, 2)), np.array([0.0, 3.0]), np.random.default_rng(5))
    with pytest.raises(UserError, match="outside the dial of these networks, 0 to 2.5"):
        posterior.sample_spectra(spectra, 10)
    with pytest.raises(UserError, match="outside the dial"):
        posterior.at(-0.1)


def test_only_networks_with_the_same_dial_are_pooled(network):
    told = Checkpoint.load(network)
    other = replace(told, card=replace(told.card, dial=(0.0, 2.0)))
    with pytest.raises(UserError, match="a dial from 0 to 2, network 0 a dial from 0 to 2.5"):
        Posterior([told, other])


def test_the_opacities_follow_the_dial(network):
    told = Checkpoint.load(network)
    opacity = OpacityCard("0" * 16, {"H2O": ("base", "x")}, "borysow", [[0.2, 0.1]], [{"H2O": "base"}, {"H2O": "x"}])
    whole = Posterior([replace(told, card=replace(told.card, opacity=opacity))])
    assert whole.opacity == opacity
    assert whole.at(2).opacity.sigma == [[0.4, 0.2]]
    assert len(whole.at(2).opacity.combinations) == 2
    assert whole.at(0).opacity.sigma == [[0.0, 0.0]]
    assert whole.at(0).opacity.combinations == [{"H2O": "base"}]


def test_networks_with_a_dial_are_their_own_control(posterior):
    chosen, control = turned(posterior, None, 2.0)
    assert (chosen.amplitude, control.amplitude) == (2.0, 0.0)
    assert turned(posterior, posterior, 2.0)[1] is posterior


def test_the_card_of_a_network_with_a_dial_has_a_row_for_every_amplitude(posterior, tmp_path, toy_shards):
    sets = at_amplitudes([toy_shards(tmp_path / "a", 128, amplitude=0.43), toy_shards(tmp_path / "b", 128)])
    assert list(sets) == ["amplitude 0.43", "amplitude 1"]
    with pytest.raises(UserError, match="expected a set of one"):
        at_amplitudes([toy_shards(tmp_path / "c", 128, amplitude=(0.0, 2.0))])
    member = posterior.members[0]
    theta = np.random.default_rng(3).uniform(-0.5, 0.5, (50, 2))
    found = {
        f"amplitude {a:g}": score(posterior, observed(theta, np.full(50, a), np.random.default_rng(1)))
        for a in (0.0, 2.14)
    }
    text = card("marginalized-0", replace(member, metrics={**member.metrics, "held_out": found}))
    assert "told how wrong line lists may be" in text
    assert "| amplitude 2.14 | 50 |" in text


@pytest.fixture(scope="module")
def retrieving(tmp_path_factory, toy_shards):
    """Retrieve a spectrum of the made-up forward model with a network that has a dial."""
    folder = tmp_path_factory.mktemp("retrieving")
    data = Shards(toy_shards(folder / "data", 1024, amplitude="dial"))
    trainer(folder / "network", data=data, epochs=2).fit()

    def run(out, *words):
        _, spectrum = one_observed()
        write_text(folder / "object.txt", spectrum)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kappaflow.retrieval.retriever.forward_for", lambda posterior, opacity: MODEL)
            patch.setattr("kappaflow.retrieval.retriever.refuse_other_table", lambda posterior, opacity: None)
            common = ["--amortized", "--model", folder / "network", "--draws", 300, "--out", out]
            return CliRunner().invoke(app, ["retrieve", *map(str, [folder / "object.txt", *common, *words])])

    return run


def test_retrieve_turns_the_dial_and_draws_it(retrieving, tmp_path):
    found = retrieving(tmp_path / "out", "--line-lists", "2", "--distance", "10")
    assert found.exit_code == 0, found.output
    summary = json.loads((tmp_path / "out/object/summary.json").read_text())
    assert summary["line_lists"] == summary["dial"]["chosen"] == 2
    assert summary["dial"]["amplitude"][0] == 0
    assert np.array(summary["dial"]["c_to_o"]).shape == (11, 5)
    assert "dial at 2" in summary["provenance"]["networks"]
    assert "dial at 0" in summary["provenance"]["control networks"]
    assert any(check["name"].startswith("line-list share") for check in summary["trust"])
    assert (tmp_path / "out/object/dial.png").exists()
    assert "C/O by the same networks" in (tmp_path / "out/report.html").read_text()


def test_a_dial_outside_the_networks_own_is_one_line(retrieving, tmp_path):
    found = retrieving(tmp_path / "out", "--line-lists", "3")
    assert isinstance(found.exception, UserError)
    assert str(found.exception) == "--line-lists: amplitude 3: outside the dial of these networks, 0 to 2.5"


def test_the_figure_shows_fixed_lists_apart_from_the_curve():
    places = np.linspace(0, 2.5, 11)
    rows = 0.5 + np.array([-0.2, -0.1, 0.0, 0.1, 0.2]) * (0.2 + places[:, None])
    axes = c_to_o_against_dial(places, rows, 1.0).axes[0]
    median = next(line for line in axes.lines if line.get_label() == "median")
    assert median.get_xdata()[0] == pytest.approx(0.25)
    assert any(line.get_label() == "fixed line lists" for line in axes.lines)
    assert (len(BOX), PIXELS) == (2, 32)
