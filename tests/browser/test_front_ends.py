"""Notebook 7 and marimo, each in an environment of its own that sees the project's: the first notebook runs, its panel lives."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest

from kstreams_repl.host.kafka.embedded.broker import free_port
from tests.browser.conftest import CHROMIUM, ROOT, Lab, await_answer, end, jupyter_server
from tests.browser.driving import add_cell, check_numbers_and_buttons, keep, run_to_the_end, until, write_notebook
from tests.environments import installed

pytestmark = [
    pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]  # fmt: skip


FIRST = "01_first_topology.ipynb"
MORE = 'session.produce("flights", list(data.flights(files))[:5000], key_serde="bytes", value_serde="bytes")'


def with_project(folder: Path, *packages: str) -> Path:
    """Install packages into an environment that finds everything else in the project's."""
    python = installed(folder, *packages)
    (packages_folder,) = folder.glob("lib/python*/site-packages")
    (packages_folder / "project.pth").write_text("\n".join([str(ROOT), *site.getsitepackages()]))
    return python


@pytest.fixture(scope="module")
def running_notebook_7(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = f"jupyterlab=={version('jupyterlab')}"  # Notebook takes the settings' schemas from JupyterLab's folder in its own environment
    python = with_project(tmp_path_factory.mktemp("environment") / "venv", "--no-deps", "notebook==7.6.5", lab)
    share = Path(sys.prefix) / "share" / "jupyter"
    with jupyter_server(tmp_path_factory.mktemp("notebook"), [python, "-m", "notebook"], share) as server:
        yield server


@pytest.fixture
def notebook_7(running_notebook_7: Lab) -> Iterator[Lab]:
    running_notebook_7.set({})
    yield running_notebook_7
    running_notebook_7.end_kernels()


NO_LAUNCHER = """window._JUPYTERLAB = new Proxy({}, { set(all, name, extension) {
    const hide = { getOwnPropertyDescriptor(scope, module) {
        if (module !== '@jupyterlab/launcher') return Reflect.getOwnPropertyDescriptor(scope, module);
        window.askedForTheLauncher = true;
    } };
    all[name] = name === 'kstreams-repl' ? { get: extension.get, init: scope => extension.init(new Proxy(scope, hide)) } : extension;
    return true;
} })"""


def test_an_application_without_a_launcher_has_the_tutorial_in_its_palette(notebook_7: Lab, page: Any) -> None:
    """Notebook 7 has the launcher's module; others may lack it: it is hidden from our extension."""
    unhandled = unhandled_errors(page)
    page.add_init_script(NO_LAUNCHER)
    page.goto(f"{notebook_7.url}/tree?token={notebook_7.token}")
    page.wait_for_function("() => window.askedForTheLauncher", timeout=120_000)
    page.locator(".jp-FileBrowser").first.wait_for(timeout=300_000)
    page.keyboard.press("Control+Shift+c")
    page.locator(".lm-CommandPalette-input").fill("Kafka Streams tutorial")
    page.locator(".lm-CommandPalette-item", has_text="Kafka Streams tutorial").wait_for()
    assert not unhandled


@pytest.mark.spark
@pytest.mark.kafka
def test_notebook_7_runs_the_first_notebook_whose_panel_lives(notebook_7: Lab, page: Any) -> None:
    shutil.copy(ROOT / "notebooks" / FIRST, notebook_7.base / FIRST)
    page.goto(f"{notebook_7.url}/notebooks/{FIRST}?token={notebook_7.token}")
    connected = [{"connections": 1, "execution_state": "idle"}]
    until(page, "a kernel", lambda: [{name: one[name] for name in connected[0]} for one in notebook_7.ask("kernels")] == connected, 120)
    page.wait_for_timeout(1000)  # as in `open_notebook`
    run_to_the_end(page, seconds=300)
    assert page.locator("img.ks-image").first.evaluate("image => image.complete && image.naturalWidth > 100")
    panel = page.locator(".jp-Notebook .ks-panel").last

    def produce() -> None:
        page.locator(".jp-Notebook .jp-CodeCell").last.click()
        add_cell(page, MORE)

    check_numbers_and_buttons(page, panel, produce)
    panel.scroll_into_view_if_needed()
    keep(page, "notebook_7")


MARIMO_PANEL = """\
if "flight-delays" in session.applications:
    session.applications["flight-delays"].edit(builder)
else:
    {deploy}
app = session.applications["flight-delays"]
Panel(app)
"""


def first_notebook_for_marimo() -> list[str]:
    """Return the cells of the first notebook as docs/tasks/notebook.md says: the builder in one, and a deploy that edits what runs."""
    import nbformat

    sources = [cell.source for cell in nbformat.read(ROOT / "notebooks" / FIRST, 4).cells if cell.cell_type == "code"]
    sources = [source for source in sources if not source.startswith(("%", "#", "app.pause"))]
    begin, values, deploy = (next(i for i, one in enumerate(sources) if part in one) for part in ("StreamsB", "session.values", "deploy("))
    build = "\n".join(source for source in sources[begin:deploy] if source != sources[values])
    panel = MARIMO_PANEL.format(deploy=sources[deploy].splitlines()[0].removeprefix("app = "))
    before = ["from kernel_ext.live.panel import Panel", *sources[:begin]]
    return [*before, build, sources[values], panel, *sources[deploy + 1 :], 'f"version {app.versions[-1].number}"', MORE]


@pytest.fixture
def marimo(tmp_path: Path) -> Iterator[str]:
    """marimo's editor on the first notebook, which runs when it is opened: its address."""
    python = with_project(tmp_path / "venv", "marimo==0.25.2")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("[tool.marimo.runtime]\nauto_instantiate = true\n")
    write_notebook(folder / FIRST, first_notebook_for_marimo())
    subprocess.run([python, "-m", "marimo", "convert", FIRST, "-o", "first.py"], cwd=folder, check=True, capture_output=True)
    port = free_port()
    command = [python, "-m", "marimo", "edit", "first.py", "--headless", "--no-token", "--skip-update-check", f"--port={port}"]
    homes = {name: str(tmp_path / "home") for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME")}
    environment = {**os.environ, **homes, "PYTHONPATH": str(ROOT)}
    with (tmp_path / "marimo.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        await_answer(lambda: f"http://127.0.0.1:{port}/health", server, tmp_path / "marimo.log")
        yield f"http://127.0.0.1:{port}/"
    finally:
        children = psutil.Process(server.pid).children(recursive=True)
        end(server)
        _, stay = psutil.wait_procs(children, timeout=30)
        assert not stay, f"left behind by marimo's kernel: {stay}"


@pytest.mark.spark
@pytest.mark.kafka
def test_marimo_runs_the_first_notebook_whose_panel_lives_and_a_changed_cell_edits_the_application(marimo: str, page: Any) -> None:
    page.goto(marimo)
    panel = page.locator(".ks-panel")
    until(page, "a panel", lambda: panel.count() == 1, 180)
    assert page.locator("img.ks-image").first.evaluate("image => image.complete && image.naturalWidth > 100")

    def produce() -> None:
        page.locator(".cm-content").last.click()
        page.keyboard.press("Control+Enter")

    check_numbers_and_buttons(page, panel, produce)
    panel.scroll_into_view_if_needed()
    keep(page, "marimo")
    assert page.get_by_text("version 1").count() == 1

    sources = first_notebook_for_marimo()
    (changed,) = [number for number, source in enumerate(sources) if 'name="late"' in source]
    editors = page.locator(".cm-content")
    editors.nth(editors.count() - len(sources) + changed).click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(sources[changed].replace('name="late"', 'name="very-late"'))
    page.keyboard.press("Control+Enter")
    until(page, "version 2", lambda: page.get_by_text("version 2").count() == 1, 120)
    until(page, "the new node", lambda: panel.locator('[data-node="node:very-late"]').count() == 1)
    check_numbers_and_buttons(page, panel, produce)
    keep(page, "marimo_edited")


def unhandled_errors(page: Any) -> list[str]:
    """Return a list that gets the stacks of unhandled errors and rejected promises of our extension; Notebook has some of its own."""
    found: list[str] = []
    page.on("pageerror", lambda error: "kstreams-repl" in f"{error.message} {error.stack}" and found.append(error.stack))
    return found
