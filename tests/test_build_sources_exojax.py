"""Lists from ExoJAX's databases, on the samples that ExoJAX installs, and our cross sections against ExoJAX's own."""

import asyncio
import gc
import importlib.util
import json
import socket
import sys
import urllib.error
import warnings
from functools import cache
from importlib import resources
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from kappaflow.build.lines.hitran import read_hitran
from kappaflow.build.sources import databases, exojax_lists
from kappaflow.build.sources.databases import hitran_lines, open_database
from kappaflow.build.sources.exojax_lists import exojax_cross_sections
from kappaflow.build.tables.opacity_table import Grid
from kappaflow.cli.opacity_command import opacity
from kappaflow.errors import UserError
from kappaflow.tables.opacity import OpacityTable, factorize, load_opacity, save_opacity

SAMPLES = Path(str(resources.files("exojax"))) / "data/testdata" if importlib.util.find_spec("exojax") else None
pytestmark = [
    pytest.mark.skipif(SAMPLES is None, reason="needs exojax: pip install 'kappaflow[build]'"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),  # RADIS leaves its files to the collector
]

GRID = Grid(points=300, window=(4335.0, 4355.0), log_pressure=(-5.0, 1.0, 3), temperature=(300.0, 2000.0, 3))
WINDOW = (4300.0, 4390.0)


@pytest.fixture(scope="module", autouse=True)
def _home(tmp_path_factory):
    """RADIS writes ~/radis.json when imported: give it another home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of exojax and radis, at import
            from exojax.database.exomol import api  # noqa: F401
        yield


@pytest.fixture(scope="module", autouse=True)
def _one_event_loop(_home):
    """Let vaex's executor, of which there is one a process, get the same event loop both times it asks for one.

    It forgets the first without closing it: whichever test ran when the collector found that would fail.
    """
    if not importlib.util.find_spec("vaex"):  # RADIS does without from Python 3.13 on
        return
    from vaex.dataframe import get_main_executor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "new_event_loop", cache(asyncio.new_event_loop))
        get_main_executor()


@pytest.fixture(autouse=True)
def _files_closed():
    """Let vaex's files go while nobody listens to their warnings: RADIS never closes them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The samples of CO and H2O, as a user's folder of databases; no network, no account."""
    for species in ("CO", "H2O"):
        copytree(SAMPLES / species, tmp_path / "db" / species)

    def refuse(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.delenv("HITRAN_EMAIL", raising=False)
    monkeypatch.delenv("HITRAN_PASSWORD", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "db"


def sample(folder, species="CO"):
    isotopologue = {"CO": "12C-16O", "H2O": "1H2-16O"}[species]
    return folder / species / isotopologue / "SAMPLE"


@pytest.fixture(scope="module")
def voigt():
    """The benchmark, as a module."""
    path = Path(__file__).parents[1] / "benchmarks/voigt.py"
    spec = importlib.util.spec_from_file_location("voigt_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exojax_direct(path, species, voigt):
    """ExoJAX's own cross sections (P, T, nu) of an ExoMol sample, H2 half-widths, no wing cut."""
    with warnings.catch_warnings(), voigt.double_precision():
        warnings.simplefilter("ignore")
        from exojax.database.exomol.api import MdbExomol
        from exojax.opacity.lpf.api import OpaDirect

        mdb = MdbExomol(
            str(path), list(WINDOW), bkgdatm="H2", broadf_download=False, local_databases=str(path.parents[2])
        )
        opacity = OpaDirect(mdb, GRID.nu)
        return np.array([[opacity.xsvector(t, p) for t in GRID.temperatures] for p in GRID.pressures])


def test_our_voigt_sum_agrees_with_exojax_within_one_percent(voigt):
    """The benchmark on fewer points: reader, strengths, widths and profiles of two independent codes."""
    result = voigt.compare(voigt.sample(), "CO", (4280.0, 4300.0), size=500)
    assert result["lines"] > 50
    for row in result["rows"]:
        assert row["points"] > 20
        assert row["largest"] < 0.01, row
        assert row["largest, same partition function"] < 1e-3, row


@pytest.mark.parametrize("species", ["CO", "H2O"])
def test_an_exomol_list_gives_exojax_cross_sections(folder, voigt, species):
    for helium in sample(folder, species).glob("*__He.broad"):
        helium.unlink()  # ExoJAX takes one broadener: compare in H2 alone
    ln_sigma, meta = exojax_cross_sections(species, "ExoMol/SAMPLE", GRID, folder=folder)
    assert ln_sigma.shape == (3, 3, 300)
    assert ln_sigma.dtype == np.float32
    assert meta["half-widths"].startswith("H2,")
    theirs = exojax_direct(sample(folder, species), species, voigt)
    matters = theirs > 1e-4 * theirs.max(axis=2, keepdims=True)
    difference = np.abs(np.exp(ln_sigma.astype(float)) / theirs - 1)[matters]
    assert difference.max() < 0.01


