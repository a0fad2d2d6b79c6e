"""Topologies whose sources run in loops over columns."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kstreams_repl import StreamsBuilder, TimeWindows, serdes
from kstreams_repl.engine.topology.topology import Topology

STRING, LONG = serdes.string, serdes.long


def source(builder: StreamsBuilder, value_serde: Any = STRING, key_serde: Any = STRING) -> Any:
    return builder.stream("in", key_serde=key_serde, value_serde=value_serde)


def stateless() -> Topology:
    builder = StreamsBuilder()
    source(builder).map_values(lambda value: value and value.upper()).filter(lambda key, value: value != "X").filter_not(
        lambda key, value: key == "drop"
    ).map_values(lambda key, value: f"{key}={value}", with_key=True).to("out", key_serde=STRING, value_serde=STRING)
    return builder.build()


def count() -> Topology:
    builder = StreamsBuilder()
    counts = source(builder).group_by_key(key_serde=STRING, value_serde=STRING).count(store="counts")
    counts.to_stream().to("out", key_serde=STRING, value_serde=LONG)
    return builder.build()


def count_read_by_others() -> Topology:
    """Rows go from the cache through a node that wants objects, so that slots keep where their records came from."""
    builder = StreamsBuilder()
    counts = source(builder).group_by_key(key_serde=STRING, value_serde=STRING).count(store="counts")
    counts.to_stream().map_values(str).to("out", key_serde=STRING, value_serde=STRING)
    return builder.build()


def reduce_to_longest() -> Topology:
    """An aggregate that is sometimes deleted."""
    builder = StreamsBuilder()
    longest = source(builder).group_by_key(key_serde=STRING, value_serde=STRING).reduce(
        lambda old, new: None if new == "x" else max(old, new, key=len), store="longest"
    )
    longest.to_stream().to("out", key_serde=STRING, value_serde=STRING)
    return builder.build()


def total() -> Topology:
    builder = StreamsBuilder()
    lengths = source(builder).map_values(lambda value: None if value is None else len(value))
    sums = lengths.group_by_key(key_serde=STRING, value_serde=LONG).reduce(lambda old, new: old + new, store="sums")
    sums.to_stream().to("out", key_serde=STRING, value_serde=LONG)
    return builder.build()


def windows() -> Topology:
    builder = StreamsBuilder()
    grouped = source(builder).group_by_key(key_serde=STRING, value_serde=STRING)
    window = TimeWindows.of_size(timedelta(milliseconds=50), grace=timedelta(milliseconds=30))
    counts = grouped.windowed_by(window).count(store="windows")
    counts.to_stream().to("out", key_serde=serdes.time_windowed(STRING, 50), value_serde=LONG)
    return builder.build()


def hopping() -> Topology:
    builder = StreamsBuilder()
    grouped = source(builder).group_by_key(key_serde=STRING, value_serde=STRING)
    window = TimeWindows.of_size(timedelta(milliseconds=50), grace=timedelta(milliseconds=30)).advance_by(timedelta(milliseconds=20))
    counts = grouped.windowed_by(window).count(store="windows")
    counts.to_stream().to("out", key_serde=serdes.time_windowed(STRING, 50), value_serde=LONG)
    return builder.build()


def summary(key: Any, value: Any, so_far: Any) -> Any:
    """Change a dict in place; sometimes delete it."""
    if value == "x":
        return None
    so_far["count"] += 1
    so_far["last"] = value
    return so_far


def hopping_summaries() -> Topology:
    """Objects that may be changed, in several windows, with a sink that writes neither their keys nor their values."""
    builder = StreamsBuilder()
    grouped = source(builder).group_by_key(key_serde=STRING, value_serde=STRING)
    window = TimeWindows.of_size(timedelta(milliseconds=50), grace=timedelta(milliseconds=30)).advance_by(timedelta(milliseconds=20))
    found = grouped.windowed_by(window).aggregate(lambda: {"count": 0}, summary, store="windows", value_serde=serdes.json)
    found.to_stream().map(lambda window, found: (f"{window}", found)).to("out", key_serde=STRING, value_serde=serdes.json)
    return builder.build()


def summaries() -> Topology:
    builder = StreamsBuilder()
    grouped = source(builder).group_by_key(key_serde=STRING, value_serde=STRING)
    found = grouped.aggregate(lambda: {"count": 0}, summary, store="summaries", value_serde=serdes.json)
    shown = found.to_stream().filter(lambda key, found: key != "b").map_values(failing_at_nine, name="shown")
    shown.to("out", key_serde=STRING, value_serde=serdes.json)
    return builder.build()


def failing_at_nine(found: Any) -> Any:
    if found is not None and found["count"] == 999:
        raise RuntimeError("nine hundred and ninety-nine")
    return found


def aggregate_lengths() -> Topology:
    """An aggregator of the user's, with an initializer; sometimes deleted."""
    builder = StreamsBuilder()
    grouped = source(builder).group_by_key(key_serde=STRING, value_serde=STRING)
    sums = grouped.aggregate(
        lambda: 7, lambda key, value, so_far: None if value == "x" else so_far + len(key or "") + len(value), store="sums", value_serde=LONG
    )
    sums.to_stream().to("out", key_serde=STRING, value_serde=LONG)
    return builder.build()


