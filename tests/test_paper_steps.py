"""The machinery under `kappaflow paper`: steps named by what decides them, made once, checked, shared, resumed."""

import re

import numpy as np
import pytest
from folders import ROOT

from kappaflow.calibrate import coverage
from kappaflow.experiments.cells import cell, cell_text, markdown_table, table
from kappaflow.experiments.item import items, items_named
from kappaflow.experiments.measures import Measured, recalibrated
from kappaflow.experiments.order import make_all, missing
from kappaflow.experiments.published import PUBLISHED, amplitudes, published
from kappaflow.experiments.rates import Rates, seconds_of, total_seconds
from kappaflow.experiments.sizes import SIZES
from kappaflow.experiments.steps import DataSet, Drawn, TrainedNetwork
from kappaflow.experiments.store import StepStore
from kappaflow.experiments.study import NETWORKS, SETS, Study
from kappaflow.experiments.treatments import MASKS
from kappaflow.experiments.workers import DaskWorkers, LocalWorkers
from kappaflow.parameters import SPECIES
from kappaflow.simulation import Shards, make_config
from kappaflow.tables.field_prior import perturbation_prior

TEX = ROOT.parent / "shared" / "paper" / "opacity_marginalization.tex"
STUDY = Study("tiny")
needs_paper = pytest.mark.skipif(not TEX.exists(), reason="the paper's source is not here")


def toy_steps(seeds=(0, 1), **changes):
    """A training set, networks and their draws on a test set, of made-up spectra: seconds in all."""
    config = make_config(model="toy", preset="tiny")
    train = DataSet(name="train", config=config, n=256, seed=0)
    test = DataSet(name="test", config=config, n=128, seed=1)
    recipe = SIZES["tiny"].recipe("kappaflow", "tiny")
    networks = [
        TrainedNetwork(name=f"n{s}", data=train, seed=s, recipe=recipe, epochs=1, masks=changes.get("masks", False))
        for s in seeds
    ]
    return [Drawn(network=network, data=test, draws=50) for network in networks]


def make(wanted, store, workers):
    shares = {}
    make_all(missing(wanted, store), store, workers, cost={}, advance=lambda key, share: shares.update({key: share}))
    return shares


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    store, steps = StepStore(tmp_path_factory.mktemp("store")), toy_steps()
    with LocalWorkers(2) as workers:
        shares = make(steps, store, workers)
    return store, steps, shares


def test_every_step_is_made_once_after_what_it_needs(made):
    store, steps, shares = made
    assert missing(steps, store) == []
    assert set(shares.values()) == {1.0}
    kinds = [marker.name.split("-")[0] for marker in store.folder.glob("*.json")]
    assert sorted(kinds) == ["data", "data", "draws", "draws", "network", "network"]
    order = [step.kind for step in missing(steps, StepStore(store.folder / "empty"))]
    assert order == ["data", "network", "data", "draws", "network", "draws"]


def test_draws_that_are_there_do_not_miss_their_network(made, tmp_path):
    store, steps, _ = made
    copy = StepStore(tmp_path)
    for path in (store.path(steps[0]), store.marker(steps[0])):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert missing(steps[:1], copy) == []
    assert len(missing(steps, copy)) == 4


@pytest.mark.parametrize("kind", ["data", "network", "draws"])
def test_a_damaged_step_is_made_again(made, tmp_path, kind):
    store, steps, _ = made
    step = {"data": steps[0].data, "network": steps[0].network, "draws": steps[0]}[kind]
    path = store.path(step)
    file = {"data": path / "shard-000000.h5", "network": path / "network.safetensors", "draws": path}[kind]
    whole = file.read_bytes()
    try:
        spoilt = bytearray(whole)
        spoilt[len(spoilt) // 2] ^= 0xFF
        file.write_bytes(spoilt)
        assert not store.has(step)
        file.unlink()
        assert not store.has(step)
    finally:
        file.write_bytes(whole)
    assert store.has(step)


@pytest.mark.filterwarnings("ignore")  # dask's own, of which there are some on every start
@pytest.mark.usefixtures("garbage_of_this_test")  # while they are still ignored
def test_a_dask_cluster_makes_the_same_draws(made, tmp_path):
    distributed = pytest.importorskip("distributed")
    store, steps, _ = made
    there = StepStore(tmp_path)
    settings = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None, "processes": True}
    with (
        distributed.LocalCluster(**settings, silence_logs=50) as cluster,
        DaskWorkers(cluster.scheduler_address) as workers,
    ):
        make(steps[:1], there, workers)
    ours, theirs = (s.read_draws(steps[0]) for s in (store, there))
    np.testing.assert_array_equal(ours.draws.draws, theirs.draws.draws)


