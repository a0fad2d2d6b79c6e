"""A value that a function of the user's gets is not also what waits elsewhere, or the row of a store: each function here changes what it
gets, in place, and what is stored or waits must stay as it was.

Nodes that process a record at once share its value, as on the JVM; the last test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import kstreams_repl as ks
from kstreams_repl.engine import serdes
from kstreams_repl.engine.operators.own_copy import UNCOPIED, own_copy
from tests.unit.engine.operators.direct_task import DirectTask

TEXT_JSON = {"key_serde": "string", "value_serde": "json"}
PLACE = pa.struct([("place", pa.int64())])
COLUMNS = {"item": int, "spot": PLACE}


def spoil(value: Any) -> Any:
    """Change a value in place, with everything in it."""
    if isinstance(value, dict):
        for item in value.values():
            spoil(item)
        value |= {name: -1 for name, item in value.items() if isinstance(item, int)} | {"spoilt": True}
    elif isinstance(value, list):
        for item in value:
            spoil(item)
        value.append("spoilt")
    return value


def driven(builder: ks.StreamsBuilder, cache: int = 0) -> ks.testing.TopologyTestDriver:
    return ks.testing.TopologyTestDriver(builder.build(), {"statestore.cache.max.bytes": cache}, start_ms=0)


def pipe(driver: ks.testing.TopologyTestDriver, topic: str, *values: Any, key: str = "k", at: int = 0) -> None:
    into = driver.create_input_topic(topic, "string", "json")
    for number, value in enumerate(values, at):
        into.pipe_input(key, value, timestamp=number)


def out(driver: ks.testing.TopologyTestDriver) -> list[Any]:
    driver.advance_wall_clock_time(1000)
    return [record.value for record in driver.create_output_topic("out", "string", "json").read_records()]


# ---- records that wait: in a table's rows, a batch, a call, a buffer


def row(number: int) -> dict[str, Any]:
    return {"item": number, "spot": {"place": number}}


def rows_of_one_object(order: Any) -> Iterator[Any]:
    filled: dict[str, Any] = {"spot": {}}
    for number in order["items"]:
        filled["item"] = filled["spot"]["place"] = number
        yield filled


def changes(value: Any) -> Any:
    return spoil(own_copy(value))


WAITING: dict[str, Callable[[Any], Any]] = {
    "sink": lambda stream: stream,
    "map_batches": lambda stream: stream.map_batches(lambda batch: batch, columns=COLUMNS),
    "sql": lambda stream: stream.sql("SELECT item, spot FROM this", columns=COLUMNS),
    "map_values_async": lambda stream: stream.map_values_async(lambda value: value, order="partition", **TEXT_JSON),
    "suppress": lambda stream: stream.to_table(store="rows").suppress(
        ks.Suppressed.until_time_limit(5)).to_stream(),
}  # fmt: skip


@pytest.mark.parametrize("waits", WAITING)
def test_what_waits_is_not_changed_by_another_branch(waits: str) -> None:
    builder = ks.StreamsBuilder()
    rows = builder.stream("in", **TEXT_JSON)
    WAITING[waits](rows).to("out", **TEXT_JSON)
    rows.foreach(lambda key, value: spoil(value))
    with driven(builder) as driver:
        for number, key in enumerate("abc", 1):
            pipe(driver, "in", row(number), key=key, at=10 * number)
        assert out(driver)[:2] == [row(1), row(2)]


@pytest.mark.parametrize("waits", [name for name in WAITING if name != "suppress"])
def test_rows_that_a_generator_yields_in_one_object_are_rows_of_their_own(waits: str) -> None:
    builder = ks.StreamsBuilder()
    WAITING[waits](builder.stream("in", **TEXT_JSON).flat_map_values(rows_of_one_object)).to("out", **TEXT_JSON)
    with driven(builder) as driver:
        pipe(driver, "in", {"items": [1, 2, 3]})
        assert out(driver) == [row(1), row(2), row(3)]


@pytest.mark.parametrize("nested", [False, True])
def test_the_rows_of_a_table_are_as_they_were_written(nested: bool) -> None:
    schema = {"item": "int64", **({"spot": PLACE} if nested else {})}
    builder = ks.StreamsBuilder()
    rows = builder.stream("in", **TEXT_JSON)
    orders = rows.flat_map_values(rows_of_one_object)
    orders.to_table_files("/data/rows", schema=schema, name="table")
    orders.foreach(lambda key, value: spoil(value))
    with driven(builder) as driver:
        pipe(driver, "in", {"items": [1, 2, 3]})
        assert driver.read_table_files("/data/rows") == [{name: row(n)[name] for name in schema} for n in (1, 2, 3)]


# ---- asynchronous calls


def test_a_second_try_gets_the_value_as_it_came() -> None:
    tries: list[Any] = []

    def fails_once(value: Any) -> Any:
        tries.append(own_copy(value))
        spoil(value)
        if len(tries) == 1:
            raise ValueError("not yet")
        return value

    builder = ks.StreamsBuilder()
    calls = builder.stream("in", **TEXT_JSON).map_values_async(fails_once, on_error="retry", retry_backoff=0.1)
    calls.to("out", **TEXT_JSON)
    with driven(builder) as driver:
        pipe(driver, "in", row(1))
        assert out(driver) == [changes(row(1))] and tries == [row(1), row(1)]


def test_a_filter_that_changes_what_it_gets_forwards_the_record_as_it_came() -> None:
    builder = ks.StreamsBuilder()
    builder.stream("in", **TEXT_JSON).filter_async(lambda key, value: bool(spoil(value))).to("out", **TEXT_JSON)
    with driven(builder) as driver:
        pipe(driver, "in", row(1))
        assert out(driver) == [row(1)]


def test_results_that_wait_are_what_the_function_returned() -> None:
    answer: dict[str, Any] = {}

    def fills(value: Any) -> Any:
        answer["item"] = value["item"]
        return answer

    builder = ks.StreamsBuilder()
    builder.stream("in", **TEXT_JSON).flat_map_values(lambda order: map(row, order["items"])).map_values_async(
        fills, order="partition", in_flight=3, **TEXT_JSON
    ).to("out", **TEXT_JSON)
    with driven(builder) as driver:
        pipe(driver, "in", {"items": [1, 2, 3]})
        assert out(driver) == [{"item": 1}, {"item": 2}, {"item": 3}]


class Writes(ks.Processor):
    """Writes and forwards one object that it goes on filling."""

    def process(self, record: Any) -> None:
        store, filled = self.rows(), {"item": 0}
        for number in (1, 2):
            filled["item"] = number
            store.put(f"row-{number}", filled)
            self.context.forward(record.with_value(filled))
        spoil(store.get("row-1"))

    def rows(self) -> Any:
        return self.context.get_state_store("rows")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_a_processor_has_written_and_forwarded_stays_so(asynchronous: bool) -> None:
    class AsyncWrites:
        def process(self, record: Any, context: Any) -> None:
            writes: Any = Writes()
            writes.context, writes.rows = context, lambda: context.store("rows")
            writes.process(record)

    builder = ks.StreamsBuilder()
    builder.add_state_store(ks.Stores.key_value_store_builder(ks.Stores.persistent_key_value_store("rows"), "string", "json"))
    rows = builder.stream("in", **TEXT_JSON)
    done = rows.process_async(AsyncWrites, stores=["rows"]) if asynchronous else rows.process(Writes, stores=["rows"])
    done.to("out", **TEXT_JSON)
    with driven(builder) as driver:
        pipe(driver, "in", row(1))
        assert out(driver) == [{"item": 1}, {"item": 2}]
        assert dict(driver.state_store("rows").all()) == {"row-1": {"item": 1}, "row-2": {"item": 2}}


# ---- stores


def reads(store: Any, kind: str) -> list[Callable[[], Any]]:
    """Every read that hands out the row of key `k`."""
    if kind in ("key-value", "lru"):
        found: list[Callable[[], Any]] = [lambda: store.get("k")]
        return found if kind == "lru" else [*found, lambda: next(store.all())[1], lambda: next(store.range("a", "z"))[1]]
    if kind == "timestamped":
        return [lambda: store.get("k").value, lambda: next(store.all())[1].value]
    if kind == "versioned":
        return [lambda: store.get("k").value, lambda: store.get("k", 0).value]
    if kind == "window":
        return [lambda: store.fetch("k", 0), lambda: next(store.fetch("k", 0, 9))[1], lambda: next(store.all())[1]]
    return [lambda: store.fetch_session("k", 0, 0), lambda: next(store.fetch("k"))[1]]


BUILDERS: dict[str, Callable[[], Any]] = {
    "key-value": lambda: ks.Stores.key_value_store_builder(ks.Stores.persistent_key_value_store("s"), "string", "json"),
    "timestamped": lambda: ks.Stores.timestamped_key_value_store_builder(
        ks.Stores.persistent_timestamped_key_value_store("s"), "string", "json"),
    "lru": lambda: ks.Stores.key_value_store_builder(ks.Stores.lru_map("s", 10), "string", "json"),
    "versioned": lambda: ks.Stores.versioned_key_value_store_builder(
        ks.Stores.persistent_versioned_key_value_store("s", 1000), "string", "json"),
    "window": lambda: ks.Stores.window_store_builder(ks.Stores.persistent_window_store("s", 1000, 10, False), "string", "json"),
    "session": lambda: ks.Stores.session_store_builder(ks.Stores.persistent_session_store("s", 1000), "string", "json"),
}  # fmt: skip


def put(store: Any, kind: str, value: Any) -> None:
    if kind == "timestamped":
        store.put("k", ks.ValueAndTimestamp(value, 0))
    elif kind == "versioned":
        store.put("k", value, 0)
    elif kind == "window":
        store.put("k", value, 0)
    elif kind == "session":
        store.put(ks.Windowed("k", 0, 0), value)
    else:
        store.put("k", value)


@pytest.mark.parametrize("cached", [False, True], ids=["uncached", "cached"])
@pytest.mark.parametrize("kind", BUILDERS)
def test_the_row_of_a_store_is_as_it_was_put(kind: str, cached: bool) -> None:
    seen: list[Any] = []

    class Uses(ks.Processor):
        def process(self, record: Any) -> None:
            store, value = self.context.get_state_store("s"), row(1)
            put(store, kind, value)
            spoil(value)
            for read in reads(store, kind):
                seen.append(own_copy(read()))
                spoil(read())

    builder = ks.StreamsBuilder()
    made = BUILDERS[kind]()
    builder.add_state_store(made.with_caching_enabled() if cached and kind not in ("lru", "versioned") else made)
    builder.stream("in", **TEXT_JSON).process(Uses, stores=["s"])
    with driven(builder, cache=10_000_000 if cached else 0) as driver:
        pipe(driver, "in", row(9))
        assert seen and [found for found in seen if found != row(1)] == []


# ---- aggregates, tables and joins


def appended(key: Any, value: Any, total: Any) -> Any:
    """Takes a copy: the aggregates of several windows would share the value, as on the JVM."""
    total["rows"].append(own_copy(value))
    return total


def merged(key: Any, one: Any, other: Any) -> Any:
    one["rows"] += other["rows"]
    return one


GROUPED: dict[str, Callable[[Any], Any]] = {
    "aggregate": lambda group: group,
    "windows": lambda group: group.windowed_by(ks.TimeWindows.of_size(100)),
    "hopping": lambda group: group.windowed_by(ks.TimeWindows.of_size(100, advance=50)),
    "sliding": lambda group: group.windowed_by(ks.SlidingWindows.of_time_difference_with_no_grace(100)),
    "sessions": lambda group: group.windowed_by(ks.SessionWindows.of_inactivity_gap_with_no_grace(100)),
}


@pytest.mark.parametrize("cache", [0, 10_000_000], ids=["uncached", "cached"])
@pytest.mark.parametrize("grouped", GROUPED)
def test_an_aggregate_is_what_its_function_made_of_the_records(grouped: str, cache: int) -> None:
    """Whatever comes behind it changes it, and every key and window begins with an initial value of its own."""
    builder = ks.StreamsBuilder()
    group = GROUPED[grouped](builder.stream("in", **TEXT_JSON).group_by_key(**TEXT_JSON))
    more: dict[str, Any] = {"merger": merged} if grouped == "sessions" else {}
    table = group.aggregate(lambda: {"rows": []}, appended, store="s", value_serde="json", **more)
    table.to_stream().foreach(lambda key, value: spoil(value) if value is not None else None)
    with driven(builder, cache) as driver:
        pipe(driver, "in", row(1), row(2), at=200)
        pipe(driver, "in", row(3), key="another", at=250)
        stored = [item.value if hasattr(item, "value") else item for _, item in driver.state_store("s").all()]
        assert stored and not [item for item in stored if "spoilt" in str(item)]
        assert {"rows": [row(1), row(2)]} in stored and {"rows": [row(3)]} in stored


@pytest.mark.parametrize("cache", [0, 10_000_000], ids=["uncached", "cached"])
@pytest.mark.parametrize("grouped", GROUPED)
def test_a_deployed_task_keeps_aggregates_and_rows_apart_from_what_it_forwards(grouped: str, cache: int) -> None:
    """Its stores keep objects until the commit, and its loops are generated."""
    builder = ks.StreamsBuilder()
    group = GROUPED[grouped](builder.stream("in", **TEXT_JSON).group_by_key(**TEXT_JSON))
    more: dict[str, Any] = {"merger": merged} if grouped == "sessions" else {}
    totals = group.aggregate(lambda: {"rows": []}, appended, store="s", value_serde="json", **more).to_stream()
    totals.filter(lambda key, value: value is not None).select_key(lambda key, value: "k").to("out", **TEXT_JSON)
    totals.foreach(lambda key, value: spoil(value))
    task = DirectTask(builder.build(), **{"statestore.cache.max.bytes": cache})
    for number in (1, 2, 3):
        task.pipe("in", [("k", row(number), 200 + number)])
        task.commit()
    sent = [serdes.json.deserialize(value) for _, _, value, _ in task.sent]
    assert {"rows": [row(1), row(2), row(3)]} in sent and "spoilt" not in str(sent)


@pytest.mark.parametrize("cache", [0, 10_000_000], ids=["uncached", "cached"])
def test_a_subtractor_gets_the_row_as_it_was_added(cache: int) -> None:
    removed: list[Any] = []
    builder = ks.StreamsBuilder()
    table = builder.table("in", store="rows", **TEXT_JSON)

    def remove(key: Any, value: Any, total: Any) -> Any:
        removed.append(own_copy(value))
        spoil(value)
        return total

    def add(key: Any, value: Any, total: Any) -> Any:
        spoil(value)
        return total + 1

    table.group_by(lambda key, value: ("all", value), **TEXT_JSON).aggregate(lambda: 0, add, remove, store="n", value_serde="json")
    with driven(builder, cache) as driver:
        pipe(driver, "in", row(1), row(2), row(3))
        driver.advance_wall_clock_time(60_000)
        assert [value for value in removed if value not in (row(1), row(2))] == [] and (removed or cache)
        assert driver.state_store("rows").get("k").value == row(3)


def joined(left: Any, right: Any) -> Any:
    copies = {"left": own_copy(left), "right": own_copy(right)}
    spoil(left), spoil(right)
    return copies


SERDES = {**TEXT_JSON, "other_value_serde": "json"}
WITHIN = ks.JoinWindows.of_time_difference_with_no_grace(1000)
JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "stream-table": lambda left, builder: left.join(builder.table("right", store="rows", **TEXT_JSON), joined),
    "stream-global-table": lambda left, builder: left.join(
        builder.global_table("right", store="rows", **TEXT_JSON), joined, key=lambda key, value: key),
    "stream-stream": lambda left, builder: left.join(builder.stream("right", **TEXT_JSON), joined, WITHIN, **SERDES),
    "table-table": lambda left, builder: left.to_table(store="lefts").join(
        builder.table("right", store="rows", **TEXT_JSON), joined).to_stream(),
    "foreign-key": lambda left, builder: left.to_table(store="lefts").join(
        builder.table("right", store="rows", **TEXT_JSON), joined, foreign_key=lambda value: "k").to_stream(),
}  # fmt: skip


@pytest.mark.parametrize("cache", [0, 10_000_000], ids=["uncached", "cached"])
@pytest.mark.parametrize("join", JOINS)
def test_a_join_sees_each_row_as_it_was_written(join: str, cache: int) -> None:
    builder = ks.StreamsBuilder()
    JOINS[join](builder.stream("left", **TEXT_JSON), builder).to("out", **TEXT_JSON)
    with driven(builder, cache) as driver:
        pipe(driver, "right", row(7))
        pipe(driver, "left", row(1), row(2), at=1)
        driver.advance_wall_clock_time(60_000)
        found = out(driver)
        assert found[-1] == {"left": row(2), "right": row(7)}
        assert [one for one in found if one["right"] != row(7) or one["left"] not in (row(1), row(2))] == []


# ---- what is shared, as on the JVM


def test_nodes_that_process_a_record_at_once_share_its_value() -> None:
    """Kafka Streams hands one reference to each child, in the order in which they were added."""
    builder = ks.StreamsBuilder()
    rows = builder.stream("in", **TEXT_JSON)
    rows.foreach(lambda key, value: spoil(value))
    rows.to("out", **TEXT_JSON)
    with driven(builder) as driver:
        pipe(driver, "in", row(1))
        assert out(driver) == [changes(row(1))]


def test_a_copy_shares_nothing() -> None:
    class Plain:
        def __init__(self) -> None:
            self.items = [1]

    plain = Plain()
    for value in ({"a": [1, {"b": 2}], "c": 3}, [[1], (1, [2])], {1}, bytearray(b"x"), ({"a": 1},)):
        copied = own_copy(value)
        assert copied == value and copied is not value
    assert own_copy({"a": [1]})["a"] is not None and own_copy(plain).items is not plain.items
    text, generator = "text", (n for n in (1,))
    assert own_copy(text) is text and own_copy(generator) is generator and own_copy(generator, without=repr).startswith("<generator")
    assert own_copy({"a": [generator]}, node="score")["a"][0] is generator and ("score", "generator") in UNCOPIED
    UNCOPIED.clear()
