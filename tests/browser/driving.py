"""What the browser tests do with a notebook: open it, run its cells, wait for them, keep pictures of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ARTEFACTS = ROOT / "test-artefacts"

DONE = """() => {
    const prompts = [...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputPrompt')].map(p => p.textContent);
    const failed = document.querySelector('.jp-Notebook [data-mime-type$="jupyter.error"], .jp-Notebook .jp-RenderedError');
    // behind a cell that raised the others are not run: their prompts are empty again
    const over = prompts.some(text => /\\[\\d+\\]/.test(text)) && !prompts.some(text => text.includes("*"));
    return failed !== null || over;
}"""


def run_all(page: Any, address: str, seconds: float) -> None:
    """Open a notebook, run all its cells, and wait until the last one is done or one has failed."""
    open_notebook(page, address)
    run_to_the_end(page, seconds)


def run_to_the_end(page: Any, seconds: float) -> None:
    """Run all cells of the notebook that is open, and wait until the last one is done or one has failed."""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    try:
        page.wait_for_function(DONE, timeout=seconds * 1000)
    except Exception:
        pytest.fail("the notebook did not come to its end:\n" + page.locator(".jp-Notebook").inner_text()[-6000:], pytrace=False)
    finally:
        keep(page, "last")
    if not any(character.isdigit() for character in page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt").last.inner_text()):
        pytest.fail("a cell failed:\n" + page.locator(".jp-Notebook").inner_text()[-6000:], pytrace=False)


def open_notebook(page: Any, address: str) -> None:
    """Open a notebook and wait until its kernel listens."""
    page.goto(address)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=120_000)
    # the status bar says it last: what is run while the kernel is being connected is dropped
    page.get_by_text("| Idle").wait_for(timeout=120_000)
    page.wait_for_timeout(1000)


def run_cells(page: Any, count: int, seconds: float = 120) -> None:
    """Run so many cells from the selected one on, one after the other, as Shift-Enter does."""
    for _ in range(count):
        page.keyboard.press("Shift+Enter")
    page.wait_for_timeout(200)
    try:
        page.wait_for_function(IDLE, timeout=seconds * 1000)
    except Exception:
        pytest.fail("cells did not end:\n" + page.locator(".jp-Notebook").inner_text()[-6000:], pytrace=False)
    failed = page.locator('.jp-Notebook [data-mime-type$="jupyter.error"], .jp-Notebook .jp-RenderedError')
    assert failed.count() == 0, failed.first.inner_text()


def until(page: Any, what: str, condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until a condition holds."""
    for _ in range(int(seconds / 0.2)):
        if condition():
            return
        page.wait_for_timeout(200)
    keep(page, "failed")
    raise AssertionError(f"{what} did not come")


def records_in(panel: Any) -> int:
    """Return the number of records that an application's panel shows behind its name."""
    shown = re.search(r"([\d,]+) records", panel.locator(".status").inner_text())
    return int(shown[1].replace(",", "")) if shown else -1


def check_numbers_and_buttons(page: Any, panel: Any, produce: Callable[[], object]) -> None:
    """The panel of notebook 01 has its picture; its numbers grow with what is produced; its buttons pause and resume."""
    until(page, "a picture", lambda: panel.locator(".canvas > svg").count() == 1)
    assert panel.locator(".canvas > svg").get_attribute("aria-label").startswith("flight-delays: ")
    until(page, "running", lambda: panel.get_attribute("data-status") == "running" and records_in(panel) > 0, 180)
    for _ in range(2):
        before = records_in(panel)
        produce()
        until(page, "more records", lambda before=before: records_in(panel) > before)
        panel.locator("button.pause").click()
        until(page, "paused", lambda: panel.get_attribute("data-status") == "paused" and panel.locator("button.resume").is_enabled())
        assert panel.locator(".chip").inner_text() == "‖ paused"
        panel.locator("button.resume").click()
        until(page, "running", lambda: panel.get_attribute("data-status") == "running")


def add_cell(page: Any, source: str) -> None:
    """Write a cell below the selected one and run it; it is selected afterwards, and not waited for."""
    page.keyboard.press("Escape")
    page.keyboard.press("b")
    page.keyboard.press("Enter")
    page.keyboard.insert_text(source)
    page.keyboard.press("Control+Enter")


def choose_theme(page: Any, name: str) -> None:
    """As a user does it: Settings, Theme, name."""
    page.get_by_role("menuitem", name="Settings", exact=True).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Theme$")).hover()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{name}$")).click()
    light = "false" if "Dark" in name else "true"
    page.wait_for_function(f"() => document.body.dataset.jpThemeLight === '{light}'")
    page.wait_for_timeout(500)


def keep(page: Any, name: str) -> None:
    """A screenshot among the test artefacts."""
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=str(ARTEFACTS / f"{name}.png"))


def write_notebook(path: Path, sources: list[str]) -> None:
    """A notebook of these code cells."""
    import nbformat

    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)


IDLE = """() => [...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputPrompt')].every(p => !p.textContent.includes('*'))
    && document.querySelector('.jp-Notebook') !== null"""
