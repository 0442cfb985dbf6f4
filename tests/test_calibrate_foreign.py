"""Draws of other tools: ArviZ, sbi, long CSV and folders of retrievals give the same verdict as our own file."""

import csv
import json
import pickle
import warnings

import numpy as np
import pytest
import xarray as xr
from calibration_toy import boxed

from kappaflow.errors import UserError
from kappaflow.evaluate.draws_file import read_method
from kappaflow.evaluate.foreign_draws import read_truth, sample_axes
from kappaflow.plots import PALETTE
from kappaflow.plots.verdict_figures import looks_of, tarp_curves

QUICK = ["--bootstraps", "100", "--references", "5"]
N, S = 120, 60


@pytest.fixture(scope="module")
def toy():
    return boxed(N, S, [0.05, 0.2], seed=1)


def arviz_groups(toy, chains=2):
    """Posterior (chain, draw, object) and truth (object), as xarray."""
    drawn = toy.draws.transpose(1, 0, 2).reshape(chains, S // chains, N, 2)
    axes = ("chain", "draw", "object")
    posterior = xr.Dataset({name: (axes, drawn[..., k]) for k, name in enumerate(("a", "b"))})
    truth = xr.Dataset({name: ("object", toy.truth[:, k]) for k, name in enumerate(("a", "b"))})
    return posterior, truth


def write_nc(path, **groups):
    for k, (name, data) in enumerate(groups.items()):
        data.to_netcdf(path, mode="a" if k else "w", group=name, engine="h5netcdf")
    return path


def write_rows(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


def same(method, toy, names=("a", "b")):
    assert method.draws.names == names
    np.testing.assert_allclose(method.draws.truth, toy.truth, rtol=1e-12)
    np.testing.assert_allclose(np.sort(method.draws.draws, axis=1), np.sort(toy.draws, axis=1), rtol=1e-12)


@pytest.mark.parametrize("group", ["truth", "constant_data"])
def test_arviz_netcdf_with_truths_beside_the_posterior(tmp_path, toy, group):
    posterior, truth = arviz_groups(toy)
    same(read_method(write_nc(tmp_path / "a.nc", posterior=posterior, **{group: truth})), toy)


def test_inference_data_and_a_data_tree_as_arviz_and_xarray_write_them(tmp_path, toy):
    posterior, truth = arviz_groups(toy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz

        data = arviz.InferenceData(posterior=posterior, constant_data=truth)
        data.to_netcdf(str(tmp_path / "idata.nc"), engine="h5netcdf")
    same(read_method(tmp_path / "idata.nc"), toy)
    tree = xr.DataTree.from_dict({"/posterior": posterior, "/truth": truth})
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    same(read_method(tmp_path / "tree.nc"), toy)


def test_a_vector_of_parameters_and_another_order_of_dimensions(tmp_path, toy):
    drawn = toy.draws.transpose(0, 2, 1)  # object, component, draw
    posterior = xr.Dataset({"theta": (("spectrum", "k", "sample"), drawn)})
    truth = xr.Dataset({"theta": (("spectrum", "k"), toy.truth)})
    same(read_method(write_nc(tmp_path / "a.nc", posterior=posterior, truth=truth)), toy, ("theta[0]", "theta[1]"))
    assert sample_axes(("network", "draw", "x")) == ([0, 1], [2])


def test_sbis_arrays_also_with_as_many_draws_as_objects(tmp_path):
    square = boxed(80, 80, [0.05, 0.2], seed=1)
    samples = square.draws.transpose(1, 0, 2)  # as posterior.sample_batched((s,), x=xs) returns them
    np.savez(
        tmp_path / "npe.npz", thetas=square.truth, posterior_samples=samples, names=["a", "b"], low=[0, 0], high=[1, 1]
    )
    method = read_method(tmp_path / "npe.npz")
    np.testing.assert_array_equal(method.draws.draws, square.draws)
    assert method.draws.high.tolist() == [1, 1]
    np.savez(tmp_path / "wrong.npz", thetas=square.truth, posterior_samples=square.draws[:, :40])
    with pytest.raises(UserError, match=r"posterior_samples: shape \(80, 40, 2\)"):
        assert read_method(tmp_path / "wrong.npz")


def test_long_csv_both_ways_and_with_truths_in_a_table(tmp_path, toy):
    objects = [f"star {i}" for i in range(N)]
    long = [
        (objects[i], name, toy.draws[i, j, k], toy.truth[i, k])
        for k, name in enumerate(("a", "b"))
        for j in range(S)
        for i in range(N)
    ]
    same(read_method(write_rows(tmp_path / "long.csv", ["object", "parameter", "value", "truth"], long)), toy)
    wide = [(objects[i], j, *toy.draws[i, j], *toy.truth[i]) for i in range(N) for j in range(S)]
    same(read_method(write_rows(tmp_path / "wide.csv", ["object", "draw", "a", "b", "true_a", "true_b"], wide)), toy)
    bare = write_rows(tmp_path / "bare.csv", ["object", "a", "b"], [(row[0], row[2], row[3]) for row in wide])
    with pytest.raises(UserError, match="no truths of a, b"):
        read_method(bare)
    table = write_rows(tmp_path / "truth.csv", ["object", "a", "b"], zip(objects, *toy.truth.T, strict=True))
    same(read_method(bare, read_truth(table)), toy)


def test_a_folder_of_retrievals_with_its_truths(tmp_path, toy):
    for i in range(N):
        (tmp_path / "retrieved" / f"s{i:03}").mkdir(parents=True)
        drawn = toy.draws[i].reshape(2, S // 2, 2)
        posterior = xr.Dataset({name: (("network", "draw"), drawn[..., k]) for k, name in enumerate(("a", "b"))})
        write_nc(tmp_path / "retrieved" / f"s{i:03}" / "posterior.nc", posterior=posterior)
    rows = [(f"s{i:03}", *toy.truth[i]) for i in range(N)]
    truth = read_truth(write_rows(tmp_path / "truth.csv", ["object", "a", "b"], rows))
    same(read_method(tmp_path / "retrieved", truth), toy)
    with pytest.raises(UserError, match="give a table of them with --truth"):
        read_method(tmp_path / "retrieved")
    del truth["s007"]
    with pytest.raises(UserError, match="no row for 's007'"):
        read_method(tmp_path / "retrieved", truth)


def test_what_is_wrong_in_a_foreign_file_is_one_line(tmp_path, toy):
    posterior, truth = arviz_groups(toy)
    write_nc(tmp_path / "alone.nc", posterior=posterior)
    write_nc(tmp_path / "other.nc", posterior=posterior, truth=truth.rename(a="x", b="y"))
    write_nc(tmp_path / "none.nc", observed_data=truth)
    write_nc(tmp_path / "dims.nc", posterior=posterior, truth=truth.rename(object="row"))
    (tmp_path / "text.nc").write_text("not a file of this kind")
    (tmp_path / "npe.pt").write_bytes(pickle.dumps([1]))
    (tmp_path / "empty").mkdir()
    write_rows(tmp_path / "short.csv", ["object", "parameter", "value", "truth"], [("x", "a", 1, 1), ("x", "a")])
    write_rows(tmp_path / "word.csv", ["object", "a", "true_a"], [("x", "one", 1)])
    write_rows(tmp_path / "two.csv", ["object", "a", "true_a"], [("x", 1, 1), ("x", 1, 2)])
    write_rows(tmp_path / "uneven.csv", ["object", "a", "true_a"], [("x", 1, 1), ("x", 1, 1), ("y", 1, 1)])
    write_rows(tmp_path / "none.csv", ["object", "a", "true_a"], [])
    write_rows(tmp_path / "names.csv", ["star", "a"], [("x", 1)])
    for name, told in (
        ("alone.nc", "no truths"),
        ("other.nc", "none in common"),
        ("none.nc", "no group 'posterior'"),
        ("dims.nc", "dimensions"),
        ("text.nc", "unreadable"),
        ("npe.pt", "could run anything"),
        ("empty", "expected one for each object"),
        ("short.csv", "line 3 has 2 columns"),
        ("word.csv", "'one' is not a number"),
        ("two.csv", "truth of a is 2"),
        ("uneven.csv", "expected as many"),
        ("none.csv", "no rows"),
        ("names.csv", "expected 'object'"),
    ):
        with pytest.raises(UserError, match=told) as caught:
            read_method(tmp_path / name)
        assert "\n" not in str(caught.value)


def bad_draws(tmp_path, toy):
    """The words that judge an exact posterior and one too narrow, of a name that is HTML."""
    posterior, truth = arviz_groups(toy)
    write_nc(tmp_path / "exact.nc", posterior=posterior, truth=truth)
    spoiled = boxed(N, S, [0.05, 0.2], seed=1, stretch=0.4)
    np.savez(tmp_path / "<b>narrow.npz", truth=spoiled.truth, draws=spoiled.draws, names=["a", "b"])
    return ["--draws", tmp_path / "exact.nc", "--draws", tmp_path / "<b>narrow.npz", "--out", tmp_path / "bad", *QUICK]


@pytest.mark.usefixtures("empty_figures")
def test_without_strict_or_with_good_draws_the_exit_code_is_zero(tmp_path, toy, command):
    bad = bad_draws(tmp_path, toy)
    assert command("calibrate", *bad)[0] == 0
    assert command("calibrate", *bad[:2], "--out", tmp_path / "good", *QUICK, "--strict")[0] == 0


def test_strict_is_the_exit_code_and_the_page_says_the_same(tmp_path, toy, command):
    bad = bad_draws(tmp_path, toy)
    code, out, _ = command("calibrate", *bad, "--strict", "--json")
    assert code == 1
    assert json.loads(out)["methods"]["<b>narrow"]["calibrated"] is False
    text = (tmp_path / "bad" / "verdict.html").read_text(encoding="utf-8")
    assert "Not calibrated" in text
    assert "&lt;b&gt;narrow" in text
    assert "<b>narrow" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert text.count("data:image/png;base64,") == 6  # coverage, width, curves, TARP, and a PIT each
    assert (tmp_path / "bad" / "pit-ecdf.pdf").exists()
    code, _, err = command("calibrate", "--truth", "t.csv", "--data", "x", "--model", "y", "--out", tmp_path / "x")
    assert (code, err.count("\n")) == (2, 1)


def test_a_method_has_one_colour_in_every_figure():
    found = looks_of(["control", "control recalibrated", "control conformal", "ours", "ours recalibrated"])
    assert (
        found["control"].colour
        == found["control recalibrated"].colour
        == found["control conformal"].colour
        == PALETTE[0]
    )
    assert found["ours"].colour == found["ours recalibrated"].colour == PALETTE[1]
    assert len({found[name].dash for name in ("control", "control recalibrated", "control conformal")}) == 3
    tarp = {"alpha": [0, 1], "ecp": [0, 1], "null_band": [[0, 1], [0, 1]], "interval": [[0, 1], [0, 1]], "p_value": 0.5}
    verdict = {"tarp": {"all": tarp}, "coverage": {"fitted_on": None}}
    figure = tarp_curves({"ours": verdict}, found)  # alone in the panel, and still not in the first colour
    assert figure.axes[0].lines[-1].get_color() == PALETTE[1]
