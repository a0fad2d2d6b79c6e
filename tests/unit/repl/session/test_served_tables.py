"""The tables of the query server's ``/sql``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

import kstreams_repl as ks
from kstreams_repl.repl.inspection import Limits
from kstreams_repl.repl.session.query_server import StoreTables, TabledApplication
from kstreams_repl.repl.session.views.counts.record_counts import Counts, NodeRate
from kstreams_repl.repl.session.views.stores.store_reader import StateRows
from kstreams_repl.repl.session.views.tables import sql_catalog

LATE = {"expired window": 5}


def test_a_window_store_is_read_by_the_server_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain 500: the server's application had no counts, which the note on late records asks for."""
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde="string").group_by_key()
    stream.windowed_by(ks.TimeWindows.of_size(10)).count(store="by-day")
    config = ks.StreamsConfig({"application.id": "app"})
    rows = {"by-day": StateRows((), "as of now")}
    monkeypatch.setattr(sql_catalog, "read_stores", lambda *given, **more: rows)
    client = SimpleNamespace(admin=None)
    topology, drawn = builder.build(), SimpleNamespace(counts=Counts({"KSTREAM-AGGREGATE-0000000001": NodeRate(9, 4, 0.0, LATE)}))
    application: Any = TabledApplication("app", config, topology, cast(Any, drawn))
    table = StoreTables(client, application, {"by-day": topology.store("by-day")}).table("", "by-day", Limits())
    assert list(table.columns) and "5" in "".join(table.notes)
    nodeless: Any = SimpleNamespace(stores=topology.stores, global_stores=lambda: None)
    application.topology = nodeless
    assert StoreTables(client, application, {"by-day": topology.store("by-day")}).table("", "by-day", Limits()).notes == ()
