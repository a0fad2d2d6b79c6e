"""Windowed joins of two streams: inner, left, outer, self."""

from __future__ import annotations

import json
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl import JoinWindows, StreamsBuilder, serdes
from kstreams_repl.engine.operators.joins.stream_join_window import StreamJoinWindow
from kstreams_repl.engine.operators.joins.stream_stream_join import StreamStreamJoin, StreamStreamSelfJoin
from kstreams_repl.engine.topology.store_builder import StoreKind
from tests.unit.engine.operators.harness import Bench
from tests.unit.engine.operators.test_rules_of_operators import Driver


def _pair(left: Any, right: Any) -> str:
    return f"{left}-{right}"


def join(how: str, *, before: int = 10, after: int = 10, grace: int = 0, with_key: bool = False) -> Bench:
    """Topics L and R joined; `before` and `after` as seen from the left."""
    bench = Bench()
    retention = before + after + grace
    for name in ("l", "r"):
        bench.store(name, StoreKind.WINDOW, retention_ms=retention, window_size_ms=before + after, retain_duplicates=True)
    stores = {"left": ["r"], "right": ["l"]}
    outer_store = None
    if how != "inner":
        outer_store = bench.store("parked", StoreKind.OUTER_JOIN)
        stores = {side: [*names, "parked"] for side, names in stores.items()}
    joiner: Any = (lambda key, left, right: f"{key}:{left}-{right}") if with_key else _pair
    shared: dict[str, Any] = dict(
        grace_ms=grace,
        close_before_ms=before,
        close_after_ms=after,
        joiner=joiner,
        outer_store=outer_store,
        time_tracker="join",
        with_key=with_key,
    )
    bench.node("left-window", StreamJoinWindow("l"), bench.source("L"), stores=["l"])
    bench.node("right-window", StreamJoinWindow("r"), bench.source("R"), stores=["r"])
    left = StreamStreamJoin(True, "r", before, after, outer=how != "inner", **shared)
    right = StreamStreamJoin(False, "l", after, before, outer=how == "outer", **shared)
    bench.node("left", left, "left-window", stores=stores["left"])
    bench.node("right", right, "right-window", stores=stores["right"])
    bench.probe("left")
    return bench.probe_named("probe-right", "right", bench.seen)


def test_inner_results_have_the_larger_time_and_left_before_right() -> None:
    bench = join("inner")
    assert bench.pipe("L", "a", "l", 5) == []
    assert bench.pipe("R", "a", "r", 3) == [("a", "l-r", 5)]
    assert bench.pipe("R", "a", "s", 9) == [("a", "l-s", 9)]
    assert bench.pipe("L", "a", "m", 4) == [("a", "m-r", 4), ("a", "m-s", 9)]


def test_the_edges_of_the_window_join_and_one_past_them_does_not() -> None:
    bench = join("inner", before=2, after=7, grace=50)
    bench.pipe("L", "a", "l", 20)
    assert [len(bench.pipe("R", "a", "r", at)) for at in (17, 18, 27, 28)] == [0, 1, 1, 0]


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_a_window_that_ends_before_zero_ends_at_zero(how: str) -> None:
    bench = join(how, before=10, after=-5, grace=50)
    bench.pipe("R", "a", "r", 0)
    assert bench.pipe("L", "a", "l", 3) == [("a", "l-r", 3)]


def test_several_records_of_one_time_all_join() -> None:
    bench = join("inner")
    bench.pipe("L", "a", 1, 5)
    bench.pipe("L", "a", 2, 5)
    assert bench.pipe("R", "a", 3, 5) == [("a", "1-3", 5), ("a", "2-3", 5)]


def test_null_keys_and_values_are_dropped_by_an_inner_join() -> None:
    bench = join("inner")
    assert bench.pipe("L", None, 1, 1) == bench.pipe("L", "a", None, 1) == []
    assert bench.dropped() == 2


def test_a_null_key_is_emitted_alone_at_once_by_an_outer_side_only() -> None:
    bench = join("left")
    assert bench.pipe("L", None, 1, 1) == [(None, "1-None", 1)]
    assert bench.pipe("R", None, 2, 1) == []
    assert bench.pipe("L", None, None, 1) == []
    assert bench.dropped() == 2


