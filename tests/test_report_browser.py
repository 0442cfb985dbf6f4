"""The report in a real browser, on a desk and on a phone: no column is cut, tables are sorted, figures legible."""

import shutil

import pytest
from PIL import Image

from kappaflow.report.catalogue_files import _table
from kappaflow.report.page import Figure, Report, Section, write_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")


def summary(title, snr, c_o, *, distance=True):
    def row(value, unit=""):
        return {"unit": unit, "q05": 0.8 * value, "q16": 0.9 * value, "q50": value, "q84": 1.1 * value, "q95": value}

    derived = {"T_eff": row(702.0, "K"), "mass": row(36.1, "M_Jup")} if distance else {}
    parameters = {"C_O": row(c_o), "M_H": row(-0.72), "log_g": row(5.04, "dex(cm s-2)"), "R": row(0.92, "R_Jup")}
    return {"name": title, "title": title, "verdict": "warn", "snr": snr, "parameters": parameters} | {
        "derived": derived,
        "spectrum": {"scale_known": distance},
    }


@pytest.fixture(scope="module")
def page_of_three(tmp_path_factory):
    """A report on three objects, names as long as surveys make them, one without a distance."""
    good = [
        summary("2MASS J0415-0935", 48.0, 0.56),
        summary("WISE_J154151.65-225024.9_apparent_SED", 8.0, 0.73, distance=False),
        summary("Wolf 1130C", 77.0, 0.16),
    ]
    folder = tmp_path_factory.mktemp("report")
    figures = []
    for name, width in (("wide", 1800), ("narrow", 640)):
        Image.new("RGB", (width, 600), "white").save(folder / f"{name}.png")
        figures.append(Figure(folder / f"{name}.png", f"A {name} one.", name))
    whole = Section("All objects", tables=[_table(good, good)], figures=figures)
    return write_report(Report("C/O of 3 objects", sections=[whole]), folder / "report.html")


@pytest.fixture(params=[1280, 390], ids=["desk", "phone"])
def page(request, page_of_three):
    with playwright.sync_playwright() as found:
        browser = found.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        made = browser.new_page(viewport={"width": request.param, "height": 860})
        made.set_default_timeout(300_000)
        wrong = []
        made.on("console", lambda told: wrong.append(told.text) if told.type in ("error", "warning") else None)
        made.on("pageerror", lambda error: wrong.append(str(error)))
        made.goto(page_of_three.as_uri())
        yield made
        browser.close()
    assert wrong == []


def first_names(page):
    return [text.split()[0].split("_")[0] for text in page.locator("tbody th").all_inner_texts()]


def test_no_column_is_cut_and_a_radius_that_is_the_priors_is_not_shown(page):
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate("[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)")
    assert page.locator("tbody tr").nth(1).locator("td[data-of='R (R_Jup)']").inner_text() == ""
    assert "0.92" in page.locator("tbody tr").nth(0).locator("td[data-of='R (R_Jup)']").inner_text()


def test_a_figure_is_never_so_small_that_its_letters_cannot_be_read(page):
    """Nine points at 900 pixels are six at 585; beyond the width of a phone the figure moves within its pane."""
    wide, narrow = page.locator("img[alt='wide']"), page.locator("img[alt='narrow']")
    pane = wide.locator("..")
    assert wide.bounding_box()["width"] >= 580
    assert narrow.bounding_box()["width"] == pytest.approx(320, abs=12)
    slack = pane.evaluate("e => e.scrollWidth - e.clientWidth")
    assert (slack > 0) == (page.viewport_size["width"] < 600)
    pane.evaluate("e => e.scrollLeft = 1000")
    assert pane.evaluate("e => e.scrollLeft") == pytest.approx(slack, abs=1)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_menu_sorts_at_any_width_and_heads_do_where_they_are_seen(page):
    assert first_names(page) == ["2MASS", "WISE", "Wolf"]
    page.select_option(".sorts select", label="C/O")
    assert first_names(page) == ["Wolf", "2MASS", "WISE"]
    page.click(".sorts button")
    assert first_names(page) == ["WISE", "2MASS", "Wolf"]
    page.select_option(".sorts select", label="T_eff (K)")
    assert first_names(page)[-1] == "WISE"  # what is not known stands last
    if page.viewport_size["width"] > 1000:
        page.click("thead th:has-text('SNR')")
        assert first_names(page) == ["WISE", "2MASS", "Wolf"]
