"""Stream-table joins: present row, row as of a time, with grace; and joins with a global table's row."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.operators.joins.stream_global_table_join import StreamGlobalTableJoin
from kstreams_repl.engine.operators.joins.stream_table_join import StreamTableJoin
from kstreams_repl.engine.operators.tables.table_source import TableSource
from kstreams_repl.engine.operators.tables.value_getters import StoreGetter, StoreKindRead
from kstreams_repl.engine.stores.cache import write_back_cache
from kstreams_repl.engine.topology.store_builder import StoreKind
from kstreams_repl.system.errors import KStreamsError
from tests.unit.engine.operators.harness import Bench
from tests.unit.engine.runtime.rig import Rig


def _pair(value: Any, row: Any) -> str:
    return f"{value}-{row}"


def join(*, left: bool = False, versioned: bool = False, grace: int | None = None, with_key: bool = False) -> Bench:
    """Stream S joined with table T."""
    bench = Bench()
    if versioned:
        bench.store("t", StoreKind.VERSIONED, retention_ms=1000)
    else:
        bench.store("t")
    bench.node("table", TableSource("t", versioned=versioned), bench.source("T"), stores=["t"])
    stores = ["t"]
    if grace is not None:
        stores.append(bench.store("buffer", StoreKind.JOIN_GRACE_BUFFER, retention_ms=grace, options={"grace_ms": grace}))
    joiner: Any = (lambda key, value, row: f"{key}:{value}-{row}") if with_key else _pair
    operator = StreamTableJoin(
        StoreGetter("t", StoreKindRead.VERSIONED if versioned else StoreKindRead.KEY_VALUE),
        joiner,
        left=left,
        with_key=with_key,
        grace_ms=grace,
        buffer_store=None if grace is None else "buffer",
        versioned=versioned,
    )
    return bench.probe(bench.node("join", operator, bench.source("S"), stores=stores))


def test_only_the_stream_drives_and_its_time_is_kept() -> None:
    bench = join()
    assert bench.pipe("S", "a", 1, 1) == []
    assert bench.pipe("T", "a", "t", 9) == []
    assert bench.pipe("S", "a", 2, 5) == [("a", "2-t", 5)]
    bench.pipe("T", "a", None, 10)
    assert bench.pipe("S", "a", 3, 11) == []
    assert bench.dropped() == 0


def test_a_left_join_gives_none_for_a_missing_row_and_for_a_null_key() -> None:
    bench = join(left=True)
    assert bench.pipe("S", "a", 1, 1) == [("a", "1-None", 1)]
    assert bench.pipe("S", None, 2, 2) == [(None, "2-None", 2)]
    assert bench.dropped() == 0


@pytest.mark.parametrize("versioned", [False, True])
def test_null_keys_and_values_are_dropped_by_an_inner_join(versioned: bool) -> None:
    bench = join(versioned=versioned)
    assert bench.pipe("S", None, 1, 1) == bench.pipe("S", "a", None, 1) == bench.pipe("S", None, None, 1) == []
    assert bench.dropped() == 3


@pytest.mark.parametrize("versioned", [False, True])
def test_null_values_are_dropped_by_a_left_join(versioned: bool) -> None:
    bench = join(left=True, versioned=versioned)
    assert bench.pipe("S", None, None, 1) == bench.pipe("S", "a", None, 1) == []
    assert bench.dropped() == 2


def test_the_joiner_gets_the_key_when_asked() -> None:
    bench = join(left=True, with_key=True)
    assert bench.pipe("S", "a", 1, 1) == [("a", "a:1-None", 1)]


def test_a_versioned_table_is_read_as_of_the_records_time() -> None:
    bench = join(left=True, versioned=True)
    bench.pipe("T", "a", "old", 10)
    bench.pipe("T", "a", "new", 20)
    assert bench.pipe("S", "a", 1, 9) == [("a", "1-None", 9)]
    assert bench.pipe("S", "a", 2, 15) == [("a", "2-old", 15)]
    assert bench.pipe("S", "a", 3, 20) == [("a", "3-new", 20)]


def test_with_grace_records_wait_and_leave_in_time_order() -> None:
    bench = join(versioned=True, grace=10)
    bench.pipe("T", "a", "t", 0)
    assert bench.pipe("S", "a", 1, 5) == []
    assert bench.pipe("S", "a", 2, 3) == []
    assert bench.pipe("S", "a", 3, 12) == []
    bench.pipe("T", "a", "u", 4)
    assert bench.pipe("S", "a", 4, 15) == [("a", "2-t", 3), ("a", "1-u", 5)]


def test_with_grace_a_record_that_is_too_late_joins_at_once() -> None:
    bench = join(left=True, versioned=True, grace=10)
    bench.pipe("S", "a", 1, 100)
    assert bench.pipe("S", "a", 2, 89) == [("a", "2-None", 89)]
    assert bench.pipe("S", "a", 3, 90) == [("a", "3-None", 90)]
    assert bench.pipe("S", "a", 4, 91) == []


def test_with_grace_a_left_join_refuses_a_null_key() -> None:
    bench = join(left=True, versioned=True, grace=10)
    with pytest.raises(KStreamsError, match="without a key"):
        bench.pipe("S", None, 1, 1)
    bench = join(left=True, versioned=True, grace=10)
    bench.pipe("S", "a", 1, 50)
    with pytest.raises(KStreamsError, match="without a key"):
        bench.pipe("S", None, 2, 1)  # a late one, too


def _global(*, left: bool, mapper: Any) -> Bench:
    bench = Bench()
    bench.store("t")
    bench.node("table", TableSource("t"), bench.source("T"), stores=["t"])
    operator = StreamGlobalTableJoin(StoreGetter("t"), mapper, _pair, left=left)
    return bench.probe(bench.node("join", operator, bench.source("S"), stores=["t"]))


def test_the_mapped_key_finds_the_row_and_the_streams_key_is_kept() -> None:
    bench = _global(left=False, mapper=lambda key, value: value)
    bench.pipe("T", "x", "row", 1)
    assert bench.pipe("S", "a", "x", 2) == [("a", "x-row", 2)]
    assert bench.pipe("S", None, "x", 3) == [(None, "x-row", 3)]
    assert bench.pipe("S", "a", "y", 4) == []
    assert bench.dropped() == 0


def test_a_null_mapped_key_is_dropped_by_an_inner_join_and_joins_with_none_in_a_left_one() -> None:
    inner, left = _global(left=False, mapper=lambda key, value: None), _global(left=True, mapper=lambda key, value: None)
    assert inner.pipe("S", "a", 1, 1) == inner.pipe("S", None, 1, 1) == []
    assert left.pipe("S", "a", 1, 1) == [("a", "1-None", 1)]
    assert left.pipe("S", None, 1, 1) == [(None, "1-None", 1)]
    assert (inner.dropped(), left.dropped()) == (2, 0)


records = st.lists(st.tuples(st.sampled_from([None, "a", "b", "ä", "dd"]), st.sampled_from([None, "x", [1], 2.5])), max_size=6)
batches = st.lists(st.tuples(st.sampled_from("ST"), records, st.sampled_from(["go on", "commit"])), max_size=8)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("capacity", [1, 100_000])
@given(batches=batches)
@settings(max_examples=40, deadline=None)
def test_a_cached_table_joins_as_one_without_a_cache_in_a_loop_too_whatever_the_cache_has_dropped(
    left: bool, capacity: int, batches: list[tuple[str, list[tuple[Any, Any]], str]]
) -> None:
    builder, found = StreamsBuilder(), []
    table = builder.table("T", store="t")
    stream = builder.stream("S")
    (stream.left_join if left else stream.join)(table, lambda value, row: [value, row]).to("out")
    topology = builder.build()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_back_cache.WriteBackCache.__init__, "__kwdefaults__", {"visible": None, "capacity": capacity})
        for cache_bytes, loop_threshold in ((0, 1_000_000), (10_000_000, 1_000_000), (10_000_000, 1)):
            rig = Rig(topology, {"statestore.cache.max.bytes": cache_bytes}, loop_threshold=loop_threshold)
            for time, (topic, rows, then) in enumerate(batches):
                rig.pipe(topic, *((key, value, time) for key, value in rows)).run()
                if then == "commit":
                    rig.commit()
            found.append((rig.outbox.to("out"), rig.task.dropped))
    assert found[0] == found[1] == found[2]
