"""From files to posterior, trust card and report, with networks trained in seconds on a made-up forward model."""

import csv
import json
import shlex
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import stdatamodels.jwst.datamodels as dm
from retrieval_toy import MODEL, observed, posteriors, simulated, write_text
from typer.testing import CliRunner
from x1d_files import NRS1, NRS2, save_x1d, table

import kappaflow as kf
from kappaflow.cli import app
from kappaflow.errors import UserError
from kappaflow.observe import Spectrum
from kappaflow.observe.resampling import on_pixels
from kappaflow.parameters import INDEX, bounds
from kappaflow.report.files import object_summary
from kappaflow.retrieval.pipeline import predict, retrieve_spectrum
from kappaflow.retrieval.result import RetrievalSettings
from kappaflow.simulation.toy import ToyModel

SETTINGS = RetrievalSettings(draws=300, predicted=220, amortized=True)


def test_a_simulated_spectrum_gives_draws_in_the_prior_and_a_whole_trust_card(networks):
    posterior, control = posteriors(networks)
    theta, spectrum = observed()
    result = retrieve_spectrum(spectrum, posterior, control=control, model=MODEL, distance=10.0, settings=SETTINGS)
    assert result.members.shape == (2, 150, 15)
    low, high = bounds()
    assert ((result.draws > low) & (result.draws < high)).all()
    names = [check.name for check in result.checks]
    assert names == [
        "SNR",
        "covered fraction",
        "resemblance",
        "brightness",
        "posterior predictive",
        "structure",
        "seed disagreement",
        "prior edge",
        "faint pixels",
        "learned",
        "line-list share, networks' guess",
    ]
    verdicts = dict(zip(names, (check.verdict for check in result.checks), strict=True))
    assert verdicts["SNR"] == verdicts["covered fraction"] == verdicts["resemblance"] == "pass"
    assert result.envelope.outside < 0.5


def test_the_same_seed_gives_the_same_answer(networks):
    posterior, _ = posteriors(networks)
    _, spectrum = observed()
    first, again = (retrieve_spectrum(spectrum, posterior, model=MODEL, settings=SETTINGS) for _ in range(2))
    np.testing.assert_array_equal(first.members, again.members)
    assert [c.as_dict() for c in first.checks] == [c.as_dict() for c in again.checks]


def test_a_spectrum_unlike_any_simulation_is_told_apart(networks):
    posterior, _ = posteriors(networks)
    _, spectrum = observed(snr=150.0)
    odd = np.where(np.arange(MODEL.pixels) % 2, 5.0, 0.2) * spectrum.flux
    strange = Spectrum(spectrum.wavelength, odd, spectrum.error, spectrum.mask)
    checks = {c.name: c for c in retrieve_spectrum(strange, posterior, model=MODEL, settings=SETTINGS).checks}
    assert checks["posterior predictive"].verdict == "fail"
    assert checks["resemblance"].verdict != "pass"


def test_without_a_forward_model_the_card_says_why(networks):
    posterior, _ = posteriors(networks)
    _, spectrum = observed()
    for model, said in (("no tables here", "no tables here"), (ToyModel(pixels=50), "other pixels")):
        result = retrieve_spectrum(spectrum, posterior, model=model, settings=SETTINGS)
        check = next(c for c in result.checks if c.name == "posterior predictive")
        assert check.verdict == "warn"
        assert said in check.sentence
        assert result.envelope is None


def test_the_distance_scales_the_flux_to_ten_parsec_and_lets_it_be_used():
    _, spectrum = observed()
    near = on_pixels(spectrum, MODEL.wavelength, 20.0)
    plain = on_pixels(spectrum, MODEL.wavelength)
    np.testing.assert_allclose(near.flux, 4 * plain.flux)
    np.testing.assert_allclose(near.error[near.mask], 4 * plain.error[near.mask])
    assert near.meta["scale_known"] is True
    assert plain.meta["scale_known"] is False
    with pytest.raises(UserError, match="distance"):
        on_pixels(spectrum, MODEL.wavelength, -1.0)


