"""``%topo_query`` over state as instances leave it: each kind of store, its times, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.completer import CompletionContext
from IPython.core.error import UsageError

import kstreams_repl as ks
from kernel_ext.magics.completion import NameMatcher
from kernel_ext.magics.query_magic import QueryMagics
from kstreams_repl.system.errors import KStreamsError
from tests.queried import State

WINDOW = {"window_size_ms": 10, "retention_ms": 1000}
STORES = (
    ks.StoreBuilder("plain", ks.StoreKind.KEY_VALUE),
    ks.StoreBuilder("counts", ks.StoreKind.TIMESTAMPED_KEY_VALUE),
    ks.StoreBuilder("by-number", ks.StoreKind.KEY_VALUE, key_serde="long"),
    ks.StoreBuilder("windows", ks.StoreKind.WINDOW, **WINDOW),
    ks.StoreBuilder("stamped-windows", ks.StoreKind.TIMESTAMPED_WINDOW, **WINDOW),
    ks.StoreBuilder("sessions", ks.StoreKind.SESSION, retention_ms=1000),
    ks.StoreBuilder("versions", ks.StoreKind.VERSIONED, retention_ms=1000),
)


def fill(stores: Any) -> None:
    stores["plain"].put("a", 1)
    stores["counts"].put("a", (2, 20))
    stores["by-number"].put(7, 3)
    for start in (0, 10, 20):
        stores["windows"].put("a", start + 1, start)
        stores["stamped-windows"].put("a", (start + 2, start + 5), start)
        stores["versions"].put("a", start + 3, start)
    stores["sessions"].put(ks.Windowed("a", 5, 9), 4)


@pytest.fixture
def magics(tmp_path: Path) -> Iterator[QueryMagics]:
    state = State(tmp_path, *STORES)
    state.write(0, fill, offset=4)
    app = SimpleNamespace(
        name="shop", config=state.config, topology=state.topology, stores=dict.fromkeys(state.builders), query=state.queries.query
    )
    session = SimpleNamespace(applications={"shop": app}, started=False)
    yield QueryMagics(None, SimpleNamespace(current=session, names=list))  # type: ignore[arg-type]
    state.local.close()


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("plain a", [(0, None, None, 1, None)]),
        ("shop.plain a", [(0, None, None, 1, None)]),
        ("plain absent", []),
        ("counts a", [(0, None, None, 2, 20)]),
        ("by-number 7", [(0, None, None, 3, None)]),
        ("windows a", [(0, 0, None, 1, None), (0, 10, None, 11, None), (0, 20, None, 21, None)]),
        ("windows a --from 10 --to 10", [(0, 10, None, 11, None)]),
        ("stamped-windows a --from 20", [(0, 20, None, 22, 25)]),
        ("sessions a", [(0, 5, 9, 4, None)]),
        ("versions a", [(0, 20, None, 23, None)]),
        ("versions a --as-of 12", [(0, 10, 20, 13, None)]),
        ("versions a --from 0 --to 12", [(0, 10, 20, 13, None), (0, 0, 10, 3, None)]),
    ],
)
def test_each_kind_of_store_answers(magics: QueryMagics, line: str, rows: list[Any]) -> None:
    found = magics.topo_query(line)
    shown = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    assert [tuple(map(row.get, ("partition", "from", "to", "value", "timestamp"))) for row in shown] == rows
    assert all(any(row[name] is not None for row in shown) for name in {"from", "to", "timestamp"} & set(found.columns)), "empty columns"
    assert '{"in":{"0":3}}' in found.note


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("nowhere a", UsageError, "no store 'nowhere'; there are shop.plain"),
        ("plain a --from 1", UsageError, "--from and --to expect a window or versioned store; plain is a key-value store"),
        ("windows a --as-of 1", UsageError, "--as-of expects a versioned store"),
        ("sessions a --to 1", UsageError, "--from and --to expect a window or versioned store"),
        ("by-number a", KStreamsError, "long"),
    ],
)
def test_what_a_store_does_not_have_is_refused(magics: QueryMagics, line: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        magics.topo_query(line)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("%topo_query ", {"plain", "counts", "by-number", "windows", "sessions", "versions", "--from", "--to", "--as-of"}),
        ("%topo_query st", {"stamped-windows"}),
        ("%topo_query versions a --a", {"--as-of"}),
    ],
)
def test_stores_and_options_are_completed(magics: QueryMagics, line: str, offered: set[str]) -> None:
    token = line.rpartition(" ")[2]
    context = CompletionContext(token=token, full_text=line, cursor_position=len(line), cursor_line=0, limit=None)
    found = {one.text for one in NameMatcher(magics._workspace).match(context)["completions"]}
    assert offered <= found and (not token or found == offered)
