"""Making the equilibrium table: same bytes, resumed when killed, clear when something is missing."""

import json
import sys
from importlib import resources

import h5py
import jax.numpy as jnp
import numpy as np
import pytest

from kappaflow.build.sources import fastchem
from kappaflow.build.tables import chemistry_table as build
from kappaflow.errors import UserError
from kappaflow.model.arrays import on_device
from kappaflow.model.prepare import prepare_chemistry
from kappaflow.physics.composition import EquilibriumTable, equilibrium
from kappaflow.tables.chemistry import FLOOR, ChemistryTable, load_chemistry, quantized, save_chemistry

TINY = build.ChemistryGrid(
    coarse=(0.4, 0.7, 0.942, 0.972),
    fine=(0.958, 0.961),
    mh=(0.0, 1.0),
    log_pressure=(-2.0, 1.0),
    temperature=(400.0, 1000.0, 1600.0),
)
PACKAGED = resources.files("kappaflow.data").joinpath("chemistry.h5")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    pytest.importorskip("pyfastchem", reason="the `build` extra is not installed")
    path = tmp_path_factory.mktemp("tiny") / "chemistry.h5"
    build.build_chemistry(path, grid=TINY, workers=1)
    return path


def test_two_builds_write_the_same_bytes_whatever_the_number_of_processes(tiny, tmp_path):
    build.build_chemistry(tmp_path / "again.h5", grid=TINY, workers=2)
    assert (tmp_path / "again.h5").read_bytes() == tiny.read_bytes()
    assert not (tmp_path / "again.h5.parts").exists()


def test_a_killed_build_resumes_to_the_same_bytes(tiny, tmp_path, monkeypatch):
    solve, done = build._solve, []

    def dies_after_five(*job):
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(job)
        return solve(*job)

    monkeypatch.setattr(build, "_solve", dies_after_five)
    with pytest.raises(KeyboardInterrupt):
        build.build_chemistry(tmp_path / "c.h5", grid=TINY, workers=1)
    assert not (tmp_path / "c.h5").exists()
    counted = []
    monkeypatch.setattr(build, "_solve", lambda *job: counted.append(job) or solve(*job))
    build.build_chemistry(tmp_path / "c.h5", grid=TINY, workers=1)
    assert len(counted) == len(TINY.co) * len(TINY.mh) - 5
    assert (tmp_path / "c.h5").read_bytes() == tiny.read_bytes()


def test_fine_nodes_are_solved_where_the_gas_steps_and_interpolated_elsewhere(tiny):
    table = load_chemistry(tiny)
    data = fastchem.find_data()
    c = int(np.flatnonzero(table.co == 0.961)[0])
    hot = fastchem.Solver(data, 0.961, 0.0).log_vmr(np.array([1600.0]), np.array([0.01]))[0]
    np.testing.assert_allclose(table.log_vmr[c, 0, 0, 2], np.maximum(hot, FLOOR), atol=6e-4)
    cold = fastchem.Solver(data, 0.961, 0.0).log_vmr(np.array([400.0]), np.array([10.0]))[0]
    np.testing.assert_allclose(table.log_vmr[c, 0, 1, 0, :2], cold[:2], atol=5e-3)


def test_the_abundance_recipe_is_the_papers():
    """All metals times 10^[M/H], oxygen with them, carbon = C/O times oxygen: the carriers at 700 K, 10 bar say so."""
    pytest.importorskip("pyfastchem", reason="the `build` extra is not installed")
    solver = fastchem.Solver(fastchem.find_data(), 0.8, 0.5)
    x = 10.0 ** solver.log_vmr(np.array([700.0]), np.array([10.0]))[0]
    he = 10**-1.07
    np.testing.assert_allclose((x[1] + x[2] + x[3]) / x[7], 0.8 * 10 ** (-3.31 + 0.5) / he, rtol=2e-3)
    np.testing.assert_allclose(x[5] / x[7], 10 ** (-4.88 + 0.5) / he, rtol=0.1)  # the rest is in metal sulfides
    cold = 10.0 ** solver.log_vmr(np.array([350.0]), np.array([100.0]))[0]
    np.testing.assert_allclose(cold[4] / cold[7], 10 ** (-4.17 + 0.5) / he, rtol=2e-2)