def of_numbers() -> Topology:
    """Keys of a fixed size in a store; JSON objects of which one field is read."""
    builder = StreamsBuilder()
    grouped = source(builder, serdes.json, LONG).group_by_key(key_serde=LONG, value_serde=serdes.json)
    grouped.aggregate(
        lambda: {"sum": 0, "odd": 0},
        lambda key, value, row: {"sum": row["sum"] + value.get("n", 0) + key, "odd": row["odd"] + ("t" in value)},
        store="sums",
        value_serde=serdes.json,
    ).to_stream().to("out", key_serde=LONG, value_serde=serdes.json)
    return builder.build()


def windows_of_numbers() -> Topology:
    builder = StreamsBuilder()
    grouped = source(builder, serdes.json, LONG).group_by_key(key_serde=LONG, value_serde=serdes.json)
    windows = grouped.windowed_by(TimeWindows.of_size(timedelta(milliseconds=50)))
    sums = windows.aggregate(
        lambda: 0, lambda key, value, row: row if value is None else row + value.get("n", 0), store="sums", value_serde=LONG
    )
    sums.to_stream().to("out", key_serde=serdes.time_windowed(LONG, 50), value_serde=LONG)
    return builder.build()


def fields_of_objects() -> Topology:
    """Functions that read some fields of JSON objects."""
    builder = StreamsBuilder()
    kept = source(builder, serdes.json).filter(lambda key, value: value is not None and value.get("n", 0) != 3)
    kept.map_values(lambda value: {"n": value.get("n"), "has_t": "t" in value}).to("out", key_serde=STRING, value_serde=serdes.json)
    return builder.build()


def rekeyed_objects() -> Topology:
    """JSON objects that go on as they are, under a field as the key."""
    builder = StreamsBuilder()
    chosen = source(builder, serdes.json).select_key(lambda key, value: None if value is None else str(value.get("t")))
    chosen.repartition(name="by-text", key_serde=STRING, value_serde=serdes.json).to("out", key_serde=STRING, value_serde=serdes.json)
    return builder.build()


def rekeyed_new_objects() -> Topology:
    """Other JSON objects than those that were read, under another key."""
    builder = StreamsBuilder()
    made = source(builder, serdes.json).filter(lambda key, value: value is not None).map_values(lambda value: {"n": value.get("n")})
    chosen = made.select_key(lambda key, value: str(value["n"]))
    chosen.repartition(name="by-number", key_serde=STRING, value_serde=serdes.json).to("out", key_serde=STRING, value_serde=serdes.json)
    return builder.build()


def rekeyed() -> Topology:
    """The keys change on the way, so a node below that knows serialized keys is called."""
    builder = StreamsBuilder()
    stream = source(builder).select_key(lambda key, value: value).peek(lambda key, value: None)
    stream.map(lambda key, value: (f"{key}!", f"{value}?")).to("out", key_serde=STRING, value_serde=STRING)
    return builder.build()


def rekeyed_between_filters() -> Topology:
    """What ``filter().group_by()`` makes before its repartition topic."""
    builder = StreamsBuilder()
    kept = source(builder).filter(lambda key, value: value != "x").select_key(lambda key, value: value)
    kept.filter(lambda key, value: key is not None).to("out", key_serde=STRING, value_serde=STRING)
    return builder.build()


def through_an_entry() -> Topology:
    """A node without lines at the end of the way."""
    builder = StreamsBuilder()
    both_ways = source(builder).map_values(str).flat_map(lambda key, value: [(key, value), (value, key)])
    both_ways.to("out", key_serde=STRING, value_serde=STRING)
    return builder.build()


def numbers() -> Topology:
    """Values that may be poison."""
    builder = StreamsBuilder()
    source(builder, LONG).map_values(lambda value: value * 2).to("out", key_serde=STRING, value_serde=LONG)
    return builder.build()


def json_values() -> Topology:
    """Values that are read one by one, and may be poison."""
    builder = StreamsBuilder()
    one_by_one = serdes.Serde(serdes.json.serialize, serdes.json.deserialize, name="json one by one")
    grouped = source(builder, one_by_one).filter(lambda key, value: value != 3).group_by_key(key_serde=STRING, value_serde=serdes.json)
    grouped.count(store="counts").to_stream().to("out", key_serde=STRING, value_serde=LONG)
    return builder.build()
