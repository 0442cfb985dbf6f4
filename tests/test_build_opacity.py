"""Line lists to cross sections: known profiles, known strengths, clear errors, the same bytes again."""

import dataclasses
import json
import pickle

import numpy as np
import pytest
from scipy.special import wofz
from typer.testing import CliRunner

from kappaflow.build.lines.envelope import Envelope
from kappaflow.build.lines.hitran import C2, Lines, join_lines, partition_ratio, read_hitran, strength
from kappaflow.build.lines.statistical_lines import BandMeans, DenseLines, hot_term, split
from kappaflow.build.lines.voigt import _voigt_core, cross_section, doppler_width
from kappaflow.build.sources.exomol_bins import BinnedCrossSection, find_exomol, read_exomol, super_lines
from kappaflow.build.tables import opacity_table
from kappaflow.build.tables.completion import DEUTERIUM, protosolar
from kappaflow.build.tables.line_lists import PACKAGED_LISTS, ListRecipe, SourceList
from kappaflow.build.tables.list_ratio import compare_lists, slope_widths
from kappaflow.build.tables.opacity_table import Grid, build_opacity, with_list
from kappaflow.cli import app
from kappaflow.errors import UserError
from kappaflow.tables.opacity import LineList, OpacityTable, factorize, load_opacity, save_opacity


def record(molecule=5, isotope="1", nu=2100.0, s=1e-20, gamma=0.06, e_lower=100.0, n=0.7):
    """One 160-character HITRAN record."""
    row = f"{molecule:2d}{isotope}{nu:12.6f}{s:10.3E}{1.0:10.3E}" + f"{gamma:.4f}"[1:] + f"{0.06:.3f}"
    row += f"{e_lower:10.4f}{n:4.2f}{-0.001:8.5f}"
    return row.ljust(160)


def some_lines(n=3, molecule="CO", isotope=1):
    nu = np.linspace(2000.0, 2200.0, n)
    ones = np.ones(n)
    return Lines(molecule, nu, 1e-20 * ones, 100.0 * ones, 0.06 * ones, 0.7 * ones, np.full(n, isotope, np.int16))


def test_a_hitran_record_is_read_field_by_field(tmp_path):
    file = tmp_path / "co.par"
    file.write_text(
        record(nu=2150.5, s=3.2e-19, gamma=0.0581, e_lower=1234.5678, n=0.73) + "\n" + record(isotope="2") + "\n"
    )
    lines = read_hitran(file, "CO")
    assert lines.nu.tolist() == [2100.0, 2150.5]
    assert lines.isotope.tolist() == [2, 1]
    assert lines.s[1] == pytest.approx(3.2e-19)
    assert lines.e_lower[1] == pytest.approx(1234.5678)
    assert lines.gamma[1] == pytest.approx(0.0581 / 1.01325)
    assert lines.n[1] == pytest.approx(0.73)


def test_hapi_columns_give_widths_in_hydrogen_and_helium(tmp_path):
    file = tmp_path / "co.data"
    file.write_text(record() + ",0.07,0.6,0.05,0.5\n" + record(nu=2101.0) + ",0.08,#,#,#\n")
    file.with_suffix(".header").write_text(
        json.dumps({"extra": ["gamma_h2", "n_h2", "gamma_he", "n_he"], "extra_separator": ","})
    )
    lines = read_hitran(file, "CO", broadener="h2he")
    mixed = 0.85 * 0.07 + 0.15 * 0.05
    assert lines.gamma[0] * 1.01325 == pytest.approx(mixed)
    assert lines.n[0] == pytest.approx((0.85 * 0.07 * 0.6 + 0.15 * 0.05 * 0.5) / mixed)
    assert lines.gamma[1] * 1.01325 == pytest.approx(0.08 * (0.85 + 0.15 * 5 / 7))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        (record()[:120] + "\n", "line 1 has 120 characters"),
        (record() + "\n" + record(molecule=1) + "\n", "line 2 is of HITRAN molecule 1; expected 5"),
        (record().replace("2100.000000", "21x0.000000") + "\n", "line 1: field 'nu'"),
        (record(isotope="Z") + "\n", "isotopologue code 'Z'"),
    ],
)
def test_a_malformed_hitran_file_names_file_line_and_field(tmp_path, text, says):
    file = tmp_path / "bad.par"
    file.write_text(text)
    with pytest.raises(UserError, match="bad.par") as error:
        read_hitran(file, "CO")
    assert says in str(error.value)


