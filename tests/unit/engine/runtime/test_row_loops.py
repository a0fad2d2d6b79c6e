"""Rows that a cache flushes run through one loop down to their sink, and arrive as they would one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstreams_repl import SessionWindows, StreamsBuilder, TimeWindows, serdes
from kstreams_repl.engine.partitioning import partitioner
from kstreams_repl.engine.runtime.compiler import compile as compile_module
from kstreams_repl.engine.serdes import time_windowed
from kstreams_repl.engine.stores.cache.entry_flush import EntryFlush
from kstreams_repl.engine.stores.cache.write_back_cache import WriteBackCache
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import StreamsProcessingError
from tests.unit.engine.runtime.loop_topologies import STRING, count_read_by_others, hopping_summaries, summaries
from tests.unit.engine.runtime.test_loop_codegen import Seen, outcome, put_into, rows, sent_by


def sessions() -> Topology:
    """Sessions that grow, so that most flushes have tombstones."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", key_serde=STRING, value_serde=STRING).group_by_key(key_serde=STRING, value_serde=STRING)
    counts = grouped.windowed_by(SessionWindows.of_inactivity_gap(30, grace=50)).count(store="sessions")
    shown = counts.to_stream().map(lambda window, found: (f"{window}", found))
    shown.to("out", key_serde=STRING, value_serde=serdes.long)
    return builder.build()


@pytest.mark.parametrize("make", [hopping_summaries, summaries, count_read_by_others, sessions])
def test_rows_that_leave_a_cache_in_a_loop_are_those_that_leave_one_by_one(
    make: Callable[[], Topology], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [(key, value, max(timestamp, 1), headers) for key, value, timestamp, headers in rows()]

    def run() -> Any:
        client, task = sent_by(make, given[:400])
        task.prepare_commit()
        put_into(task, given[400:])
        while task.process(500):
            pass
        task.prepare_commit()
        return client.sent, task.dropped, task.services.counts.read()

    ran: list[int] = []
    monkeypatch.setattr(EntryFlush, "_forward", noting(ran, EntryFlush._forward))
    together = run()
    with_loops = len(ran)
    monkeypatch.setattr(compile_module, "fuse_rows", lambda *arguments: None)
    assert run() == together
    assert with_loops == 0 < len(ran)


@pytest.mark.parametrize("capacity", [100_000, 2])
@pytest.mark.parametrize("make", [hopping_summaries, summaries, sessions])
def test_a_cache_changes_neither_rows_nor_drops_nor_last_results(
    make: Callable[[], Topology], capacity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(cache: int) -> Any:
        sent, dropped, _, stores = outcome(make, rows(seed=40), {"statestore.cache.max.bytes": cache}, piece=70, threshold=1)
        last = {key: value for topic, key, value, *_ in sent if topic == "out"}
        return {key: value for key, value in last.items() if value not in (None, b"null")}, dropped, stores

    monkeypatch.setitem(WriteBackCache.__init__.__kwdefaults__, "capacity", capacity)
    assert seen(1_000_000) == seen(0)


def noting(ran: list[int], method: Any) -> Any:
    def call(self: Any, leaving: Any, *others: Any) -> None:
        ran.append(len(leaving))
        method(self, leaving, *others)

    return call


def windows_shown() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key_serde=STRING, value_serde=STRING).group_by_key(key_serde=STRING, value_serde=STRING)
    counts = grouped.windowed_by(TimeWindows.of_size(50, grace=30)).count(store="windows")
    counts.to_stream().filter(lambda window, found: found != 2).to(
        "out", key_serde=time_windowed(STRING, 50), value_serde=serdes.long
    )
    return builder.build()


def test_windowed_keys_in_a_loop_go_to_the_partitions_of_their_plain_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    monkeypatch.setattr(EntryFlush, "_forward", noting(ran, EntryFlush._forward))
    client, task = sent_by(windows_shown, [(b"k%d" % at, b"v", at, None) for at in range(1, 40)])
    task.prepare_commit()
    out = [(key[:-8], place) for (topic, key, *_), place in zip(client.sent, client.places, strict=True) if topic == "out"]
    assert out == [(b"k%d" % at, partitioner(3)(b"k%d" % at)) for at in range(1, 40)]
    assert len(set(place for _, place in out)) == 3 and not ran


def test_an_error_in_a_loop_of_rows_tells_the_record_that_wrote_the_row_last() -> None:
    _, task = sent_by(summaries, [(b"k" if at < 999 else b"other", b"v", at + 1, None) for at in range(1_200)])
    with pytest.raises(StreamsProcessingError, match="ninety-nine") as raised:
        task.prepare_commit()
    assert (raised.value.fields["node"], raised.value.fields["offset"]) == ("shown", 998)


def test_a_tapped_node_sees_rows_one_by_one_and_the_loop_is_used_again() -> None:
    client, task = sent_by(summaries, [(b"k", b"v", 1, None)])
    points, seen = task.services.points.of("shown"), Seen()
    for wanted in (0, 1, 1):
        for point in points:
            (point.attach if wanted and not seen.values else point.detach)(seen)
        put_into(task, [(b"k", b"w", 2, None)])
        task.process(10)
        task.prepare_commit()
    assert [value["count"] for value in seen.values] == [3]
    assert [value for topic, _, value, _, _ in client.sent if topic == "out"] == [
        b'{"count":%d,"last":"w"}' % at for at in (2, 3, 4)
    ]
