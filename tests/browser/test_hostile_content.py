"""R23 in JupyterLab itself: hostile keys, values, headers, column names and exceptions, in every kind of output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import CHROMIUM
from tests.browser.driving import keep, run_all, write_notebook

pytestmark = [
    pytest.mark.browser,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

CORPUS = Path(__file__).resolve().parents[1] / "data" / "hostile.json"
CELLS = [
    "%load_ext kstreams_repl\nimport json\nimport kstreams_repl as ks\nsession = ks.connect(directory='temporary')",
    f"corpus = json.load(open({str(CORPUS)!r}))\n"
    "texts = [t.encode('utf-8', 'replace').decode() for kind, all in corpus.items() if kind != 'huge' for t in all if t]\n"
    "texts += [t * 3000 for t in corpus['huge'] if t]\n"
    "hostile = {'<img src=x onerror=window.pwned=1>': 1, '\\x1b[31m\\u202e': 2}\n"
    "rows = [(t, {'text': t, **hostile}, 1000 + n, [('h', t.encode()[:500])]) for n, t in enumerate(texts)]\n"
    "session.produce('hostile', rows, key_serde='string', value_serde='json')",
    "session.read('hostile', 200)",
    "session.sql('SELECT key, value, \"text\" AS \"<img src=x onerror=window.pwned=1>\" FROM hostile')",
    "result = session.sql('SELECT * FROM hostile')\nresult",
    "shown = []\nfor t in texts[:40]:\n"
    "    for call in (lambda: session.read(t[:200]), lambda: session.sql(t), lambda: ks.StreamsBuilder().stream(t),\n"
    "                 lambda: ks.StreamsBuilder().stream('x').filter(print, name=t).to('y')):\n"
    "        try:\n            call()\n        except ks.KStreamsError:\n            get_ipython().showtraceback()",
    "def fail(key, value):\n    if 'confirm' in value['text']:\n        raise ValueError(value['text'] + texts[0])\n"
    "    return True\n"
    "builder = ks.StreamsBuilder()\n"
    "stream = builder.stream('hostile', key_serde='string', value_serde='json', name='all')\n"
    "stream.group_by_key(key_serde='string', value_serde='json').count(store='counts', name='count')\n"
    "stream.filter(fail, name='checked').to('hostile-out', key_serde='string', value_serde='json')\n"
    "session.create_topic('hostile-out')\n"
    "session.values(builder)",
    "app = session.deploy(builder, 'hostile')\ntry:\n    app.wait(200)\nexcept ks.KStreamsError:\n    get_ipython().showtraceback()\napp",
]


def test_nothing_of_it_runs_in_the_notebook(lab: tuple[str, Path], page: Any) -> None:
    noticed: list[str] = []
    page.on("dialog", lambda dialog: (noticed.append(dialog.message), dialog.dismiss()))
    page.on("popup", lambda popup: noticed.append("popup"))
    address, folder = lab
    write_notebook(folder / "hostile.ipynb", CELLS)
    run_all(page, address.format("hostile.ipynb"), seconds=300)
    panel = page.locator(".ks-panel")
    panel.scroll_into_view_if_needed()
    for shape in ("topic:hostile", "store:counts", "node:checked", "node:all"):
        panel.locator(f'[data-node="{shape}"]').click()
        page.wait_for_timeout(3000)
    assert panel.locator(".behind td").count() > 10
    page.locator('li[data-id="kstreams-side-panel"]').click()
    page.wait_for_function("() => document.querySelector('.ks-side')?.innerText.includes('hostile')")
    page.wait_for_timeout(1000)
    keep(page, "hostile")
    page.evaluate(
        """() => {
            for (const node of document.querySelectorAll(".jp-OutputArea-output *, .ks-panel *, .ks-side td, .ks-side div")) {
                for (const type of ["mouseover", "mouseenter", "focus", "toggle", "load", "error"]) node.dispatchEvent(new Event(type));
            }
        }"""
    )
    assert page.evaluate("() => window.pwned") is None
    made = ".jp-OutputArea-output script, .jp-OutputArea-output iframe, .ks-panel iframe, .ks-panel script, .ks-side script, .ks-side img"
    assert page.locator(made).count() == 0
    assert noticed == []
    text = page.locator(".jp-Notebook").inner_text()
    assert "\x1b" not in text and "\u202e" not in text
