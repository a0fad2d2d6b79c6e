"""A deletion has the time of the record that brings it, with and without caches, in the driver and as deployed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstreams_repl import KStream, SessionWindows, StreamsBuilder, serdes
from kstreams_repl.engine.serdes import session_windowed
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.testing import TopologyTestDriver
from tests.unit.engine.runtime.rig import Rig

STRING, JSON, LONG = serdes.string, serdes.json, serdes.long
BOTH = pytest.mark.parametrize("cache", [1_000_000, 0])
LATE = [("k", 1, 20), ("k", 1, 10)]


def counted(builder: StreamsBuilder) -> KStream:
    return builder.stream("in", key_serde=STRING, value_serde=JSON).group_by_key().count(store="c").to_stream()


def deleting_from_two() -> Topology:
    """The count of 2 deletes the row of a table, and with it that of a versioned one."""
    builder = StreamsBuilder()
    shown = counted(builder).map_values(lambda count: None if count >= 2 else count)
    changes = shown.to_table(store="u", key_serde=STRING, value_serde=JSON).to_stream()
    changes.to("out", key_serde=STRING, value_serde=JSON)
    changes.to_table(store="v", key_serde=STRING, value_serde=JSON, history=100_000)
    return builder.build()


def merging_sessions() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key_serde=STRING, value_serde=JSON).group_by_key()
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap(15, grace=100)).count(store="c").to_stream()
    kept = sessions.to_table(store="u", key_serde=session_windowed(STRING), value_serde=LONG).to_stream()
    kept.to("out", key_serde=session_windowed(STRING), value_serde=LONG)
    return builder.build()


def grouped_again(aggregate: Callable[[Any], Any]) -> Topology:
    builder = StreamsBuilder()
    again = aggregate(counted(builder).group_by_key(key_serde=STRING, value_serde=LONG)).to_stream()
    again.to("out", key_serde=STRING, value_serde=LONG)
    return builder.build()


def reduced() -> Topology:
    return grouped_again(lambda grouped: grouped.reduce(lambda old, new: None, store="u"))


def aggregated() -> Topology:
    fold = lambda key, count, total: None if count >= 2 else count  # noqa: E731
    return grouped_again(lambda grouped: grouped.aggregate(lambda: 0, fold, store="u", value_serde=LONG))


def aggregated_in_a_mutable() -> Topology:
    fold = lambda key, count, total: None if count >= 2 else [count]  # noqa: E731
    builder = StreamsBuilder()
    grouped = counted(builder).group_by_key(key_serde=STRING, value_serde=LONG)
    grouped.aggregate(list, fold, store="u", value_serde=JSON).to_stream().to("out", key_serde=STRING, value_serde=JSON)
    return builder.build()


def mapped() -> Topology:
    builder = StreamsBuilder()
    count = builder.stream("in", key_serde=STRING, value_serde=JSON).group_by_key().count(store="c")
    shown = count.map_values(lambda count: None if count >= 2 else count, store="u", value_serde=LONG)
    shown.to_stream().to("out", key_serde=STRING, value_serde=LONG)
    return builder.build()


EVERY = [deleting_from_two, merging_sessions, reduced, aggregated, aggregated_in_a_mutable, mapped]


@BOTH
@pytest.mark.parametrize("topology", EVERY)
def test_a_deletion_behind_a_table_leaves_and_is_logged_at_the_time_of_that_table_s_row(
    topology: Callable[[], Topology], cache: int
) -> None:
    rig = Rig(topology(), {"statestore.cache.max.bytes": cache, "repl.changelog.suppression": cache > 0})
    for row in LATE:
        rig.pipe("in", row).run()
        rig.commit()
    for topic in ("out", "app-u-changelog"):
        assert [at for _, value, at in rig.outbox.to(topic) if value is None] == [20]


@BOTH
@pytest.mark.parametrize("topology", EVERY)
def test_the_driver_forwards_the_deletion_at_that_time_too(topology: Callable[[], Topology], cache: int) -> None:
    with TopologyTestDriver(topology(), {"statestore.cache.max.bytes": cache}) as driver:
        piped, out = driver.create_input_topic("in", STRING, JSON), driver.create_output_topic("out", serdes.bytes, serdes.bytes)
        for key, value, at in LATE:
            piped.pipe_input(key, value, at)
        assert [record.timestamp for record in out.read_records() if record.value is None] == [20]


@BOTH
def test_a_versioned_table_behind_it_takes_the_deletion(cache: int) -> None:
    rig = Rig(deleting_from_two(), {"statestore.cache.max.bytes": cache})
    for row in LATE:
        rig.pipe("in", row).run()
        rig.commit()
    assert rig.task.stores["v"].get("k") is None


@BOTH
def test_a_late_deletion_of_an_aggregate_has_the_record_s_time_in_the_changelog(cache: int) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key_serde=STRING, value_serde=JSON).group_by_key()
    grouped.reduce(lambda old, new: None, store="u").to_stream().to("out", key_serde=STRING, value_serde=JSON)
    rig = Rig(builder.build(), {"statestore.cache.max.bytes": cache})
    for row in LATE:
        rig.pipe("in", row).run()
        rig.commit()
    assert rig.outbox.to("app-u-changelog")[-1] == (b"k", None, 10)