def test_the_joiner_gets_the_key_when_asked() -> None:
    bench = join("outer", with_key=True)
    bench.pipe("L", "a", 1, 1)
    assert bench.pipe("R", "a", 2, 1) == [("a", "a:1-2", 1)]
    bench.pipe("R", "b", 3, 1)
    assert bench.pipe("L", "c", 4, 100) == [("b", "b:None-3", 1)]


def test_an_unmatched_left_record_is_emitted_when_its_window_has_closed() -> None:
    bench = join("left", before=10, after=10, grace=5)
    assert bench.pipe("L", "a", 1, 0) == []
    assert bench.pipe("R", "b", 2, 15) == []
    assert bench.pipe("R", "b", 3, 16) == [("a", "1-None", 0)]
    assert bench.pipe("R", "b", 4, 17) == []


def test_a_match_takes_a_parked_record_away() -> None:
    bench = join("left")
    bench.pipe("L", "a", 1, 0)
    assert bench.pipe("R", "a", 2, 5) == [("a", "1-2", 5)]
    assert bench.pipe("L", "z", 3, 1000) == []


def test_parked_records_leave_by_time_then_right_before_left_then_key() -> None:
    bench = join("outer")
    parked = (("L", "b", 1, 1), ("L", "a", 2, 1), ("R", "d", 3, 1), ("R", "c", 4, 1), ("R", "e", 5, 0), ("L", "a", 6, 1))
    for topic, key, value, timestamp in parked:
        assert bench.pipe(topic, key, value, timestamp) == []
    assert bench.pipe("L", "z", 9, 100) == [
        ("e", "None-5", 0),
        ("c", "None-4", 1),
        ("d", "None-3", 1),
        ("a", "2-None", 1),
        ("a", "6-None", 1),
        ("b", "1-None", 1),
    ]
    assert [row[2] for row in bench.driver.state_store("parked").all()] == ["z"]


def test_each_side_closes_by_its_own_end_of_the_window() -> None:
    bench = join("outer", before=2, after=20)
    bench.pipe("L", "l", 1, 0)
    bench.pipe("R", "r", 2, 0)
    assert bench.pipe("R", "x", 3, 3) == [("r", "None-2", 0)]
    assert bench.pipe("R", "y", 4, 20) == [("x", "None-3", 3)]
    # Due from 21 on; the last look ended at time 3, so Kafka Streams (and we) look again only when 3 + 20 is behind.
    assert bench.pipe("L", "z", 5, 21) == []
    assert bench.pipe("L", "z", 6, 24) == [("l", "1-None", 0), ("y", "None-4", 20)]


def test_parked_results_leave_only_on_a_record_that_sets_stream_time() -> None:
    bench = join("left")
    bench.pipe("L", "a", 1, 0)
    bench.pipe("R", None, None, 100)
    assert bench.pipe("R", "b", 1, 99) == []
    assert bench.pipe("R", "b", 1, 100) == [("a", "1-None", 0)]


def test_a_record_whose_window_is_behind_stream_time_is_emitted_alone_at_once() -> None:
    bench = join("left")
    bench.pipe("R", "b", 1, 100)
    assert bench.pipe("L", "a", 1, 89) == [("a", "1-None", 89)]
    assert bench.pipe("L", "a", 2, 90) == []


def test_the_wall_clock_throttle_holds_parked_results_back() -> None:
    bench = join("left")
    assert bench.driver._task is not None
    bench.driver._task.services.shared["join"].interval_ms = 1000
    bench.pipe("L", "a", 1, 0)
    assert bench.pipe("L", "b", 2, 100) == [("a", "1-None", 0)]
    assert bench.pipe("L", "c", 3, 200) == []
    bench.driver.advance_wall_clock_time(1000)
    assert bench.pipe("L", "c", 4, 300) == [("b", "2-None", 100), ("c", "3-None", 200)]