def test_half_widths_are_mixed_from_the_hydrogen_and_helium_files(folder):
    """J'' = 0..69 of CO is in both .broad files; 85 % H2 and 15 % He, exponents weighted by the widths."""
    source = open_database("CO", "ExoMol/SAMPLE", folder, WINDOW)
    assert source.meta["half-widths"].startswith("85 % H2 + 15 % He")
    lines = source.load(*WINDOW)
    tables = [np.loadtxt(sample(folder) / f"12C-16O__{g}.broad", usecols=(1, 2))[:70] for g in ("H2", "He")]
    gamma = 0.85 * tables[0][:, 0] + 0.15 * tables[1][:, 0]
    n = (0.85 * tables[0].prod(axis=1) + 0.15 * tables[1].prod(axis=1)) / gamma
    known = lines.e_lower < 9_000  # cm-1: B J (J + 1) with B = 1.93, so J'' below 69
    nearest = np.abs(lines.gamma[known, None] - gamma) + np.abs(lines.n[known, None] - n)
    assert known.sum() > 20
    assert nearest.min(axis=1).max() < 1e-9


def test_without_broadening_files_the_default_is_used_and_said(folder):
    for file in sample(folder).glob("*.broad"):
        file.unlink()
    source = open_database("CO", "ExoMol/SAMPLE", folder, WINDOW)
    assert "default" in source.meta["half-widths"]
    np.testing.assert_array_equal(source.load(*WINDOW).gamma, 0.07)


def test_the_comb_for_long_lists_agrees_with_the_sum_line_by_line(folder, monkeypatch):
    one_by_one, _ = exojax_cross_sections("CO", "ExoMol/SAMPLE", GRID, folder=folder)
    monkeypatch.setattr(exojax_lists, "MANY", 0)
    comb, _ = exojax_cross_sections("CO", "ExoMol/SAMPLE", GRID, folder=folder)
    assert not np.array_equal(comb, one_by_one)
    matters = one_by_one > one_by_one.max(axis=2, keepdims=True) + np.log(1e-4)
    assert np.abs(comb - one_by_one)[matters].max() < 0.08  # steep Doppler flanks; 0.4 % in the mean
    assert np.sqrt(((comb - one_by_one)[matters] ** 2).mean()) < 0.01


def test_segments_join_without_a_seam(folder, monkeypatch):
    whole, meta = exojax_cross_sections("CO", "ExoMol/SAMPLE", GRID, folder=folder)
    monkeypatch.setattr(exojax_lists, "SEGMENT", 10.0)
    parts, again = exojax_cross_sections("CO", "ExoMol/SAMPLE", GRID, folder=folder)
    np.testing.assert_allclose(parts, whole, atol=2e-6)
    assert again == meta


