"""Many objects: one pass through the networks, several processes, resumed where it stopped, a table and pages."""

import csv
import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from retrieval_toy import observed, posteriors, write_text

from kappaflow.observe.distances import as_distance
from kappaflow.observe.targets import named_targets
from kappaflow.plots.catalogue_figures import Placed, metallicity_against_ratio, ratio_against_snr, spread
from kappaflow.retrieval.parallel import CatalogueRun, Finished, retrieve_many
from kappaflow.retrieval.result import Failed, RetrievalSettings
from kappaflow.retrieval.retriever import Retriever

SETTINGS = RetrievalSettings(draws=120, predicted=60)


def files(folder, n):
    return [write_text(folder / f"object{i}.txt", observed(seed=40 + i)[1]) for i in range(n)]


def loader(networks):
    return partial(Retriever.load, (networks / "m0", networks / "m1"), (), opacity=None, settings=SETTINGS)


@pytest.fixture
def quick(monkeypatch, empty_figures):
    _without_models(monkeypatch)


def _without_models(patch):
    """Forward models that are not there: what is tested here needs none."""
    patch.setattr("kappaflow.retrieval.retriever.forward_for", lambda posterior, opacity: "none in this test")
    patch.setattr("kappaflow.retrieval.retriever.refuse_other_table", lambda posterior, opacity: None)


def test_a_batch_gives_each_spectrum_what_it_gets_alone(networks):
    posterior, _ = posteriors(networks)
    spectra = [observed(seed=seed)[1] for seed in range(3)]
    many = posterior.sample_many(spectra, n=50, seed=4)
    assert many.shape == (3, 2, 50, 15)
    for spectrum, drawn in zip(spectra, many, strict=True):
        np.testing.assert_allclose(drawn, posterior.sample_members(spectrum, n=50, seed=4), rtol=1e-4, atol=1e-4)


def test_each_object_is_told_as_it_is_done_and_a_second_run_keeps_what_is_finished(networks, quick, tmp_path):
    paths = files(tmp_path, 3)
    (tmp_path / "bad.txt").write_text("nothing\n", encoding="utf-8")
    targets = named_targets([[path] for path in [*paths, tmp_path / "bad.txt"]], None)
    told: list = []
    run = CatalogueRun("kappaflow retrieve", done=told.append)
    outcomes, page = retrieve_many(loader(networks), targets, tmp_path / "out", run, {})
    assert sorted(one.name for one in told) == ["bad", "object0", "object1", "object2"]
    assert [isinstance(one, Failed) for one in outcomes] == [False, False, False, True]
    assert page is not None
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/summary.json")}
    write_text(paths[1], observed(seed=99)[1])  # another spectrum under the same name: not kept
    told.clear()
    again, _ = retrieve_many(
        loader(networks), targets, tmp_path / "out", CatalogueRun(resume=True, done=told.append), {}
    )
    assert [getattr(one, "kept", False) for one in again] == [True, False, True, False]
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/summary.json")}
    assert [path.parent.name for path in before if after[path] != before[path]] == ["object1"]
    other = partial(Retriever.load, (networks / "m0",), (), opacity=None, settings=SETTINGS)
    third, _ = retrieve_many(other, targets[:1], tmp_path / "out", CatalogueRun(resume=True), {})
    assert not getattr(third[0], "kept", False)  # other networks: another request
    fourth, _ = retrieve_many(other, targets[:1], tmp_path / "out", CatalogueRun(), {})
    assert not getattr(fourth[0], "kept", False)  # without --resume nothing is kept


def test_the_same_object_has_the_same_draws_alone_and_in_a_catalogue(networks, quick, tmp_path):
    paths = files(tmp_path, 2)
    many, _ = retrieve_many(
        loader(networks), named_targets([[p] for p in paths], None), tmp_path / "a", CatalogueRun(), {}
    )
    alone, _ = retrieve_many(loader(networks), named_targets([[paths[1]]], None), tmp_path / "b", CatalogueRun(), {})
    np.testing.assert_allclose(many[1].draws, alone[0].draws, rtol=1e-4, atol=1e-4)


def test_processes_give_what_one_gives(networks, tmp_path):
    """Workers load networks and forward model themselves; these networks have none that fits, which the card says."""
    paths = files(tmp_path, 2)
    targets = named_targets([[path] for path in paths], None)
    shared, _ = retrieve_many(_plain(networks), targets, tmp_path / "two", CatalogueRun(workers=2), {})
    alone, _ = retrieve_many(_plain(networks), targets, tmp_path / "one", CatalogueRun(workers=1), {})
    assert all(isinstance(one, Finished) for one in shared)
    for a, b in zip(shared, alone, strict=True):
        ours, theirs = a.summary()["parameters"]["C_O"], b.summary()["parameters"]["C_O"]
        assert ours["q50"] == pytest.approx(theirs["q50"], abs=1e-3)
        assert a.row()["verdict"] == b.row()["verdict"]


