"""The wheel in a browser tab, without a server: Python, the wheel and what it needs run in the page (Pyodide).

npm and pip fetch Pyodide and the wheels by name and hash (`tab/package-lock.json`, `tab/requirements.txt`).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import mimetypes
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.browser.conftest import CHROMIUM, ROOT
from tests.browser.driving import DONE, keep
from workshop.commands.try_it import NOT_IN_A_TAB, PYODIDE
from workshop.conformance.runner import read_cases, run_case

TAB = Path(__file__).parent / "tab"
STAND_INS = {"orjson": "3.11.9", "mmh3": "5.2.0"}
"""With versions that the wheel accepts."""
CONFORMANCE = ROOT / "tests" / "conformance"
COLD_START_S = 15

pytestmark = [
    pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(1800),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="no npm is installed, which fetches Pyodide"),
]  # fmt: skip

FIRST_RESULT = """
import kstreams_repl as ks
builder = ks.StreamsBuilder()
orders = builder.stream("orders", key_serde="string", value_serde="json")
orders.filter(lambda key, value: value["amount"] > 10, name="large").group_by_key().count(store="counts").to_stream().to("large-orders")
with ks.testing.TopologyTestDriver(builder, {"default.key.serde": "string", "default.value.serde": "json"}) as driver:
    records = [("ann", {"amount": 20}, 0), ("bob", {"amount": 5}, 1), ("ann", {"amount": 30}, 2)]
    driver.create_input_topic("orders", "string", "json").pipe_records(records)
    counted = driver.create_output_topic("large-orders", "string", "long").read_key_values()
import js
js.show(repr(counted), builder.build()._repr_mimebundle_()["text/html"])
"""
CALLS = """
import asyncio, json
import kstreams_repl as ks
async def slept(value):
    await asyncio.sleep(value / 1000)
    return value
builder = ks.StreamsBuilder()
builder.stream("in", key_serde="string", value_serde="json").map_values_async(slept).to("out", key_serde="string", value_serde="json")
with ks.testing.TopologyTestDriver(builder, start_ms=0) as driver:
    driver.create_input_topic("in", "string", "json").pipe_records([("a", 20, 0), ("b", 10, 0)])
    driver.advance_wall_clock_time(30)
    answered = driver.create_output_topic("out", "string", "json").read_key_values()
