"""Deserialization, processing and production errors: fail, continue, dead letter."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.processor import Processor, Record
from kstreams_repl.engine.runtime import task_errors
from kstreams_repl.engine.runtime.nodes.handlers import ErrorContext, Response, dead_letter_headers, resolve
from kstreams_repl.engine.serdes.serde import wrong_bytes, wrong_type
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import ConfigError, NullKeyError, SerializationError, StreamsProcessingError
from kstreams_repl.test_driver.driver import TopologyTestDriver
from tests.unit.engine.runtime.rig import Rig

BAD = b"{ broken"
DEAD = {"errors.dead.letter.queue.topic.name": "dead"}


class Boom(Processor):
    """Raises for the value 13, passes everything else on."""

    def process(self, record: Record) -> None:
        if record.value == 13:
            raise LookupError("unlucky")
        self.context.forward(record)


def two_branches() -> Topology:
    """in -> boom -> out, and in -> copy."""
    topology = Topology().add_source("from-in", "in").add_sink("to-copy", "copy", "from-in")
    return topology.add_processor("boom", Boom, "from-in").add_sink("to-out", "out", "boom")


def headers_of(rig: Rig, index: int = 0) -> dict[str, bytes | None]:
    return dict([sent[4] for sent in rig.outbox.sent if sent[0] == "dead"][index])


def test_fail_and_nothing_cost_no_handler_and_other_words_are_refused() -> None:
    assert resolve("fail", "x") is None
    assert resolve(None, "x") is None
    with pytest.raises(ConfigError, match="cannot be used"):
        resolve("ignore", "x")


def test_a_failing_function_stops_the_task_by_default_with_node_and_coordinates() -> None:
    rig = Rig(two_branches())
    rig.pipe("in", ("a", 1, 1), ("b", 13, 2))
    with pytest.raises(StreamsProcessingError) as failure:
        rig.run()
    error = failure.value
    assert (error.node, error.task, error.topic, error.partition, error.offset) == ("boom", "0_0", "in", 0, 1)
    assert isinstance(error.__cause__, LookupError)
    assert 'raise LookupError("unlucky")' in str(error)


def test_continue_drops_the_branch_of_the_failing_node_only() -> None:
    rig = Rig(two_branches(), {"processing.exception.handler": "continue"})
    rig.pipe("in", ("a", 1, 1), ("b", 13, 2), ("c", 3, 3)).run()
    assert [key for key, _, _ in rig.outbox.to("copy")] == [b"a", b"b", b"c"]
    assert [key for key, _, _ in rig.outbox.to("out")] == [b"a", b"c"]
    assert rig.task.dropped == {"processing": 1}


def test_a_handler_is_told_where_and_what() -> None:
    asked: list[tuple[ErrorContext, Exception]] = []

    def handler(context: ErrorContext, error: Exception) -> Response:
        asked.append((context, error))
        return Response.CONTINUE

    rig = Rig(two_branches(), {"processing.exception.handler": handler})
    rig.pipe("in", ("b", 13, 2, [("h", b"v")])).run()
    [(context, error)] = asked
    assert (context.node, context.task, context.topic, context.partition, context.offset) == ("boom", "0_0", "in", 0, 0)
    assert (context.timestamp, context.raw_key, context.raw_value, context.headers) == (2, b"b", b"13", [("h", b"v")])
    assert isinstance(error, LookupError)


def test_a_handlers_fail_stops_the_task() -> None:
    rig = Rig(two_branches(), {"processing.exception.handler": lambda context, error: Response.FAIL})
    rig.pipe("in", ("b", 13, 2))
    with pytest.raises(StreamsProcessingError, match="unlucky"):
        rig.run()


def test_a_failed_record_goes_to_the_dead_letter_topic_as_it_was_read() -> None:
    rig = Rig(two_branches(), {"processing.exception.handler": "continue", **DEAD})
    rig.pipe("in", ("a", 1, 1), ("b", 13, 2, [("mine", b"v")])).run()
    assert rig.outbox.to("dead") == [(b"b", b"13", 2)]
    told = headers_of(rig)
    assert told["mine"] == b"v"
    assert told["__streams.errors.exception"] == b"LookupError"
    assert told["__streams.errors.message"] == b"unlucky"
    assert (told["__streams.errors.topic"], told["__streams.errors.partition"], told["__streams.errors.offset"]) == (
        b"in",
        b"0",
        b"1",
    )
    assert told["__streams.errors.timestamp"] == b"2"
    assert b"raise LookupError" in (told["__streams.errors.stacktrace"] or b"")


def test_a_poison_record_goes_to_the_dead_letter_topic_as_bytes() -> None:
    rig = Rig(two_branches(), {"deserialization.exception.handler": "continue", **DEAD})
    rig.pipe("in", ("a", 1, 1), ("b", BAD, 2), ("c", 3, 3)).run()
    assert rig.outbox.to("dead") == [(b"b", BAD, 2)]
    assert headers_of(rig)["__streams.errors.offset"] == b"1"
    assert [key for key, _, _ in rig.outbox.to("out")] == [b"a", b"c"]


def test_a_processing_handler_is_not_asked_about_errors_of_ours() -> None:
    class Misses(Processor):
        def process(self, record: Record) -> None:
            self.context.get_state_store("nowhere")

    topology = Topology().add_source("from-in", "in").add_processor("misses", Misses, "from-in")
    rig = Rig(topology, {"processing.exception.handler": "continue"})
    rig.pipe("in", ("a", 1, 1))
    with pytest.raises(Exception, match="no access to store 'nowhere'"):
        rig.run()


def sink_of(value_serde: Any) -> Topology:
    return Topology().add_source("from-in", "in").add_sink("to-out", "out", "from-in", value_serde=value_serde)


def test_a_value_the_sinks_serde_cannot_write_fails_with_node_and_coordinates() -> None:
    rig = Rig(sink_of(serdes.long))
    rig.pipe("in", ("a", 1, 1), ("b", "text", 2))
    with pytest.raises(SerializationError, match="the value serde of to-out .long. cannot write a str") as failure:
        rig.run()
    assert (failure.value.node, failure.value.topic, failure.value.offset) == ("to-out", "in", 1)


def test_a_key_the_sinks_serde_cannot_write_is_told_as_the_key() -> None:
    topology = Topology().add_source("from-in", "in").add_sink("to-out", "out", "from-in", key_serde=serdes.long)
    rig = Rig(topology)
    with pytest.raises(SerializationError, match="the key serde of to-out"):
        rig.pipe("in", ("a", 1, 1)).run()


def test_a_production_handler_can_drop_what_cannot_be_written() -> None:
    rig = Rig(sink_of(serdes.long), {"production.exception.handler": "continue"})
    rig.pipe("in", ("a", 1, 1), ("b", "text", 2), ("c", 3, 3)).run()
    assert [key for key, _, _ in rig.outbox.to("out")] == [b"a", b"c"]
    assert rig.task.dropped == {"serialization": 1}


def test_what_cannot_be_written_goes_to_the_dead_letter_topic_too() -> None:
    rig = Rig(sink_of(serdes.long), {"production.exception.handler": "continue", **DEAD})
    rig.pipe("in", ("a", 1, 1), ("b", "text", 2)).run()
    assert rig.outbox.to("dead") == [(b"b", b'"text"', 2)]
    assert headers_of(rig)["__streams.errors.offset"] == b"1"


def test_dead_letter_headers_tell_the_users_error_not_our_wrapping() -> None:
    try:
        try:
            raise ValueError("inner")
        except ValueError as cause:
            raise SerializationError("outer") from cause
    except SerializationError as error:
        told = dict(dead_letter_headers(ErrorContext("n", "0_1", "t", 1, 7, 99), error))
    assert told["__streams.errors.exception"] == b"ValueError"
    assert told["__streams.errors.message"] == b"inner"


def test_a_failing_punctuation_is_asked_about_too_and_has_no_record() -> None:
    class Ticks(Processor):
        def init(self, context: Any) -> None:
            context.schedule(10, "STREAM_TIME", lambda now: 1 // 0)

        def process(self, record: Record) -> None:
            """Nothing."""

    asked: list[ErrorContext] = []

    def handler(context: ErrorContext, error: Exception) -> Response:
        asked.append(context)
        return Response.CONTINUE

    rig = Rig(
        Topology().add_source("from-in", "in").add_processor("ticks", Ticks, "from-in"), {"processing.exception.handler": handler}
    )
    rig.pipe("in", ("a", 1, 1)).run()
    rig.task.punctuate_stream_time()
    [context] = asked
    assert (context.node, context.topic, context.raw_key, context.raw_value) == ("ticks", None, None, None)


def test_a_cached_entry_that_fails_on_flush_is_told_by_its_own_record_without_its_bytes() -> None:
    from kstreams_repl.engine.dsl import StreamsBuilder

    asked: list[ErrorContext] = []

    def handler(context: ErrorContext, error: Exception) -> Response:
        asked.append(context)
        return Response.CONTINUE

    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count().to_stream().map_values(lambda count: 1 // 0, name="boom")
    rig = Rig(builder.build(), {"statestore.cache.max.bytes": 1_000_000, "processing.exception.handler": handler})
    rig.pipe("in", ("a", 1, 1), ("b", 1, 2)).run()
    rig.commit()
    assert [(context.node, context.offset, context.raw_key) for context in asked] == [("boom", 0, None), ("boom", 1, None)]


@pytest.mark.parametrize("key", ["deserialization", "processing", "production"])
def test_retry_counts_as_fail_and_drops_nothing(key: str) -> None:
    topology = two_branches() if key != "production" else sink_of(serdes.long)
    rig = Rig(topology, {f"{key}.exception.handler": lambda context, error: "retry"})
    bad = {"deserialization": BAD, "processing": 13, "production": "text"}[key]
    with pytest.raises((SerializationError, StreamsProcessingError)):
        rig.pipe("in", ("a", bad, 1)).run()
    assert rig.task.dropped == {}


def test_a_node_goes_on_under_its_own_time_after_a_child_failed() -> None:
    class Parent(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_timestamp(999))
            self.context.get_state_store("last").put(record.key, record.value)

    class Child(Processor):
        def process(self, record: Record) -> None:
            raise LookupError("boom")

    topology = Topology().add_source("from-in", "in").add_processor("parent", Parent, "from-in").add_processor("child", Child, "parent")
    topology.add_state_store(StoreBuilder("last", StoreKind.KEY_VALUE), "parent")
    rig = Rig(topology, {"processing.exception.handler": "continue", "repl.changelog.suppression": False})
    rig.pipe("in", ("a", 1, 7)).run()
    rig.commit()
    assert rig.outbox.to("app-last-changelog") == [(b"a", b"1", 7)]


class PutsNullKeys(Processor):
    """Writes each record's key to a store, also where there is none."""

    def process(self, record: Record) -> None:
        self.context.get_state_store("s").put(record.key, record.value)
        self.context.forward(record)