def _self_join(optimised: bool, before: int, after: int) -> Bench:
    bench = Bench()
    for name in ("l", "r") if not optimised else ("l",):
        bench.store(name, StoreKind.WINDOW, retention_ms=before + after + 5, window_size_ms=1, retain_duplicates=True)
    source = bench.source("in", value=serdes.json)
    bench.node("left-window", StreamJoinWindow("l"), source, stores=["l"])
    if optimised:
        return bench.probe(bench.node("join", StreamStreamSelfJoin("l", before, after, 5, _pair), "left-window", stores=["l"]))
    bench.node("right-window", StreamJoinWindow("r"), source, stores=["r"])
    shared: dict[str, Any] = dict(
        grace_ms=5, close_before_ms=before, close_after_ms=after, joiner=_pair, outer=False, outer_store=None, time_tracker="join"
    )
    bench.node("left", StreamStreamJoin(True, "r", before, after, **shared), "left-window", stores=["r"])
    bench.node("right", StreamStreamJoin(False, "l", after, before, **shared), "right-window", stores=["l"])
    bench.probe("left")
    return bench.probe_named("probe-right", "right", bench.seen)


def test_the_self_join_over_one_store_gives_what_two_sides_give_in_the_same_order() -> None:
    for before, after in ((10, 10), (0, 8), (8, 0), (3, 6)):
        one, two = _self_join(True, before, after), _self_join(False, before, after)
        for number, timestamp in enumerate((20, 22, 22, 17, 25, 30, 19, 31, 24, 40, 38)):
            assert one.pipe("in", "a", number, timestamp) == two.pipe("in", "a", number, timestamp), (before, after, timestamp)


def of_kafka_streams(timestamp: int, left: bool, key: str, *values: str) -> Any:
    """A row of `KSTREAM-OUTERSHARED…-changelog` in the JVM's bytes: TimestampedKeyAndJoinSide, and a list of LeftOrRightValue."""
    side = b"\x01" if left else b"\x00"
    items = [side + f'"{value}"'.encode() for value in values]
    value = b"\x01" + struct.pack(">i", len(items)) + b"".join(struct.pack(">i", len(item)) + item for item in items)
    return SimpleNamespace(key=struct.pack(">q", timestamp) + side + key.encode(), value=value, timestamp=timestamp, headers=[])


@pytest.mark.parametrize("ours", [None, 1, 1500], ids=["its own metadata", "ours with an earlier time", "ours with a later time"])
def test_unmatched_rows_that_kafka_streams_left_in_its_store_are_emitted(ours: int | None) -> None:
    """A restart on the JVM forgets when to look next; 363 rows stayed in the store of a partition that it had owned last."""
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key_serde="string", value_serde="json") for topic in ("L", "R"))
    left.outer_join(right, _pair, JoinWindows.of_time_difference_with_no_grace(10)).to("out", key_serde="string", value_serde="json")
    topology = builder.build()
    (store,) = (store.name for store in topology.stores.values() if store.kind is StoreKind.OUTER_JOIN)
    rows = [of_kafka_streams(1000 + n, n % 3 == 0, f"k{n:03}", "a", *"b" * (n % 2)) for n in range(100)]
    own = Driver(topology, **{"repl.outer.join.emit.interval.ms": 0})
    own.pipe_bytes("L", b"x", b'"ours"', ours or 0)  # the JVM copies the metadata of this commit unchanged
    assert own.plan is not None and (ours or 0) in own.plan.metadata.values()
    before: Any = SimpleNamespace(
        changelog=lambda name: rows if name == store else [],
        plan=SimpleNamespace(partition_times={}, metadata={} if ours is None else own.plan.metadata),
        _offsets={},
    )
    taken = Driver(topology, before=before, **{"repl.outer.join.emit.interval.ms": 0})
    unmatched = [
        (f"k{n:03}", f"{value}-None" if n % 3 == 0 else f"None-{value}", 1000 + n) for n in range(100) for value in ("a", *"b" * (n % 2))
    ]

    def emitted(timestamp: int, key: str) -> list[Any]:
        before = len(list(taken.output("out")))
        taken.pipe_bytes("L", key.encode(), b'"now"', timestamp)
        return [(record.key.decode(), json.loads(record.value or b""), record.timestamp) for record in [*taken.output("out")][before:]]

    now = ("z", "now-None", 1030)
    if ours == 1500:  # the later time is that of the stream, too: the record is late, and the rows wait for the next look
        assert emitted(1030, "z") == [now]
        assert emitted(5000, "y") == unmatched
    else:  # windows up to 1019 have closed: of the rows 0 to 19, every other has two values
        assert emitted(1030, "z") == unmatched[:30]
        assert emitted(5000, "y") == [*unmatched[30:46], now, *unmatched[46:]]
    deleted = [record.key for record in taken.changelog(store) if record.value is None]
    assert {row.key for row in rows} <= set(deleted)