def test_h2he_widths_without_their_header_are_refused(tmp_path):
    file = tmp_path / "co.par"
    file.write_text(record() + "\n")
    with pytest.raises(UserError, match=r"co.header"):
        read_hitran(file, "CO", broadener="h2he")
    with pytest.raises(UserError, match="cannot read"):
        read_hitran(tmp_path / "none.par", "CO")


def test_strength_follows_boltzmann_and_the_partition_function():
    lines = some_lines()
    expected = (
        lines.s
        * partition_ratio("CO", 1, 1000.0)
        * np.exp(-C2 * 100.0 * (1 / 1000 - 1 / 296))
        * (1 - np.exp(-C2 * lines.nu / 1000))
        / (1 - np.exp(-C2 * lines.nu / 296))
    )
    np.testing.assert_allclose(strength(lines, 1000.0), expected, rtol=1e-12)
    np.testing.assert_allclose(strength(lines, 296.0), lines.s, rtol=1e-12)
    # A linear rotor's partition function grows almost as T; CO vibrates little at 600 K.
    assert 1 / partition_ratio("CO", 1, 592.0) == pytest.approx(2.0, rel=0.02)


def test_the_voigt_core_is_the_faddeeva_function():
    """Against scipy's wofz: Humlicek's w4 promises 1e-4, its worst seam is 3e-4."""
    rng = np.random.default_rng(1)
    x, y = 10 ** rng.uniform(-3, 1.17, 3000), 10 ** rng.uniform(-7, 1, 3000)
    inside = x + y < 15
    ours = np.array([_voigt_core(a, b) for a, b in zip(x[inside], y[inside], strict=True)])
    np.testing.assert_allclose(ours, wofz(x[inside] + 1j * y[inside]).real, rtol=4e-4)


@pytest.mark.parametrize("pressure", [1e-5, 1e-2, 1.0, 100.0])
def test_a_line_integrates_to_its_strength(pressure):
    lines = some_lines(1)
    centre = lines.nu[0]
    reach = 3000.0 * max(0.06 * pressure, 0.01)
    grid = centre + np.sort(
        np.concatenate([-np.geomspace(1e-6, reach, 40001), [0.0], np.geomspace(1e-6, reach, 40001)])
    )
    sigma = cross_section(lines, grid, 500.0, pressure)
    assert np.trapezoid(sigma, grid) == pytest.approx(strength(lines, 500.0)[0], rel=1e-3)


def test_low_pressure_is_doppler_and_high_pressure_is_lorentz():
    lines = some_lines(1)
    alpha = doppler_width(lines.nu, np.array([27.994915]), 500.0)[0]
    s = strength(lines, 500.0)[0]
    peak = cross_section(lines, lines.nu, 500.0, 1e-8)[0]
    assert peak == pytest.approx(s / (alpha * np.sqrt(np.pi)), rel=1e-3)
    gamma = 0.06 * 100 * (296 / 500) ** 0.7
    offsets = np.array([0.0, 3.0, 10.0])
    sigma = cross_section(lines, lines.nu[0] + offsets, 500.0, 100.0)
    np.testing.assert_allclose(sigma, s * gamma / np.pi / (offsets**2 + gamma**2), rtol=1e-4)


def test_wings_end_at_the_cut_and_lines_add_up():
    lines = some_lines(3)
    grid = np.geomspace(1990.0, 2210.0, 500)
    whole = cross_section(lines, grid, 500.0, 1.0, cut=25.0)
    each = sum(cross_section(lines.where(np.array([i])), grid, 500.0, 1.0, cut=25.0) for i in range(3))
    np.testing.assert_allclose(whole, each, rtol=1e-12)
    assert cross_section(lines, np.array([2000.0 + 25.1]), 500.0, 1.0, cut=25.0)[0] == 0.0


def test_more_pressure_equals_wider_lines():
    """The identity behind the broadening stress: gamma x 1.3, n - 0.15 is the pressure P 1.3 (T/296)^0.15."""
    lines = some_lines(3)
    wide = dataclasses.replace(lines, gamma=lines.gamma * 1.3, n=lines.n - 0.15)
    grid = np.geomspace(1990.0, 2210.0, 300)
    pressure = 2.0 * 1.3 * (700.0 / 296.0) ** 0.15
    np.testing.assert_allclose(
        cross_section(wide, grid, 700.0, 2.0), cross_section(lines, grid, 700.0, pressure), rtol=1e-10
    )