def putting() -> Topology:
    topology = Topology().add_source("from-in", "in").add_processor("put", PutsNullKeys, "from-in")
    return topology.add_state_store(StoreBuilder("s", StoreKind.KEY_VALUE, serdes.string, serdes.json), "put").add_sink(
        "to-out", "out", "put"
    )


def test_a_null_key_that_a_processor_gives_a_store_is_the_handlers_to_decide() -> None:
    rig = Rig(putting(), {"processing.exception.handler": "continue", "default.key.serde": serdes.string})
    rig.pipe("in", ("a", 1, 1), (None, 2, 2), ("b", 3, 3)).run()
    assert [key for key, _, _ in rig.outbox.to("out")] == [b"a", b"b"]
    assert rig.task.dropped == {"processing": 1}


def test_a_null_key_for_a_store_stops_the_task_without_a_handler() -> None:
    rig = Rig(putting(), {"default.key.serde": serdes.string})
    rig.pipe("in", (None, 2, 2))
    with pytest.raises(NullKeyError, match="the key must not be null"):
        rig.run()


# ---- global tables -----------------------------------------------------------------------------------------------------------------


class RaisesOn13(Processor):
    def process(self, record: Record) -> None:
        if record.value == 13:
            raise LookupError("unlucky")
        self.context.get_state_store("g").put(record.key, record.value)


