"""The networks inside the package: what they weigh, what their cards say, and the first minute with them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from inference_toy import small, trainer
from typer.testing import CliRunner

from kappaflow.build.tables.networks import main
from kappaflow.cli import app
from kappaflow.errors import UserError
from kappaflow.evaluate.scoring import score
from kappaflow.inference import Checkpoint, Posterior, packaged
from kappaflow.model import ForwardModel
from kappaflow.observe.example import example_spectrum
from kappaflow.observe.resampling import on_pixels
from kappaflow.parameters import PARAMETER_SETS
from kappaflow.simulation import Backend, Shards, make_config, simulate_directory
from kappaflow.spectra import Box
from kappaflow.tables.opacity import load_opacity

AMPLITUDES = {"marginalized": 1.0, "control": 0.0}  # where the dial stands
SEED = 73_001  # of no training set
PATHS = packaged()


def test_several_seeds_are_there_within_fifteen_megabytes():
    assert len(PATHS) >= 2
    assert sum(path.stat().st_size for path in PATHS) < 15e6


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_card_lies_beside_every_network_and_says_what_its_header_says(path):
    network, text = Checkpoint.load(path), path.with_suffix(".md").read_text()
    assert network.card.digest in text
    assert network.card.masked
    assert network.familiarity is not None
    for row in network.metrics["held_out"].values():
        assert row["n"] >= 1800
        assert f"{row['coverage']['0.90']:.3f}" in text
        assert f"{row['interval_score']:.3f}" in text
    assert "## Limits" in text


def test_all_are_of_one_training_with_a_dial_from_fixed_lists_to_twice_the_prior():
    networks = [Checkpoint.load(path) for path in PATHS]
    assert len({network.card.digest for network in networks}) == 1
    assert len({network.seed for network in networks}) == len(networks)
    assert networks[0].card.dial == (0.0, 2.5)
    assert networks[0].card.n_train >= 200_000


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """The C/O coverage with the dial at 1 and at 0 on spectra that nobody trained on, line lists in turn."""
    folder = tmp_path_factory.mktemp("fresh")
    whole = Posterior.load()
    parameters = whole.members[0].card.parameters
    model = ForwardModel.load("laptop", parameters=parameters)
    rows = {}
    one = Posterior(whole.members[:1])
    for perturb, n in (("both", 512), ("none", 256)):
        where, config = folder / perturb, make_config(perturb=perturb, parameters=parameters)
        simulate_directory(where, config, n, seed=SEED, backend=Backend(0, lambda _: model))
        shards = Shards(where, seed=SEED)
        whole.refuse_training_seed(shards.card.seed, folder)
        seen = replace(shards.evaluation(), amplitude=None)  # the dial stays where it is put
        judged = {kind: one.at(amplitude) for kind, amplitude in AMPLITUDES.items()}
        if perturb == "both":
            judged |= {f"marginalized-{i}": Posterior([member]) for i, member in enumerate(whole.members)}
            judged["pooled"] = whole
        rows |= {(kind, perturb): score(posterior, seen, draws=99) for kind, posterior in judged.items()}
    return rows


def off_nominal(row):
    """How far the coverage is from the level, in binomial standard deviations, at each level."""
    levels = np.array([float(level) for level in row["coverage"]])
    return (np.array(list(row["coverage"].values())) - levels) / np.sqrt(levels * (1 - levels) / row["n"])


@pytest.mark.parametrize("i", range(len(PATHS)))
def test_on_fresh_perturbed_spectra_the_error_bars_of_a_marginalized_network_hold(fresh, i):
    row = fresh[f"marginalized-{i}", "both"]
    assert row["overall"]["0.90"] == pytest.approx(0.90, abs=0.03)
    assert np.abs(off_nominal(row)).max() < 3.5


def test_on_fresh_perturbed_spectra_the_pooled_error_bars_hold(fresh):
    assert np.abs(off_nominal(fresh["pooled", "both"])).max() < 3.5


def test_on_fresh_perturbed_spectra_the_controls_error_bars_do_not_hold(fresh):
    """Told that line lists are right, the same network misses; with structure drawn less than on the paper's set."""
    marginalized, control = fresh["marginalized", "both"], fresh["control", "both"]
    assert (off_nominal(control) < -2.5).all()
    assert control["coverage"]["0.90"] + 0.05 < marginalized["coverage"]["0.90"]
    assert marginalized["interval_score"] < control["interval_score"]
    assert marginalized["overall"]["0.90"] == pytest.approx(0.90, abs=0.03)


def test_on_fresh_unperturbed_spectra_the_controls_error_bars_hold_and_the_marginalized_are_wider(fresh):
    """What the control lacks is the line lists: where they are its own, it is calibrated, and the narrower one."""
    marginalized, control = fresh["marginalized", "none"], fresh["control", "none"]
    assert np.abs(off_nominal(control)).max() < 3.5
    assert control["width"] < marginalized["width"]
    assert (off_nominal(marginalized) > -3.5).all()


