"""One rule for every duration of the public API: a timedelta, a text with a unit, or a number (ms of event time, seconds of a wait)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import MagicMock

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.dsl import kip28
from kstreams_repl.system.durations import as_millis, as_seconds
from kstreams_repl.system.errors import CallError, TopologyError
from tests.unit.public_api import classes, functions

NAMES = {
    "timeout", "seconds", "size", "size_ms", "advance", "grace", "gap", "difference", "before", "after", "retention", "history",
    "history_retention", "window_size", "limit", "interval", "duration", "by", "auto_advance", "backoff", "max_backoff", "breaker_rest",
    "within", "retry_backoff", "max_retry_backoff", "delay", "every", "ttl", "pause", "period", "wait", "commit_interval_ms",
}  # fmt: skip
OTHER_MEANINGS = {
    "Admin.delete_records": "offsets",
    "Application.__init__": "made by a session",
    "AsyncQueryClient.__init__": "made by `connect_async`, which checks it",
    "BatchReport.__init__": "measured",
    "DiffText.of": "texts",
    "EditPlan.__init__": "made by an application",
    "FixedKeyProcessorContext.schedule": "a protocol; the one of `MockProcessorContext` is called",
    "ProcessingContext.schedule": "a protocol",
    "ProcessorContext.schedule": "a protocol",
    "QueryClient.__init__": "made by `connect`, which checks it",
    "QueryClient.subscribe": "the id of an event",
    "RetryReport.__init__": "counts",
    "TestInputTopic.__init__": "made by the driver, in ms",
    "TimeWindows.__init__": "the fields of `of_size`, checked there",
    "Version.diff": "another version",
    "kip28.KStreamBuilder.table": "passed on to `StreamsBuilder.table`",
    "kip28.ProcessorContext.schedule": "passed on to the context",
}
BAD = ["soon", "30", "5 parsecs", "", True, [1], float("nan"), -1, "-1 s", timedelta(seconds=-1)]
AS_SECONDS = [timedelta(milliseconds=20), "20 ms", "20ms", 0.02]
AS_MILLIS = [timedelta(seconds=30), "30 s", "0.5 min", 30_000]
PAGE = "kstreams_repl.repl.session"
DELEGATES = {
    "Application.explain": f"{PAGE}.application.application.explain",
    "Application.tap": f"{PAGE}.application.application.live_tap",
    "Application.query": f"{PAGE}.application.application.strict_queries_of",
    "Application.tail": f"{PAGE}.application.application.live_tail",
    "Application.wait": f"{PAGE}.application.application.wait_until",
    "Fork.promote": f"{PAGE}.application.forks.fork.promote_fork",
    "Look.topics": "kstreams_repl.repl.look.look_at.time.sleep",
    "Session.values": f"{PAGE}.topic_access.last_values",
    "Session.record": f"{PAGE}.topic_access.record_topics",
    "Session.sample": f"{PAGE}.topic_access.sample",
    "SqlResult.limited": "kstreams_repl.repl.inspection.result.threading.Timer",
}
"""What a waiting function hands its seconds to."""


@functools.cache
def durations() -> list[tuple[str, str]]:
    """Every duration of a public function: the function and the parameter."""
    return [
        (name, parameter.name)
        for name, function in functions().items()
        for parameter in inspect.signature(function).parameters.values()
        if name not in OTHER_MEANINGS
        and (parameter.name in NAMES or any(word in str(parameter.annotation) for word in ("Millis", "Seconds")))
    ]


def counts_seconds(name: str) -> bool:
    return name.split(".")[0] in ("Admin", "Application", "AsyncOptions", "Fork", "Look", "Retries", "Session", "SqlResult")


def builder_with(part: str) -> tuple[ks.StreamsBuilder, Any]:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde="string")
    grouped = stream.group_by_key()
    table = builder.table("table", key_serde="string", value_serde="string", store="table", history=3_600_000)
    windows: dict[str, Callable[[Any], Any]] = {
        "Time": lambda grouped: grouped.windowed_by(ks.TimeWindows.of_size(10)),
        "Session": lambda grouped: grouped.windowed_by(ks.SessionWindows.of_inactivity_gap(10)),
        "Sliding": lambda grouped: grouped.windowed_by(ks.SlidingWindows.of_time_difference(10)),
    }
    made: dict[str, Callable[[], Any]] = {
        "StreamsBuilder": lambda: builder, "KStream": lambda: stream, "KTable": lambda: table, "KGroupedStream": lambda: grouped,
        "KGroupedTable": lambda: table.group_by(lambda key, value: (key, value)),
        "CogroupedKStream": lambda: grouped.cogroup(lambda key, value, old: value),
        "kip28.KStreamWindowed": lambda: stream.with_(10),
    }  # fmt: skip
    for kind, windowed in windows.items():
        made[f"{kind}WindowedKStream"] = lambda windowed=windowed: windowed(grouped)
        made[f"{kind}WindowedCogroupedKStream"] = lambda windowed=windowed: windowed(grouped.cogroup(lambda key, value, old: value))
    return builder, made[part]() if part in made else None


def outcome(name: str, parameter: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call a public function with a duration; return its result in a form that can be compared."""
    kind, method = name.rsplit(".", 1) if "." in name else ("", name)
    cls = classes().get(kind)
    builder, receiver = builder_with(kind)
    if "kip28" in name:
        cls = getattr(kip28, kind.removeprefix("kip28."))
    function = functions()[name] if cls is None or method == "__init__" else inspect.getattr_static(cls, method)
    delegate = MagicMock()
    if isinstance(function, staticmethod | classmethod):
        function = getattr(cls, method)
    elif method == "__init__":
        function = cls
    elif cls is not None:
        function = getattr(cls, method)
    if name in DELEGATES:
        monkeypatch.setattr(DELEGATES[name], delegate)
        monkeypatch.setattr(f"{PAGE}.topic_access.built_with_serdes", lambda *_: (None, None))
        monkeypatch.setattr(f"{PAGE}.application.application.node_name", lambda *_: "node")
    other: Any = builder.table("other", key_serde="string", value_serde="string", store="other", history=3_600_000)
    given: dict[str, Any] = {
            "other": other, "joiner": lambda left, right: left, "predicate": lambda key, value: True, "store": "made",
            "adder": lambda key, value, total: total, "subtractor": lambda key, value, total: total, "reducer": lambda old, new: new,
            "aggregator": lambda key, value, total: total, "initializer": lambda: "", "merger": lambda key, left, right: left,
            "session_merger": lambda key, left, right: left, "topic": "more", "name": "named", "grace": 0, "size": 60_000, "gap": 60_000,
            "difference": 60_000, "retention": 120_000, "window_size": 1, "history_retention": 1, "n": 2, "rows": 2, "node": "node",
            "target": "node", "topology": builder, "request": MagicMock(), "settings": MagicMock(), "mapper": lambda value: value,
            "function": lambda value: value, "query": "SELECT key, count(*) AS n FROM this GROUP BY key",
            "value_serde": "string", "inner": "string",
            "punctuation": "STREAM_TIME", "callback": print, "values": ["a", "b"], "pairs": [("a", "b"), ("a", "c")], "supplier": MagicMock,
            "path": "/tmp/table", "schema": {"a": "string"}, "max_records": 1, "transformer": MagicMock,
            "key_schema": {"a": "string"},
        }  # fmt: skip
    if name == "KGroupedTable.reduce":
        given |= {"adder": lambda total, value: total, "subtractor": lambda total, value: total}
    if receiver is None and cls is not None and method != "__init__" and not inspect.ismethod(function):
        static = isinstance(inspect.getattr_static(cls, method), staticmethod)
        if kind == "JoinWindows":
            receiver = ks.JoinWindows.of_time_difference(10)
        elif kind == "TimeWindows":
            receiver = ks.TimeWindows.of_size(60_000)
        elif kind == "Materialized":
            receiver = ks.Materialized.as_("made")
        elif kind == "MockProcessorContext":
            receiver = ks.testing.MockProcessorContext()
        elif kind.startswith("Test") or kind == "TopologyTestDriver":
            driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            receiver = driver if kind == "TopologyTestDriver" else driver.create_input_topic("in", "string", "string", start_timestamp=0)
            given |= {"topic": "in"}
            if method.startswith("pipe_"):
                monkeypatch.setattr(ks.testing.TestInputTopic, "pipe_input", delegate)
        elif not static:
            receiver = MagicMock()
            receiver._core.run_of_another_kernel.return_value.status = "running"
            receiver._made_here.return_value = ("the parent", "the fork", "its plan")
    signature = inspect.signature(function)
    given = {other: 1 for function_name, other in durations() if function_name == name} | given
    bound: dict[str, Any] = {
        each.name: given[each.name]
        for each in signature.parameters.values()
        if each.default is inspect.Parameter.empty and each.name in given and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    }
    if "store" in signature.parameters and parameter == "history" and kind:
        bound["store"] = "made"
    if "start_timestamp" in signature.parameters:
        bound["start_timestamp"] = 0
    bound[parameter] = value
    if kind == "Materialized" and parameter == "history":
        bound["name" if method == "__init__" else "store"] = "made"
        bound = {key: each for key, each in bound.items() if key in signature.parameters}
    made = function(*([receiver] if receiver is not None else []), **bound)
    if counts_seconds(name) and kind != "AsyncOptions":
        if kind == "Admin":
            return made._seconds
        calls = [*delegate.mock_calls, *(receiver.mock_calls if kind == "Retries" else ())]
        return [each for _, args, kwargs in calls for each in (*args, *kwargs.values()) if isinstance(each, float | str | timedelta)]
    if isinstance(made, ks.KTable | ks.KStream) or made is None and isinstance(receiver, ks.KStream):
        topology = builder.build()
        return str(topology), [repr(store) for store in topology.stores.values()]
    if isinstance(receiver, ks.testing.TopologyTestDriver | ks.testing.TestInputTopic) and not isinstance(made, ks.testing.TestInputTopic):
        return delegate.mock_calls, driver.now(), getattr(receiver, "_next", None)
    if isinstance(made, ks.testing.TestInputTopic):
        return made._advance
    if kind == "MockProcessorContext":
        return [(each.interval_ms, each.start_ms) for each in receiver.scheduled_punctuators()]
    return repr(made)