def test_deuterium_is_scaled_to_the_protosolar_abundance():
    water = join_lines([some_lines(2, "H2O", 1), some_lines(2, "H2O", 4)])  # 4 is HDO
    scaled = protosolar(water)
    np.testing.assert_allclose(scaled.s / water.s, np.where(water.isotope == 4, DEUTERIUM, 1.0))
    assert 0.1 < DEUTERIUM < 0.2


def bins_of(lines, temperature, step):
    edges = np.arange(1990.0, 2210.0 + step, step)
    centre = (edges[1:] + edges[:-1]) / 2
    total = np.histogram(lines.nu, edges, weights=strength(lines, temperature))[0]
    return BinnedCrossSection(centre, total / step, step, temperature)


def test_super_lines_give_back_strength_and_lower_energy():
    lines = some_lines(41)  # moved off the edges of the bins, where rounding decides
    lines = dataclasses.replace(lines, nu=lines.nu + 0.07, e_lower=np.linspace(0.0, 3000.0, 41))
    made = super_lines("CO", bins_of(lines, 600.0, 0.25), bins_of(lines, 350.0, 0.4), width=(0.07, 0.5), guide=lines)
    assert len(made) == len(lines)
    np.testing.assert_allclose(made.e_lower, lines.e_lower, atol=0.01)  # the bin centre stands in for the line
    np.testing.assert_allclose(made.nu, lines.nu, atol=1e-9)
    for temperature in (350.0, 600.0, 900.0):
        np.testing.assert_allclose(strength(made, temperature), strength(lines, temperature), rtol=1e-4)


def test_rebinning_keeps_the_total_where_bins_straddle():
    rng = np.random.default_rng(0)
    n = 400
    lines = Lines(
        "CO",
        np.sort(rng.uniform(2000, 2200, n)),
        rng.exponential(1e-20, n),
        rng.uniform(0, 3000, n),
        *np.full((2, n), 0.1),
        np.ones(n, int),
    )
    made = super_lines("CO", bins_of(lines, 600.0, 0.25), bins_of(lines, 350.0, 0.4), width=(0.07, 0.5))
    assert strength(made, 600.0).sum() == pytest.approx(strength(lines, 600.0).sum(), rel=1e-9)
    assert strength(made, 350.0).sum() == pytest.approx(strength(lines, 350.0).sum(), rel=0.01)


def test_exomol_files_are_checked(tmp_path):
    good = tmp_path / "12C-16O_1500-5000_350K_0.400000.sigma"
    nu = np.arange(1990.0, 2010.0, 0.4)
    np.savetxt(good, np.c_[nu, np.full(nu.size, 1e-20)])
    assert read_exomol(find_exomol(tmp_path, "CO", 350), 1990, 2010).step == pytest.approx(0.4)
    with pytest.raises(UserError, match="no ExoMol cross section of CO at 600 K; there are: 350 K"):
        find_exomol(tmp_path, "CO", 600)
    with pytest.raises(UserError, match="covers 1990"):
        read_exomol(good, 3000, 3100)
    good.write_text("1990.0 1e-20\n1990.4 -1e-20\n1990.8 1e-20\n")
    with pytest.raises(UserError, match="none negative"):
        read_exomol(good, 1980, 2000)
    good.write_text("1990.0 1e-20\n1990.4 what\n")
    with pytest.raises(UserError, match="two columns"):
        read_exomol(good, 1980, 2000)


def test_splitting_a_line_keeps_its_strength_and_fills_its_gaps():
    lines = some_lines(200, "CH4")
    dense = split(lines, 1.0, parts=20, spread=1.0)
    assert dense.strength(800.0).sum() == pytest.approx(strength(lines, 800.0).sum(), rel=1e-9)
    grid = np.linspace(2010.0, 2190.0, 4000)
    spread_out = dense.cross_section(grid, 800.0, 1.0, cut=25.0)
    comb = cross_section(lines, grid, 800.0, 1.0, cut=25.0)
    assert spread_out.mean() == pytest.approx(comb.mean(), rel=0.02)
    assert np.median(spread_out) > 2 * np.median(comb)


def test_the_comb_of_dense_lines_agrees_with_summing_them():
    lines = split(some_lines(50, "CH4"), 4.0, parts=4, spread=0.5).lines
    grid = np.linspace(2050.0, 2150.0, 500)
    direct = cross_section(lines, grid, 800.0, 3.0, cut=25.0)
    np.testing.assert_allclose(DenseLines(lines).cross_section(grid, 800.0, 3.0, cut=25.0), direct, rtol=0.03)


