"""Cross sections that others computed, in the layouts of ExoMolOP/TauREx and petitRADTRANS 3."""

import h5py
import numpy as np
import pytest

from kappaflow.build.sources.xsec_files import formula, read_cross_sections
from kappaflow.build.tables.opacity_table import Grid
from kappaflow.errors import UserError
from kappaflow.tables.opacity import factorize

GRID = Grid(points=300, window=(2000.0, 2060.0), log_pressure=(-5.5, 3.5, 5), temperature=(150.0, 2000.0, 4))
PRESSURE = np.geomspace(1e-5, 100.0, 22)  # ExoMolOP's grid, Chubb et al. 2021
TEMPERATURE = np.array([*range(100, 2000, 100), *range(2000, 3401, 200)], dtype=float)
NU = np.geomspace(1990.0, 2070.0, 600)


def smooth(pressure, temperature, nu):
    """Cross sections that are exact under the reader's interpolation: powers of P and T, exponential in nu."""
    p, t = np.log(pressure)[:, None, None], np.log(temperature)[None, :, None]
    return np.exp(-48 + 0.4 * p + 0.9 * t + 0.02 * (nu - 2000.0))


def write(path, *, name="H2O", p=PRESSURE, t=TEMPERATURE, nu=NU, sigma=None, units="bar", **more):
    """An ExoMolOP file: datasets, shapes and attributes as in the published ones."""
    with h5py.File(path, "w") as file:
        file["DOI"] = np.array([b"10.1093/mnras/sty1877"])
        file["Date_ID"] = np.array([b"ExoMolOP-v1_2020-01-01"])
        file["mol_name"] = np.array([name.encode()])
        file["key_iso_ll"] = np.array([b"1H2-16O__POKAZATEL"])
        file["mol_mass"] = np.array([18.010565])
        file["p"], file["t"], file["bin_edges"] = p, t, nu
        file["xsecarr"] = smooth(p, t, nu) if sigma is None else sigma
        file["p"].attrs["units"], file["t"].attrs["units"] = units, "kelvin"
        file["xsecarr"].attrs["units"] = "cm^2/molecule"
        for key, value in more.items():
            if key in file:
                del file[key]
            if value is not None:
                file[key] = value
    return path


def write_petitradtrans(path, sigma):
    """A petitRADTRANS 3 line-by-line file as its converter writes it."""
    with h5py.File(path, "w") as file:
        for key, value in (
            ("DOI", "10.1093/mnras/sty1877"),
            ("Date_ID", "petitRADTRANS-v3.0.7_2024-05-01T00:00:00+00:00"),
            ("mol_name", "H2O"),
            ("temperature_grid_type", "regular"),
        ):
            file.create_dataset(key, shape=(1,), data=value)
        file.create_dataset("mol_mass", shape=(1,), data=18.010565)
        for key, value, units in (
            ("bin_edges", NU, "cm^-1"),
            ("xsecarr", sigma, "cm^2/molecule"),
            ("p", PRESSURE, "bar"),
            ("t", TEMPERATURE, "K"),
            ("wnrange", np.array([NU[0], NU[-1]]), "cm^-1"),
        ):
            file[key] = value
            file[key].attrs["units"] = units
    return path


def expected(grid):
    held = np.clip(grid.pressures, PRESSURE[0], PRESSURE[-1])
    return np.log(smooth(held, grid.temperatures, grid.nu))


def test_a_taurex_file_comes_back_on_the_nodes_of_the_grid(tmp_path):
    ln_sigma, meta = read_cross_sections(write(tmp_path / "h2o.R15000.TauREx.h5"), "H2O", GRID)
    assert ln_sigma.shape == (5, 4, 300)
    assert ln_sigma.dtype == np.float32
    np.testing.assert_allclose(ln_sigma, expected(GRID), atol=2e-5)
    assert "POKAZATEL" in meta["provenance"]
    assert "10.1093/mnras/sty1877" in meta["citation"]


def test_a_petitradtrans_file_gives_the_same(tmp_path):
    name = "1H2-16O__POKAZATEL.R1e6_0.3-28mu.xsec.petitRADTRANS.h5"
    path = write_petitradtrans(tmp_path / name, smooth(PRESSURE, TEMPERATURE, NU))
    ln_sigma, meta = read_cross_sections(path, "H2O", GRID)
    np.testing.assert_allclose(ln_sigma, expected(GRID), atol=2e-5)
    assert "petitRADTRANS 3" in meta["provenance"]
    assert "1H2-16O__POKAZATEL" in meta["provenance"]


