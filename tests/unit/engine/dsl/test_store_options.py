"""Descriptions of stores and windows that cannot be are refused where they are written; those that can be mean the same in any form."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import (
    Branched,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StoreBuilder,
    StoreKind,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)
from kstreams_repl.engine.dsl.options import StoreOptions, WindowOptions
from kstreams_repl.system.errors import CallError, ConfigError, NullKeyError, SerializationError, TopologyError
from kstreams_repl.system.types import Windowed
from kstreams_repl.testing import TopologyTestDriver

ROOT = Path(__file__).parents[4]
TEXT = {"default.key.serde": "string", "default.value.serde": "json"}


@pytest.mark.parametrize(
    "options",
    [
        {"kind": StoreKind.WINDOW, "retention_ms": 5, "window_size_ms": 10},
        {"kind": StoreKind.WINDOW, "retention_ms": -5, "window_size_ms": 10},
        {"kind": StoreKind.WINDOW, "retention_ms": 50, "window_size_ms": -10},
        {"kind": StoreKind.WINDOW, "retention_ms": 50},
        {"kind": StoreKind.SESSION, "retention_ms": -1},
        {"kind": StoreKind.VERSIONED, "retention_ms": -1},
        {"kind": StoreKind.VERSIONED, "retention_ms": timedelta(seconds=1)},
        {"kind": StoreKind.LRU, "max_entries": 0},
        {"kind": StoreKind.LRU, "max_entries": -1},
        {"kind": "key-valu"},
    ],
    ids=str,
)
def test_a_store_that_cannot_be_is_refused(options: dict[str, Any]) -> None:
    """A negative retention dropped every put in silence, and a window store without a size had windows without an end."""
    with pytest.raises(TopologyError, match="store 's'") as caught:
        StoreBuilder("s", **options)
    assert caught.value.store == "s" and caught.value.hint


@pytest.mark.parametrize("option", ["caching", "logging", "persistent"])
def test_a_builder_refuses_an_option_that_is_no_flag_as_a_materialized_does(option: str) -> None:
    for make in (lambda given: StoreBuilder("s", StoreKind.KEY_VALUE, **given), lambda given: Materialized("s", **given)):
        with pytest.raises(TopologyError, match=f"{option} must be True or False, got 'no'"):
            make({option: "no"})


def test_a_store_without_a_changelog_has_no_settings_of_one() -> None:
    assert Materialized("s", topic_config={"segment.ms": "1"}).with_logging_disabled().topic_config == {}


def test_a_kind_may_be_given_as_text() -> None:
    assert StoreBuilder("s", "key-value").kind is StoreKind.KEY_VALUE  # type: ignore[arg-type]


@pytest.mark.parametrize("windows", [TimeWindows.of_size(10), SlidingWindows.of_time_difference(10), SessionWindows.of_inactivity_gap(10)])
def test_windows_have_no_history(windows: Any) -> None:
    """It was left out in silence, but the table counted as versioned."""
    grouped = StreamsBuilder().stream("in").group_by_key()
    with pytest.raises(TopologyError, match="keeps no versions"):
        grouped.windowed_by(windows).count(store=Materialized("counts", history=1000))
    cogrouped = StreamsBuilder().stream("in").group_by_key().cogroup(lambda key, value, so_far: so_far).windowed_by(windows)
    merger = (lambda key, one, other: one,) if isinstance(windows, SessionWindows) else ()
    with pytest.raises(TopologyError, match="keeps no versions"):
        cogrouped.aggregate(lambda: 0, *merger, store=Materialized("counts", history=1000))


@pytest.mark.parametrize("windows", [TimeWindows.of_size(10), SlidingWindows.of_time_difference(10), SessionWindows.of_inactivity_gap(10)])
def test_names_of_serdes_and_timedeltas_will_do_in_materialized(windows: Any) -> None:
    builder = StreamsBuilder()
    kept = Materialized("counts", key_serde="string", retention=timedelta(seconds=1))  # type: ignore[arg-type]
    builder.stream("in", key_serde="string").group_by_key().windowed_by(windows).count(store=kept).to_stream().to("out")
    driver = TopologyTestDriver(builder.build(), {"default.value.serde": "json"})
    driver.create_input_topic("in", "string", "json").pipe_input("a", 1, 20)
    assert driver.state_store("counts").all().__next__()[0].key == "a"


def test_options_that_cannot_be_are_refused_in_materialized() -> None:
    with pytest.raises(ConfigError, match="strng"):
        Materialized("counts", key_serde="strng")
    with pytest.raises(TopologyError, match="retention"):
        Materialized("counts", retention=-1)
    with pytest.raises(TopologyError, match="topic_config"):
        Materialized("counts", topic_config="compact")  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [(0, 0), (5, 10), (5, 0), (5, 5, -1)])
def test_windows_made_without_of_size_are_checked_too(arguments: tuple[int, ...]) -> None:
    with pytest.raises(TopologyError):
        TimeWindows(*arguments)


@pytest.mark.parametrize("topics", [5, b"in"])
def test_a_topic_of_the_wrong_type_is_refused(topics: Any) -> None:
    with pytest.raises(TopologyError, match="names of topics"):
        StreamsBuilder().stream(topics)
    with pytest.raises(TopologyError, match="as a regular expression"):
        StreamsBuilder().stream(pattern=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("branched", ["red", Branched(with_function=5), Branched(with_consumer=lambda: None)])  # type: ignore[arg-type]
def test_what_becomes_of_a_branch_is_checked(branched: Any) -> None:
    splitter = StreamsBuilder().stream("in").split()
    with pytest.raises(TopologyError):
        splitter.branch(lambda key, value: True, branched)


@pytest.mark.parametrize("bound", ["many", 1.5])
def test_bounds_of_a_buffer_are_whole_numbers(bound: Any) -> None:
    with pytest.raises(TopologyError, match="max_records"):
        Suppressed.until_time_limit(5, max_records=bound)


def test_windowed_serdes_take_the_name_of_their_inner_one() -> None:
    key = Windowed("a", 5, 15)
    for named, given in ((serdes.time_windowed("string", 10), serdes.time_windowed(serdes.string, 10)), (
        serdes.session_windowed("string"), serdes.session_windowed(serdes.string)
    )):
        data = named.serialize(key)
        assert data == given.serialize(key) and named.deserialize(data) == key
    with pytest.raises(ConfigError, match="strng"):
        serdes.time_windowed("strng", 10)


def test_functions_of_sinks_are_checked_at_the_call() -> None:
    stream = StreamsBuilder().stream("in")
    with pytest.raises(TopologyError, match="partitioner"):
        stream.to("out", partitioner=lambda key: 0)
    with pytest.raises(TopologyError, match="topic"):
        stream.to(lambda key, value: "out")
    with pytest.raises(TopologyError, match="mapper"):
        stream.print(mapper=5)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="partitioner"):
        stream.repartition(partitioner=5)  # type: ignore[arg-type]


def opened(builder: StoreBuilder) -> Any:
    class Using:
        def process(self, record: Any) -> None:
            """The test uses the store."""

    made = StreamsBuilder().add_state_store(builder)
    made.stream("in").process(Using, stores=builder.name)
    return TopologyTestDriver(made.build(), TEXT).state_store(builder.name)


@pytest.mark.parametrize("value", [5, "ab", {"n": 1}, [1, 2], (1, 2, 3)])
def test_a_timestamped_store_wants_a_timestamp_with_each_value(value: Any) -> None:
    """A list of two was taken for value and timestamp, and a text failed at the commit."""
    with pytest.raises(SerializationError, match=r"expected \(value, timestamp\)"):
        opened(StoreBuilder("s", StoreKind.TIMESTAMPED_KEY_VALUE)).put("a", value)
    with pytest.raises(SerializationError, match=r"expected \(value, timestamp\)"):
        opened(StoreBuilder("s", StoreKind.TIMESTAMPED_WINDOW, window_size_ms=5, retention_ms=5)).put("a", value, 0)


def test_a_prefix_is_written_by_a_serde_its_name_a_function_or_the_stores_own() -> None:
    store = opened(StoreBuilder("s", StoreKind.KEY_VALUE))
    store.put_all({"ab": 1, "ac": 2, "b": 3})
    for serialize in (None, "string", str.encode):
        assert list(store.prefix_scan("a", serialize)) == [("ab", 1), ("ac", 2)]
    assert list(store.prefix_scan("a", serdes.string)) == [("ab", 1), ("ac", 2)]
    with pytest.raises(NullKeyError):
        store.prefix_scan(None)


def test_sessions_of_several_keys_are_fetched_backward() -> None:
    store = opened(StoreBuilder("s", StoreKind.SESSION, retention_ms=100))
    sessions = [Windowed(key, start, start + 5) for key in "abc" for start in (0, 10)]
    for session in sessions:
        store.put(session, 1)
    assert [session for session, _ in store.backward_fetch_range("a", "b")] == sessions[:4][::-1]


def test_the_reference_lists_the_table_of_options() -> None:
    page = (ROOT / "docs" / "reference" / "operators" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \| (.+?) \| (.+?) \|$", page, re.MULTILINE)
    table = [
        (option.name, str({} if option.default is MISSING else option.default), option.metadata["stores"], option.metadata["meaning"])
        for option in fields(Materialized)
    ]
    assert rows == table


def test_the_arguments_of_operators_are_the_table_of_options() -> None:
    """All but the name, which is `store=`, and headers, which Kafka Streams has no argument for."""
    assert {"name", "headers", *StoreOptions.__annotations__} == {option.name for option in fields(Materialized)}
    assert WindowOptions.__annotations__.keys() == StoreOptions.__annotations__.keys() - {"history"}


@pytest.mark.parametrize("option", ["caching", "logging", "persistent", "headers"])
def test_a_flag_of_a_store_is_true_or_false(option: str) -> None:
    """A text was true: caching="off" was a cache."""
    with pytest.raises(TopologyError, match=f"{option} must be True or False, got 'off'"):
        Materialized("counts", **{option: "off"})  # type: ignore[arg-type]


def test_an_option_that_an_operator_does_not_have_is_refused_with_the_next_one() -> None:
    grouped = StreamsBuilder().stream("in").group_by_key()
    with pytest.raises(CallError, match="no argument 'cashing'") as caught:
        grouped.count(cashing=True)  # type: ignore[call-arg]
    assert "caching" in str(caught.value.hint)
    with pytest.raises(CallError, match="no argument 'retention'"):
        grouped.count(retention=5)  # type: ignore[call-arg]
