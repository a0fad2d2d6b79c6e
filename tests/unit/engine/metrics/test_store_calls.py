"""Calls of stores as they are counted at DEBUG: what the user calls, once, for as long as it takes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, TimeWindows, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.stores.factory import open_store
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.instance.tasks.task_instrumentation import TaskMeter
from kstreams_repl.system.types import RecordBatch, TaskId, TopicPartition, Windowed
from tests.unit.engine.runtime.rig import Outbox


def metered(kind: StoreKind, **options: Any) -> tuple[Any, Callable[[], dict[str, int]]]:
    """A store, and a look at how often it was called."""
    builder = StoreBuilder("s", kind, key_serde=serdes.string, value_serde=serdes.string, persistent=False, **options)
    store = open_store(builder, MemoryEnvironment(), record_context=SimpleNamespace(timestamp=0, headers=[]))
    meter = TaskMeter("DEBUG")
    meter.store(builder, store)
    return store, lambda: {call: counter.count for (_, call), counter in meter.calls.items() if counter.count}


@pytest.mark.parametrize(
    ("call", "counted"),
    [
        (lambda store: store.put("a", "1"), {"put": 1}),
        (lambda store: store.put_if_absent("a", "1"), {"put-if-absent": 1}),
        (lambda store: store.put_all([("a", "1"), ("b", "2")]), {"put-all": 1}),
        (lambda store: store.delete("a"), {"delete": 1}),
        (lambda store: store.get("a"), {"get": 1}),
    ],
)
def test_what_a_key_value_store_does_within_a_call_is_no_call(call: Any, counted: dict[str, int]) -> None:
    store, calls = metered(StoreKind.KEY_VALUE)
    call(store)
    assert calls() == counted


def test_what_window_and_session_stores_do_within_a_call_is_no_call() -> None:
    store, calls = metered(StoreKind.WINDOW, retention_ms=1000, window_size_ms=10)
    store.put("a", "1", 0)
    store.fetch("a", 0)
    assert calls() == {"put": 1, "fetch": 1}
    store, calls = metered(StoreKind.SESSION, retention_ms=1000)
    store.put(Windowed("a", 0, 5), "1")
    store.remove(Windowed("a", 0, 5))
    assert calls() == {"put": 1, "remove": 1}


def test_an_iterator_takes_until_it_is_used_up_or_let_go_of() -> None:
    store, calls = metered(StoreKind.KEY_VALUE)
    store.put("a", "1")
    rows = store.all()
    assert "all" not in calls()
    assert list(rows) == [("a", "1")] and calls()["all"] == 1
    store.all()
    assert calls()["all"] == 2
    for _ in store.range("a", "b"):
        break
    assert calls()["range"] == 1


@pytest.mark.parametrize("windows", [None, TimeWindows.of_size(1000)], ids=["rows", "windows"])
def test_calls_that_end_in_a_record_cache_are_counted(windows: TimeWindows | None) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    (grouped if windows is None else grouped.windowed_by(windows)).count(store="counts")
    (part,) = builder.build().subtopologies()
    at, meter = TopicPartition("in", 0), TaskMeter("DEBUG")
    config = StreamsConfig({"application.id": "app", "metrics.recording.level": "DEBUG"})
    spec = TaskSpec("app", part, TaskId(0, 0), {at: part.nodes[0].name}, config)
    task = StreamTask(spec, environment=MemoryEnvironment(), collector=Outbox(), wall_clock=lambda: 0, meter=meter)
    task.initialize()
    task.set_lag(at, 0)
    task.add_records(at, RecordBatch([b"a"] * 100, [b"1"] * 100, [1] * 100, list(range(100))))
    assert task.process(1000) == 100
    read = "get" if windows is None else "fetch"
    assert [meter.calls["counts", call].count for call in (read, "put")] == [100, 100]
    task.close()
