"""The search of the built docs: on a page from the disk and from a server, in a browser that reaches no other host.

The theme listens to keys only; what is pasted with the mouse, or set by a script as here, has no keys (docs/assets/search-input.js).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import CHROMIUM
from tests.unit.repl.test_doc_search import QUESTIONS

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--site-dir", str(built)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return built


@pytest.fixture(params=["disk", "server"])
def front_page(site: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "disk":
        yield (site / "index.html").as_uri()
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()
    thread.join()
    server.server_close()


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_question_put_into_the_box_finds_its_page_within_the_first_three(front_page: str, page: Any) -> None:
    missed = {}
    for question, wanted in QUESTIONS.items():
        page.goto(front_page)
        box = page.locator("input.md-search__input")
        box.click()
        box.fill(question)
        links = page.locator(".md-search-result__item > a:first-child")
        links.nth(2).wait_for()
        found = [links.nth(place).get_attribute("href").partition(".html")[0] for place in range(3)]
        if not any(link.endswith(f"/{wanted}") for link in found):
            missed[question] = found
    assert missed == {}