def _plain(networks):
    return partial(Retriever.load, (networks / "m0", networks / "m1"), (), opacity=None, settings=SETTINGS)


@pytest.fixture(scope="module")
def catalogue(networks, tmp_path_factory):
    """Two objects more than stand in one page; that they are five is not needed here, and each takes seconds."""
    inlined, tmp_path = 2, tmp_path_factory.mktemp("catalogue")
    found = named_targets([[path] for path in files(tmp_path, inlined + 2)], None)
    targets = [replace(found[0], distance=as_distance(10.0)), *found[1:]]  # of one a distance is known
    with pytest.MonkeyPatch.context() as patch:
        _without_models(patch)
        for module in ("files", "catalogue_files"):
            patch.setattr(f"kappaflow.report.{module}.INLINED", inlined)
        outcomes, page = retrieve_many(loader(networks), targets, tmp_path / "out", CatalogueRun(), {})
    return tmp_path / "out", outcomes, page.read_text(encoding="utf-8")


def test_many_objects_have_a_page_each_and_a_table_to_sort(catalogue):
    out, outcomes, page = catalogue
    assert page.count("<figure") == 2
    for one in outcomes:
        assert f'href="{one.name}/report.html"' in page
        own = (out / one.name / "report.html").read_text(encoding="utf-8")
        assert one.title in own
        assert "<script" not in own
    assert page.count("<script") == 1
    allowed = re.search(r"script-src &#39;sha256-([^&]+)&#39;|script-src 'sha256-([^']+)'", page)
    assert allowed
    import base64
    import hashlib

    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    named = (allowed[1] or allowed[2]).replace("&#43;", "+")
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() == named
    assert len(page) < 1_500_000


def test_the_tables_hold_every_parameter_with_its_unit_and_every_verdict(catalogue):
    from astropy.table import QTable, Table

    out, outcomes, _ = catalogue
    table, plain = QTable.read(out / "summary.ecsv"), Table.read(out / "summary.ecsv")
    assert len(table) == len(outcomes)
    assert str(table["T3_q50"].unit) == "K"
    assert str(table["R_q16"].unit) == "jupiterRad"
    assert "check_prior_edge" in table.colnames
    with (out / "summary.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    first = json.loads((out / rows[0]["name"] / "summary.json").read_text())
    for name, values in first["parameters"].items():
        assert float(rows[0][f"{name}_q84"]) == values["q84"]
        assert float(plain[f"{name}_q84"][0]) == pytest.approx(values["q84"])
    assert float(rows[0]["mass_q50"]) == first["derived"]["mass"]["q50"]
    assert str(table["mass_q50"].unit) == "jupiterMass"
    assert rows[1]["mass_q50"] == ""  # no distance, no mass


def test_figures_of_a_catalogue_are_against_snr_and_name_every_object_whole():
    five = [0.3, 0.4, 0.5, 0.6, 0.7]
    names = [f"WISE J{i:06d}.00+423410.0B" for i in range(40)]
    snr = np.geomspace(8, 150, 40)
    objects = [Placed(name, s, five, five, "warn") for name, s in zip(names, snr, strict=True)]
    for draw in (ratio_against_snr, metallicity_against_ratio):
        axes = draw(objects).axes[0]
        assert [text.get_text() for text in axes.texts] == names
    axes = ratio_against_snr(objects).axes[0]
    points = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "s" and len(line.get_xdata())]
    np.testing.assert_allclose(points, snr)
    assert len(ratio_against_snr(objects[:1]).axes[0].texts) == 1


def test_names_are_moved_apart_no_more_than_needed():
    rng = np.random.default_rng(0)
    places = np.sort(rng.random(30))
    moved = spread(places, 0.02)
    assert (np.diff(moved) >= 0.02 - 1e-9).all()
    assert np.abs(moved - places).max() < 0.2
    far = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(spread(far, 0.1), far)
    assert spread(np.ones(5), 0.1).max() <= 1 + 1e-9


def test_few_names_stand_beside_their_points_and_cover_no_other():
    """Objects at one [M/H], close in C/O: the left one's name goes left, though there is room at the right."""
    five = [0.0, 0.0, 0.0, 0.0, 0.0]
    objects = [Placed(name, 50.0, [c] * 5, five) for name, c in (("left of two", 0.75), ("right of two", 0.85))]
    axes = metallicity_against_ratio(objects).axes[0]
    assert [(text.get_text(), text.get_ha()) for text in axes.texts] == [
        ("left of two", "right"),
        ("right of two", "left"),
    ]
    heights = [text.get_position()[1] for text in axes.texts]
    assert abs(heights[0] - heights[1]) >= 0.05
