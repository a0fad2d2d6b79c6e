"""What is offered in a query: columns of its tables and their aliases, tables where a table stands."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_ext.magics.completion import NameMatcher

COLUMNS = {"orders": ["key", "amount"], '"my-topic"': ["key", "carrier"], "counts": ["key", "value"]}


@pytest.fixture
def matcher(monkeypatch: pytest.MonkeyPatch) -> Any:
    found: Any = NameMatcher(None)  # type: ignore[arg-type]
    monkeypatch.setattr(found, "_topics", lambda: ["orders", "my-topic"])
    monkeypatch.setattr(found, "_stores", lambda: ["counts"])
    monkeypatch.setattr(found, "_columns", lambda table: COLUMNS.get(table, []))
    return found


@pytest.mark.parametrize(
    ("before", "after", "offered"),
    [
        ("SELECT * FROM orders WHERE ", "", ["key", "amount", "counts", "orders", '"my-topic"']),
        ("SELECT * FROM orders AS o WHERE am", "", ["key", "amount", "counts", "orders", '"my-topic"']),
        ("SELECT orders.", " FROM orders", ["orders.key", "orders.amount"]),
        ("SELECT orders.", "", ["orders.key", "orders.amount"]),
        ("SELECT o.", ' FROM "my-topic" o', ["o.key", "o.carrier"]),
        ("SELECT * FROM orders JOIN counts AS c ON c.", "", ["c.key", "c.value"]),
        ('SELECT "my-topic".', ' FROM "my-topic"', ['"my-topic".key', '"my-topic".carrier']),
        ("SELECT nothing.", " FROM orders", []),
        ("SELECT * FROM ", "", ["counts", "orders", '"my-topic"']),
        ("SELECT * FROM orders JOIN ord", "", ["counts", "orders", '"my-topic"']),
        ("SELECT ", " FROM orders WHERE amount > 1", ["key", "amount", "counts", "orders", '"my-topic"']),
    ],
)
def test_a_query_offers_what_fits(before: str, after: str, offered: list[str], matcher: Any) -> None:
    """After WHERE it offered topics only, after `orders.` and for an alias nothing."""
    assert matcher._sql_names(before + after, before) == offered
