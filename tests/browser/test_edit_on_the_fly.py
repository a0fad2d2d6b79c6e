"""Notebook 03 as a user works with it: cells run, the picture lives, a lambda is changed and applied, buttons, side panel, dark mode."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import CHROMIUM
from tests.browser.driving import ARTEFACTS, choose_theme, keep, open_notebook, run_cells, until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

FILTER = 'paid = orders.filter(lambda product, order: order["amount"] > 0, name="paid")'
UNTIL_COUNTED = 12  # cells up to the one that waits until something is counted


def lines(panel: Any, shape: str) -> list[str]:
    """The lines of a shape, as they are on the screen."""
    found: list[str] = panel.locator(f'[data-node="{shape}"] text').all_text_contents()
    return found


def records(panel: Any) -> int:
    """Records that the source has taken."""
    told = [line for line in lines(panel, "node:orders") if line.endswith(" records")]
    return int(told[0].split()[0].replace(",", "")) if told else -1


def counted(panel: Any) -> dict[str, int]:
    """Rows of the count as the panel shows them behind the selected node; while it draws them anew a row may have no second cell yet."""
    rows = [row.split("\t") for row in panel.locator(".behind .detail table").last.locator("tbody tr").all_inner_texts()]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def whole(page: Any, panel: Any) -> dict[str, int]:
    """The four counts, read at one moment at which the table is not just being drawn again."""
    seen: list[dict[str, int]] = []

    def drawn() -> bool:
        seen.append(counted(panel))
        return len(seen[-1]) == 4

    until(page, "rows", drawn)
    return seen[-1]


@pytest.mark.slow
def test_a_user_edits_pauses_and_resumes_from_the_picture(lab: tuple[str, Path], page: Any) -> None:
    address, _ = lab
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_notebook(page, address.format("03_edit_on_the_fly.ipynb"))
    page.locator(".jp-Notebook .jp-Cell").first.click()
    run_cells(page, UNTIL_COUNTED, seconds=240)
    panel = page.locator(".jp-Notebook .ks-panel")
    panel.scroll_into_view_if_needed()

    # the numbers move
    until(page, "a first number", lambda: records(panel) > 0)
    first = records(panel)
    until(page, "another number", lambda: records(panel) > first)
    assert any(line.endswith("records/s") for line in lines(panel, "node:orders"))
    assert not any("running" in line for line in lines(panel, "node:count")), "the header says it"
    assert panel.locator(".chip").inner_text() == "▶ running"

    # a click on the count node shows its rows, its source and live values
    panel.locator('[data-node="node:count"]').click()
    until(page, "rows", lambda: set(counted(panel)) == {"book", "pen", "lamp", "chair"})
    until(page, "values", lambda: "live values" in panel.locator(".values").inner_text())
    assert "count = paid.group_by_key" in panel.locator(".about").inner_text()
    keep(page, "03_count_selected")
    panel.screenshot(path=str(ARTEFACTS / "03_panel.png"))

    # the user changes the lambda in its cell and runs it again
    editor = page.locator(".jp-CodeCell", has_text='name="paid")').first.locator(".cm-content")
    editor.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(FILTER)
    run_cells(page, 1)
    until(page, "the badge", lambda: any("stale" in line for line in lines(panel, "node:paid")))
    panel.locator("button.edit").click()
    until(page, "the plan", lambda: "code only" in panel.locator(".behind .detail").inner_text())
    keep(page, "03_plan")
    panel.locator("button.apply").click()
    until(page, "version 2", lambda: "applied as version 2" in panel.locator(".behind .detail").inner_text(), 90)
    until(page, "running", lambda: panel.get_attribute("data-status") == "running")
    until(page, "no badge", lambda: not any("stale" in line for line in lines(panel, "node:paid")))

    # the count goes on from where it was; pause stops the numbers, resume moves them
    panel.locator('[data-node="node:count"]').click()
    before = whole(page, panel)
    until(page, "more", lambda: sum(counted(panel).values()) > sum(before.values()) + 5)
    assert all(count >= before[product] for product, count in whole(page, panel).items())
    panel.locator("button.pause").click()
    until(page, "paused", lambda: panel.get_attribute("data-status") == "paused" and panel.get_attribute("aria-busy") == "false")
    page.wait_for_timeout(2500)  # what was on its way to the screen is there
    at_rest = whole(page, panel)
    page.wait_for_timeout(3000)
    assert whole(page, panel) == at_rest
    until(page, "the chip", lambda: panel.locator(".chip").inner_text() == "‖ paused")
    keep(page, "03_paused")
    panel.locator("button.resume").click()
    until(page, "running", lambda: panel.get_attribute("data-status") == "running")
    until(page, "more", lambda: sum(counted(panel).values()) > sum(at_rest.values()))

    # the side panel lists the same and does the same, by keyboard too
    page.locator('li[data-id="kstreams-side-panel"]').click()
    side = page.locator(".ks-side")
    until(page, "the list", lambda: "orders" in side.inner_text() and "counts" in side.inner_text())
    assert re.search(r"shop\s*▶ running", side.inner_text())
    side.locator('[data-key="shop/pause"]').focus()
    page.keyboard.press("Enter")
    until(page, "paused", lambda: "‖ paused" in side.inner_text())
    keep(page, "03_side_panel")
    side.locator('[data-key="shop/resume"]').click()
    until(page, "running", lambda: "▶ running" in side.inner_text())

    # from the picture to the cell
    panel.locator('[data-node="node:paid"]').click()
    panel.get_by_role("button", name="go to cell").click()
    until(page, "the cell", lambda: 'name="paid"' in page.locator(".jp-Cell.jp-mod-active").inner_text())

    # a tab with the live picture, in the dark theme
    side.locator('[data-key="shop/picture"]').click()
    tab = page.locator(".ks-picture-tab .ks-panel")
    until(page, "the tab", lambda: tab.count() == 1 and records(tab) > 0)
    here = records(tab)
    until(page, "another number", lambda: records(tab) > here)
    choose_theme(page, "JupyterLab Dark")
    tab.locator('[data-node="store:counts"]').click()
    until(page, "rows", lambda: len(counted(tab)) == 4)
    keep(page, "03_dark_tab")
    tab.locator("button.stop").click()
    until(page, "stopped", lambda: tab.get_attribute("data-status") == "stopped", 90)
    outside = [url for url in asked if not url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "about:"))]
    assert outside == []
