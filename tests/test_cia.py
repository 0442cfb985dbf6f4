"""Collision-induced absorption: units, families, lookup, malformed files."""

from importlib import resources

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from folders import DATA, needs

from kappaflow.build.tables.cia_table import LOSCHMIDT, NU, TEMPERATURE, build_cia, read_borysow, read_petitradtrans
from kappaflow.errors import UserError
from kappaflow.model.arrays import on_device
from kappaflow.model.prepare import prepare_cia
from kappaflow.physics.continuum import CIATable, ln_cia
from kappaflow.tables.cia import FAMILIES, PAIRS, CIAFamilies, load_cia, save_cia


@pytest.fixture(scope="module")
def packaged():
    return load_cia()


@pytest.fixture(scope="module")
def table(packaged):
    return on_device(CIATable, prepare_cia(packaged))


@needs("cia")
def test_the_packaged_table_is_made_again_bit_for_bit(tmp_path):
    build_cia(DATA, tmp_path / "cia.h5")
    assert (tmp_path / "cia.h5").read_bytes() == resources.files("kappaflow.data").joinpath("cia.h5").read_bytes()


def test_both_families_and_both_pairs_are_there_with_their_citations(packaged):
    assert set(packaged.families) == set(FAMILIES)
    for family in FAMILIES:
        assert packaged.families[family].shape == (len(PAIRS), TEMPERATURE.size, NU.size)
        assert np.isfinite(packaged.families[family]).all()
        assert packaged.meta["citations"][family]
    assert packaged.nu[0] <= 1850 * (1 - 100 / 3e5)
    assert packaged.nu[-1] >= 3550 * (1 + 100 / 3e5)


def test_the_coefficients_are_borysows_in_cm5(packaged):
    """Borysow's tables at 3000 cm-1, 1000 K: H2-H2 4.323e-7, H2-He 8.517e-8 cm-1 amagat-2."""
    t = int(np.flatnonzero(packaged.temperature == 1000.0)[0])
    n = int(np.flatnonzero(packaged.nu == 3000.0)[0])
    log_k = packaged.families["borysow"][:, t, n].astype(float)
    np.testing.assert_allclose(log_k[0], np.log10(4.323e-7 / LOSCHMIDT**2), atol=1e-4)
    np.testing.assert_allclose(log_k[1], np.log10(8.517e-8 / LOSCHMIDT**2), atol=1e-4)


def test_absorption_rises_with_temperature_short_of_the_fundamental(packaged):
    """At 3000 cm-1 hydrogen absorbs from excited rotational levels: hotter is more. The 700 K dip would fail here."""
    n = int(np.flatnonzero(packaged.nu == 3000.0)[0])
    for pair in range(2):
        assert np.all(np.diff(packaged.families["borysow"][pair, :, n]) >= 0)


@pytest.mark.parametrize("T", [500.0, 700.0, 1000.0])
def test_the_families_differ_by_tens_of_percent_between_500_and_1000_kelvin(packaged, T):
    t = int(np.flatnonzero(packaged.temperature == T)[0])
    ratio = 10.0 ** (packaged.families["petitradtrans"][:, t] - packaged.families["borysow"][:, t])
    assert 0.55 < ratio.min() < ratio.max() < 1.8
    assert np.abs(np.log(ratio)).max() > 0.1


def test_the_lookup_meets_the_table_at_its_nodes(packaged, table):
    T = jnp.asarray(packaged.temperature, jnp.float32)
    got = ln_cia(table, T, jnp.asarray(packaged.nu, jnp.float32))
    for pair in range(2):
        np.testing.assert_allclose(got[pair], np.log(10.0) * packaged.families["borysow"][pair], rtol=3e-6)


def test_a_block_of_wavenumbers_equals_the_block_of_the_whole(table):
    nu = jnp.asarray(np.geomspace(1850.0, 3550.0, 400), jnp.float32)
    T = jnp.array([160.0, 555.0, 1234.0, 3300.0])
    whole = ln_cia(table, T, nu)
    part = ln_cia(table, T, nu[100:164])
    for pair in range(2):
        np.testing.assert_array_equal(whole[pair][:, 100:164], part[pair])


