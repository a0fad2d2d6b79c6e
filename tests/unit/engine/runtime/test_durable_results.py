"""Durable results: what a finished call returned is taken from its log after a rollback, and from nowhere when anything differs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.system.errors import StreamsProcessingError, TopologyError
from kstreams_repl.system.types import TopicPartition
from kstreams_repl.test_driver.virtual_calls import MemoryResultLog, VirtualCallRunner
from tests.unit.engine.runtime.rig import Rig

LOG = TopicPartition("app-pay-results-changelog", 0)


class Service:
    """Counts its calls, in a queue that no fingerprint of the function looks into."""

    def __init__(self, answer: Callable[[Any], Any] = lambda value: {"paid": value}) -> None:
        self._called: SimpleQueue[Any] = SimpleQueue()
        self._calls: list[Any] = []
        self.answer = answer

    def function(self) -> Any:
        """A function whose code is the same at each run of this method."""
        called, answer = self._called, self.answer

        async def pay(value: Any) -> Any:
            called.put(value)
            return answer(value)

        return pay

    @property
    def calls(self) -> list[Any]:
        """The values of all calls."""
        while not self._called.empty():
            self._calls.append(self._called.get())
        return self._calls


def topology(function: Any, *, before: Any = None, name: str = "map_values_async", **options: Any) -> Any:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde="json")
    if before is not None:
        stream = stream.map_values(before)
    options = {"name": "pay", "durable": True, "value_serde": "json"} | options
    getattr(stream, name)(function, **options).to("out", key_serde="string", value_serde="json")
    return builder.build()


class Log(MemoryResultLog):
    """Loses the first results: their acknowledgement never comes."""

    lost = 0

    async def append(self, partition: TopicPartition, key: bytes, value: bytes) -> int:
        if self.lost:
            self.lost -= 1
            await asyncio.Event().wait()
        return await super().append(partition, key, value)


class Crashing:
    """One task that starts again and again from the last commit; the log of results outlives it."""

    def __init__(self) -> None:
        self.log = Log()
        self.environment = MemoryEnvironment()
        self.offset = 0

    def start(self, graph: Any) -> Rig:
        runners: list[VirtualCallRunner] = []

        def runner() -> VirtualCallRunner:
            runners.append(VirtualCallRunner(lambda: 0, log=self.log))
            return runners[-1]

        rig = Rig(graph, environment=self.environment, calls=runner)
        self.calls = runners[0]
        return rig

    def run(self, rig: Rig) -> list[Any]:
        """Process all, with calls; return what left."""
        for _ in range(10):
            rig.run()
            self.calls.run()
        return [ks.serdes.json.deserialize(value) for _, value, _ in rig.outbox.to("out")]

    def crash(self, rig: Rig) -> None:
        """What was not committed is gone."""
        self.environment.rollback()
        self.calls.close()

    def commit(self, rig: Rig) -> None:
        plan = rig.commit()
        assert rig.task.calls is not None
        rig.task.calls.committed(plan.offsets)


ROWS = (("a", 1, 0), ("b", 2, 1), ("a", 3, 2))


def test_a_rolled_back_commit_repeats_no_finished_call() -> None:
    service, app = Service(), Crashing()
    rig = app.start(topology(service.function())).pipe("in", *ROWS)
    assert app.run(rig) == [{"paid": 1}, {"paid": 2}, {"paid": 3}]
    app.crash(rig)
    rig = app.start(topology(service.function())).pipe("in", *ROWS)
    assert app.run(rig) == [{"paid": 1}, {"paid": 2}, {"paid": 3}]
    assert service.calls == [1, 2, 3]


def test_a_call_in_flight_is_the_only_one_repeated() -> None:
    service, app = Service(), Crashing()
    rig = app.start(topology(service.function(), order="partition")).pipe("in", *ROWS)
    app.log.lost = 1  # the first result is not acknowledged
    app.run(rig)
    app.commit(rig)
    app.crash(rig)
    rig = app.start(topology(service.function(), order="partition"))
    assert app.run(rig) == [{"paid": 1}, {"paid": 2}, {"paid": 3}]
    assert service.calls == [1, 2, 3, 1]


def test_without_the_option_all_calls_are_repeated() -> None:
    service, app = Service(), Crashing()
    for _ in range(2):
        rig = app.start(topology(service.function(), durable=False)).pipe("in", *ROWS)
        app.run(rig)
        app.crash(rig)
    assert service.calls == [1, 2, 3, 1, 2, 3]
    assert not app.log.rows


def test_another_input_and_another_function_are_called() -> None:
    service, app = Service(), Crashing()
    rig = app.start(topology(service.function())).pipe("in", *ROWS)
    app.run(rig)
    app.crash(rig)
    rig = app.start(topology(service.function(), before=lambda value: 20 if value == 2 else value)).pipe("in", *ROWS)
    assert app.run(rig) == [{"paid": 1}, {"paid": 3}, {"paid": 20}]  # which is of another key
    assert service.calls == [1, 2, 3, 20]
    app.crash(rig)

    async def other(value: Any) -> Any:
        return {"unpaid": value}

    rig = app.start(topology(other)).pipe("in", *ROWS)
    assert app.run(rig) == [{"unpaid": 1}, {"unpaid": 2}, {"unpaid": 3}]


@pytest.mark.parametrize(
    ("name", "answer", "expected"),
    [
        ("map_values_async", lambda value: None, [None]),
        ("map_values_async", lambda value: (value, "ä"), [[1, "ä"]]),
        ("filter_async", lambda value: True, [1]),
        ("filter_async", lambda value: 0, []),
        ("flat_map_values_async", lambda value: [value, {"b": [None]}], [1, {"b": [None]}]),
        ("flat_map_values_async", lambda value: (), []),
    ],
)
def test_what_is_forwarded_is_the_same_from_the_call_and_from_the_log(name: str, answer: Any, expected: Any) -> None:
    service, app = Service(answer), Crashing()
    function = service.function()
    keyed = name == "filter_async"

    async def predicate(key: Any, value: Any) -> Any:
        return await function(value)

    for _ in range(2):
        rig = app.start(topology(predicate if keyed else function, name=name)).pipe("in", ROWS[0])
        seen = [None if value is None else ks.serdes.json.deserialize(value) for _, value, _ in _out(app, rig)]
        assert seen == expected
        app.crash(rig)
    assert service.calls == [1]


def _out(app: Crashing, rig: Rig) -> Any:
    for _ in range(10):
        rig.run()
        app.calls.run()
    return rig.outbox.to("out")


def test_what_is_committed_is_forgotten_and_what_waits_is_not() -> None:
    service, app = Service(), Crashing()
    rig = app.start(topology(service.function(), order="partition")).pipe("in", *ROWS)
    calls = rig.task.calls
    assert calls is not None
    app.log.lost = 1
    app.run(rig)
    app.commit(rig)
    assert calls.deletable() == {LOG: 0}  # the results of the second and third wait for the first
    app.crash(rig)
    rig = app.start(topology(service.function(), order="partition"))
    app.run(rig)
    calls = rig.task.calls
    assert calls is not None
    assert calls.deletable() == {LOG: 0}
    app.commit(rig)
    assert calls.deletable() == {LOG: len(app.log.rows[LOG])}
    app.crash(rig)


def test_a_result_that_no_record_asks_for_is_forgotten_when_its_record_is_committed() -> None:
    service, app = Service(), Crashing()
    rig = app.start(topology(service.function())).pipe("in", *ROWS)
    app.run(rig)
    app.crash(rig)
    rig = app.start(topology(service.function(), before=lambda value: -value)).pipe("in", *ROWS)
    calls = rig.task.calls
    assert calls is not None
    app.run(rig)
    assert calls.deletable() == {LOG: 0}
    app.commit(rig)
    assert calls.deletable() == {LOG: 6}


def test_a_result_waits_for_a_record_that_another_node_holds_beyond_the_commit() -> None:
    service, app = Service(), Crashing()

    def graph(slow: Any) -> Any:
        builder = ks.StreamsBuilder()
        stream = builder.stream("in", key_serde="string", value_serde="json").map_values_async(slow, name="slow")
        paid = stream.map_values_async(service.function(), name="pay", durable=True, value_serde="json")
        paid.to("out", key_serde="string", value_serde="json")
        return builder.build()

    async def at_once(value: Any) -> Any:
        return value

    async def never(value: Any) -> Any:
        await asyncio.Event().wait()

    rig = app.start(graph(at_once)).pipe("in", *ROWS)
    app.run(rig)
    app.crash(rig)
    rig = app.start(graph(never)).pipe("in", *ROWS)
    app.run(rig)
    app.commit(rig)  # covers records that have not come to the second node
    app.crash(rig)
    rig = app.start(graph(at_once))
    app.run(rig)
    app.commit(rig)
    assert service.calls == [1, 2, 3]


def test_a_result_that_the_serde_cannot_write_is_an_error_with_a_hint() -> None:
    service, app = Service(lambda value: {1, 2}), Crashing()
    rig = app.start(topology(service.function())).pipe("in", *ROWS)
    with pytest.raises(StreamsProcessingError, match="cannot write") as caught:
        app.run(rig)
    assert "result_serde=" in str(caught.value)
    assert caught.value.node == "pay"


@pytest.mark.parametrize("name", ["process_async", "process_values_async"])
def test_durable_processors_are_refused(name: str) -> None:
    async def process(record: Any, context: Any) -> None: ...

    with pytest.raises(TopologyError, match=rf"{name}\(\) cannot be durable") as caught:
        topology(process, name=name)
    assert "map_values_async" in str(caught.value.hint)


def test_a_result_that_was_found_waits_for_the_calls_of_its_key_before_it() -> None:
    service, app = Service(), Crashing()
    app.log.lost = 1
    rig = app.start(topology(service.function(), order="none")).pipe("in", *ROWS)
    assert app.run(rig) == [{"paid": 2}, {"paid": 3}]
    app.crash(rig)
    rig = app.start(topology(service.function(), order="key")).pipe("in", *ROWS)
    assert app.run(rig) == [{"paid": 2}, {"paid": 1}, {"paid": 3}]
    assert service.calls == [1, 2, 3, 1]
