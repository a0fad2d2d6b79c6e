"""A real browser opens JupyterLab and runs a notebook; every host but this one is out of reach."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import CHROMIUM
from tests.browser.driving import add_cell, keep, run_all, write_notebook

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]


@pytest.mark.spark
@pytest.mark.kafka
def test_the_first_notebook_runs_and_shows_its_picture_and_tables(lab: tuple[str, Path], page: Any) -> None:
    address, _ = lab
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    run_all(page, address.format("01_first_topology.ipynb"), seconds=180)
    drawn = page.evaluate("() => [...document.querySelectorAll('img.ks-image')].map(i => [i.complete, i.naturalWidth, i.alt])")
    assert drawn and all(complete and width > 100 for complete, width, _ in drawn)
    panels = page.evaluate("() => [...document.querySelectorAll('.ks-panel svg')].map(svg => svg.getAttribute('aria-label'))")
    assert any("flight-delays (" in label for label in panels), panels
    tables = page.evaluate("() => [...document.querySelectorAll('.ks-table')].map(t => t.innerText)")
    assert any("United Air Lines Inc." in text and "57979" in text for text in tables), tables
    page.locator("img.ks-image").last.scroll_into_view_if_needed()
    keep(page, "01_first_topology")
    shown = page.locator(".jp-Notebook .jp-CodeCell").last.inner_text()
    assert "Session(closed)" in shown
    outside = [url for url in asked if not url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "about:"))]
    assert outside == []


WORDS = [
    "%load_ext kstreams_repl\nimport kstreams_repl as ks\nsession = ks.connect(directory='temporary')",
    "session.produce('words', [(word, word, 1000 + i) for i, word in enumerate(['to', 'be', 'or', 'not', 'to', 'be'])])",
    "builder = ks.StreamsBuilder()\nbuilder.stream('words', key_serde='string', value_serde='string').group_by_key().count(store='counts')",
    "app = session.deploy(builder, 'panel-words')\napp.wait(200)",
    "app",
    "%topo_tail words -n 5",
]


@pytest.mark.spark
@pytest.mark.kafka
def test_the_panel_shows_rows_pauses_and_resumes(lab: tuple[str, Path], page: Any) -> None:
    """A click on a store shows its rows; the buttons pause and resume; numbers move when records come."""
    address, folder = lab
    write_notebook(folder / "panel.ipynb", WORDS)
    run_all(page, address.format("panel.ipynb"), seconds=240)
    panel = page.locator(".ks-panel")
    panel.locator('[data-node="store:counts"]').click()
    page.wait_for_function("() => document.querySelector('.ks-panel .behind')?.innerText.includes('not')")
    rows = panel.locator(".behind").inner_text()
    assert "to" in rows and "2" in rows
    panel.locator("button.pause").click()
    page.wait_for_function("() => document.querySelector('.ks-panel .status')?.innerText.includes('paused')")
    panel.locator("button.resume").click()
    page.wait_for_function("() => document.querySelector('.ks-panel .status')?.innerText.includes('running')")
    panel.locator('[data-node^="node:KSTREAM-SOURCE"]').focus()
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.ks-panel .behind')?.innerText.includes('last values')")
    keep(page, "panel")

    # a live table beside it: it goes on until Stop
    tail = page.locator(".ks-tail")
    assert "be" in tail.inner_text() and tail.locator("button").inner_text() == "Stop"
    page.locator(".jp-Notebook .jp-CodeCell").last.click()
    add_cell(page, "session.produce('words', [('late', 'late', 9000)])")
    page.wait_for_function("() => document.querySelector('.ks-tail').innerText.includes('late')")
    tail.locator("button").click()
    page.wait_for_function("() => document.querySelector('.ks-tail .status').innerText.includes('stopped')")

    # the buttons work while a cell runs
    add_cell(page, "import time; time.sleep(90)")
    panel.locator("button.pause").click()
    page.wait_for_function("() => document.querySelector('.ks-panel .status')?.innerText.includes('paused')")
    assert "[*]" in page.locator(".jp-Notebook").inner_text(), "the cell is still running"

    # interrupting it ends the cell, and nothing else
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Interrupt Kernel$")).click()
    page.wait_for_function("() => document.querySelector('.jp-Notebook').innerText.includes('KeyboardInterrupt')")
    panel.locator("button.resume").click()
    page.wait_for_function("() => document.querySelector('.ks-panel .status')?.innerText.includes('running')")
