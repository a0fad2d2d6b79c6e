"""Aggregators that change the aggregate they are given in place: what is forwarded as the old value is still the old one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstreams_repl import SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows, serdes
from kstreams_repl.testing import TopologyTestDriver
from tests.unit.engine.operators.direct_task import DirectTask

TEXT = {"application.id": "app", "default.key.serde": "string", "default.value.serde": "json"}
Rows = list[tuple[Any, Any]]


def add(key: Any, value: Any, so_far: list[Any]) -> list[Any]:
    so_far.append(value)
    return so_far


def take(key: Any, value: Any, so_far: list[Any]) -> list[Any]:
    so_far.remove(value)
    return so_far


def both(key: Any, one: list[Any], other: list[Any]) -> list[Any]:
    one.extend(other)
    return one


def outputs(make: Callable[[Any], Any], records: list[tuple[Any, Any, int]], cache: int = 0, key_serde: Any = "string") -> Rows:
    """What the table that `make` makes of the stream puts out."""
    builder = StreamsBuilder()
    make(builder.stream("in")).to_stream().to("out", key_serde=key_serde)
    with TopologyTestDriver(builder.build(), TEXT | {"statestore.cache.max.bytes": cache}, start_ms=0) as driver:
        driver.create_input_topic("in", "string", "json").pipe_records(records)
        return driver.create_output_topic("out", key_serde, "json").read_key_values()


@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize("versions", [{}, {"store": "lists", "history": 1000}], ids=["plain", "versioned"])
def test_a_row_that_no_longer_passes_a_filter_is_deleted(cache: int, versions: dict[str, Any]) -> None:
    def short_lists(stream: Any) -> Any:
        return stream.group_by_key().aggregate(list, add, **versions).filter(lambda key, values: len(values) < 2)

    assert outputs(short_lists, [("a", 1, 1), ("a", 2, 2)], cache) == [("a", [1]), ("a", None)]


@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize("versions", [{}, {"store": "lists", "history": 1000}], ids=["plain", "versioned"])
def test_what_is_taken_out_of_a_group_is_what_was_put_into_it(cache: int, versions: dict[str, Any]) -> None:
    def lists_by_length(stream: Any) -> Any:
        lists = stream.group_by_key().aggregate(list, add, **versions)
        return lists.group_by(lambda key, values: (str(len(values)), key)).aggregate(list, add, take)

    rows = outputs(lists_by_length, [("a", 1, 1), ("b", 1, 2), ("a", 2, 3)], cache)
    assert [dict(rows).get(group) for group in ("1", "2")] == [["b"], ["a"]]


def test_a_reducer_and_an_aggregate_of_a_table_may_change_their_values_too() -> None:
    def merge(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
        one.update(other)
        return one

    def single(key: Any, row: dict[str, int]) -> bool:
        return len(row) < 2

    records = [("a", {"x": 1}, 1), ("a", {"y": 2}, 2)]
    assert outputs(lambda stream: stream.group_by_key().reduce(merge).filter(single), records) == [("a", {"x": 1}), ("a", None)]

    def groups(stream: Any) -> Any:
        rows = stream.to_table().group_by(lambda key, value: ("all", value))
        return rows.aggregate(list, add, take).filter(lambda key, values: len(values) < 2)

    assert outputs(groups, [("a", 1, 1), ("b", 2, 2)]) == [("all", [1]), ("all", None)]


@pytest.mark.parametrize("windows", [TimeWindows.of_size(10), TimeWindows.of_size(10, advance=5), SlidingWindows(10)], ids=repr)
def test_windows_that_no_longer_pass_a_filter_are_deleted(windows: Any) -> None:
    def short_lists(stream: Any) -> Any:
        return stream.group_by_key().windowed_by(windows).aggregate(list, add).filter(lambda key, values: len(values) < 2)

    rows = outputs(short_lists, [("a", 1, 21), ("a", 2, 21)], key_serde=serdes.time_windowed("string", 10))
    assert rows and [value for _, value in rows] == [[1]] * (len(rows) // 2) + [None] * (len(rows) // 2)


def test_sessions_that_are_merged_are_taken_out_as_they_were() -> None:
    def collected(stream: Any) -> Any:
        def keep_first(one: list[Any] | None, other: list[Any]) -> Any:
            return other if one is None else both("", one, other)

        sessions = stream.group_by_key().windowed_by(SessionWindows(5, 100)).reduce(keep_first)
        return sessions.group_by(lambda key, values: ("all", values)).aggregate(list, add, take)

    assert outputs(collected, [("a", [1], 10), ("a", [2], 20), ("a", [3], 15)])[-1] == ("all", [[1, 2, 3]])


@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize("times", [(20, 23, 21), (5, 8, 6)], ids=["regular", "early"])
def test_a_late_record_is_not_in_the_sliding_window_that_starts_behind_it(cache: int, times: tuple[int, int, int]) -> None:
    def lists(stream: Any) -> Any:
        return stream.group_by_key().windowed_by(SlidingWindows(10, 100)).aggregate(list, add)

    first, last, late = times
    key_serde = serdes.time_windowed("string", 10)
    rows = dict(outputs(lists, [("a", 1, first), ("a", 2, last), ("a", 3, late)], cache, key_serde))
    assert {key.start: value for key, value in rows.items()}[late + 1] == [2]


ODD = {
    "plain": {"n": 1, "f": 0.5, "t": "ü\n\x1f", "inner": [1, None, True]},
    "nan": {"f": float("nan")},
    "keys": {1: 1e16},
    "integer": {"n": 10**25},
    "large integer": 2**64,
    "text": "plain text",
    "surrogate": {"t": "\ud800"},
}


@pytest.mark.parametrize("first", list(ODD))
@pytest.mark.parametrize("second", [*ODD, None])
def test_bytes_of_a_cached_row_reach_the_topic_as_if_they_had_been_read_and_written(first: str, second: str | None) -> None:
    chosen = {"1": ODD[first], "2": None if second is None else ODD[second]}
    sent = []
    for looked_at in (False, True):
        builder = StreamsBuilder()
        rows = builder.stream("in").group_by_key().aggregate(dict, lambda key, value, so_far: chosen[value], store="s").to_stream()
        (rows.peek(lambda key, value: None) if looked_at else rows).to("out")
        task = DirectTask(builder.build(), **{"statestore.cache.max.bytes": 10_000_000})
        for value, key in (("1", "a"), ("2", "b"), ("1", "b"), ("2", "a")):
            task.pipe("in", [(key, value, 5)])
            task.commit()
        sent.append(task.sent)
    assert sent[0] == sent[1] and len(sent[0]) >= 3