def with_global_store() -> Topology:
    builder = StoreBuilder("g", StoreKind.KEY_VALUE, serdes.string, serdes.json, logging=False)
    topology = Topology().add_source("from-in", "in").add_sink("to-out", "out", "from-in")
    topology.add_global_store(builder, "from-g", "G", "keep", RaisesOn13, key_serde=serdes.string, value_serde=serdes.json)
    return topology


def global_driver(**settings: Any) -> TopologyTestDriver:
    base = {"default.key.serde": serdes.string, "default.value.serde": serdes.json}
    return TopologyTestDriver(with_global_store(), base | {name.replace("_", "."): value for name, value in settings.items()})


def test_a_poison_record_of_a_global_table_stops_with_its_coordinates() -> None:
    driver = global_driver()
    driver.pipe_bytes("G", b"a", b"1", 1)
    with pytest.raises(SerializationError, match="global table at G-0 offset 1") as failure:
        driver.pipe_bytes("G", b"b", BAD, 2)
    assert (failure.value.node, failure.value.topic, failure.value.offset) == ("from-g", "G", 1)


def test_continue_leaves_a_poison_record_of_a_global_table_out_and_writes_no_dead_letter() -> None:
    with global_driver(deserialization_exception_handler="continue", errors_dead_letter_queue_topic_name="dead") as driver:
        for value in (b"1", BAD, b"3"):
            driver.pipe_bytes("G", value[:1], value, 1)
        assert driver.dropped == 1
        assert [value for _, value in driver.state_store("g").all()] == [1, 3]
        assert "dead" not in driver.produced_topic_names()


