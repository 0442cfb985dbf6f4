"""The packaged opacity table, and the real data it is made from (skipped where that is absent)."""

import json

import numpy as np
import pytest
from folders import DATA, needs
from typer.testing import CliRunner

from kappaflow.build.lines.hitran import read_hitran, strength
from kappaflow.build.tables.line_lists import PACKAGED_LISTS, _without_spurious
from kappaflow.build.tables.list_ratio import compare_lists
from kappaflow.build.tables.opacity_table import FLOOR, GRID
from kappaflow.cli import app
from kappaflow.tables.field_prior import perturbation_prior
from kappaflow.tables.opacity import load_opacity

real = needs("linelists")

LISTS = {
    "H2O": ["base", "exomol"],
    "CH4": ["base", "exomol"],
    "CO": ["base", "air"],
    "CO2": ["base", "exomol"],
    "NH3": ["base"],
    "H2S": ["base"],
}


@pytest.fixture(scope="module")
def table():
    return load_opacity()


def test_info_lists_every_list_with_provenance_and_citation():
    result = CliRunner().invoke(app, ["opacity", "info", "--json"])
    assert result.exit_code == 0
    info = json.loads(result.stdout)
    assert {s: list(names) for s, names in info["lists"].items()} == LISTS
    for names in info["lists"].values():
        for meta in names.values():
            assert meta["provenance"]
            assert "20" in meta["citation"]
    assert info["valid temperature [K]"] == [150.0, 2000.0]
    assert info["grid"]["points"] == 20_000
    assert len(info["digest"]) == 16


def test_the_table_is_finite_and_covers_the_layers(table):
    assert table.log_pressure[0] <= -5
    assert table.log_pressure[-1] >= 3
    for species, names in table.lists.items():
        for name in names:
            ln_sigma = table.ln_sigma(species, name, np.array([-5.0, 0.0, 3.0]), stride=20)
            assert np.isfinite(ln_sigma).all()
            assert np.exp(ln_sigma.max()) < 1e-15
            assert np.exp(ln_sigma.max()) > 1e-22


def test_carbon_monoxide_absorbs_in_its_band_and_nowhere_else(table):
    ln_sigma = table.ln_sigma("CO", "base", np.array([0.0]))[0]
    band = (table.nu > 2000) & (table.nu < 2250)
    assert np.median(ln_sigma[:, band]) > np.log(1e-24)
    assert np.median(ln_sigma[:, table.nu > 2600]) < np.log(1e-32)


@pytest.mark.parametrize("species", ["H2O", "CH4", "CO", "CO2"])
def test_both_lists_of_a_pair_are_complete(table, species):
    """The swap is to test disagreement, not completeness: the design asks for about 0.5 at R = 200 up to 1500 K."""
    first, second = LISTS[species]
    summary = compare_lists((table, species, first), (table, species, second)).summary()
    assert max(summary["rms ln ratio by temperature"].values()) < 0.6
    assert summary["rms ln ratio"] > 0.03  # and they are two lists, not one


def test_the_packaged_prior_is_the_papers_table():
    prior = perturbation_prior()
    assert prior["CH4"] == {"const": 0.226, "modes": [0.244, 0.184, 0.114, 0.057]}
    assert prior["CO"] == prior["NH3"] == prior["H2S"]
    assert prior["CO2"]["const"] == pytest.approx(1.5 * prior["CH4"]["const"])


@real
def test_the_spurious_water_lines_are_found_and_no_others():
    """The three lines that data/README.md names, and one that it does not."""
    lines = read_hitran(DATA / "linelists/hitran2012/01_hit12_1750-3650.par", "H2O")
    kept = _without_spurious(lines, DATA)
    dropped = np.setdiff1d(lines.nu, kept.nu)
    for nu in (2520.440, 2541.106, 2588.615):
        assert np.abs(dropped - nu).min() < 0.01
    share = 1 - strength(kept, 600.0).sum() / strength(lines, 600.0).sum()
    assert dropped.size == 4  # and one more, at 2460.820
    assert share < 0.01


@real
def test_h2_broadened_carbon_monoxide_differs_from_air_broadened():
    file = DATA / "linelists/hitran-online/CO_iso1_full_TestData.data"
    air, mixed = read_hitran(file, "CO"), read_hitran(file, "CO", broadener="h2he")
    ratio = np.average(mixed.gamma / air.gamma, weights=air.s)
    assert 1.0 < ratio < 1.4
    assert np.array_equal(air.nu, mixed.nu)


@real
@pytest.mark.parametrize("which", [("CO", "base"), ("H2O", "base")])
def test_the_table_gives_back_the_sum_over_lines(table, which):
    """A node of the grid, computed again: what is left is the factorization and 16 bits."""
    recipe = next(r for r in PACKAGED_LISTS if (r.species, r.name) == which)
    source = recipe.maker.assemble(DATA, GRID.temperatures)
    exact = np.log(source.cross_section(table.nu, float(GRID.temperatures[9]), float(GRID.pressures[12])) + FLOOR)
    packaged = table.ln_sigma(*which, np.log10(GRID.pressures[12:13]))[0, 9]
    assert np.sqrt(((packaged - exact) ** 2).mean()) < 0.05