def test_every_duration_is_annotated_as_one() -> None:
    """`Millis` or `Seconds`: what a type checker and the documentation say. The fields of `AsyncOptions` are read back as numbers."""
    wrong = []
    for name, parameter in durations():
        annotation = str(inspect.signature(functions()[name]).parameters[parameter].annotation)
        if not name.startswith("AsyncOptions") and ("Seconds" if counts_seconds(name) else "Millis") not in annotation:
            wrong.append((name, parameter, annotation))
    assert wrong == []
    assert len(durations()) > 80


@pytest.mark.parametrize(("name", "parameter"), durations())
def test_a_timedelta_a_text_and_a_number_are_the_same(name: str, parameter: str) -> None:
    results = []
    for value in AS_SECONDS if counts_seconds(name) else AS_MILLIS:
        with pytest.MonkeyPatch.context() as patched:
            results.append(outcome(name, parameter, value, patched))
    assert results[0]
    assert results == results[:1] * len(results)


@pytest.mark.parametrize(("name", "parameter"), durations())
def test_anything_else_is_refused_at_the_call(name: str, parameter: str) -> None:
    signed = name.startswith("JoinWindows") and (parameter in ("before", "after") or name in ("JoinWindows.before", "JoinWindows.after"))
    for value in BAD[:7] if signed else BAD:
        with pytest.MonkeyPatch.context() as patched, pytest.raises((CallError, TopologyError)) as refused:
            outcome(name, parameter, value, patched)
        assert f"{parameter} must be a duration" in str(refused.value)
        assert repr(value) in str(refused.value)
        assert "Hint: give " in str(refused.value)