@pytest.mark.parametrize("enabled", [False, True])
def test_the_processing_handler_is_asked_about_global_stores_when_it_is_enabled(enabled: bool) -> None:
    driver = global_driver(processing_exception_handler="continue", processing_exception_handler_global_enabled=enabled)
    if enabled:
        driver.pipe_bytes("G", b"a", b"13", 1)
        assert driver.dropped == 1
    else:
        with pytest.raises(StreamsProcessingError, match="LookupError: unlucky") as failure:
            driver.pipe_bytes("G", b"a", b"13", 1)
        assert 'raise LookupError("unlucky")' in str(failure.value)


# ---- values that a store's serde cannot write ----------------------------------------------------------------------------------------


OWN = serdes.Serde(str.encode, bytes.decode, name="own", immutable=(str,))


def summing(value_serde: Any, unwritable: Any, *, logging: bool = True) -> Topology:
    """Keeps each value as the aggregate of its key; 13 becomes something that the store's serde cannot write."""
    from kstreams_repl.engine.dsl import StreamsBuilder

    builder = StreamsBuilder()
    kept = builder.stream("in").group_by_key().aggregate(
        lambda: 0, lambda key, value, total: unwritable if value == 13 else value, store="s", value_serde=value_serde, logging=logging
    )
    kept.to_stream().to("out", value_serde=value_serde)
    return builder.build()


UNWRITABLE = pytest.mark.parametrize(
    ("value_serde", "unwritable"),
    [(serdes.json, {1, 2}), (serdes.string, 13), (serdes.integer, 2**31), (serdes.long, 2**63), (OWN, "\ud800")],
)
CACHE = pytest.mark.parametrize("cache", [1_000_000, 0])


def texts(value_serde: Any, value: Any) -> Any:
    return str(value) if value_serde in (serdes.string, OWN) else value


