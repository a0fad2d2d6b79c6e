"""An application fails: the drawer and the red box show the record, go to cell, and skip it. Then its kernel is restarted: the side
panel lists what the directory holds, attaches it and removes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import CHROMIUM
from tests.browser.driving import add_cell, keep, open_notebook, run_cells, write_notebook

pytestmark = [
    pytest.mark.browser,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

FUNCTION = """def double(order):
    return order["price"] * 2"""
CELLS = [
    "%load_ext kstreams_repl\nimport kstreams_repl as ks\nsession = ks.connect()",
    FUNCTION,
    "session.produce('orders', [('k', {'price': 1}), *(('k', {'prize': f'<b>{n}</b>'}) for n in (1, 2, 3))], partitions=1)",
    "builder = ks.StreamsBuilder()\n"
    "orders = builder.stream('orders', key_serde='string', value_serde='json')\n"
    "orders.map_values(lambda order: double(order), name='doubled').group_by_key(value_serde='json').count(store='counts')",
    "app = session.deploy(builder, 'shop')",
]


def until(page: Any, what: str, holds: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what}; the panel says:\n{page.locator('.ks-side').inner_text()}"
        page.wait_for_timeout(200)


def a_topics_columns_open(page: Any) -> None:
    """A click on a topic in the side panel shows columns, their types and an example, another one closes them."""
    name = page.locator(".ks-side button.ks-topic", has_text="orders")
    name.click()
    page.locator(".ks-side .ks-schema").wait_for()
    shown = [" ".join(row.split()) for row in page.locator(".ks-side .ks-column").all_inner_texts()]
    assert shown[0] == "key VARCHAR k" and "price BIGINT" in shown[1] and "prize VARCHAR <b>" in shown[2], shown
    assert "from the last 4 records" in page.locator(".ks-side .ks-schema").inner_text()
    keep(page, "side-panel-schema")
    name.click()
    page.wait_for_function("() => document.querySelector('.ks-side .ks-schema') === null")


def go_on_beside_the_failure(page: Any) -> None:
    """Buttons below the red box and in the drawer: the first bad record is skipped by one, the second by the other."""
    page.locator(".jp-Notebook .jp-CodeCell").last.locator(".jp-InputPrompt").click()
    add_cell(page, "app")
    drawer = page.locator(".ks-panel .drawer")
    until(page, "the drawer opens by itself", lambda: drawer.count() == 1 and "orders-0@1: key 'k'" in drawer.inner_text())
    assert "<b>1</b>" in drawer.inner_text() and "failed in task 0_0" in drawer.inner_text()
    page.locator(".ks-panel").scroll_into_view_if_needed()
    keep(page, "failure_drawer")
    page.locator(".jp-Notebook .jp-CodeCell").last.locator(".jp-InputPrompt").click()
    add_cell(page, "app.wait(120)")
    box = page.locator(".jp-Notebook .ks-ways[data-application]")
    until(page, "the buttons below the red box", lambda: box.count() == 1 and box.is_visible())
    box.get_by_role("button", name="show this record").click()
    until(page, "the record", lambda: "<b>1</b>" in box.locator(".ks-answer").inner_text())
    box.scroll_into_view_if_needed()
    keep(page, "red_box")
    box.get_by_role("button", name="cell [2], line 2").click()
    until(page, "the cell", lambda: "def double" in page.locator(".jp-Cell.jp-mod-active").inner_text())
    box.get_by_role("button", name="skip it").click()
    box.get_by_role("button", name="no").click()
    assert box.get_by_role("button", name="skip it").is_visible()
    box.get_by_role("button", name="skip it").click()
    assert "Skip orders-0@1 and continue?" in box.inner_text()
    box.get_by_role("button", name="yes").click()
    until(page, "the next failure", lambda: "orders-0@2: key 'k'" in drawer.inner_text())
    until(page, "the answer", lambda: "continues without orders-0@1" in box.inner_text())
    box.get_by_role("button", name="skip it").click()
    box.get_by_role("button", name="yes").click()
    until(page, "an old box says what holds now", lambda: "it failed at orders-0@2" in box.locator(".ks-answer").inner_text())
    drawer.get_by_role("button", name="skip it").click()
    drawer.get_by_role("button", name="yes").click()
    until(page, "the last failure", lambda: "orders-0@3: key 'k'" in drawer.inner_text())


def the_drawer_of_what_was_attached(page: Any, side: Any) -> None:
    """Failure, source, records and rows of an application that an earlier kernel ran."""
    side.locator('[data-key="shop/picture"]').click()
    panel = page.locator(".jp-MainAreaWidget:visible .ks-panel").last
    drawer = panel.locator(".drawer")
    panel.locator('[data-node="topic:orders"]').first.click()
    until(page, "the records", lambda: drawer.locator("tbody tr").count() == 4)
    assert "<b>3</b>" in drawer.inner_text()
    keep(page, "attached_topic")
    panel.locator('[data-node="node:doubled"]').click()
    until(page, "the drawer", lambda: "orders-0@3" in drawer.inner_text() and "go to cell" in drawer.inner_text())
    said = drawer.inner_text()
    assert 'a cell of another kernel, line 2: return order["price"] * 2' in said, said
    assert "orders.map_values(lambda order: double(order), name='doubled')" in drawer.locator(".ks-source").inner_text()
    keep(page, "attached_failure")
    drawer.get_by_role("button", name="go to cell").click()
    until(page, "the cell", lambda: "orders.map_values" in page.locator(".jp-Cell.jp-mod-active").inner_text())
    side.locator('[data-key="shop/picture"]').click()
    drawer.get_by_role("button", name="skip it").click()
    drawer.get_by_role("button", name="yes").click()
    until(page, "it runs", lambda: panel.get_attribute("data-status") == "running")
    panel.locator('[data-node="store:counts"]').first.click()
    until(page, "the row", lambda: drawer.locator("tbody tr").count() == 1 and "1" in drawer.locator("tbody tr").inner_text())
    keep(page, "attached_store")
    side.locator('[data-key="shop/stop"]').click()
    until(page, "it stops", lambda: panel.get_attribute("data-status") == "stopped")


@pytest.mark.slow  # tests/session attaches and removes after a kill, test_jupyterlab.py drives the panel
def test_after_a_restart_the_side_panel_lists_attaches_and_removes(lab: tuple[str, Path], page: Any) -> None:
    address, folder = lab
    write_notebook(folder / "shop.ipynb", CELLS)
    open_notebook(page, address.format("shop.ipynb"))
    run_cells(page, len(CELLS))
    page.locator('li[data-id="kstreams-side-panel"]').click()
    side = page.locator(".ks-side")
    a_topics_columns_open(page)
    until(page, "it fails", lambda: "✖ failed" in side.inner_text(), seconds=200)  # Spark starts
    go_on_beside_the_failure(page)
    until(page, "it fails again", lambda: "✖ failed" in side.inner_text())
    page.locator(".jp-Notebook .jp-CodeCell").last.locator(".jp-InputPrompt").click()
    page.keyboard.press("0")
    page.keyboard.press("0")
    page.locator(".jp-Dialog .jp-mod-accept").click()
    until(page, "it is told", lambda: "not loaded" in side.inner_text())
    add_cell(page, "%load_ext kstreams_repl")
    until(page, "what is left is listed before there is a session", lambda: "shop" in side.inner_text())
    assert "✖ failed" in side.inner_text() and "not attached, last seen 20" in side.inner_text()
    assert "KeyError" in side.inner_text()
    keep(page, "restart_side_panel")
    side.locator('[data-key="shop/attach"]').click()
    until(page, "attached", lambda: side.locator('[data-key="shop/resume"]').count() == 1)
    the_drawer_of_what_was_attached(page, side)
    until(page, "it can be removed", lambda: side.locator('[data-key="shop/remove"]').count() == 1)
    side.locator('[data-key="shop/remove"]').click()
    until(page, "its list", lambda: "local state" in side.inner_text() and "topic" in side.inner_text())
    keep(page, "remove_list")
    side.locator('[data-key="shop/delete"]').click()
    until(page, "removed", lambda: side.locator('[data-key="shop/remove"]').count() == 0)
    assert "Applications 0" in side.inner_text().replace("\n", " ")