def test_values_are_sampled_and_never_averaged(tmp_path):
    """A file ten times finer than the grid, all values random: the grid points keep theirs, untouched by neighbours."""
    nu = np.geomspace(*GRID.window, 10 * (GRID.points - 1) + 1)
    t = GRID.temperatures
    p = np.clip(GRID.pressures, 1e-5, 1e3)
    sigma = 10.0 ** np.random.default_rng(0).uniform(-30, -18, (p.size, t.size, nu.size))
    edges = np.concatenate([[nu[0] - 1], nu, [nu[-1] + 1]])
    path = write(tmp_path / "a.h5", p=p, t=t, nu=edges, sigma=np.pad(sigma, ((0, 0), (0, 0), (1, 1)), mode="edge"))
    ln_sigma, _ = read_cross_sections(path, "H2O", GRID)
    np.testing.assert_allclose(ln_sigma, np.log(sigma[:, :, ::10]), rtol=1e-5)


def test_units_of_pressure_are_obeyed(tmp_path):
    path = write(tmp_path / "a.h5", sigma=smooth(PRESSURE, TEMPERATURE, NU), p=PRESSURE * 1e5, units="Pa")
    np.testing.assert_allclose(read_cross_sections(path, "H2O", GRID)[0], expected(GRID), atol=2e-5)


def test_pressures_beyond_the_file_are_held_and_said(tmp_path):
    ln_sigma, meta = read_cross_sections(write(tmp_path / "a.h5"), "H2O", GRID)
    held = meta["pressures held at the edge of the file [bar]"]
    assert held == pytest.approx([10**-5.5, 10**3.5], rel=1e-3)
    np.testing.assert_allclose(
        ln_sigma[-1], np.log(smooth(np.array([100.0]), GRID.temperatures, GRID.nu))[0], atol=2e-5
    )


def test_a_file_coarser_than_the_grid_is_said(tmp_path):
    _, meta = read_cross_sections(write(tmp_path / "a.h5", nu=np.geomspace(1990, 2070, 200)), "H2O", GRID)
    assert meta["resolution of the file"] == pytest.approx(199 / np.log(2070 / 1990), rel=0.02)
    assert "coarser than the grid" in meta
    _, meta = read_cross_sections(write(tmp_path / "b.h5", nu=np.geomspace(1990, 2070, 2000)), "H2O", GRID)
    assert "coarser than the grid" not in meta


def test_zero_stays_finite_in_the_logarithm(tmp_path):
    path = write(tmp_path / "a.h5", sigma=np.zeros((PRESSURE.size, TEMPERATURE.size, NU.size)))
    assert np.isfinite(read_cross_sections(path, "H2O", GRID)[0]).all()


def test_the_result_factorizes_into_a_list_of_the_table(tmp_path):
    ln_sigma, meta = read_cross_sections(write(tmp_path / "a.h5"), "H2O", GRID)
    entry = factorize(ln_sigma, rank=6, meta=meta)
    back = entry.coefficients @ entry.basis + entry.mean
    np.testing.assert_allclose(back, ln_sigma, atol=2e-3)


