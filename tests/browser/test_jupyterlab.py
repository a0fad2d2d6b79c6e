"""A real browser opens JupyterLab and runs a notebook; every host but this one is out of reach."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.pictures import mimebundle, picture_of
from tests.browser.conftest import CHROMIUM
from tests.browser.driving import IDLE, add_cell, keep, open_notebook, run_all, write_notebook

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]


@pytest.mark.slow  # tests/notebooks runs it in the fast tier
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
    assert any(label.startswith("flight-delays: ") for label in panels), panels
    tables = page.evaluate("() => [...document.querySelectorAll('.ks-table')].map(t => t.innerText)")
    assert any("United Air Lines Inc." in text and "57979" in text for text in tables), tables
    page.locator("img.ks-image").last.scroll_into_view_if_needed()
    keep(page, "01_first_topology")
    live = page.locator(".jp-Notebook .jp-CodeCell .ks-panel").last.inner_text()
    assert "running" in live, "it ends with the live picture"
    outside = [url for url in asked if not url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "about:"))]
    assert outside == []


WIDGET = "application/vnd.jupyter.widget-view+json"
WORDS = [
    "%load_ext kstreams_repl\nimport kstreams_repl as ks\nsession = ks.connect(directory='temporary')",
    "session.produce('words', [(word, word, 1000 + i) for i, word in enumerate(['to', 'be', 'or', 'not', 'to', 'be'])])",
    "builder = ks.StreamsBuilder()\nbuilder.stream('words', key_serde='string', value_serde='string').group_by_key().count(store='counts')",
    "app = session.deploy(builder, 'panel-words')\napp.wait(200)",
    "app",
    "%topo_tail words -n 5",
]


@pytest.mark.slow
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
    panel.get_by_label("keys that begin with").fill("n")
    page.wait_for_function("() => document.querySelector('.ks-panel .paged').textContent === '1 row'")
    assert panel.locator(".detail td").first.inner_text() == "not"
    keep(page, "panel_filtered")
    panel.get_by_label("keys that begin with").fill("")
    page.wait_for_function("() => document.querySelector('.ks-panel .paged').textContent === '4 rows'")
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

    add_cell(page, "import time; time.sleep(90)")
    page.wait_for_function("() => document.querySelector('.jp-Notebook').innerText.includes('[*]')")

    # interrupting it ends the cell, and nothing else
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Interrupt Kernel$")).click()
    page.wait_for_function("() => document.querySelector('.jp-Notebook').innerText.includes('KeyboardInterrupt')")
    page.wait_for_function("() => document.querySelector('.ks-panel .status')?.innerText.includes('running')")
    panel.locator("button.pause").click()
    page.wait_for_function("() => document.querySelector('.ks-panel .status')?.innerText.includes('paused')")
    panel.locator("button.resume").click()
    page.wait_for_function("() => document.querySelector('.ks-panel').dataset.status === 'running'")

    # a restart: the panel, the picture in its tab and the side panel say so, and nothing can be pressed
    page.locator('li[data-id="kstreams-side-panel"]').click()
    page.locator('[data-key="panel-words/picture"]').click()
    page.locator(".ks-picture-tab .ks-panel[data-status=running]").wait_for()
    page.locator('[data-key="panel-words/picture"]').click()
    assert page.locator(".ks-picture-tab").count() == 1, "the tab that is open is shown"
    page.get_by_role("tab", name="panel.ipynb").click()
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Restart Kernel…$")).click()
    began = time.monotonic()
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    page.wait_for_function(GREY, arg=2, polling=50)
    took = time.monotonic() - began
    print(f"grey {took:.2f} s after the restart was asked for")
    for one in page.locator(".ks-panel").all():
        assert one.get_attribute("data-kernel") == "restarted"
        said = one.locator(".lost").text_content()
        assert "The kernel was restarted" in said and 'session.attach("panel-words")' in said
    page.wait_for_function("() => document.querySelector('.ks-side').innerText.includes('not loaded')")
    keep(page, "kernel_restarted")


GREY = """count => {
    const panels = [...document.querySelectorAll('.ks-panel')];
    const live = panels.flatMap(panel => [...panel.querySelectorAll('.bar:not(.tools) button')]).filter(button => !button.disabled);
    return panels.length === count && panels.every(panel => panel.dataset.status === 'no kernel') && live.length === 0;
}"""


@pytest.mark.slow  # test_moving_about.py has the fast one: a kernel that is silent
def test_a_picture_without_its_kernel_says_so(lab: tuple[str, Path], page: Any) -> None:
    """Killed from outside: JupyterLab itself notices seconds later. Then its server starts another one, and the picture stays grey."""
    address, folder = lab
    builds = "import kstreams_repl as ks\n%load_ext kstreams_repl\nfrom types import SimpleNamespace"
    application = "SimpleNamespace(name='shop', _core=SimpleNamespace(client=SimpleNamespace(closed=True), detached=False))"
    shows = f"import os\nfrom kernel_ext.live.panel import Panel\nPanel({application})"  # what it shows does not matter here
    write_notebook(folder / "killed.ipynb", [builds, shows])
    run_all(page, address.format("killed.ipynb"), seconds=120)
    page.locator(".ks-panel").wait_for()
    page.wait_for_timeout(3000)
    assert page.locator(".ks-panel").get_attribute("data-kernel") is None
    add_cell(page, f"open({str(folder / 'pid')!r}, 'w').write(str(os.getpid()))")
    page.wait_for_function(IDLE)
    pid = int((folder / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    page.wait_for_function(GREY, arg=1, polling=50)
    print(f"grey {time.monotonic() - killed:.2f} s after the kernel was killed")
    assert 'session.attach("shop")' in page.locator(".lost").text_content()
    page.wait_for_timeout(6000)
    assert page.evaluate(GREY, 1)


STATUS = "() => document.querySelector('.ks-panel').dataset.status === '{}'"
RUNS = "() => document.querySelector('.jp-Notebook').innerText.includes('[*]')"


def begin_a_cell_that_runs(page: Any, folder: Path) -> None:
    """One that ends when the file `end` is there."""
    page.locator(".jp-Notebook .jp-CodeCell").last.click()
    end = str(folder / "end")
    add_cell(page, f"import os, time\nwhile not os.path.exists({end!r}):\n    time.sleep(0.05)")
    page.wait_for_function(RUNS)


def panel_and_side_while_a_cell_runs(lab: tuple[str, Path], page: Any) -> tuple[Any, Any]:
    """An application's panel and the side panel, both there before a cell begins to run for long."""
    address, folder = lab
    write_notebook(folder / "busy.ipynb", WORDS[:-1])
    run_all(page, address.format("busy.ipynb"), seconds=240)
    page.locator('li[data-id="kstreams-side-panel"]').click()
    side = page.locator(".ks-side")
    side.locator('[data-key="panel-words/pause"]').wait_for()
    begin_a_cell_that_runs(page, folder)
    panel = page.locator(".jp-Notebook .ks-panel")
    return panel, side


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.kafka
def test_buttons_act_while_a_cell_runs(lab: tuple[str, Path], page: Any) -> None:
    """JupyterLab sends what widgets say to a subshell of the kernel: the cell is not waited for."""
    _, folder = lab
    panel, side = panel_and_side_while_a_cell_runs(lab, page)
    for action, status in (("pause", "paused"), ("resume", "running"), ("stop", "stopped")):
        panel.locator(f"button.{action}").click()
        page.wait_for_function(STATUS.format(status))
    side.locator('[data-key="panel-words/resume"]').click()
    page.wait_for_function(STATUS.format("running"))
    page.wait_for_function("() => document.querySelector('.ks-side .ks-message').textContent.includes('resume is done')")
    side.locator('[data-key="panel-words/pause"]').click()
    page.wait_for_function("() => document.querySelector('.ks-side').innerText.includes('‖ paused')")
    panel.locator('[data-node="store:counts"]').click()
    page.wait_for_function("() => document.querySelector('.ks-panel .behind')?.innerText.includes('not')")
    keep(page, "buttons_while_a_cell_runs")
    assert page.evaluate(RUNS), "the cell was running all the time"
    (folder / "end").touch()
    page.wait_for_function(f"() => !({RUNS})()")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.parametrize("lab", ["disabled"], indirect=True)
