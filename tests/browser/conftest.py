"""A JupyterLab of the tests' own, and a browser that reaches no host but this one."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from kstreams_repl.host.kafka.embedded.broker import free_port

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def extensions(home: Path) -> Path:
    """A data folder of Jupyter's with the side panel as the wheel puts it there."""
    place = home / "share" / "labextensions" / "kstreams-repl"
    place.parent.mkdir(parents=True)
    shutil.copytree(ROOT / "kernel_ext" / "labextension", place)
    return home / "share"


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab: its address, the token it asks for, the folder it shows, and the folder of its settings."""

    url: str
    token: str
    base: Path
    server: subprocess.Popen[bytes]

    def ask(self, path: str, method: str = "GET") -> Any:
        """What its REST API answers."""
        asked = urllib.request.Request(f"{self.url}/api/{path}?token={self.token}", method=method)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.loads(answer.read() or "null")

    def set(self, values: Mapping[str, object]) -> None:
        """Replace its settings by these, and by those with which every cell is in the page, also those that are out of sight."""
        settings = self.base / "home" / "settings"
        shutil.rmtree(settings, ignore_errors=True)  # a test before may have chosen a theme
        given = {
            "notebook-extension/tracker": {"windowingMode": "none", "scrollPastEnd": False},
            "apputils-extension/notification": {"fetchNews": "false"},
            **values,
        }
        for name, value in given.items():
            file = settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(value))

    def end_kernels(self) -> None:
        """End what the kernels are, and fail for a process that stays: the leak check takes the server's children for its own."""
        deadline = time.monotonic() + 30
        while kernels := self.ask("kernels"):
            for kernel in kernels:
                try:
                    self.ask(f"kernels/{kernel['id']}", "DELETE")
                except urllib.error.HTTPError:  # one that is being restarted cannot be ended yet
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.5)
        _, stay = psutil.wait_procs(psutil.Process(self.server.pid).children(recursive=True), timeout=30)
        if stay:
            pytest.fail(f"left behind by the notebook's kernel: {stay}", pytrace=False)


@contextmanager
def jupyter_server(base: Path, command: list[str | Path], share: Path | None = None) -> Iterator[Lab]:
    """Run JupyterLab or Notebook on a free loopback port.

    Args:
        command: the Python that has it, and the arguments that start it.
        share: a further data folder of Jupyter's.
    """
    token = secrets.token_hex(16)
    home = base / "home"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_PATH": os.pathsep.join(map(str, filter(None, [extensions(home), share]))),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    arguments = [
        "--no-browser", "--allow-root", f"--ServerApp.root_dir={base}", "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={free_port()}", f"--IdentityProvider.token={token}",
    ]  # fmt: skip
    with (base / "lab.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, *arguments], env=environment, cwd=base, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )

    def address() -> str:  # it takes the next port where another process has taken the one it was given
        return str(json.loads((home / "runtime" / f"jpserver-{server.pid}.json").read_text())["url"]) + f"api?token={token}"

    try:
        yield Lab(await_answer(address, server, base / "lab.log").partition("/api?")[0], token, base, server)
    finally:
        end(server)


def end(server: subprocess.Popen[bytes]) -> None:
    """End a server, gently first."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def running_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab, for the tests of one file."""
    news = ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url=None"]
    with jupyter_server(tmp_path_factory.mktemp("lab"), [sys.executable, "-m", "jupyterlab", *news]) as lab:
        yield lab


@pytest.fixture
def lab(running_lab: Lab, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """JupyterLab over a folder of the test's own, with settings and kernels of its own: (address with token, folder). A parameter is
    what becomes of comms while a cell runs: JupyterLab's setting ``commsOverSubshells``.
    """
    over_subshells = {"apputils-extension/kernels-settings": {"commsOverSubshells": request.param}} if hasattr(request, "param") else {}
    running_lab.set(over_subshells)
    folder = running_lab.base / tmp_path.name
    shutil.copytree(ROOT / "notebooks", folder, ignore=shutil.ignore_patterns(".kstreams", "flights-data", ".ipynb_checkpoints"))
    yield f"{running_lab.url}/lab/tree/{folder.name}/{{}}?reset&token={running_lab.token}", folder
    running_lab.end_kernels()


def await_answer(address: Callable[[], str], server: subprocess.Popen[bytes], log: Path) -> str:
    """Return the address of a server, once it is known and answers."""
    deadline = time.monotonic() + 180
    while True:
        try:
            found = address()
            with urllib.request.urlopen(found, timeout=2):
                return found
        except (OSError, ValueError):  # not known, half written, or not answering yet
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the server did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser for the tests of one file."""
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
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page in a profile of its own."""
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(60_000)
    yield page
    context.close()