BANDS = BandMeans(
    np.array([2000.0, 2100.0, 2200.0]),
    np.array([2100.0, 2200.0, 2300.0]),
    np.array([100.0, 3000.0]),
    np.full((3, 2), 1e-19),
)


def sloping(nu=None, scale=30.0):
    """An envelope that falls by e^-10 over 300 cm-1, alike at 350 and 600 K but for its size."""
    nu = np.arange(1950.0, 2351.0) if nu is None else nu
    shape = 1e-20 * np.exp(-(nu - 2000.0) / scale)
    return Envelope("CH4", nu, np.array([350.0, 600.0]), np.stack([shape, 3 * shape]))


@pytest.fixture(scope="module")
def hot():
    """The hot term of 200 weak lines below bands whose mean is 1e-19 cm2, with that envelope."""
    weak = dataclasses.replace(some_lines(300, "CH4"), nu=np.linspace(2000.0, 2300.0, 300), s=np.full(300, 1e-24))
    return hot_term([weak], BANDS, np.array([150.0, 500.0, 1000.0]), sloping(), lines=(200.0, 1.0))


def test_the_hot_term_lifts_each_band_to_its_mean(hot):
    for temperature in (500.0, 1000.0):
        found = np.histogram(hot.lines.nu, [2000, 2100, 2200, 2300], weights=hot.strength(temperature))[0] / 100
        np.testing.assert_allclose(found, 1e-19, rtol=0.06)


def test_the_hot_term_has_the_shape_of_its_molecule_and_no_steps(hot):
    """Inside a band it falls as the envelope does (e^-1 in 30 cm-1), and from cell to cell by no more than e^4."""
    edges = np.arange(2000.0, 2301.0, 20.0)
    ln = np.log(np.histogram(hot.lines.nu, edges, weights=hot.strength(1000.0))[0])
    inside = [i for i in range(edges.size - 2) if edges[i] % 100 in (40.0,)]
    np.testing.assert_allclose(np.diff(ln)[inside], -20 / 30, atol=0.4)
    assert np.abs(np.diff(ln)).max() < 4


def test_a_cold_list_lacks_nothing(hot):
    cold = np.histogram(hot.lines.nu, [2000, 2300], weights=hot.strength(150.0))[0] / 300
    assert cold < 0.02 * sloping().at(150.0).max()


def test_statistical_strengths_are_continuous_in_temperature(hot):
    fine = np.log([hot.strength(t) for t in np.geomspace(150.0, 1000.0, 400)])
    assert np.isfinite(fine).all()
    assert np.abs(np.diff(fine, axis=0)).max() < 0.2


def test_an_envelope_moves_as_lines_of_its_lower_energy_do():
    nu = np.arange(2000.0, 2101.0)
    one = Lines("CO", nu, *(np.full(nu.size, x) for x in (1e-20, 900.0, 0.06, 0.7)), np.ones(nu.size, int))
    known = Envelope("CO", nu, np.array([350.0, 600.0]), np.stack([strength(one, 350.0), strength(one, 600.0)]))
    for temperature in (200.0, 350.0, 450.0, 1500.0):
        np.testing.assert_allclose(known.at(temperature), strength(one, temperature), rtol=1e-9)


GRID = Grid(points=60, window=(1990.0, 2210.0), log_pressure=(-2.0, 2.0, 5), temperature=(300.0, 1200.0, 4), rank=12)


@dataclasses.dataclass(frozen=True)
class LineComb:
    """A list of `n` equal lines; `lines.txt`, where the data folder has one, stands for the data."""

    n: int = 5

    def files(self, data):
        return sorted(data.glob("lines.txt"))

    def assemble(self, data, temperatures):
        return SourceList(some_lines(self.n), (), f"{self.n} lines", "nobody 2026")


PAIR = (ListRecipe("CO", "base", LineComb()), ListRecipe("CO", "air", LineComb()))


