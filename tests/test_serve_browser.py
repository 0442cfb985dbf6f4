"""The page of `kappaflow serve` in a real browser, at the width of a desk and of a phone."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest
from retrieval_toy import fine_text

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
HOSTILE = "<img src=x onerror=alert(1)>.txt"
PATIENCE = 300_000  # ms, on a busy machine


@pytest.fixture(scope="module")
def address(tmp_path_factory, networks):
    """A server of its own, as a user starts it."""
    root = tmp_path_factory.mktemp("browser")
    words = ["--out", root / "served", "--port", "0", "--model", networks / "m0", "--model", networks / "m1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "kappaflow", "serve", *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    yield process.stdout.readline().strip()
    process.terminate()
    assert process.wait(30) in (0, -15)
    process.stdout.close()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as found:
        made = found.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(params=[1280, 390], ids=["desk", "phone"])
def page(request, browser, address):
    made = browser.new_page(viewport={"width": request.param, "height": 860}, accept_downloads=True)
    made.set_default_timeout(PATIENCE)
    made.wrong, made.asked = [], []
    made.on("console", lambda told: made.wrong.append(told.text) if told.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: made.wrong.append(str(error)))
    made.on("dialog", lambda dialog: (made.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    made.on("request", lambda request: made.asked.append(request.url))
    made.goto(address)
    yield made
    assert made.wrong == []
    assert all(url.startswith((address, "data:")) for url in made.asked)
    made.close()


def fits_its_window(page):
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_from_a_dropped_file_to_the_report_and_the_zip(page, tmp_path):
    assert page.title() == "kappaflow"
    assert fits_its_window(page)
    assert not page.is_visible("#go")
    page.set_input_files("#files", [{"name": HOSTILE, "mimeType": "text/plain", "buffer": fine_text(11)}])
    page.wait_for_selector(".seen:not([hidden])")
    assert page.locator(".card .name").inner_text() == HOSTILE
    assert page.locator(".plot .line").count() >= 1
    assert "um" in page.locator(".facts").inner_text()
    bare = fine_text(12).replace(b"flux(mJy)", b"flux").replace(b"err(mJy)", b"err")
    page.evaluate(
        """([name, text]) => { const moved = new DataTransfer(); moved.items.add(new File([text], name));
        document.dispatchEvent(new DragEvent("drop", {dataTransfer: moved, bubbles: true})); }""",
        ["bare.txt", bare.decode()],
    )
    second = page.locator(".card").nth(1)
    second.locator(".error:not([hidden])").wait_for()
    assert "“flux unit”" in second.locator(".error").inner_text()
    assert "left out" in page.locator("#plan").inner_text()
    second.locator("[data-hint=flux_unit]").fill("mJy")
    second.locator(".again").click()
    second.locator(".seen:not([hidden])").wait_for()
    page.locator(".title").nth(0).fill("A dwarf")
    page.locator(".distance").nth(0).fill("10,7")  # as half of Europe writes it
    second.locator(".title").fill("Another")
    assert "2 objects" in page.locator("#plan").inner_text()
    assert page.is_checked("input[value=refined]")  # as on the command line
    page.check("input[value=amortized]")
    assert fits_its_window(page)
    page.click("#run")
    job = page.locator(".job").first
    job.locator("text=Open the report").wait_for()
    assert "A dwarf" in job.inner_text()
    assert job.locator(".badge").count() == 2
    assert not page.is_visible("#go")
    assert fits_its_window(page)
    with page.expect_download() as caught:
        job.locator("text=Download everything").click()
    caught.value.save_as(tmp_path / "all.zip")
    assert "kappaflow/report.html" in zipfile.ZipFile(tmp_path / "all.zip").namelist()
    with page.context.expect_page() as opened:
        job.locator("text=Open the report").click()
    report = opened.value
    report.wait_for_load_state()
    assert report.locator("h2", has_text="A dwarf").count() >= 1
    assert report.locator("img").count() >= 3
    assert report.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    report.close()
    identifier = job.get_attribute("data-id")
    job.locator("text=Remove").click()
    playwright.expect(page.locator(f"[data-id='{identifier}']")).to_have_count(0, timeout=PATIENCE)


def test_files_of_one_object_are_merged_and_a_wrong_distance_is_said(page):
    both = [{"name": f"nrs{k}.txt", "mimeType": "text/plain", "buffer": fine_text(11)} for k in (1, 2)]
    page.set_input_files("#files", both)
    playwright.expect(page.locator(".seen:not([hidden])")).to_have_count(2, timeout=PATIENCE)
    for k in (0, 1):
        page.locator(".title").nth(k).fill("One dwarf")
    assert "One object (One dwarf: " in page.locator("#plan").inner_text()
    page.locator(".distance").nth(0).fill("-5")
    page.click("#run")
    page.wait_for_selector("#message:not([hidden])")
    assert "expected between" in page.locator("#message").inner_text()
    assert len(page.wrong) == 1  # the browser's own note of the 400
    page.wrong.clear()
    page.reload()
    # The uploads are still there.
    playwright.expect(page.locator(".seen:not([hidden])")).to_have_count(2, timeout=PATIENCE)
    page.click("#clear")
    assert page.locator(".card").count() == 0
