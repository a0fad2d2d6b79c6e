"""Records that processors make, and what `schedule` takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kstreams_repl import FixedKeyRecord, Processor, Record, StoreBuilder, StoreKind, StreamsBuilder
from kstreams_repl.system.errors import InvalidRecordError, KStreamsError
from kstreams_repl.testing import MockProcessorContext, TopologyTestDriver

TEXT = {"default.key.serde": "string", "default.value.serde": "json"}


@pytest.mark.parametrize("kind", [Record, FixedKeyRecord])
def test_a_new_record_has_headers_of_its_own(kind: Any) -> None:
    headers = [("a", b"1")]
    record = kind("key", 1, 5, headers)
    record.headers.append(("b", b"2"))
    assert headers == [("a", b"1")]
    assert record.with_value(2).headers == record.headers and record.with_value(2).headers is not record.headers


def test_headers_added_to_a_record_made_from_anothers_are_not_the_others() -> None:
    class Making(Processor):
        def process(self, record: Record) -> None:
            made = Record(record.key, 2, record.timestamp, record.headers)
            made.headers.append(("made", b"1"))
            self.context.forward(record)
            self.context.forward(made)

    builder = StreamsBuilder()
    builder.stream("in").process(Making).to("out")
    driver = TopologyTestDriver(builder.build(), TEXT)
    driver.create_input_topic("in", "string", "json").pipe_input("a", 1, 1, [("old", b"0")])
    records = driver.create_output_topic("out", "string", "json").read_records()
    assert [record.headers for record in records] == [[("old", b"0")], [("old", b"0"), ("made", b"1")]]


@pytest.mark.parametrize("kind", [Record, FixedKeyRecord])
def test_headers_may_be_a_dict(kind: Any) -> None:
    record = kind("key", 1, 5, {"a": b"1"})
    assert record.headers == record.with_value(2).headers == [("a", b"1")]
    assert record.with_headers({"b": None}).headers == [("b", None)]


@pytest.mark.parametrize("kind", [Record, FixedKeyRecord])
def test_no_headers_may_be_none(kind: Any) -> None:
    assert kind("key", 1, 5, None).with_value(2).headers == []


@pytest.mark.parametrize("kind", [Record, FixedKeyRecord])
@pytest.mark.parametrize("timestamp", [1.5, None, "1", -1, True, 2**63])
def test_a_timestamp_is_whole_milliseconds(kind: Any, timestamp: Any) -> None:
    with pytest.raises(InvalidRecordError, match="timestamp"):
        kind("key", 1, timestamp)


def scheduled(*arguments: Any, **options: Any) -> list[int]:
    """When the callback ran, for records at 5, 15 and 25."""
    fired: list[int] = []

    class Ticking(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(*arguments, *(() if len(arguments) > 2 else (fired.append,)), **options)

        def process(self, record: Record) -> None:
            """Only time matters."""

    builder = StreamsBuilder()
    builder.stream("in").process(Ticking, name="ticking")
    driver = TopologyTestDriver(builder.build(), TEXT, start_ms=0)
    driver.create_input_topic("in", "string", "json").pipe_records([("a", 1, 5), ("a", 1, 15), ("a", 1, 25)])
    return fired


def test_a_punctuation_starts_at_a_datetime() -> None:
    start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=12)
    assert scheduled(10, "STREAM_TIME", start=start) == scheduled(10, "STREAM_TIME", start=start.replace(tzinfo=None)) == [15, 25]


@pytest.mark.parametrize(
    ("arguments", "options", "told"),
    [
        ((1.5, "STREAM_TIME"), {}, "whole milliseconds, 1 or more"),
        ((0, "STREAM_TIME"), {}, "whole milliseconds, 1 or more"),
        ((1, "STREAM"), {}, "unknown punctuation type"),
        ((1, "STREAM_TIME", None), {}, "expected a function to call that is not async"),
        ((1, "STREAM_TIME"), {"start": timedelta(1)}, "as the start of"),
    ],
)
def test_wrong_schedules_are_told_by_the_real_context_and_the_mock(arguments: Any, options: Any, told: str) -> None:
    with pytest.raises(KStreamsError, match=told) as caught:
        scheduled(*arguments, **options)
    assert caught.value.node == "ticking"
    with pytest.raises(KStreamsError, match=told):
        MockProcessorContext().schedule(*arguments, *(() if len(arguments) > 2 else (print,)), **options)


def test_stores_of_a_mock_have_the_default_serdes_of_its_config() -> None:
    context = MockProcessorContext(TEXT, stores=(StoreBuilder("counts", StoreKind.KEY_VALUE),))
    context.get_state_store("counts").put("a", {"n": 1})
    assert context.get_state_store("counts").get("a") == {"n": 1}
    assert context.key_serde.name == "string" and context.value_serde.name == "json"


def test_a_mock_takes_an_open_store() -> None:
    builder = StreamsBuilder()
    builder.table("in", store="rows")
    driver = TopologyTestDriver(builder.build(), TEXT)
    context = MockProcessorContext()
    context.add_state_store(driver.state_store("rows"))
    assert context.get_state_store("rows").get("a") is None


def test_a_processor_knows_the_default_serdes() -> None:
    seen = []

    class Looking(Processor):
        def init(self, context: Any) -> None:
            seen.append((context.key_serde.name, context.value_serde.name))

        def process(self, record: Record) -> None:
            """Nothing to do."""

    builder = StreamsBuilder()
    builder.stream("in").process(Looking)
    TopologyTestDriver(builder.build(), TEXT)
    assert seen == [("string", "json")]