def test_without_subshells_a_button_says_that_it_waits_for_the_running_cell(lab: tuple[str, Path], page: Any) -> None:
    _, folder = lab
    panel, side = panel_and_side_while_a_cell_runs(lab, page)
    panel.locator("button.pause").click()
    page.wait_for_function("() => document.querySelector('.ks-panel button.pause').textContent.includes('waits for the running cell')")
    side.locator('[data-key="panel-words/pause"]').click()
    page.wait_for_function("() => document.querySelector('.ks-side .ks-message').textContent.includes('waits for the running cell')")
    keep(page, "buttons_wait_for_a_cell")
    assert page.evaluate(STATUS.format("running"))
    (folder / "end").touch()
    page.wait_for_function(STATUS.format("paused"))
    assert panel.locator("button.pause").inner_text() == "pause"


WRITTEN = "text => { document.querySelector('.jp-OutputArea-output').textContent = text; }"
REPLACED = """async text => {  // read in the page: JupyterLab may write its error once more
    const output = document.querySelector('.jp-OutputArea-output');
    output.textContent = text;
    while (document.querySelector('.jp-OutputArea img')) await new Promise(requestAnimationFrame);
    return output.innerText;
}"""


@pytest.mark.parametrize("trusted", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_notebook_that_is_opened_again_shows_the_picture_that_was_saved(lab: tuple[str, Path], page: Any, trusted: bool) -> None:
    """The widget is gone with its kernel; the picture below it in the ladder is not. Untrusted, JupyterLab takes that by itself."""
    address, folder = lab
    topology = picture_of(ks.Topology().add_source("words", "words-in").add_sink("out", "words-out", "words"), title="saved")
    data = {**mimebundle(topology, "saved"), WIDGET: {"version_major": 2, "version_minor": 0, "model_id": "0" * 32}}
    import nbformat
    from nbformat.sign import NotebookNotary

    cell = nbformat.v4.new_code_cell("app", execution_count=1)
    cell.outputs = [nbformat.v4.new_output("execute_result", data, execution_count=1)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata=kernel)
    nbformat.write(notebook, folder / "saved.ipynb")
    if trusted:
        NotebookNotary(data_dir=str(folder.parent / "home" / "data")).sign(notebook)
    open_notebook(page, address.format("saved.ipynb"))
    image = page.locator(".jp-OutputArea img")
    image.wait_for()
    page.wait_for_function("() => document.querySelector('.jp-OutputArea img')?.naturalWidth > 50")  # it is decoded after it is there
    assert image.get_attribute("alt") == "saved: 2 nodes, 0 stores, 2 topics, 1 sub-topology"
    said = page.locator(".jp-OutputArea")
    assert ("run the cell for the live panel" in said.inner_text()) == trusted
    if trusted:  # JupyterLab writes there once more when its widgets are restored, whenever that is
        page.evaluate(WRITTEN, "Error displaying widget: model not found")
        assert image.is_visible() and "run the cell" in said.inner_text() and "Error" not in said.inner_text()
        assert page.evaluate(REPLACED, "the widget after all").strip() == "the widget after all"
        assert image.count() == 0