@CACHE
@pytest.mark.parametrize("suppressed", [True, False])
@UNWRITABLE
def test_a_value_that_a_store_cannot_write_is_the_handlers_to_decide(
    value_serde: Any, unwritable: Any, suppressed: bool, cache: int
) -> None:
    asked: list[tuple[ErrorContext, Exception]] = []

    def handler(context: ErrorContext, error: Exception) -> Response:
        asked.append((context, error))
        return Response.CONTINUE

    settings = {"statestore.cache.max.bytes": cache, "processing.exception.handler": handler, "repl.changelog.suppression": suppressed}
    rig = Rig(summing(value_serde, unwritable), settings | DEAD)
    first, last = texts(value_serde, 1), texts(value_serde, 3)
    rig.pipe("in", ("k", first, 1), ("k", 13, 2), ("z", last, 3)).run()
    rig.commit()
    assert rig.outbox.to("out") == [(b"k", value_serde.serialize(first), 1), (b"z", value_serde.serialize(last), 3)]
    assert [(context.node, context.topic, context.offset) for context, _ in asked] == [("KSTREAM-AGGREGATE-0000000001", "in", 1)]
    assert rig.outbox.to("dead") == [(b"k", b"13", 2)]
    assert rig.task.dropped == {"processing": 1}
    assert rig.task.stores["s"].get("k") == (first, 1)


@CACHE
@UNWRITABLE
def test_without_a_handler_it_stops_the_task_with_node_and_the_record_that_brought_it(
    value_serde: Any, unwritable: Any, cache: int
) -> None:
    rig = Rig(summing(value_serde, unwritable), {"statestore.cache.max.bytes": cache, "repl.changelog.suppression": cache > 0})
    rig.pipe("in", ("k", texts(value_serde, 1), 1), ("k", 13, 2), ("z", texts(value_serde, 3), 3))
    with pytest.raises(StreamsProcessingError, match="cannot write|surrogates not allowed") as failure:
        rig.run()
        rig.commit()
    error = failure.value
    assert error.node == "KSTREAM-AGGREGATE-0000000001"
    assert (cache and value_serde in (serdes.integer, serdes.long)) or (error.topic, error.partition, error.offset) == ("in", 0, 1)


def test_a_punctuation_that_writes_what_a_store_cannot_is_the_handlers_too() -> None:
    class Ticks(Processor):
        def init(self, context: Any) -> None:
            context.schedule(10, "STREAM_TIME", lambda now: context.get_state_store("s").put("k", {1, 2}))

        def process(self, record: Record) -> None:
            """Nothing."""

    topology = Topology().add_source("from-in", "in").add_processor("ticks", Ticks, "from-in")
    topology.add_state_store(StoreBuilder("s", StoreKind.KEY_VALUE, serdes.string, serdes.json), "ticks")
    rig = Rig(topology, {"processing.exception.handler": "continue"})
    rig.pipe("in", ("a", 1, 1)).run()
    rig.task.punctuate_stream_time()
    assert rig.task.dropped == {"processing": 1}
    rig = Rig(topology)
    rig.pipe("in", ("a", 1, 1)).run()
    with pytest.raises(StreamsProcessingError, match="json serde cannot write a value of type set") as failure:
        rig.task.punctuate_stream_time()
    assert failure.value.node == "ticks"


def test_what_a_sink_cannot_write_stays_the_production_handlers() -> None:
    rig = Rig(sink_of(serdes.long), {"processing.exception.handler": "continue"})
    rig.pipe("in", ("a", 1, 1), ("b", "text", 2))
    with pytest.raises(SerializationError, match="the value serde of to-out"):
        rig.run()


def test_the_handler_is_asked_about_what_a_store_is_given_and_not_about_what_it_holds() -> None:
    """A row that cannot be read may come up in a flush, where going on would lose the changes of other records."""
    assert task_errors.of_the_user(wrong_type("long", "x", "integers"))
    assert not task_errors.of_the_user(wrong_bytes("long", b"x", "8 bytes"))