@pytest.mark.parametrize("connect", [ks.queries.connect, ks.queries.connect_async])
def test_a_client_of_a_query_server_refuses_what_is_no_duration(connect: Callable[..., Any]) -> None:
    for value in (*BAD, 0, "0 s"):
        with pytest.raises(CallError, match="timeout must be a duration above 0 s"):
            connect("http://127.0.0.1:1", token="t", timeout=value)


def test_a_plain_number_is_seconds_at_an_asynchronous_node_too() -> None:
    options = ks.AsyncOptions(timeout=2, backoff="50 ms", retry_backoff=timedelta(minutes=1))
    assert (options.timeout, options.backoff, options.retry_backoff) == (2.0, 0.05, 60.0)


def test_milliseconds_are_exact() -> None:
    assert as_millis("2.3 s", "size") == as_millis(timedelta(seconds=2.3), "size") == 2300
    assert as_millis("9007199254740993 ms", "size") == 9007199254740993
    assert [as_millis(text, "size") for text in ("2 min", "1 h", "1d", "2 days", "1 hour")] == [
        120_000, 3_600_000, 86_400_000, 172_800_000, 3_600_000
    ]  # fmt: skip
    assert as_seconds("0.1 s", "timeout") == 0.1
    for value in ("0.5 ms", timedelta(microseconds=1), 0.5, 5.0):
        with pytest.raises(TopologyError, match="size must be a duration of whole milliseconds"):
            as_millis(value, "size")