def test_finished_segments_are_not_computed_again(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(exojax_lists, "SEGMENT", 10.0)
    first, meta = exojax_cross_sections("CO", "ExoMol/SAMPLE", GRID, folder=folder, work=tmp_path / "work")
    kept = sorted((tmp_path / "work").iterdir())
    assert len(kept) == 2
    kept[1].unlink()
    calls = []
    compute = exojax_lists._sigma
    monkeypatch.setattr(exojax_lists, "_sigma", lambda *a: calls.append(1) or compute(*a))
    second, again = exojax_cross_sections("CO", "ExoMol/SAMPLE", GRID, folder=folder, work=tmp_path / "work")
    assert len(calls) == GRID.temperatures.size
    np.testing.assert_array_equal(first, second)
    assert meta == again
    transitions = next(sample(folder).glob("*.trans*"))
    transitions.touch()  # another download: nothing kept may be mixed with it
    exojax_cross_sections("CO", "ExoMol/SAMPLE", GRID, folder=folder, work=tmp_path / "work")
    assert len(calls) == 3 * GRID.temperatures.size


def test_a_local_hitemp_file_is_used_without_a_network(folder):
    ln_sigma, meta = exojax_cross_sections("CO", "HITEMP", GRID, folder=folder)
    assert np.isfinite(ln_sigma).all()
    assert "05_HITEMP_SAMPLE.par" in meta["provenance"]
    assert meta["half-widths"].startswith("air")
    exomol, _ = exojax_cross_sections("CO", "ExoMol/SAMPLE", GRID, folder=folder)
    # two lists of one molecule: alike where it absorbs, not the same
    peak = exomol[1] > exomol[1].max(axis=1, keepdims=True) - 3
    assert 1e-4 < np.median(np.abs(ln_sigma[1] - exomol[1])[peak]) < 0.3


def test_exojax_and_our_reader_find_the_same_hitemp_lines(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from exojax.database.hitemp.api import MdbHitemp

        file = folder / "CO/05_HITEMP_SAMPLE.par"
        mdb = MdbHitemp(str(folder / "CO"), list(WINDOW), isotope=0, parfile=str(file))
    theirs, words = hitran_lines("CO", mdb)
    ours = read_hitran(file, "CO")
    ours = ours.where((ours.nu > WINDOW[0]) & (ours.nu < WINDOW[1]))
    assert words.startswith("air")
    for name in ("nu", "s", "e_lower", "gamma", "n", "isotope"):
        np.testing.assert_allclose(np.sort(getattr(theirs, name)), np.sort(getattr(ours, name)), rtol=1e-12)


def test_hydrogen_and_helium_columns_of_hitran_are_mixed_where_known():
    mdb = SimpleNamespace(
        nu_lines=[2.0, 1.0],
        line_strength_ref_original=[1e-20, 2e-20],
        elower=[10.0, 20.0],
        isoid=[1, 2],
        gamma_air=[0.05, 0.06],
        n_air=[0.7, 0.8],
        gamma_h2=[0.07, np.nan],
        n_h2=[0.6, 0.6],
        gamma_he=[0.04, 0.05],
        n_he=[0.5, 0.5],
    )
    lines, words = hitran_lines("CO", mdb)
    assert "for 50% of the lines" in words
    np.testing.assert_allclose(lines.gamma * 1.01325, [0.06, 0.85 * 0.07 + 0.15 * 0.04])
    np.testing.assert_array_equal(lines.isotope, [2, 1])


def refused(species, database, folder, **options):
    with pytest.raises(UserError) as raised:
        exojax_cross_sections(species, database, options.pop("grid", GRID), folder=folder, **options)
    text = str(raised.value)
    assert "\n" not in text
    return text


def test_no_network_names_the_files_and_the_folder(folder):
    text = refused("CO", "ExoMol/Li2015", folder)
    assert "no network" in text
    assert "12C-16O__Li2015.def, .pf, .states.bz2, .trans.bz2" in text
    assert str(folder / "CO/12C-16O/Li2015") in text
    text = refused("H2O", "HITRAN2020", folder)
    assert "H2O from hitran.org" in text
    assert str(folder / "H2O") in text


def test_a_list_that_exomol_does_not_have_is_said(folder, monkeypatch):
    def missing(url, **_):
        raise urllib.error.HTTPError(url, 404, "Not Found", None, None)

    monkeypatch.setattr(databases.urllib.request, "urlopen", missing)
    assert "ExoMol has no such list" in refused("CO", "ExoMol/Nonsense", folder)


def test_hitemp_without_an_account_is_said_before_anyone_asks_for_a_password(folder):
    text = refused("CH4", "HITEMP", folder)
    assert "HITRAN_EMAIL and HITRAN_PASSWORD" in text
    assert str(folder / "CH4") in text


def test_exojax_not_installed_names_the_extra(folder, monkeypatch):
    for name in [m for m in sys.modules if m.split(".")[0] == "exojax"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "exojax", None)
    assert "pip install 'kappaflow[build]'" in refused("CO", "ExoMol/SAMPLE", folder)


@pytest.mark.parametrize("database", ["POKAZATEL", "ExoMol", "ExoMol/", "ExoMol/../..", "Kurucz", "HITRAN20", ""])
def test_an_unknown_database_name_is_refused(folder, database):
    assert "expected ExoMol/NAME" in refused("CO", database, folder)


def test_a_wrong_molecule_is_refused(folder):
    assert "unknown molecule 'XYZ'" in refused("XYZ", "HITRAN", folder)
    assert "HITEMP has no H2S" in refused("H2S", "HITEMP", folder)
    definition = sample(folder) / "12C-16O__SAMPLE.def"
    definition.write_text((sample(folder, "H2O") / "1H2-16O__SAMPLE.def").read_text())
    assert "is of 1H2-16O; expected 12C-16O" in refused("CO", "ExoMol/SAMPLE", folder)
    (folder / "H2O/01_HITEMP.par").write_bytes((folder / "CO/05_HITEMP_SAMPLE.par").read_bytes())
    assert "is of HITRAN molecule 5; expected 1 (H2O)" in refused("H2O", "HITEMP", folder)


def test_damaged_files_are_one_clear_line(folder):
    par = folder / "CO/05_HITEMP_SAMPLE.par"
    par.write_bytes(par.read_bytes()[:1000])
    assert "truncated" in refused("CO", "HITEMP", folder)
    for file in sample(folder).glob("*.hdf5"):
        file.unlink()
    trans = sample(folder) / "12C-16O__SAMPLE.trans.bz2"
    trans.write_bytes(trans.read_bytes()[:100])
    assert "could not download or read it" in refused("CO", "ExoMol/SAMPLE", folder)
    (sample(folder) / "12C-16O__SAMPLE.pf").write_text("what is this\n")
    assert "partition function" in refused("CO", "ExoMol/SAMPLE", folder)
    (sample(folder) / "12C-16O__SAMPLE.def").write_text("<html>404</html>\n")
    assert "not an ExoMol definition file" in refused("CO", "ExoMol/SAMPLE", folder)


def test_temperatures_where_the_list_does_not_hold_are_refused_then_clamped_and_said(folder):
    definition = sample(folder) / "12C-16O__SAMPLE.def"
    lines = definition.read_text().splitlines()
    cold = [f"1500.0 {line[line.index('#') :]}" if "Maximum temperature" in line else line for line in lines]
    assert cold != lines
    definition.write_text("\n".join(cold) + "\n")
    assert "holds from 1 to 1500 K; expected 300-2000 K" in refused("CO", "ExoMol/SAMPLE", folder)
    ln_sigma, meta = exojax_cross_sections("CO", "ExoMol/SAMPLE", GRID, folder=folder, clamp=True)
    assert meta["temperatures clamped to the list's validity [K]"] == [2000.0]
    warm = Grid(GRID.points, GRID.window, GRID.log_pressure, (300.0, 1500.0, 2))
    expected, _ = exojax_cross_sections("CO", "ExoMol/SAMPLE", warm, folder=folder)
    np.testing.assert_array_equal(ln_sigma[:, -1], expected[:, -1])


def test_a_window_without_lines_is_refused(folder):
    empty = Grid(points=50, window=(2000.0, 2010.0), log_pressure=(-3.0, 0.0, 2), temperature=(300.0, 1000.0, 2))
    assert "no line of CO between 2000 and 2010 cm-1" in refused("CO", "ExoMol/SAMPLE", folder, grid=empty)
    assert "no line of CO between 2000 and 2010 cm-1" in refused("CO", "HITEMP", folder, grid=empty)


def test_the_command_adds_a_list_to_a_table(folder, tmp_path):
    grid = Grid(points=300, window=GRID.window, log_pressure=(-5.0, 1.0, 4), temperature=(300.0, 2000.0, 4))
    sigma, _ = exojax_cross_sections("CO", "HITEMP", grid, folder=folder)
    lists = {"CO": {"base": factorize(sigma, rank=12, meta={"provenance": "test"})}}
    save_opacity(OpacityTable(grid.nu, np.log10(grid.pressures), grid.temperatures, lists, {}), tmp_path / "base.h5")
    arguments = ["build", "--source", "exojax", "--species", "CO", "--database", "ExoMol/SAMPLE", "--name", "sample"]
    arguments += ["--data", str(folder), "--into", str(tmp_path / "base.h5"), "--out", str(tmp_path / "mine.h5")]
    result = CliRunner().invoke(opacity, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "ExoMol 12C-16O__SAMPLE" in json.loads(result.stdout)["lists"]["CO"]["sample"]["provenance"]
    assert {f.name for f in tmp_path.glob("*.h5*")} == {"base.h5", "mine.h5"}  # nothing left to resume from
    expected, _ = exojax_cross_sections("CO", "ExoMol/SAMPLE", grid, folder=folder)
    table = load_opacity(tmp_path / "mine.h5")
    got = table.ln_sigma("CO", "sample", np.log10(grid.pressures))
    assert np.sqrt(((got - expected) ** 2).mean()) < 0.05
    with pytest.raises(UserError, match="expected ExoMol/NAME"):
        CliRunner().invoke(opacity, [*arguments[:6], "Nope", *arguments[7:]], catch_exceptions=False)
    again = [*arguments[:8], "base", *arguments[9:]]
    with pytest.raises(UserError, match="has a list 'base' already"):
        CliRunner().invoke(opacity, again, catch_exceptions=False)
