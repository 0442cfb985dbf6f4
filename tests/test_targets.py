"""A table of targets gives each object its own file, name, distance and offset, or says what is wrong with it."""

import json

import numpy as np
import pytest
from astropy import units as u
from astropy.table import QTable
from retrieval_toy import observed, write_text

import kappaflow as kf
from kappaflow.errors import UserError
from kappaflow.observe.distances import Distance, as_distance, stated_distance
from kappaflow.observe.targets import name_objects, named_targets, read_targets
from kappaflow.parameters import INDEX
from kappaflow.retrieval.result import RetrievalSettings

R = INDEX["R"]


def table(tmp_path, text, name="targets.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_every_column_is_used_and_files_are_relative_to_the_table(tmp_path):
    text = (
        "file,name,distance,distance_error,offset\na.fits,First one,6.3,0.1,0.02\nsub/b1.fits + sub/b2.fits,,10.7,,\n"
    )
    (first, second), unused = read_targets(table(tmp_path, text))
    assert unused == ()
    assert (first.name, first.title, first.offset) == ("First one", "First one", 0.02)
    assert first.files == (tmp_path / "a.fits",)
    assert first.distance == Distance(6.3, 0.1)
    assert second.files == (tmp_path / "sub" / "b1.fits", tmp_path / "sub" / "b2.fits")
    assert (second.name, second.title, second.offset) == ("b1", None, None)
    assert second.distance == Distance(10.7)


def test_an_astropy_table_with_units_is_understood(tmp_path):
    rows = QTable({"file": ["a.txt", "b.txt"], "distance": [6.3, 20.0] * u.pc, "distance_error": [0.0, 500.0] * u.mpc})
    rows.write(tmp_path / "t.ecsv")
    targets, _ = read_targets(tmp_path / "t.ecsv")
    assert [t.distance.pc for t in targets] == pytest.approx([6.3, 20.0])
    assert [t.distance.error for t in targets] == pytest.approx([0.0, 0.5])


def test_without_files_rows_belong_to_those_given_by_name_or_in_order(tmp_path):
    files = [tmp_path / "x.txt", tmp_path / "y.csv"]
    named, _ = read_targets(table(tmp_path, "name,distance\ny,2\nx,1\n"), files)
    assert [(t.files[0].name, t.distance.pc) for t in named] == [("y.csv", 2), ("x.txt", 1)]
    ordered, _ = read_targets(table(tmp_path, "distance\n1\n2\n"), files)
    assert [(t.files[0].name, t.distance.pc) for t in ordered] == [("x.txt", 1), ("y.csv", 2)]


def test_columns_that_are_not_known_are_told(tmp_path):
    assert read_targets(table(tmp_path, "file,distanc,spt\na.txt,1,T8\n"))[1] == ("distanc", "spt")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spt,ra\nT8,1\n", "expected some of file, name"),
        ("file,distance\na.txt,-5\n", "line 2: distance: -5 pc"),
        ("file,distance\na.txt,far\n", "line 2: distance: 'far'"),
        ("file,distance,distance_error\na.txt,5,4\n", "distance-error: 4 pc of 5"),
        ("file,distance_error\na.txt,0.1\n", "without a distance"),
        ("file,offset\na.txt,7\n", "offset 7"),
        ("file,name\na.txt,x\nb.txt,x\n", "two rows are named 'x'"),
        ("file,distance\n,5\n", "line 2: no file"),
        ("file,distance\na.txt\n", "line 2 has 1 columns"),
        ("distance\n5\n", "no column 'file'"),
        ("file,file\na,b\n", "two columns have one name"),
        ("file\n", "no rows"),
        ("", "no rows"),
        ("\x00\x01", "neither FITS nor text"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_place(tmp_path, text, said):
    with pytest.raises(UserError, match=said) as caught:
        read_targets(table(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_table_and_files_that_do_not_fit_are_refused(tmp_path):
    files = [tmp_path / "x.txt", tmp_path / "y.csv"]
    for text, said in (
        ("distance\n1\n", "1 rows for 2 files"),
        ("name,distance\nx,1\nz,1\n", "no file is called 'z'"),
        ("name,distance\nx,1\n", "no row for y"),
        ("file\nx.txt\n", "it names the files itself"),
    ):
        with pytest.raises(UserError, match=said):
            read_targets(table(tmp_path, text), files)
    with pytest.raises(UserError, match="no such file"):
        read_targets(tmp_path / "nowhere.csv")


def test_names_are_safe_as_folders_and_distinct_on_any_disk(tmp_path):
    text = 'file,name\na.txt,../../etc\nb.txt,"x/y:z"\nc.txt,Same\nd.txt,same\ne.txt,..\n'
    targets, _ = read_targets(table(tmp_path, text))
    names = [t.name for t in targets]
    assert names == ["_.._etc", "x_y_z", "Same", "same-2", "spectrum"]
    assert all((tmp_path / name).resolve().parent == tmp_path.resolve() for name in names)
    assert name_objects([[tmp_path / "x-2.txt"], [tmp_path / "x.txt"], [tmp_path / "x.csv"]])[2][0] == "x-3"


def test_one_distance_for_several_objects_is_refused(tmp_path):
    with pytest.raises(UserError, match="--targets"):
        named_targets([[tmp_path / "a"], [tmp_path / "b"]], Distance(5.0))
    assert named_targets([[tmp_path / "a", tmp_path / "b"]], Distance(5.0))[0].distance == Distance(5.0)


def test_distances_are_checked_alike_wherever_they_come_from():
    assert as_distance((5.71, 0.06)) == as_distance(5.71, 0.06) == Distance(5.71, 0.06)
    assert stated_distance({"distance_pc": 5, "distance_error_pc": 0.5}) == Distance(5.0, 0.5)
    assert stated_distance({}) is None
    for wrong in (-5, 0, float("nan"), 1e9, (5, -1), (5, float("nan"))):
        with pytest.raises(UserError, match="pc"):
            as_distance(wrong)


@pytest.mark.usefixtures("empty_figures")
def test_each_object_gets_its_own_distance_and_the_report_says_so(run, tmp_path):
    for i in range(2):
        write_text(tmp_path / f"o{i}.txt", observed(seed=20 + i)[1])
    path = table(tmp_path, "file,name,distance,spt\no0.txt,Near,6.3,T8\no1.txt,Far,10.7,T9\n")
    result = run("--targets", path, control=False)
    assert result.exit_code == 0, result.output
    assert "targets.csv: not used: spt" in result.stderr
    found = {s["name"]: s for s in json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))}
    assert found["Near"]["spectrum"]["distance_pc"] == 6.3
    assert found["Far"]["spectrum"]["distance_pc"] == 10.7
    assert found["Far"]["title"] == "Far"
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for needle in ("<dd>6.3 pc</dd>", "<dd>10.7 pc</dd>", "<dd>o1.txt</dd>", "<dt>command</dt>", "masked: none"):
        assert needle in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x.txt", "--distance", "-5"], "--distance: -5 pc"),
        (["x.txt", "y.txt", "--distance", "5"], "given for 2 objects"),
        (["x.txt", "--distance-error", "1"], "without a distance"),
        (["x.txt", "--flux-unit", "bananas"], "--flux-unit"),
        (["x.txt", "--targets", "t.csv", "--distance", "5"], "not beside --targets"),
        ([], "no FILE"),
    ],
)
def test_a_wrong_argument_is_told_before_anything_is_loaded(command, monkeypatch, words, said):
    def never(*_, **__):
        raise AssertionError("networks were loaded")

    monkeypatch.setattr("kappaflow.retrieval.retriever.Retriever.load", never)
    code, _, error = command("retrieve", *words)
    assert code == 2
    assert said in error
    assert error.count("\n") == 1