def test_a_table_is_built_again_bit_for_bit_and_read_back(tmp_path):
    table = build_opacity(tmp_path, tmp_path / "a.h5", grid=GRID, recipes=PAIR, workers=1)
    build_opacity(tmp_path, tmp_path / "b.h5", grid=GRID, recipes=PAIR, workers=1)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5", "b.h5"]
    again = load_opacity(tmp_path / "a.h5")
    assert again.digest == table.digest
    assert list(again.lists) == ["CO"]
    assert list(again.lists["CO"]) == ["base", "air"]
    assert again.lists["CO"]["base"].meta["provenance"] == "5 lines"
    exact = np.log(
        [
            [cross_section(some_lines(5), GRID.nu, t, p, cut=25.0) + 1e-34 for t in GRID.temperatures]
            for p in GRID.pressures
        ]
    )
    np.testing.assert_allclose(again.ln_sigma("CO", "base", np.log10(GRID.pressures)), exact, atol=0.05)


def test_every_packaged_recipe_pickles():
    for recipe in PACKAGED_LISTS:
        assert pickle.loads(pickle.dumps(recipe)) == recipe


@pytest.fixture
def killed(tmp_path, monkeypatch):
    """A build of PAIR killed in its sixth task of eight; the tasks that later builds compute are counted."""
    (tmp_path / "lines.txt").write_text("as downloaded")
    computed = []
    solve = opacity_table._solve

    def mortal(task, t):
        if len(computed) == 5:
            raise KeyboardInterrupt
        computed.append(task)
        solve(task, t)

    monkeypatch.setattr(opacity_table, "_solve", mortal)
    with pytest.raises(KeyboardInterrupt):
        build_opacity(tmp_path, tmp_path / "a.h5", grid=GRID, recipes=PAIR, workers=1)
    computed.clear()
    monkeypatch.setattr(opacity_table, "_solve", lambda *task: (computed.append(task), solve(*task)))
    return computed


def test_a_killed_build_resumes_where_it_stopped(tmp_path, killed):
    assert not (tmp_path / "a.h5").exists()
    build_opacity(tmp_path, tmp_path / "a.h5", grid=GRID, recipes=PAIR, workers=1)
    assert len(killed) == 3
    build_opacity(tmp_path, tmp_path / "b.h5", grid=GRID, recipes=PAIR, workers=1)
    assert load_opacity(tmp_path / "a.h5").digest == load_opacity(tmp_path / "b.h5").digest


@pytest.mark.parametrize("change", ["data", "recipe", "grid", "code"])
def test_a_resumed_build_never_mixes(tmp_path, killed, monkeypatch, change):
    recipes, grid = PAIR, GRID
    if change == "data":
        (tmp_path / "lines.txt").write_text("downloaded again")
    elif change == "recipe":
        recipes = tuple(dataclasses.replace(r, maker=LineComb(6)) for r in PAIR)
    elif change == "grid":
        grid = dataclasses.replace(GRID, window=(1990.0, 2211.0))
    else:
        monkeypatch.setattr(opacity_table, "code_identity", lambda: {"code": "another"})
    build_opacity(tmp_path, tmp_path / "a.h5", grid=grid, recipes=recipes, workers=1)
    assert len(killed) == 8


def toy_table(shift=0.0):
    rng = np.random.default_rng(0)
    nu = np.geomspace(1850.0, 3550.0, 4000)
    ln_sigma = -50 + rng.normal(size=(5, 6, 1)) + 3 * np.sin(np.arange(4000) / 7.0) + shift
    values = LineList(
        ln_sigma.mean((0, 1)), (ln_sigma - ln_sigma.mean((0, 1))).mean(-1, keepdims=True), np.ones((1, 4000))
    )
    return OpacityTable(nu, np.linspace(-1, 1, 5), np.linspace(400, 1500, 6), {"CH4": {"base": values}})


def test_a_constant_ratio_is_the_constant_coefficient():
    comparison = compare_lists((toy_table(0.3), "CH4", "base"), (toy_table(), "CH4", "base"))
    summary = comparison.summary()
    assert summary["sigma"]["const"] == pytest.approx(0.3, abs=1e-3)
    assert max(summary["sigma"]["modes"]) < 1e-3
    assert summary["rms residual"] < 1e-3


def test_a_fourier_ratio_is_given_back_mode_by_mode():
    table = toy_table()
    u = np.log(table.nu / table.nu[0]) / np.log(table.nu[-1] / table.nu[0])
    entry = table.lists["CH4"]["base"]
    bent = dataclasses.replace(entry, mean=entry.mean + 0.2 * np.cos(2 * np.pi * 2 * u))
    other = dataclasses.replace(table, lists={"CH4": {"base": bent}})
    fit = compare_lists((other, "CH4", "base"), (table, "CH4", "base")).fit
    np.testing.assert_allclose(fit[..., 2], 0.2, atol=0.02)  # c0, a1, a2, ...
    assert np.abs(np.delete(fit, 2, axis=-1)).max() < 0.02


