"""Notebook 7, in an environment of its own that sees the project's: our extension loads where there is no launcher."""

from __future__ import annotations

import site
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import CHROMIUM, ROOT, Lab, jupyter_server
from tests.environments import installed

pytestmark = [
    pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]  # fmt: skip


def with_project(folder: Path, *packages: str) -> Path:
    """Install packages into an environment that finds everything else in the project's."""
    python = installed(folder, *packages)
    (packages_folder,) = folder.glob("lib/python*/site-packages")
    (packages_folder / "project.pth").write_text("\n".join([str(ROOT), *site.getsitepackages()]))
    return python


@pytest.fixture(scope="module")
def notebook_7(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = f"jupyterlab=={version('jupyterlab')}"  # Notebook takes the settings' schemas from JupyterLab's folder in its own environment
    python = with_project(tmp_path_factory.mktemp("environment") / "venv", "--no-deps", "notebook==7.6.5", lab)
    share = Path(sys.prefix) / "share" / "jupyter"
    with jupyter_server(tmp_path_factory.mktemp("notebook"), [python, "-m", "notebook"], share) as server:
        yield server
        server.end_kernels()


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


def unhandled_errors(page: Any) -> list[str]:
    """Return a list that gets the stacks of unhandled errors and rejected promises of our extension; Notebook has some of its own."""
    found: list[str] = []
    page.on("pageerror", lambda error: "kstreams-repl" in f"{error.message} {error.stack}" and found.append(error.stack))
    return found
