"""The pages of a store's rows that the panel shows, over state as instances leave it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kstreams_repl as ks
from kstreams_repl.repl.session.views.stores.local_queries import queries_of
from kstreams_repl.repl.session.views.stores.store_pages import StorePages
from tests.queried import State

COUNTS = ks.StoreBuilder("counts", ks.StoreKind.TIMESTAMPED_KEY_VALUE)
NUMBERED = ks.StoreBuilder("numbered", ks.StoreKind.KEY_VALUE, key_serde="long")
WINDOWS = ks.StoreBuilder("windows", ks.StoreKind.TIMESTAMPED_WINDOW, window_size_ms=10, retention_ms=1000)
VERSIONED = ks.StoreBuilder("versioned", ks.StoreKind.VERSIONED, retention_ms=1000)


def fill(first: int, last: int) -> Any:
    def put(stores: Any) -> None:
        for number in range(first, last):
            stores["counts"].put(f"k{number:02d}", (number, number))
            stores["numbered"].put(number, number)
            stores["windows"].put(f"k{number:02d}", (number, number), 10 * number)
            stores["versioned"].put(f"k{number:02d}", number, number)

    return put


def shown(pages: StorePages) -> tuple[list[Any], str]:
    table, controls = pages.read()
    return [row[0] for row in table.rows], controls["text"]


def test_rows_of_all_partitions_are_turned_and_filtered(tmp_path: Path) -> None:
    state = State(tmp_path, COUNTS, NUMBERED, WINDOWS, VERSIONED)
    state.write(0, fill(0, 25))
    state.write(1, fill(25, 45))
    app: Any = SimpleNamespace(name="queried", config=state.config, topology=state.topology)
    pages = StorePages(app, state.builders["counts"], 20)
    keys = [f"k{number:02d}" for number in range(45)]
    assert shown(pages) == (keys[:20], "20 rows")
    pages.turn("previous")
    assert shown(pages) == (keys[:20], "20 rows")
    pages.turn("next")
    assert shown(pages) == (keys[20:40], "page 2, 20 rows")
    pages.turn("next")
    assert shown(pages) == (keys[40:], "page 3, 5 rows")
    pages.turn("next")
    assert shown(pages)[1] == "page 3, 5 rows"
    pages.turn("previous")
    assert shown(pages) == (keys[20:40], "page 2, 20 rows")
    pages.filter("k1")
    assert shown(pages) == (keys[10:20], "10 rows") and pages.read()[1]["label"] == "keys that begin with"
    pages.filter("<script>")
    assert shown(pages) == ([], "0 rows")
    for store in ("windows", "versioned"):
        timed = StorePages(app, state.builders[store], 20)
        assert shown(timed)[1] == "20 rows" and timed.read()[1]["label"] == "key"
        timed.filter("k07")
        assert shown(timed) == (["k07"], "1 row")
    assert timed.read()[0].rows[0][2] == "1970-01-01 00:00:00.007", "as the drawer of a topic shows times"
    numbered = StorePages(app, state.builders["numbered"], 20)
    numbered.filter("7")
    assert shown(numbered) == ([7], "1 row")
    numbered.filter("seven")
    assert shown(numbered) == ([], "'seven' is not a key of type long")
    queries_of(app).close()
    state.local.close()