def test_members_of_an_ensemble_do_not_share_their_noise(made):
    store, steps, _ = made
    a, b = (store.read_draws(step).draws.draws[..., 5] for step in steps)
    assert abs(np.corrcoef((a - a.mean(1, keepdims=True)).ravel(), (b - b.mean(1, keepdims=True)).ravel())[0, 1]) < 0.05
    pooled = store.read_draws(*steps)
    assert pooled.draws.draws.shape[1] == 100
    np.testing.assert_array_equal(pooled.draws.draws[:, :50, 5], a)


def test_sixteen_bits_keep_draws_to_the_hundred_thousandth_of_the_prior(made, tmp_path):
    store, steps, _ = made
    told = store.read_draws(steps[0])
    box = Shards(store.path(steps[0].data)).card.box
    rng = np.random.default_rng(0)
    draws = np.asarray(box.low) + box.widths * rng.random((128, 50, len(box)))
    other = StepStore(tmp_path)
    arrays = {"draws": draws, "truth": told.draws.truth, "log_prob": told.log_prob, "snr": told.snr, "good": told.good}
    other.write_draws(steps[0], box, arrays, 0.0)
    back = other.read_draws(steps[0]).draws.draws
    assert np.abs((back - draws) / box.widths).max() < 1.0e-5


def test_all_that_decides_a_step_is_in_its_key_and_its_name_is_not():
    drawn = STUDY.drawn("marginalized")[0]
    network, data = drawn.network, drawn.network.data
    other = STUDY.network("paper recipe").recipe
    for step, changes in (
        (data, [{"n": 128}, {"seed": 5}, {"config": STUDY.config({"perturb": "none"})}]),
        (network, [{"seed": 1}, {"epochs": 2}, {"masks": True}, {"limit": 100}, {"recipe": other}]),
        (drawn, [{"draws": 7}, {"path": "full path"}, {"masks": "bands"}, {"data": STUDY.test_set("clean")}]),
    ):
        keys = {step.key, *(step.model_copy(update=change).key for change in changes)}
        assert len(keys) == 1 + len(changes)
    assert data.model_copy(update={"name": "x"}).key == data.key
    assert network.model_copy(update={"data": STUDY.training_set("clean")}).key != network.key


def test_no_test_set_shares_its_seed_with_a_training_set_and_all_columns_share_their_objects():
    tests = [STUDY.test_set(name) for name in SETS]
    training = [STUDY.network(kind).data for kind in NETWORKS]
    half = STUDY.test_set("calibration")
    assert {t.seed for t in tests}.isdisjoint({t.seed for t in training} | {half.seed})
    assert len({t.seed for t in tests}) == 1
    assert {SIZES[name].test for name in ("laptop", "paper")} == {2048}


def test_a_network_trained_for_one_item_serves_the_others():
    needs = {name: {step.key for step in item.needs(STUDY)} for name, item in items().items()}
    assert needs["informative"] <= needs["coverage"]
    assert needs["sbc"] <= needs["coverage"]
    assert needs["amplitude"] & needs["coverage"]


def test_items_come_in_the_order_of_the_page_whatever_was_asked_first():
    assert [item.name for item in items_named(["latency", "coverage"])] == ["coverage", "latency"]
    assert items_named([]) == items_named(["all"]) == list(items().values())
    wanted = (
        "coverage scaling ensemble sbc recalibration amplitude heldout ablation masks broadening informative priors"
    )
    assert list(items()) == [*wanted.split(), "real", "latency"]


def test_two_workers_share_the_work_of_a_plan():
    rates = Rates(workers=2, simulated=50, start=1, trained={"kappaflow": 100, "paper": 100}, drawn=1e9, shown=1e9)
    steps = [STUDY.network("marginalized", seed) for seed in range(4)]
    one, all_ = seconds_of(steps[0], rates), total_seconds(steps, rates)
    assert all_ == pytest.approx(2 * one, rel=1e-6)
    assert one == pytest.approx(10 * 0.9 * 2048 / 100, rel=0.1)
    assert seconds_of(STUDY.training_set("clean"), rates) == pytest.approx(2048 / 100 + 1, rel=1e-6)


