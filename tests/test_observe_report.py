"""The report is one file that needs nothing else, says nothing it was not told, and runs nothing."""

import base64
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from kappaflow.errors import UserError
from kappaflow.parameters import INDEX, PARAMETERS, bounds
from kappaflow.plots import object_figures as retrieval
from kappaflow.plots import save_figure
from kappaflow.report.page import Figure, Report, Section, Table, write_report
from kappaflow.retrieval.trust import GRADES, Check
from kappaflow.spectra import Box

RNG = np.random.default_rng(0)


def draws(spread=1.0, n=800):
    low, high = bounds()
    return low + (high - low) / (1 + np.exp(-spread * RNG.normal(size=(n, len(low))) * np.linspace(0.2, 3, 15)))


class Page(HTMLParser):
    """Collects tags, attributes and text, and whether tags close."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.text, self.open = [], [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [(tag, k, v) for k, v in attrs if k in {"src", "href", "srcset", "action", "data"}]
        if tag not in {"meta", "img", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def page(tmp_path):
    figure = save_figure(
        retrieval.c_to_o({"marginalized": draws()[:, 5], "control": draws(0.5)[:, 5]}), tmp_path / "co"
    )[0]
    (tmp_path / "f.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>')
    section = Section(
        "<b>2M0415</b> & co",
        "C/O = 0.55 ± 0.08",
        "68 %",
        [Check("SNR", 48.0, "pass", "Fine."), Check("edge", 9.0, "fail", "Bad <script>alert(2)</script>.")],
        [Table(["parameter", "median"], [["C/O", "0.55"], ["T1", "-3"]], "All.", frozenset({0}))],
        [Figure(figure, "C/O.", "two curves"), Figure(tmp_path / "f.svg", "An SVG.", "nothing")],
        ["A note."],
    )
    path = write_report(Report("Title", "sub", [section] * 3, {"draws": "2000"}), tmp_path / "report.html")
    return path.read_text(encoding="utf-8")


def test_nothing_is_fetched_and_nothing_runs(page):
    parsed = Page(page)
    assert "script" not in parsed.tags
    assert {value.split(":")[0] for tag, _, value in parsed.links if tag == "img"} == {"data"}
    assert all(value.startswith("#") for tag, _, value in parsed.links if tag == "a")
    assert "link" not in parsed.tags
    assert not re.search(r"@import|url\(|https?:", re.sub(r"base64,[^\"]*", "", page))
    assert "default-src 'none'" in page


def test_tags_close_and_text_is_escaped(page):
    parsed = Page(page)
    assert parsed.open == []
    assert "<b>2M0415</b> & co" in parsed.text
    assert "<script>alert(2)</script>" in parsed.text
    assert parsed.tags.count("img") == 6


def test_figures_are_inside_byte_for_byte(page, tmp_path):
    inlined = re.findall(r"data:image/png;base64,([^\"]+)", page)
    assert base64.b64decode(inlined[0]) == (tmp_path / "co.png").read_bytes()


def test_the_worst_line_of_the_trust_card_comes_first(page):
    assert page.index("Bad ") < page.index("Fine.")
    assert "Not as it stands. 1 pass, 1 fail" in Page(page).text


def test_it_is_made_for_phones_dark_screens_and_paper(page):
    for needle in ("width=device-width", "prefers-color-scheme:dark", "@media print", "@media (max-width"):
        assert needle in page


@pytest.mark.parametrize("name", ["nowhere.png", "a.gif"])
def test_what_cannot_be_shown_is_an_error_and_leaves_no_file(tmp_path, name):
    with pytest.raises(UserError, match=f"report: {name}"):
        write_report(Report("x", sections=[Section("x", figures=[Figure(name, "", "")])]), tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []


def test_a_table_whose_rows_do_not_fit_its_header_is_refused():
    with pytest.raises(UserError, match="row 0 has 1 cells; expected 2"):
        Table(["a", "b"], [["1"]])


def test_every_check_that_can_be_made_can_be_drawn(tmp_path):
    checks = [Check(grade, float("nan"), grade, "Said.") for grade in GRADES]
    page = write_report(Report("x", sections=[Section("x", trust=checks)]), tmp_path / "r.html").read_text()
    assert "1 pass, 1 warn, 1 fail" in Page(page).text


def test_the_spectrum_figure_marks_masked_pixels_and_never_crosses_the_gap(tmp_path):
    wave = np.concatenate([np.arange(3.5, 3.684, 0.002), np.arange(3.788, 4.0, 0.002)])
    flux, error = np.sin(9 * wave), np.full(wave.size, 0.1)
    mask = np.arange(wave.size) % 10 > 0
    figure = retrieval.spectrum(wave, (flux, error, mask), (flux - 0.2, flux, flux + 0.2), title="x")
    top, below = figure.axes
    lines = [line.get_xdata() for line in top.lines if len(line.get_xdata()) > 20]
    assert all(np.ptp(x) < 0.3 for x in lines)
    ticks = next(line for line in top.lines if line.get_marker() == "|" and len(line.get_xdata()))
    assert len(ticks.get_xdata()) == (~mask).sum()
    assert len(below.lines[-1].get_xdata()) == mask.sum()
    assert len(retrieval.spectrum(wave, (flux, error, mask)).axes) == 1
    assert len(retrieval.spectrum(wave, (flux, error, np.zeros(wave.size, bool))).axes) == 1


def test_the_corner_shows_c_to_o_and_what_is_constrained():
    sample = draws()
    names = retrieval.informative(sample, Box())
    assert {"C_O", "log_g"} <= set(names)
    assert 2 < len(names) <= 7
    assert names == sorted(names, key=lambda n: INDEX[n])
    prior = np.array([p.low + p.width * RNG.random(500) for p in PARAMETERS]).T
    assert retrieval.informative(prior, Box()) == ["C_O", "log_g"]
    figure = retrieval.corner({"marginalized": sample, "control": draws(0.5)}, Box(), ["C_O", "M_H", "log_g"])
    visible = [axes for axes in figure.axes if axes.get_visible()]
    assert len(visible) == 6
    assert retrieval.corner({"one": prior}, Box()) is not None