def test_temperatures_outside_the_file_are_refused_then_clamped_and_said(tmp_path):
    t = TEMPERATURE[(TEMPERATURE >= 300) & (TEMPERATURE <= 1500)]
    path = write(tmp_path / "a.h5", t=t)
    with pytest.raises(UserError, match=r"covers 300-1500 K; expected all of 150-2000 K"):
        read_cross_sections(path, "H2O", GRID)
    ln_sigma, meta = read_cross_sections(path, "H2O", GRID, clamp=True)
    held = np.clip(GRID.pressures, PRESSURE[0], PRESSURE[-1])
    moved = np.clip(GRID.temperatures, 300.0, 1500.0)
    np.testing.assert_allclose(ln_sigma, np.log(smooth(held, moved, GRID.nu)), atol=2e-5)
    assert meta["temperatures clamped to the file [K]"] == [150.0, 2000.0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"nu": np.linspace(2010, 2070, 99)}, r"covers 2010-2070 cm-1; expected all of 2000-2060"),
        ({"name": "CO2"}, r"cross sections of CO2; expected H2O"),
        ({"name": "12C-16O"}, r"cross sections of 12C-16O; expected H2O"),
        ({"p": None}, r"no dataset 'p'"),
        ({"t": None}, r"no dataset 't'"),
        ({"bin_edges": None}, r"no dataset 'bin_edges'"),
        ({"xsecarr": None}, r"no dataset 'xsecarr'"),
        ({"mol_name": None, "key_iso_ll": None}, r"no dataset 'mol_name'"),
        ({"xsecarr": None, "kcoeff": np.zeros(3)}, r"k-coefficients, not cross sections"),
        ({"xsecarr": np.zeros((22, 27, 5))}, r"shape \(22, 27, 5\); expected"),
        ({"p": PRESSURE[::-1]}, r"'p' does not ascend"),
        ({"t": np.append(TEMPERATURE[:-1], np.nan)}, r"'t' does not ascend"),
        ({"t": TEMPERATURE.reshape(1, -1)}, r"'t' has shape"),
        ({"units": "furlong"}, r"is in 'furlong'; expected one of bar"),
        ({"temperature_grid_type": np.array([b"pressure-dependent"])}, r"temperatures depend on pressure"),
    ],
)
def test_a_file_that_does_not_fit_is_one_clear_line(tmp_path, change, says):
    datasets = {"p", "t", "bin_edges", "xsecarr", "mol_name", "key_iso_ll", "kcoeff", "temperature_grid_type"}
    if {"p", "t"} & set(change):  # replaced after the file was made, so that only this is wrong
        path = write(tmp_path / "a.h5")
        with h5py.File(path, "a") as file:
            for key, value in change.items():
                del file[key]
                if value is not None:
                    file[key] = value
    else:
        path = write(tmp_path / "a.h5", **{k: v for k, v in change.items() if k in datasets | {"nu", "name", "units"}})
    with pytest.raises(UserError, match=says) as raised:
        read_cross_sections(path, "H2O", GRID)
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(("value", "says"), [(-1e-25, "negative"), (np.nan, "not finite"), (np.inf, "not finite")])
def test_impossible_values_are_refused_with_their_place(tmp_path, value, says):
    sigma = smooth(PRESSURE, TEMPERATURE, NU)
    sigma[3, 5, 200] = value
    with pytest.raises(UserError, match=f"at {PRESSURE[3]:g} bar, 600 K is {says}"):
        read_cross_sections(write(tmp_path / "a.h5", sigma=sigma), "H2O", GRID)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_one_clear_line(tmp_path, share):
    path = write(tmp_path / "a.h5")
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(UserError, match="not a complete HDF5 file"):
        read_cross_sections(path, "H2O", GRID)


def test_no_damaged_byte_ends_in_a_traceback(tmp_path):
    t = np.array([100.0, 3000.0])
    content = write(tmp_path / "a.h5", t=t, p=np.array([1e-5, 100.0]), nu=np.linspace(1999, 2061, 40)).read_bytes()
    small = Grid(points=50, window=GRID.window, log_pressure=(-5, 2, 3), temperature=(150.0, 2000.0, 3))
    random = np.random.default_rng(1)
    refused = 0
    for _ in range(150):
        damaged = bytearray(content)
        for at in random.integers(0, len(content), 8):
            damaged[at] = random.integers(256)
        path = tmp_path / "b.h5"
        path.write_bytes(damaged)
        try:
            ln_sigma, _ = read_cross_sections(path, "H2O", small)
            assert np.isfinite(ln_sigma).all()
        except UserError as error:
            assert "\n" not in str(error)  # noqa: PT017
            refused += 1
    assert refused > 10


def test_other_things_than_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_cross_sections(tmp_path / "nothing.h5", "H2O", GRID)
    (tmp_path / "a.pickle").write_bytes(b"\x80\x04cposix\nsystem\n")  # TauREx's old format: never unpickled
    with pytest.raises(UserError, match="not a complete HDF5 file"):
        read_cross_sections(tmp_path / "a.pickle", "H2O", GRID)


def test_formulas_are_read_from_isotopologue_names():
    names = ("H2O", "1H2-16O", "12C-1H4__MM", "C-O2-NatAbund__HITEMP", "14N-1H3", "1H2-32S")
    assert [formula(n) for n in names] == ["H2O", "H2O", "CH4", "CO2", "NH3", "H2S"]
    assert formula("1H-2H-16O") != "H2O"
