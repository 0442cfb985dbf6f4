"""What a result asks to be cited: every source of its tables, versions of its software, nothing invented."""

import re

import pytest

from kappaflow.report.citations import _book, _keys, bibliography, methods_paragraph, software_versions
from kappaflow.tables.chemistry import load_chemistry
from kappaflow.tables.cia import load_cia
from kappaflow.tables.cited import cited_sources
from kappaflow.tables.opacity import load_opacity
from kappaflow.tables.table_names import table_name


@pytest.fixture(scope="module")
def sources():
    return cited_sources(None, table_name().lists, "borysow")


def summary(sources, **more):
    row = {"unit": "", "q05": 0.3, "q16": 0.4, "q50": 0.5, "q84": 0.6, "q95": 0.7}
    plain = {
        "title": "An object",
        "parameters": {"C_O": row},
        "snr": 50.0,
        "covered_fraction": 0.9,
        "draws": 2000,
        "trust": [{"name": "SNR", "verdict": "pass"}, {"name": "prior edge", "verdict": "warn"}],
        "spectrum": {"distance_pc": 5.7},
        "provenance": {"networks": "2 of preset laptop", "seed": "0"},
        "sources": sources,
        "software": software_versions(),
        "priors": {"C_O": [0.1, 1.5]},
    }
    return {**plain, **more}


def test_what_is_read_from_the_headers_is_what_the_tables_say(sources):
    lists = load_opacity().lists
    assert [s for s in sources if " " in s] == [f"{gas} {name}" for gas, names in lists.items() for name in names]
    for gas, names in lists.items():
        for name, entry in names.items():
            assert "; ".join(sources[f"{gas} {name}"]) == entry.meta["citation"]
    assert sources["chemistry"] == list(load_chemistry().meta["citations"])
    assert sources["CIA"] == list(load_cia().meta["citations"]["borysow"])


def test_every_source_of_the_packaged_tables_has_an_entry(sources):
    lacking = {part for parts in sources.values() for part in parts if not _keys(part)[1]}
    assert not lacking


def test_entries_are_whole_and_have_one_key_each():
    for key, entry in _book().items():
        assert entry.count("{") == entry.count("}"), key
        for needed in ("author", "year"):
            assert re.search(rf"^  {needed} = ", entry, re.MULTILINE), (key, needed)
        year = re.search(r"(\d{4})[a-z]?$", key)
        if year:
            assert f"year = {{{year[1]}}}" in entry
    assert len(_book()) > 30


def test_the_bibliography_holds_method_lists_chemistry_cia_and_versions(sources):
    text = bibliography(summary(sources))
    for key in ("heraty2026", "rothman2013", "tennyson2020", "kitzmann2024", "borysow1989b", "zahnle2014"):
        assert text.count(f"{{{key},") == 1, key
    assert "vehtari2024" not in text
    assert f"note = {{version {software_versions()['jax']}}}" in text
    assert "{pine1993," in text
    assert "to be added by hand" not in text
    unknown = bibliography(summary({"NH3 mine": ["Nobody et al. 1901"]}))
    assert "%   NH3 mine: Nobody et al. 1901" in unknown
    fewer = bibliography(summary({"CO li2015": ["Li et al. 2015"]}, source="refined"))
    assert "{li2015," in fewer
    assert "rothman2013" not in fewer
    assert "vehtari2024" in fewer


def test_the_paragraph_is_latex_whatever_the_names_hold(sources):
    """An unescaped % once made a comment of all that followed it, and C_O did not compile."""
    made = {"networks": "2 of preset laptop_x, 50% of them", "seed": "0"}
    text = methods_paragraph(summary(sources, title="WISE_J1541 & B", provenance=made))
    assert "WISE\\_J1541 \\& B" in text
    assert "90\\,\\% of the model's pixels" in text
    assert "C/O 0.1 to 1.5" in text
    bare = re.sub(r"\$[^$]*\$", "", text)  # mathematics has its own rules
    assert not re.search(r"(?<!\\)[%&_#]", bare)


def test_a_name_cannot_break_out_of_its_comment():
    text = bibliography(summary({}, title="A\n@article{evil,\n}", spectrum={"citation": "B\n@misc{worse}"}))
    keys = re.findall(r"^@\w+\{([^,]+)", text, re.MULTILINE)
    assert "evil" not in keys
    assert not any("worse" in key for key in keys)


def test_every_key_that_the_paragraph_cites_is_in_the_bibliography(sources):
    for source in ("networks", "refined"):
        content = summary(sources, source=source, refinement={"sentence": "Converged: 500 effective draws."})
        text, book = methods_paragraph(content), bibliography(content)
        cited = {key for keys in re.findall(r"\\cite[pt]\{([^}]+)\}", text) for key in keys.split(",")}
        assert len(cited) >= 8
        assert all(f"{{{key}," in book for key in cited)
        for needed in ("SNR 50", "5.7 pc", "C/O = 0.50", "seed 0", "C/O 0.1 to 1.5", "with care: prior edge", "jax "):
            assert needed in text, needed
        assert ("not refined" in text) == (source == "networks")