def test_the_cards_say_what_fresh_spectra_show(fresh):
    """The header of a network holds its coverage on 2,048 spectra; a pooled few hundred agree within their scatter."""
    row = fresh["pooled", "both"]
    told = [Checkpoint.load(path).metrics["held_out"]["perturbed"]["coverage"]["0.90"] for path in PATHS]
    scatter = np.sqrt(np.mean(told) * (1 - np.mean(told)) / row["n"])
    assert row["coverage"]["0.90"] == pytest.approx(np.mean(told), abs=3.5 * scatter)


def test_load_without_arguments_samples_the_packaged_spectrum_inside_the_prior():
    posterior = Posterior.load()
    draws = posterior.sample(on_pixels(example_spectrum(), posterior.wavelength, 16.6), n=300)
    assert draws.shape == (300, len(posterior.box))
    assert ((draws > posterior.box.low) & (draws < posterior.box.high)).all()


def test_what_we_ship_is_the_full_parameter_set_on_the_packaged_table():
    for path in PATHS:
        card = Checkpoint.load(path).card
        assert card.parameters == "full"
        assert card.box == Box.of(PARAMETER_SETS["full"])
        assert card.opacity is not None
        assert card.opacity.digest == load_opacity().digest


def test_the_first_minute(tmp_path):
    out = tmp_path / "demo"
    result = CliRunner().invoke(app, ["demo", "--out", str(out), "--n", "128", "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert set(said["coverage"]) == set(AMPLITUDES)
    control, marginalized = (said["coverage"][kind]["coverage"]["0.90"] for kind in ("control", "marginalized"))
    assert control < marginalized
    assert said["wolf1130c"]["C_O_q16"] < said["wolf1130c"]["C_O_q84"]
    page = (out / "report.html").read_text()
    assert str(out / "report.html") == said["report"]
    assert "Do the error bars hold?" in page
    assert "Wolf 1130C" in page


@pytest.mark.usefixtures("one_thread")
def test_a_trained_network_is_packaged_as_stored_with_its_scores(tmp_path, toy_shards):
    for name, seed, perturb in (("train", 0, "both"), ("test", 1, "both"), ("clean", 2, "none")):
        toy_shards(tmp_path / name, 640, seed=seed, perturb=perturb)
    data = Shards(tmp_path / "train", masks=True)
    trainer(tmp_path / "net", small(), data=data, seed=3, epochs=1).fit()
    words = [f"marginalized-3={tmp_path / 'net'}", "--out", str(tmp_path / "out"), "--n", "256"]
    weak = toy_shards(tmp_path / "weak", 256, seed=4, amplitude=0.43)
    main([*words, "--perturbed", str(tmp_path / "test"), "--clean", str(tmp_path / "clean"), "--dial", str(weak)])
    with pytest.raises(UserError, match="drawn from seed 0, like the spectra a network was trained on"):
        main([*words, "--perturbed", str(tmp_path / "train"), "--clean", str(tmp_path / "clean")])
    stored = Checkpoint.load(tmp_path / "out/marginalized-3.safetensors")
    judged = {"perturbed", "perturbed, masked", "perturbed, other masks", "clean", "amplitude 0.43"}
    assert set(stored.metrics["held_out"]) == judged
    assert "seed 3" in (tmp_path / "out/marginalized-3.md").read_text()
    half, whole = (tmp_path / p for p in ("out/marginalized-3.safetensors", "net/network.safetensors"))
    assert half.stat().st_size < 0.8 * whole.stat().st_size
    weights = next(iter(stored.estimator.embedding.parameters())).detach().numpy()
    assert np.array_equal(weights, weights.astype(np.float16).astype(np.float32))


@pytest.mark.usefixtures("one_thread")
def test_networks_packaged_together_are_pooled_as_narrow_as_their_mixture_needs(tmp_path, toy_shards):
    for name, seed, perturb in (("train", 0, "both"), ("test", 1, "both"), ("clean", 2, "none")):
        toy_shards(tmp_path / name, 640, seed=seed, perturb=perturb)
    words = ["--perturbed", str(tmp_path / "test"), "--clean", str(tmp_path / "clean"), "--n", "128"]
    for seed in (3, 4):
        trainer(
            tmp_path / f"net{seed}", small(), data=Shards(tmp_path / "train", masks=True), seed=seed, epochs=1
        ).fit()
    nets = [f"marginalized-{seed}={tmp_path / f'net{seed}'}" for seed in (3, 4)]
    main([*nets, *words, "--train", str(tmp_path / "train"), "--out", str(tmp_path / "out")])
    files = [tmp_path / f"out/marginalized-{seed}.safetensors" for seed in (3, 4)]
    told = [Checkpoint.load(file).metrics["pool"] for file in files]
    assert told[0] == told[1]
    assert told[0]["seeds"] == [3, 4]
    both, alone = Posterior.load(*files), Posterior.load(files[0])
    assert (both.spread, alone.spread) == (told[0]["spread"], 1.0)
    assert 0.7 <= both.spread <= 1.0
    assert f"{both.spread:g} times its base noise" in files[0].with_suffix(".md").read_text()
    assert Posterior.load(files[0], tmp_path / "net4").spread == 1.0  # not what was calibrated together
    one = Shards(tmp_path / "test").evaluation(1)
    both.spread = 0.5
    wide, narrow = (np.ptp(p.sample_spectra(one, n=400), axis=1) for p in (Posterior(both.members[:1]), both))
    assert (narrow < wide).mean() > 0.8
