"""The tutorial in JupyterLab's launcher, which opens a copy in the open folder, and later the user's own; and in a Binder session."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import CHROMIUM, ROOT, jupyter_server
from tests.browser.driving import keep

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]


def click_in_the_launcher(page: Any, address: str, text: str) -> None:
    """Open the tutorial by its card, and wait for a notebook that shows a text."""
    page.goto(address)
    card = page.locator(".jp-LauncherCard", has_text="Kafka Streams tutorial")
    card.wait_for(timeout=120_000)
    assert card.locator(".jp-icon3").evaluate("lines => getComputedStyle(lines).fill") == "none", "it is a drawing of lines"
    keep(page, "launcher")
    card.click()
    page.locator(".jp-Notebook", has_text=text).wait_for(timeout=120_000)


@pytest.mark.slow
def test_a_card_of_the_launcher_opens_the_tutorial_and_never_overwrites_it(lab: tuple[str, Path], page: Any) -> None:
    address, folder = lab
    for file in folder.iterdir():
        file.unlink()  # the notebooks of the checkout are no part of this
    click_in_the_launcher(page, address.format(""), "from nothing to a running application")
    keep(page, "tutorial")
    (copy,) = folder.parent.glob("**/kstreams-tutorial/tutorial.ipynb")
    import nbformat

    assert nbformat.read(copy, 4).cells[0] == nbformat.read(ROOT / "notebooks" / "tutorial.ipynb", 4).cells[0]
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("my own work")]), copy)
    click_in_the_launcher(page, address.format(""), "my own work")
    assert nbformat.read(copy, 4).cells[0].source == "my own work"


@pytest.mark.slow
def test_a_binder_session_opens_the_tutorial(tmp_path: Path, page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    with jupyter_server(tmp_path, [ROOT / "binder" / "start", "jupyter", "lab"]) as session:
        page.goto(f"{session.url}/?token={session.token}")
        page.locator(".jp-Notebook", has_text="from nothing to a running application").wait_for(timeout=120_000)
        keep(page, "binder")
        session.end_kernels()
