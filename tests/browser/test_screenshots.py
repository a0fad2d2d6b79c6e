"""Pictures of the example notebooks as a user sees them, light and dark, whole pages: kept in ``test-artefacts/`` for people to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import CHROMIUM
from tests.browser.driving import choose_theme, keep, run_all, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
TALLEST = 15_000
"""Pixels that Chromium still draws in one picture."""
HIDDEN = """() => {
    let hidden = 0;
    for (let place = document.querySelector('.jp-Notebook .jp-Cell').parentElement; place; place = place.parentElement)
        hidden = Math.max(hidden, place.scrollHeight - place.clientHeight);
    return hidden;
}"""
"""Pixels of the notebook that are out of sight."""
DRAWN = "() => [...document.querySelectorAll('.jp-OutputArea img')].map(image => [image.complete, image.naturalWidth])"


def show_all(page: Any) -> None:
    """Make the window as high as the notebook is; pictures in it grow with the window."""
    for _ in range(5):
        hidden = page.evaluate(HIDDEN)
        if hidden <= 0:
            return
        page.set_viewport_size({"width": 1400, "height": min(TALLEST, page.viewport_size["height"] + hidden + 20)})
        page.wait_for_timeout(500)


@pytest.mark.parametrize(
    "notebook", ["01_first_topology", "03_edit_on_the_fly", "04_looking_inside", "11_what_happened_here", "12_try_it_beside"]
)
def test_a_notebook_is_kept_whole_in_both_themes(lab: tuple[str, Path], page: Any, notebook: str) -> None:
    address, _ = lab
    run_all(page, address.format(f"{notebook}.ipynb"), seconds=400)
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        choose_theme(page, theme)
        show_all(page)
        keep(page, f"{notebook}-{theme.split()[-1].lower()}")
        for cell in (page.locator(".jp-Notebook .jp-Cell").first, page.locator(".jp-Notebook .jp-Cell").last):
            box = cell.bounding_box()
            assert box["y"] >= 0 and box["y"] + box["height"] <= page.viewport_size["height"], "the whole notebook is in the picture"
        page.set_viewport_size({"width": 1400, "height": 1000})
        images = page.evaluate(DRAWN)
        assert page.locator(".jp-OutputArea .widget-hprogress").count() == 0, "DuckDB's progress is a black bar that stays"
        assert images and all(complete and width > 100 for complete, width in images)


def test_the_past_of_a_store_is_in_the_panel(lab: tuple[str, Path], page: Any) -> None:
    """Notebook 11's last cell: the rows of its store as of an earlier commit, and the records that made one of them."""
    address, _ = lab
    run_all(page, address.format("11_what_happened_here.ipynb"), seconds=400)
    panel = page.locator(".jp-Notebook .ks-panel").last
    panel.scroll_into_view_if_needed()
    panel.locator('[data-node="store:spent"]').click()
    rows = panel.locator(".behind .detail table tbody tr")
    until(page, "rows of the store", lambda: rows.count() == 8)
    now = rows.all_inner_texts()
    panel.get_by_role("button", name="earlier").click()
    slider = panel.get_by_label("commit")
    until(page, "the slider", lambda: slider.is_visible() and slider.is_enabled())
    slider.fill("0")
    until(page, "an earlier moment", lambda: "as of" in panel.locator(".moment").inner_text())
    until(page, "other rows", lambda: rows.all_inner_texts() != now)
    keep(page, "the_past_of_a_store")
    slider.fill(slider.get_attribute("max") or "")
    until(page, "the rows of now", lambda: rows.all_inner_texts() == now)
    rows.first.click()
    until(page, "why", lambda: "orders" in panel.locator(".behind .values").inner_text())
    keep(page, "why_a_row_is_so")