def test_switching_to_newton_early_does_not_change_fastchems_answer():
    pytest.importorskip("pyfastchem", reason="the `build` extra is not installed")
    T, P = np.array([900.0, 1500.0, 2500.0]), np.array([1e-3, 0.1, 10.0])
    data = fastchem.find_data()
    for co in (0.5, 0.955, 1.2):
        early = fastchem.Solver(data, co, 0.5).log_vmr(T, P)
        default = fastchem.Solver(data, co, 0.5, sweeps=400).log_vmr(T, P)
        np.testing.assert_allclose(early, default, atol=2e-3)


def test_points_that_do_not_converge_are_filled_and_counted():
    values = np.random.default_rng(0).uniform(-9, -3, (2, 2, 5, 400, 8))
    broken = values.copy()
    broken[0, 1, 2, 3] = np.nan
    broken[1, 0, 0, 0] = np.nan
    filled, count = build._filled(broken)
    assert count == 2
    assert np.isfinite(filled).all()
    np.testing.assert_allclose(filled[0, 1, 2, 3], 0.5 * (values[0, 1, 2, 2] + values[0, 1, 2, 4]))
    np.testing.assert_allclose(filled[1, 0, 0, 0], values[1, 0, 0, 1])
    broken[:, :, :, :100] = np.nan
    with pytest.raises(UserError, match="did not converge"):
        build._filled(broken)


@pytest.mark.parametrize(
    ("missing", "what"), [("exogibbs", "--no-deps exogibbs"), ("pyfastchem", "pip install pyfastchem")]
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, missing, what):
    found = fastchem.util.find_spec
    monkeypatch.setattr(fastchem.util, "find_spec", lambda name: None if name == missing else found(name))
    with pytest.raises(UserError, match=what):
        fastchem.find_data()


def test_exogibbs_without_fastchems_files_is_said(monkeypatch, tmp_path):
    pytest.importorskip("pyfastchem", reason="the `build` extra is not installed")
    found = fastchem.util.find_spec

    class Empty:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(fastchem.util, "find_spec", lambda name: Empty() if name == "exogibbs" else found(name))
    with pytest.raises(UserError, match=r"asplund_2009\.dat"):
        fastchem.find_data()


def test_an_unwritable_place_is_one_line_and_exit_code_two(monkeypatch, tmp_path, capsys):
    pytest.importorskip("pyfastchem", reason="the `build` extra is not installed")
    from kappaflow.cli import main

    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "argv", ["kappaflow", "chemistry", "build", "--out", str(tmp_path / "file" / "c.h5")])
    with pytest.raises(SystemExit) as exit_:
        main()
    said = capsys.readouterr().err
    assert exit_.value.code == 2
    assert "file is a file; expected a folder" in said
    assert len(said.strip().splitlines()) == 1