@pytest.mark.parametrize("kind", ["drawn", "bands", "comb", "real"])
def test_masks_of_a_test_set_lose_pixels_of_every_spectrum_and_never_all(toy_shards, tmp_path, kind):
    shards = Shards(toy_shards(tmp_path / kind, 128, pixels=400))
    masks = MASKS[kind](shards, 128, ())
    assert masks.shape == (128, 400)
    assert not masks.all(axis=1).any()
    assert masks.any(axis=1).all()
    np.testing.assert_array_equal(masks, MASKS[kind](shards, 128, ()))
    if kind != "real":
        assert 0.35 < np.median(masks.mean(axis=1)) < 0.6


def gaussian(n=600, s=399, width=1.0, seed=0):
    rng = np.random.default_rng(seed)
    centre = rng.uniform(0.3, 0.7, (n, 2))
    truth = centre + 0.05 * rng.normal(size=(n, 2))
    draws = centre[:, None] + 0.05 * width * rng.normal(size=(n, s, 2))
    from kappaflow.calibrate import check_draws

    return Measured(check_draws(truth, draws, prior=([0, 0], [1, 1]), names=["C_O", "T4"]), np.full(n, 50.0))


def test_a_measure_is_the_calibration_suites_own():
    one = gaussian()
    report = coverage(one.draws.truth, one.draws.draws, prior=([0, 0], [1, 1]), names=["C_O", "T4"])
    assert one.share() == pytest.approx(report.coverage[2, 0])
    assert one.overall()[0] == pytest.approx(report.overall[2])
    assert one.width("T4") == pytest.approx(report.width_over_prior[2, 1])
    assert one.coverage_cell()["error"] == pytest.approx(np.sqrt(one.share() * (1 - one.share()) / 600))


@pytest.mark.parametrize("width", [0.6, 1.0, 1.6])
def test_recalibration_brings_narrow_and_wide_to_nominal_on_other_objects(width):
    raw, half = gaussian(width=width), gaussian(width=width, seed=1)
    moved = recalibrated(raw, half)
    assert abs(moved.share() - 0.9) < 0.04
    if width != 1.0:
        assert abs(raw.share() - 0.9) > 0.06


def test_a_table_says_ours_its_error_and_the_papers():
    content = table("T", ["a", "b"], [("row", [cell(0.1234, 0.01, 0.2), "words"])], "note")
    assert markdown_table(content).splitlines()[4] == "| row | 0.123 ± 0.010 · *0.200* | words |"
    assert cell_text(cell(None)) == "–"
    with pytest.raises(ValueError, match="2 columns"):
        table("T", ["a", "b"], [("row", ["x"])])


def test_the_papers_amplitudes_are_those_the_training_uses():
    packaged = perturbation_prior()
    for species in SPECIES:
        assert amplitudes(species) == [packaged[species]["const"], *packaged[species]["modes"]]


@needs_paper
def test_every_published_number_stands_in_the_paper():
    text = TEX.read_text(encoding="utf-8").replace("{,}", "").replace("\n", " ")
    for name, statement in PUBLISHED.items():
        for row, words in statement.rows.items():
            assert len(words.split()) == len(statement.columns), (name, row)
            for word in words.split():
                bare = word.lstrip("-+")
                assert not bare or re.search(rf"(?<![\d.]){re.escape(bare)}(?!\d)", text), (name, row, word)


@needs_paper
def test_the_papers_first_table_is_read_as_it_is_printed():
    text = TEX.read_text(encoding="utf-8")
    block = text[text.index(r"\label{tab:coverage}") :]
    block = block[: block.index(r"\end{table}")]
    methods = ("control", "control ensemble", "marginalized", "marginalized ensemble")
    labels = {"0.50": "0.50", "0.90": "0.90", "Overall @0.90": "overall", "Width/prior @0.90": "width"}
    for label, column in labels.items():
        line = next(line for line in block.splitlines() if line.strip().startswith(label) and "&" in line)
        printed = [float(x) for x in re.findall(r"\d\.\d+", line.split("&", 1)[1])]
        assert printed == [published("coverage", method, column) for method in methods]