def test_predictions_vary_with_opacities_and_gain_only_as_asked():
    theta = np.repeat(simulated(1, 0, False)[0], 200, axis=0)
    theta[:, INDEX["sigma_cal"]] = 0.0
    rng = np.random.default_rng(0)
    fixed, varied = (predict(MODEL, theta, rng, vary=vary) for vary in (False, True))
    np.testing.assert_allclose(fixed, np.broadcast_to(MODEL(theta[:1]), fixed.shape), rtol=1e-6)
    assert (np.log(varied).std(axis=0) > 0.005).all()
    theta[:, INDEX["sigma_cal"]] = 0.05
    jitter = predict(MODEL, theta, rng, vary=False) / fixed
    assert jitter[:, 0].std() == pytest.approx(0.05, rel=0.2)
    assert abs(np.corrcoef(jitter[:, 0], jitter[:, -1])[0, 1]) < 0.3


def test_many_files_give_a_table_a_figure_and_a_report_and_a_bad_one_does_not_stop_them(run, tmp_path):
    good = [write_text(tmp_path / f"object{i}.txt", observed(seed=20 + i)[1]) for i in range(2)]
    bad = tmp_path / "bad.csv"
    bad.write_text("wave,flux\n1,2\n")
    result = run(good[0], bad, good[1])
    assert result.exit_code == 2
    assert "bad.csv: no column for error" in result.stderr
    assert result.stdout.count("C/O") == 2
    out = tmp_path / "out"
    with (out / "summary.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["name"] for row in rows] == ["object0", "bad", "object1"]
    assert [row["verdict"] == "error" for row in rows] == [False, True, False]
    assert float(rows[0]["C_O_q16"]) < float(rows[0]["C_O_q50"]) < float(rows[0]["C_O_q84"])
    assert (out / "c_to_o_snr.png").stat().st_size > 5000
    assert not (out / "bad").exists()
    assert {p.name for p in tmp_path.iterdir()} == {"object0.txt", "object1.txt", "bad.csv", "out"}
    page = (out / "report.html").read_text()
    assert page.count("<figure") == 8
    assert "All objects" in page
    assert "no column for error" in page


def test_one_object_leaves_arviz_json_csv_and_figures(run, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # arviz announces its next version once a day
        import arviz as az

    result = run(write_text(tmp_path / "one.txt", observed()[1]), "--distance", "10", "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    folder = tmp_path / "out" / "one"
    assert {p.name for p in folder.iterdir()} == {
        "posterior.nc",
        "summary.json",
        "summary.csv",
        "citations.bib",
        "methods.md",
        *(f"{name}.{kind}" for name in ("spectrum", "corner", "c_to_o") for kind in ("png", "pdf")),
    }
    data = az.from_netcdf(folder / "posterior.nc")
    assert data.posterior["C_O"].shape == (1, 300)
    assert data.networks["C_O"].dims == ("network", "sample")
    assert data.posterior["T1"].attrs["units"] == "K"
    assert data.observed_data["flux"].dims == ("wavelength",)
    assert set(data.groups()) >= {"posterior", "observed_data", "constant_data", "control"}
    summary = json.loads((folder / "summary.json").read_text())
    draws = data.posterior["C_O"].values.ravel()
    assert summary["parameters"]["C_O"]["q50"] == pytest.approx(float(np.median(draws)), abs=0.02)
    assert said["objects"][0]["C_O_q50"] == summary["parameters"]["C_O"]["q50"]
    assert summary["spectrum"]["scale_known"] is True
    assert len(summary["trust"]) == 11


def asked():
    return shlex.join(["kappaflow", *sys.argv[1:]])


def test_python_and_the_command_give_the_same(run, networks, tmp_path):
    """`kf.retrieve` on a file: the command's numbers, the command's files, and ArviZ without a file between."""
    path = write_text(tmp_path / "one.txt", observed()[1])
    assert run(path, "--distance", "20").exit_code == 0
    settings = RetrievalSettings(draws=300, amortized=True)
    pair = [networks / "m0", networks / "m1"]
    models = {"model": kf.Retriever.load(pair, networks / "c0", settings=settings)}
    result = kf.retrieve(path, distance=20.0, **models)
    assert result.draws.shape == (300, 15)
    summary = json.loads((tmp_path / "out" / "one" / "summary.json").read_text())
    result = replace(result, provenance={**result.provenance, "command": asked()}, request=summary["request"])
    assert sorted(summary.pop("files")) == sorted(
        {p.name for p in (tmp_path / "out" / "one").iterdir()} | {"report.html"}
    )
    assert json.loads(json.dumps(object_summary(result))) == summary
    page = result.save(tmp_path / "saved")
    written = {p.name for p in (tmp_path / "out" / "one").iterdir()}
    assert {p.name for p in (tmp_path / "saved").iterdir()} == written | {"report.html"}
    assert page.read_bytes() == (tmp_path / "out" / "report.html").read_bytes()
    for name in ("summary.json", "summary.csv", "spectrum.pdf"):
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "out" / "one" / name).read_bytes()
    data = result.to_arviz()
    np.testing.assert_array_equal(data.posterior["C_O"].values.ravel(), result.draws[:, INDEX["C_O"]])
    assert set(data.groups()) == {"posterior", "observed_data", "constant_data", "networks", "control"}
    again = kf.retrieve(kf.read_spectrum(path), distance=20.0, **models)
    np.testing.assert_array_equal(again.draws, result.draws)
    scaled = kf.retrieve(result.spectrum, **models)
    good = result.spectrum.mask
    np.testing.assert_array_equal(scaled.spectrum.mask, good)
    np.testing.assert_allclose(scaled.spectrum.flux[good], result.spectrum.flux[good])  # not scaled to 10 pc twice
    alone = kf.retrieve(path, model=pair, distance=20.0, settings=settings)  # networks by name, and no control
    np.testing.assert_array_equal(alone.draws, result.draws)
    assert alone.control is None
    with pytest.raises(UserError, match="a Spectrum stands alone"):
        kf.retrieve(result.spectrum, path)


def test_draws_are_as_many_as_asked_where_networks_do_not_divide_them(networks):
    _, spectrum = observed()
    result = retrieve_spectrum(spectrum, posteriors(networks)[0], settings=RetrievalSettings(draws=301, amortized=True))
    assert result.members.shape == (2, 151, 15)
    assert result.draws.shape == (301, 15)
    np.testing.assert_array_equal(result.draws, posteriors(networks)[0].sample(result.spectrum, n=301))


def test_the_default_is_two_thousand_draws_everywhere():
    assert RetrievalSettings().draws == 2000
    for command in ("retrieve", "calibrate"):
        assert "2000" in CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output


def test_two_detectors_are_merged_when_asked(run, tmp_path):
    first = save_x1d(tmp_path / "nrs1_x1d.fits", table(dm.SpecModel, NRS1))
    second = save_x1d(tmp_path / "nrs2_x1d.fits", table(dm.SpecModel, NRS2), detector="NRS2")
    result = run(first, second, "--merge", control=False)
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert len(summary) == 1
    assert summary[0]["spectrum"]["files"] == ["nrs1_x1d.fits", "nrs2_x1d.fits"]
    assert summary[0]["covered_fraction"] > 0.9
    assert len(summary[0]["trust"]) == 9
    assert summary[0]["control_c_to_o"] is None


def test_files_of_one_name_do_not_overwrite_each_other(run, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    paths = [write_text(tmp_path / d / "x.txt", observed(seed=s)[1]) for d, s in (("a", 1), ("b", 2))]
    assert run(*paths).exit_code == 0
    assert (tmp_path / "out" / "x" / "posterior.nc").exists()
    assert (tmp_path / "out" / "x-2" / "posterior.nc").exists()


def test_help_has_a_worked_example():
    result = CliRunner().invoke(app, ["retrieve", "--help"])
    assert result.exit_code == 0
    assert "kappaflow retrieve" in result.output


def test_a_network_that_is_not_there_is_one_line(tmp_path):
    result = CliRunner().invoke(app, ["retrieve", "x.txt", "--model", str(tmp_path / "nothing")])
    assert isinstance(result.exception, UserError)
    assert "nothing" in str(result.exception)