def test_info_prints_provenance_as_json(monkeypatch, tiny, capsys):
    from kappaflow.cli import main

    monkeypatch.setattr(sys, "argv", ["kappaflow", "chemistry", "info", str(tiny), "--json"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code in (0, None)
    said = json.loads(capsys.readouterr().out)
    assert said["digest"] == load_chemistry(tiny).digest
    assert any("Asplund" in c for c in said["citations"])


def synthetic():
    rng = np.random.default_rng(1)
    return ChemistryTable(
        co=np.array([0.1, 0.5, 1.0, 1.5]),
        mh=np.array([-1.0, 0.0, 1.0, 2.0]),
        log_pressure=np.array([-5.0, -2.0, 0.0, 3.0]),
        temperature=np.array(build.temperatures(150.0, 3500.0, 5)),
        steps=quantized(rng.uniform(-25, 0, (4, 4, 4, 5, 8))),
        mass=np.array([1.35, 0.01, 0.005]),
        he=0.0851,
        meta={"what": "made up"},
    )


def test_a_table_survives_the_disk(tmp_path):
    table = synthetic()
    save_chemistry(table, tmp_path / "t.h5")
    back = load_chemistry(tmp_path / "t.h5")
    np.testing.assert_array_equal(back.steps, table.steps)
    assert back.digest == table.digest
    assert back.meta == table.meta
    assert back.log_vmr.min() >= FLOOR


@pytest.mark.parametrize("damage", ["text", "schema", "missing", "number"])
def test_a_damaged_table_is_refused(tmp_path, damage):
    path = tmp_path / "t.h5"
    save_chemistry(synthetic(), path)
    if damage == "text":
        path.write_text("T P H2O")
    else:
        with h5py.File(path, "r+") as file:
            if damage == "schema":
                file.attrs["schema"] = "something/else"
            elif damage == "missing":
                del file["steps/CO2"]
            else:
                file["co"][0] = 0.11
    expected = {
        "text": "not a complete chemistry table",
        "schema": "schema",
        "missing": "not a complete",
        "number": "digest",
    }
    with pytest.raises(UserError, match=expected[damage]):
        load_chemistry(path)


def test_a_table_that_is_not_there_is_said(tmp_path):
    with pytest.raises(UserError, match="kappaflow chemistry build"):
        load_chemistry(tmp_path / "nowhere.h5")


def test_the_packaged_table_is_small_covers_the_prior_and_says_where_it_comes_from():
    table = load_chemistry()
    assert PACKAGED.stat().st_size < 8e6  # type: ignore[attr-defined]
    assert (table.temperature[0], table.temperature[-1]) == (150.0, 3500.0)
    assert (table.log_pressure[0], table.log_pressure[-1]) == (-5.0, 3.0)
    assert (table.co[0], table.co[-1]) == (0.1, 1.5)
    assert (table.mh[0], table.mh[-1]) == (-1.0, 1.5)
    for name in ("Stock et al. 2018", "Stock et al. 2022", "Kitzmann et al. 2024", "Asplund et al. 2009"):
        assert any(name in citation for citation in table.meta["citations"])


def test_the_packaged_table_is_within_a_tenth_of_a_dex_of_live_fastchem():
    """120 points of the prior's box; `benchmarks/chemistry.py` does thousands."""
    pytest.importorskip("pyfastchem", reason="the `build` extra is not installed")
    rng = np.random.default_rng(11)
    log_pressure = np.sort(rng.uniform(-5.0, 3.0, 12))
    table = on_device(EquilibriumTable, prepare_chemistry(load_chemistry(), log_pressure))
    errors = []
    for _ in range(10):
        co, mh = rng.uniform(0.1, 1.5), rng.uniform(-1.0, 1.5)
        T = np.linspace(300.0, 2800.0, 12) * rng.uniform(0.9, 1.2)
        live = fastchem.Solver(fastchem.find_data(), co, mh).log_vmr(T, 10.0**log_pressure)[:, :6]
        ln = equilibrium(table, jnp.asarray(T, jnp.float32), jnp.float32(co), jnp.float32(mh))[0][:6]
        errors.append(np.where(live > -8, np.abs(np.asarray(ln).T / np.log(10.0) - live), 0.0))
    assert np.max(errors) < 0.1
    assert np.quantile(errors, 0.95) < 0.02


def assert_same_numbers(steps, packaged):
    """The stored integers; a number between two of them may be rounded the other way on another processor."""
    apart = np.abs(steps.astype(int) - packaged)
    assert apart.max() <= 1
    assert np.mean(apart > 0) < 1e-4


def test_a_composition_of_the_packaged_table_is_solved_again_to_the_same_numbers():
    pytest.importorskip("pyfastchem", reason="the `build` extra is not installed")
    table, (T, P) = load_chemistry(), build.FULL.points()
    c, m = 5, 1
    solved = fastchem.Solver(fastchem.find_data(), table.co[c], table.mh[m]).log_vmr(T, P)
    assert_same_numbers(quantized(solved).reshape(table.steps[c, m].shape), table.steps[c, m])


@pytest.mark.slow
def test_the_packaged_table_is_made_again(tmp_path):
    """To the last stored integer, not to the last bit of the file.

    The temperature nodes are exponentials, and NumPy's differ in the last bit between processors: two of 54 did where
    the digest did. Slow: 300 compositions; one of them is solved above.
    """
    build.build_chemistry(tmp_path / "chemistry.h5")
    made, packaged = load_chemistry(tmp_path / "chemistry.h5"), load_chemistry()
    for nodes in ("co", "mh", "log_pressure", "temperature", "mass", "he"):
        np.testing.assert_allclose(getattr(made, nodes), getattr(packaged, nodes), rtol=1e-14, atol=0)
    assert made.meta == packaged.meta
    assert_same_numbers(made.steps, packaged.steps)
