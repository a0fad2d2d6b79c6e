"""Pictures of the example notebooks as a user sees them, light and dark, whole pages: kept in ``test-artefacts/`` for people to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import CHROMIUM
from tests.browser.driving import choose_theme, keep, run_all

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


@pytest.mark.parametrize("notebook", ["01_first_topology", "03_edit_on_the_fly", "04_looking_inside"])
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