def test_an_uncertain_distance_widens_the_radius_and_nothing_else(networks, monkeypatch):
    """Var(ln R) grows by the square of the distance's relative error: R/d is what the flux fixes."""
    from retrieval_toy import MODEL

    monkeypatch.setattr("kappaflow.retrieval.retriever.forward_for", lambda posterior, opacity: MODEL)
    settings = RetrievalSettings(draws=20_000, predicted=100, amortized=True)
    ours = kf.Retriever.load([networks / "m0"], [networks / "c0"], settings=settings)
    _, spectrum = observed()
    sharp, vague = (kf.retrieve(spectrum, distance=d, model=ours) for d in (10.0, (10.0, 2.0)))
    others = np.arange(sharp.draws.shape[1]) != R
    np.testing.assert_array_equal(sharp.draws[:, others], vague.draws[:, others])
    grown = np.var(vague.draws[:, R] / sharp.draws[:, R])
    assert grown == pytest.approx(0.04, rel=0.05)
    assert np.mean(vague.draws[:, R]) == pytest.approx(np.mean(sharp.draws[:, R]), rel=0.01)
    assert np.var(vague.control_draws[:, R] / sharp.control_draws[:, R]) == pytest.approx(0.04, rel=0.05)
    assert vague.summary()["spectrum"]["distance_error_pc"] == 2.0
    assert any("distance's error of 20.0%" in note for note in vague.spectrum.meta["notes"])
    np.testing.assert_array_equal(sharp.envelope.median, vague.envelope.median)