await asyncio.sleep(0)
json.dumps(answered)
"""
RECIPES = """
import doctest, json, re
from pathlib import Path
from kstreams_repl.repl.doc_search import docs_folder
failed = []
for page in sorted((docs_folder() / "recipes").glob("*.md")):
    text = re.sub(r"^```.*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    if doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(test).failed:
        failed.append(page.stem)
json.dumps(failed)
"""
CASES = """
import json, sys
from pathlib import Path
sys.path.insert(0, "/checkout")
from workshop.conformance.runner import run_case
cases = iter(json.loads(Path("/checkout/cases.json").read_text()))
def some(number):
    return json.dumps([(outcome.case_id, outcome.difference) for _, case in zip(range(number), cases) for outcome in [run_case(case)]])
"""


def all_cases() -> list[dict[str, Any]]:
    """The designed and the random cases of `tests/conformance/test_conformance.py`."""
    cases = [case for path in sorted((CONFORMANCE / "cases").glob("*.jsonl")) for case in read_cases(path)]
    for path in sorted((CONFORMANCE / "random").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            cases += map(json.loads, lines)
    return cases


def call(*command: str | Path, where: Path) -> None:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a page with Pyodide, the wheel of this checkout, and what it needs."""
    base = tmp_path_factory.mktemp("tab")
    site = base / "site"
    shutil.copytree(TAB, site)
    call("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", where=site)
    call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", site, where=ROOT)
    call(sys.executable, "-m", "venv", base / "venv", where=base)  # for its pip: uv does not know the platform
    download: list[str | Path] = [base / "venv/bin/python", "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    download += ["--platform", "pyemscripten_2026_0_wasm32", "--python-version", "3.14"]
    call(*download, "-r", TAB / "requirements.txt", "-d", site, where=base)
    call(*download, "-r", TAB / "kernel-requirements.txt", "-d", site / "kernel", where=base)
    for name, version in STAND_INS.items():
        with zipfile.ZipFile(site / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.write(TAB / f"{name}.py", f"{name}.py")
            wheel.writestr(f"{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    (site / "wheels.json").write_text(json.dumps(sorted(path.name for path in site.glob("*.whl"))))
    with zipfile.ZipFile(site / "checkout.zip", "w", zipfile.ZIP_DEFLATED) as checkout:
        for path in [ROOT / "workshop" / "__init__.py", *(ROOT / "workshop" / "conformance").glob("*.py")]:
            checkout.write(path, path.relative_to(ROOT))
        checkout.writestr("cases.json", json.dumps(all_cases()))
    return site


@pytest.fixture
def new_tab(site: Path, chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens a tab that has never been here: nothing is cached."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever).start()
    contexts = []

    def opened(page: str = "index.html", distribution: Callable[[Any], None] | None = None) -> Any:
        # a request that a service worker repeats passes by what `route` plays
        workers = "allow" if distribution is None else "block"
        contexts.append(chromium.new_context(viewport={"width": 1000, "height": 700}, service_workers=workers))
        tab = contexts[-1].new_page()
        if distribution is None:
            tab.on("request", lambda request: asked.append(request.url))
        else:
            tab.route(f"{PYODIDE}**", distribution)
        tab.goto(f"http://127.0.0.1:{server.server_port}/{page}")
        if page == "index.html":
            tab.wait_for_function("document.title == 'ready'", timeout=120_000)
        return tab

    asked: list[str] = []
    yield opened
    for context in contexts:
        context.close()
    server.shutdown()
    server.server_close()
    assert [url for url in asked if not url.startswith((f"http://127.0.0.1:{server.server_port}/", "data:", "blob:"))] == []


def run(tab: Any, code: str) -> Any:
    return tab.evaluate("code => window.run(code)", code)


def test_pyodides_own_distribution_has_what_the_wheel_needs(site: Path) -> None:
    """So that `micropip.install` of the wheel finds orjson and mmh3, too."""
    import tomllib

    packages = json.loads((site / "node_modules/pyodide/pyodide-lock.json").read_text())["packages"]
    versions = {canonicalize_name(package["name"]): package["version"] for package in packages.values()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [Requirement(line) for line in project["dependencies"]]
    assert [str(need) for need in needed if not need.specifier.contains(Version(versions[canonicalize_name(need.name)]))] == []


@pytest.fixture(scope="module")
def distribution(site: Path) -> Callable[[Any], None]:
    """Plays the host of Pyodide's distribution: it has the files of npm and pip, and its list names them with their hashes."""
    core = site / "node_modules/pyodide"
    wheels = {canonicalize_name(path.name.partition("-")[0]): path for path in (*site.glob("*.whl"), *(site / "kernel").iterdir())}
    listed = json.loads((core / "pyodide-lock.json").read_text())
    for name, path in wheels.items():
        if name in listed["packages"]:
            listed["packages"][name] |= {"file_name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    files = {path.name: path.read_bytes() for path in (*wheels.values(), *core.iterdir()) if not path.name.startswith("kstreams")}
    files["pyodide-lock.json"] = json.dumps(listed).encode()

    def answer(route: Any) -> None:
        name = route.request.url.removeprefix(PYODIDE)
        kind = {"content-type": mimetypes.guess_type(name)[0] or "application/octet-stream", "access-control-allow-origin": "*"}
        route.fulfill(status=200 if name in files else 404, body=files.get(name, b""), headers=kind)

    return answer


def test_the_example_of_the_documentation_installs_the_wheel_with_what_it_needs(
    site: Path, new_tab: Callable[..., Any], distribution: Callable[[Any], None]
) -> None:
    (example,) = re.findall(r"^```html\n(.*?)^```", (ROOT / "docs/start/browser.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert PYODIDE in example
    (site / "example.html").write_text(example)
    tab = new_tab("example.html", distribution)
    tab.locator("#shown svg, #shown img").first.wait_for(timeout=120_000)
    assert tab.locator("#said").inner_text() == "Topology(4 nodes, 1 store, 1 sub-topology)"


def test_the_link_on_a_recipes_page_opens_its_notebook_which_runs(
    site: Path, new_tab: Callable[..., Any], distribution: Callable[[Any], None]
) -> None:
    """Only the site and Pyodide's distribution are asked."""
    environment = os.environ | {"KSTREAMS_TRY_IT": "true", "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--site-dir", str(site / "docs")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    names = {page.stem for page in (ROOT / "docs/recipes").glob("*.md")} - {"README"}
    assert {path.stem for path in (site / "docs/lite/files").iterdir()} == names - NOT_IN_A_TAB.keys()

    tab = new_tab("docs/recipes/deduplicate.html", distribution)
    asked: list[str] = []
    tab.context.on("request", lambda request: asked.append(request.url))
    begin = time.monotonic()
    tab.get_by_role("link", name="Try it in your browser").click()
    tab.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').wait_for(timeout=120_000)
    ready = time.monotonic()
    tab.get_by_role("menuitem", name="Run", exact=True).click()
    tab.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    try:
        tab.wait_for_function(DONE, timeout=120_000)
    finally:
        keep(tab, "try-it")
    print(f"kernel ready after {ready - begin:.1f} s, cells done after {time.monotonic() - ready:.1f} s more")
    notebook = tab.locator(".jp-Notebook")
    shown = notebook.inner_text()
    assert notebook.locator('.jp-RenderedHTMLCommon img[src^="data:image/svg+xml;base64,"]').count() == 1, shown
    assert notebook.locator(".jp-OutputArea table").count() == 1, shown
    cells = json.loads((site / "docs/lite/files/deduplicate.ipynb").read_text("utf-8"))["cells"]
    count = sum(cell["cell_type"] == "code" for cell in cells)
    assert f"[{count}]:" in shown and "Traceback" not in shown, shown  # a notebook runs up to its first error
    here = tab.url.partition("/docs/")[0]
    assert [url for url in asked if not url.startswith((here, PYODIDE, "data:", "blob:"))] == []


def test_a_new_tab_shows_a_topology_and_its_first_result_soon(new_tab: Callable[..., Any]) -> None:
    """The best of three: what else the machine does counts, too."""
    took: list[float] = []
    while len(took) < 3 and not any(seconds <= COLD_START_S for seconds in took):
        begin = time.monotonic()
        run(tab := new_tab(), FIRST_RESULT)
        took.append(time.monotonic() - begin)
    print("cold start (s):", *(f"{seconds:.1f}" for seconds in took))
    assert tab.locator("#said").inner_text() == "[('ann', 1), ('ann', 2)]"
    assert tab.locator("#shown svg, #shown img").count() >= 1
    keep(tab, "tab")
    assert took[-1] <= COLD_START_S


def test_calls_and_recipes_run_in_a_tab(new_tab: Callable[..., Any]) -> None:
    """But for one that starts a server of its own, and one with a library that Pyodide does not have (fastavro)."""
    tab = new_tab()
    assert json.loads(run(tab, CALLS)) == [["b", 10], ["a", 20]]
    assert json.loads(run(tab, RECIPES)) == sorted(NOT_IN_A_TAB)


def test_as_many_conformance_cases_pass_in_a_tab_as_here(new_tab: Callable[..., Any]) -> None:
    here = [(outcome.case_id, outcome.difference) for outcome in map(run_case, all_cases())]
    run(tab := new_tab(), CASES)
    there: list[tuple[str, str | None]] = []
    while some := json.loads(run(tab, "some(50)")):  # one call that takes minutes looks like a page that hangs
        there += [(case_id, difference) for case_id, difference in some]
    passed_here, passed_there = ({case_id for case_id, difference in cases if difference is None} for cases in (here, there))
    print(f"passed: {len(passed_there)} of {len(there)} in the tab, {len(passed_here)} of {len(here)} here")
    assert [case for case in there if case[0] in passed_here - passed_there][:3] == []
    assert (len(there), len(passed_there)) == (len(here), len(passed_here))