def test_outside_the_temperatures_the_edge_is_used(table):
    nu = jnp.array([2000.0, 3000.0])
    low, edge, high, top = (ln_cia(table, jnp.array([T]), nu)[0] for T in (100.0, 150.0, 5000.0, 3500.0))
    np.testing.assert_array_equal(low, edge)
    np.testing.assert_array_equal(high, top)


def test_the_gradient_in_temperature_agrees_with_a_finite_difference(table):
    nu = jnp.array([2100.0, 2700.0, 3300.0])
    total = lambda T: sum(jnp.sum(k) for k in ln_cia(table, T[None], nu))  # noqa: E731
    numeric = (total(jnp.float32(760.0)) - total(jnp.float32(740.0))) / 20.0
    np.testing.assert_allclose(jax.grad(total)(jnp.float32(750.0)), numeric, rtol=0.02)


def test_an_unknown_family_is_named_with_the_known_ones(packaged):
    with pytest.raises(UserError, match="borysow, petitradtrans"):
        prepare_cia(packaged, "hitran")


BORYSOW = """# made up
@SPECIES
H2 H2

@TEMPERATURES
   100  1000

@DATA
  1000.0  1.0e-08 2.0e-08
  4000.0  4.0e-08 8.0e-08
"""


def test_borysow_files_are_converted_from_amagat(tmp_path):
    (tmp_path / "b.dat").write_text(BORYSOW)
    nu, T, log_k = read_borysow(tmp_path / "b.dat")
    np.testing.assert_array_equal(nu, [1000.0, 4000.0])
    np.testing.assert_array_equal(T, [100.0, 1000.0])
    np.testing.assert_allclose(log_k[1, 0], np.log10(2e-8 / LOSCHMIDT**2))


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [("8.0e-08", "", "truncated"), ("8.0e-08", "8.0x", "not a number"), ("@DATA", "DATA", "@TEMPERATURES and @DATA")],
)
def test_a_malformed_borysow_file_is_said(tmp_path, old, new, match):
    (tmp_path / "b.dat").write_text(BORYSOW.replace(old, new))
    with pytest.raises(UserError, match=match):
        read_borysow(tmp_path / "b.dat")


def test_a_malformed_petitradtrans_file_is_said(tmp_path):
    (tmp_path / "p.h5").write_text("no")
    with pytest.raises(UserError, match="not a photochem CIA file"):
        read_petitradtrans(tmp_path / "p.h5")
    with h5py.File(tmp_path / "q.h5", "w") as file:
        file["wavelengths"], file["T"], file["log10xs"] = np.ones(3), np.ones(2), np.ones((2, 3))
    with pytest.raises(UserError, match="log10xs"):
        read_petitradtrans(tmp_path / "q.h5")


def test_a_missing_data_folder_is_said(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        build_cia(tmp_path, tmp_path / "out.h5")


@pytest.mark.parametrize("damage", ["text", "schema", "number"])
def test_a_damaged_table_is_refused(tmp_path, damage):
    values = {name: np.full((2, 3, 4), -45.0, np.float32) for name in FAMILIES}
    save_cia(CIAFamilies(np.arange(4.0), np.arange(3.0) + 1, values, {}), tmp_path / "c.h5")
    assert load_cia(tmp_path / "c.h5").nu[-1] == 3.0
    if damage == "text":
        (tmp_path / "c.h5").write_text("nu T k")
    else:
        with h5py.File(tmp_path / "c.h5", "r+") as file:
            if damage == "schema":
                file.attrs["schema"] = "x"
            else:
                file["nu"][0] = 9.0
    with pytest.raises(UserError, match={"text": "not a complete CIA", "schema": "schema", "number": "digest"}[damage]):
        load_cia(tmp_path / "c.h5")
