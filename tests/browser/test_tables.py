"""Tables and charts in the rendered cell: nothing here needs a broker or Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import CHROMIUM
from tests.browser.driving import choose_theme, keep, run_all, write_notebook

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

COLUMNS = [
    "key", "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay", "carrier",
    "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour", "partition", "offset", "timestamp",
]  # fmt: skip
ROW = "('EWR', 2013, 1, 1, 517, 515, 2, 830, 819, 11, 'UA', 1545, 'N14228', 'EWR', 'IAH', 227, 1400, 5, 15, " + (
    "TIMESTAMP '2013-01-01 05:00:00', "
)
CELLS = [
    "from types import SimpleNamespace\nfrom kstreams_repl.repl.inspection import run_sql\n"
    "ask = lambda query: run_sql(query, SimpleNamespace(expect=lambda tables: None))",
    f"ask('''SELECT * FROM (VALUES {ROW} 0, 0, TIMESTAMP '2013-01-01 10:00:00'), {ROW} 3, 84193, TIMESTAMP '2013-01-01 10:00:00'))"
    f" AS flights({', '.join(chr(34) + name + chr(34) for name in COLUMNS)})''')",
    "ask('''SELECT 'carrier ' || range AS name, range * range AS departures, {'from': 'EWR', 'miles': [1, 2]} AS leg FROM range(12)''')",
    "ask('SELECT * FROM range(2000)').show(20)",
    "ask('SELECT 1 AS n')",
]
CELL = "cell => [cell.innerText, getComputedStyle(cell).textAlign, cell.clientHeight]"


@pytest.mark.slow
def test_wide_tables_scroll_words_stay_whole_and_charts_open_with_one_click(lab: tuple[str, Path], page: Any) -> None:
    address, folder = lab
    write_notebook(folder / "tables.ipynb", CELLS)
    page.set_viewport_size({"width": 1100, "height": 900})
    run_all(page, address.format("tables.ipynb"), seconds=120)
    tables = page.locator(".jp-OutputArea-output .ks-scroll")
    wide = tables.nth(0)
    wide.scroll_into_view_if_needed()
    keep(page, "wide-table-light")
    scrolls, inside = wide.evaluate("p => [p.scrollWidth > p.clientWidth + 100, p.clientWidth <= p.parentElement.clientWidth]")
    assert scrolls and inside, "wider than the notebook: it scrolls sideways in its own place"
    cells = [cell.evaluate(CELL) for cell in [*wide.locator("th").all(), *wide.locator("td").all()]]
    assert [text for text, *_ in cells[: len(COLUMNS)]] == COLUMNS
    assert len({height for *_, height in cells}) == 1, f"a word is broken into lines: {cells}"
    aligned = {text: side for text, side, _ in cells}
    assert aligned["2013"] == aligned["year"] == "right" and aligned["UA"] == aligned["carrier"] == "left"
    assert aligned["84193"] == "right" and aligned["2013-01-01 05:00:00"] == "left"

    output = page.locator(".jp-OutputArea-output").filter(has_text="departures")
    assert '{"from": "EWR", "miles": [1, 2]}' in output.inner_text()
    for number, kind in enumerate(("bar", "line", "histogram")):
        image = output.locator("img.ks-chart").nth(number)
        assert not image.is_visible()
        output.locator("summary", has_text=kind).click()
        image.wait_for(state="visible")
        assert image.evaluate("image => image.complete && image.naturalWidth > 300")
        assert image.get_attribute("alt").startswith(f"{kind} of departures")
        image.scroll_into_view_if_needed()
        keep(page, f"chart-{kind}")
    texts = page.locator(".jp-OutputArea-output").all_inner_texts()
    assert any("20 of 2,000 rows" in text for text in texts)
    assert any(text.rstrip().endswith("1 row") for text in texts)

    choose_theme(page, "JupyterLab Dark")
    output.locator("img.ks-chart").nth(1).scroll_into_view_if_needed()
    keep(page, "chart-dark")