def test_a_power_of_temperature_is_given_back_as_the_slope():
    table = toy_table()
    entry = table.lists["CH4"]["base"]
    lift = 0.4 * np.log(table.temperature / 700.0)[:, None]
    hotter = {"base": entry, "mine": dataclasses.replace(entry, coefficients=entry.coefficients + lift)}
    pair = dataclasses.replace(table, lists={"CH4": hotter, "NH3": {"base": entry}})
    assert compare_lists((pair, "CH4", "mine"), (pair, "CH4", "base")).slope == pytest.approx(0.4, abs=1e-3)
    assert slope_widths(pair) == {"CH4": pytest.approx(0.4, abs=1e-3), "NH3": pytest.approx(0.4, abs=1e-3)}


def test_compare_refuses_two_species_and_two_grids():
    table = toy_table()
    two = dataclasses.replace(table, lists={**table.lists, "H2O": table.lists["CH4"]})
    with pytest.raises(UserError, match="two lists of one species"):
        compare_lists((two, "CH4", "base"), (two, "H2O", "base"))
    with pytest.raises(UserError, match="different grids"):
        compare_lists((table, "CH4", "base"), (dataclasses.replace(table, nu=table.nu + 1), "CH4", "base"))


def test_another_list_joins_a_table_under_a_new_name():
    table = toy_table()
    ln_sigma = table.ln_sigma("CH4", "base", table.log_pressure) + 1.0
    grown = with_list(table, "CH4", "mine", ln_sigma, {"provenance": "here"})
    packaged = factorize(ln_sigma, rank=1, meta={}, weight=np.clip(10**table.log_pressure / 0.01, 1e-4, 1) ** 0.25)
    np.testing.assert_array_equal(grown.lists["CH4"]["mine"].basis, packaged.basis)
    np.testing.assert_allclose(grown.ln_sigma("CH4", "mine", table.log_pressure), ln_sigma, atol=1e-2)
    with pytest.raises(UserError, match="'base' already"):
        with_list(table, "CH4", "base", ln_sigma, {})


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda b: b[: len(b) // 2], "not a complete opacity table"),
        (lambda b: b"nothing of the kind", "not a complete opacity table"),
        (lambda b: b.replace(b"kappaflow-opacity/1", b"kappaflow-opacity/9"), "expected 'kappaflow-opacity/1'"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path, damage, says):
    file = tmp_path / "t.h5"
    save_opacity(toy_table(), file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(UserError) as error:
        load_opacity(file)
    assert says in str(error.value)


def test_a_flipped_number_is_found_by_the_digest(tmp_path):
    import h5py

    file = tmp_path / "t.h5"
    save_opacity(toy_table(), file)
    with h5py.File(file, "r+") as h5:
        h5["temperature"][0] += 1
    with pytest.raises(UserError, match="damaged"):
        load_opacity(file)


def test_reading_at_a_scaled_width_equals_reading_at_a_scaled_pressure():
    table = toy_table()
    shifted = table.ln_sigma("CH4", "base", np.array([0.0]), broadening=(10**0.5, 0.0))
    np.testing.assert_allclose(shifted, table.ln_sigma("CH4", "base", np.array([0.5])), atol=1e-5)
    same = table.ln_sigma("CH4", "base", np.array([0.0]), broadening=(1.0, 0.0))
    np.testing.assert_array_equal(same, table.ln_sigma("CH4", "base", np.array([0.0])))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["opacity", "build", "--data", "nowhere"], "no such folder"),
        (["opacity", "build", "--source", "x.h5", "--species", "XY"], "--species is 'XY'"),
        (["opacity", "build", "--source", "x.h5", "--species", "CO"], "--name is missing"),
        (["opacity", "info", "nowhere.h5"], "no such opacity table"),
        (["opacity", "compare", "CH4", "CH4/base"], "SPECIES/NAME"),
        (["opacity", "compare", "CH4/base", "CH4/none"], "no list 'none'"),
    ],
)
def test_mistakes_on_the_command_line_are_one_clear_line(arguments, says):
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, UserError)
    assert says in str(result.exception)
    assert "\n" not in str(result.exception)
