"""A real browser opens JupyterLab and runs a notebook; every host but this one is out of reach."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ARTEFACTS = ROOT / "test-artefacts"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """JupyterLab on a free loopback port over a folder of its own: (address with token, folder)."""
    folder = tmp_path / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder, ignore=shutil.ignore_patterns(".kstreams", "flights-data", ".ipynb_checkpoints"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    home = tmp_path / "home"
    # every cell in the page, also those that are out of sight
    settings = home / "settings" / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"windowingMode": "none"}')
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--ServerApp.root_dir={folder}", "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url=None",
    ]  # fmt: skip
    with (tmp_path / "lab.log").open("wb") as log:
        server = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _await(f"http://127.0.0.1:{port}/api?token={token}", server, tmp_path / "lab.log")
        yield f"http://127.0.0.1:{port}/lab/tree/{{}}?reset&token={token}", folder
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _await(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)


@pytest.fixture
def page() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost , EXCLUDE 127.0.0.1",
            ],
        )
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(60_000)
        yield page
        browser.close()


DONE = """() => {
    const prompts = [...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputPrompt')].map(p => p.textContent);
    const failed = document.querySelector('.jp-Notebook [data-mime-type$="jupyter.error"], .jp-Notebook .jp-RenderedError');
    return failed !== null || (prompts.length > 0 && /\\[\\d+\\]/.test(prompts.at(-1)));
}"""


def run_all(page: Any, address: str, seconds: float) -> None:
    """Open a notebook, run all its cells, and wait until the last one is done or one has failed."""
    page.goto(address)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=120_000)
    # the status bar says it last: what is run while the kernel is being connected is dropped
    page.get_by_text("| Idle").wait_for(timeout=120_000)
    page.wait_for_timeout(1000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    try:
        page.wait_for_function(DONE, timeout=seconds * 1000)
    except Exception:
        pytest.fail("the notebook did not come to its end:\n" + page.locator(".jp-Notebook").inner_text()[-6000:], pytrace=False)
    finally:
        ARTEFACTS.mkdir(exist_ok=True)
        page.screenshot(path=str(ARTEFACTS / "last.png"))


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
    page.screenshot(path=str(ARTEFACTS / "01_first_topology.png"))
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
]


@pytest.mark.spark
@pytest.mark.kafka
def test_the_panel_shows_rows_pauses_and_resumes(lab: tuple[str, Path], page: Any) -> None:
    """A click on a store shows its rows; the buttons pause and resume; numbers move when records come."""
    import nbformat

    address, folder = lab
    cells = [nbformat.v4.new_code_cell(source) for source in WORDS]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / "panel.ipynb")
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
    page.screenshot(path=str(ARTEFACTS / "panel.png"))
