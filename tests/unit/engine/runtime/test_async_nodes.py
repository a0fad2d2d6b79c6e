"""Asynchronous nodes on the real task under the test driver's clock: order, state, errors, and what a commit covers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.system.errors import StreamsProcessingError, TopologyError

Build = Callable[[Any], Any]


def driver_of(build: Build, **options: Any) -> ks.testing.TopologyTestDriver:
    """A driver of a stream `in` that `build` leads to `out`."""
    builder = ks.StreamsBuilder()
    build(builder.stream("in", key_serde="string", value_serde="json")).to("out", key_serde="string", value_serde="json")
    config = options.pop("config", {})
    return ks.testing.TopologyTestDriver(builder.build(), config, start_ms=0, **options)


def pipe(driver: ks.testing.TopologyTestDriver, *rows: tuple[Any, Any]) -> None:
    topic = driver.create_input_topic("in", "string", "json")
    for number, (key, value) in enumerate(rows):
        topic.pipe_input(key, value, timestamp=number)


def out(driver: ks.testing.TopologyTestDriver) -> list[tuple[Any, Any]]:
    return driver.create_output_topic("out", "string", "json").read_key_values()


async def slept(value: Any) -> Any:
    """Wait as many milliseconds as the value says."""
    await asyncio.sleep(value / 1000)
    return value


ROWS = (("a", 100), ("a", 10), ("b", 50), ("c", 20))


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("key", [("c", 20), ("b", 50), ("a", 100), ("a", 10)]),
        ("partition", [("a", 100), ("a", 10), ("b", 50), ("c", 20)]),
        ("none", [("a", 10), ("c", 20), ("b", 50), ("a", 100)]),
    ],
)
def test_results_leave_in_the_order_that_was_asked_for(order: str, expected: list[Any]) -> None:
    with driver_of(lambda stream: stream.map_values_async(slept, order=order, name="slow")) as driver:
        pipe(driver, *ROWS)
        assert out(driver) == []
        driver.advance_wall_clock_time(1000)
        assert out(driver) == expected
        assert list(driver.state_store("slow-pending").all()) == []


def test_partition_order_runs_calls_at_the_same_time_and_key_order_one_per_key() -> None:
    for order, most in (("partition", 4), ("key", 3)):
        with driver_of(lambda stream, order=order: stream.map_values_async(slept, order=order, name="slow")) as driver:
            pipe(driver, *ROWS)
            assert driver._host.calls.callers["slow"].most_running == most


def test_a_def_and_an_async_def_give_the_same_and_latency_chooses_who_ends_first() -> None:
    def plain(value: int) -> int:
        return value + 1

    async def waits(value: int) -> int:
        return value + 1

    for function in (plain, waits):
        with driver_of(
            lambda stream, function=function: stream.map_values_async(function, order="none"), call_latency=lambda call: 100 - call.offset
        ) as driver:
            pipe(driver, *ROWS)
            driver.advance_wall_clock_time(97)
            assert out(driver) == [("c", 21)]
            driver.advance_wall_clock_time(3)
            assert out(driver) == [("b", 51), ("a", 11), ("a", 101)]


def test_filter_and_flat_map_values_behave_as_their_namesakes() -> None:
    async def even(key: str, value: int) -> bool:
        return value % 20 == 0

    async def twice(key: str, value: int) -> list[Any]:
        return [value, key]

    with driver_of(lambda stream: stream.filter_async(even).flat_map_values_async(twice, with_key=True)) as driver:
        pipe(driver, *ROWS)
        assert out(driver) == [("a", 100), ("a", "a"), ("c", 20), ("c", "c")]


def test_batches_are_filled_or_sent_after_a_while() -> None:
    seen: list[list[int]] = []

    async def many(values: list[int]) -> list[int]:
        seen.append(values)
        assert [call.offset for call in ks.current_calls()] == [value // 10 for value in values]
        return [value + 1 for value in values]

    with driver_of(lambda stream: stream.map_values_async(many, batch=3, within="20ms", order="partition")) as driver:
        pipe(driver, *((f"k{at}", at * 10) for at in range(5)))
        assert seen == [[0, 10, 20]]
        driver.advance_wall_clock_time(20)
        assert seen == [[0, 10, 20], [30, 40]]
        assert [value for _, value in out(driver)] == [1, 11, 21, 31, 41]


def test_a_batch_with_too_few_results_is_an_error_with_its_place() -> None:
    with driver_of(lambda stream: stream.map_values_async(lambda values: values[1:], batch=2, name="short")) as driver:
        with pytest.raises(StreamsProcessingError, match="a list of 2 results for its batch returned 1 results") as caught:
            pipe(driver, ("a", 1), ("b", 2))
        assert caught.value.node == "short"
        assert caught.value.fields["offset"] == 0


def test_timeouts_and_repetitions_run_under_the_drivers_clock() -> None:
    tries: list[int] = []

    async def flaky(value: int) -> int:
        tries.append(value)
        await asyncio.sleep(60 if len(tries) < 3 else 0)
        return value

    with driver_of(lambda stream: stream.map_values_async(flaky, timeout="1s", retries=2, backoff="100ms", name="flaky")) as driver:
        pipe(driver, ("a", 1))
        driver.advance_wall_clock_time(1000)
        assert tries == [1]
        driver.advance_wall_clock_time(100)
        assert tries == [1, 1]
        driver.advance_wall_clock_time(1200)
        assert out(driver) == [("a", 1)]
        caller = driver._host.calls.callers["flaky"]
        assert (caller.calls, caller.timeouts, caller.repeats) == (3, 2, 2)


def test_a_call_that_fails_for_good_names_node_and_record() -> None:
    async def refused(value: int) -> int:
        raise ConnectionError("refused")

    with driver_of(lambda stream: stream.map_values_async(refused, name="service")) as driver:
        with pytest.raises(StreamsProcessingError, match="ConnectionError: refused") as caught:
            pipe(driver, ("a", 1))
        assert (caught.value.node, caught.value.topic, caught.value.offset) == ("service", "in", 0)


def test_a_processing_handler_decides_about_calls_too() -> None:
    async def refused(value: int) -> int:
        if value == 10:
            raise ConnectionError("refused")
        return value

    config = {"processing.exception.handler": "continue", "errors.dead.letter.queue.topic.name": "dead"}
    with driver_of(lambda stream: stream.map_values_async(refused), config=config) as driver:
        pipe(driver, *ROWS)
        assert out(driver) == [("a", 100), ("b", 50), ("c", 20)]
        assert [(letter.key, letter.value) for letter in driver.output("dead")] == [(b"a", b"10")]
        assert driver.dropped == 1


def test_a_failed_record_waits_beside_the_line_and_becomes_a_dead_letter() -> None:
    async def refused(value: int) -> int:
        if value == 100:
            raise ConnectionError("refused")
        return value

    def build(stream: Any) -> Any:
        return stream.map_values_async(refused, on_error="retry", attempts=3, retry_backoff="1s", name="service")

    with driver_of(build, config={"errors.dead.letter.queue.topic.name": "dead"}) as driver:
        pipe(driver, *ROWS)
        assert out(driver) == [("a", 10), ("b", 50), ("c", 20)]
        assert len(list(driver.state_store("service-pending").all())) == 1
        driver.advance_wall_clock_time(1000)
        assert not driver.output("dead")
        driver.advance_wall_clock_time(2000)
        (letter,) = driver.output("dead")
        assert (letter.key, letter.value) == (b"a", b"100")
        assert list(driver.state_store("service-pending").all()) == []


def test_a_breaker_lets_calls_wait_and_one_call_decide() -> None:
    tries: list[int] = []

    async def down(value: int) -> int:
        tries.append(value)
        if len(tries) < 4:
            raise ConnectionError("down")
        return value

    def build(stream: Any) -> Any:
        return stream.map_values_async(
            down, breaker=2, breaker_rest="5s", on_error="retry", retry_backoff="100ms", attempts=9, name="service", order="none"
        )

    with driver_of(build) as driver:
        pipe(driver, *ROWS)
        caller = driver._host.calls.callers["service"]
        assert (tries, caller.breaker_state) == ([100, 10], "opened")
        driver.advance_wall_clock_time(4999)
        assert len(tries) == 2
        driver.advance_wall_clock_time(1)
        assert (len(tries), caller.breaker_state) == (3, "opened")
        driver.advance_wall_clock_time(10_000)
        assert caller.breaker_state == "closed"
        assert sorted(value for _, value in out(driver)) == [10, 20, 50, 100]


def test_a_rate_is_kept() -> None:
    with driver_of(lambda stream: stream.map_values_async(lambda value: value, rate=10, order="none")) as driver:
        pipe(driver, *((f"k{at}", at) for at in range(30)))
        first = len(out(driver))
        assert first == 10
        driver.advance_wall_clock_time(1000)
        assert len(out(driver)) == 10


def counted(kind: str) -> Callable[[Any, Any], Any]:
    """A processor that counts per key in a store, and looks at the store before and after a wait."""

    async def waits(record: Any, context: Any) -> None:
        store = context.store("counts")
        before = await store.get(record.key) or 0
        store.put(record.key, before + 1)
        context.forward(record.with_value([record.value, before]))
        await asyncio.sleep(record.value / 1000)
        assert await store.get(record.key) == before + 1
        context.forward(record.with_value([record.value, "end"]))

    def plain(record: Any, context: Any) -> None:
        store = context.store("counts")
        before = store.get(record.key) or 0
        store.put(record.key, before + 1)
        context.forward(record.with_value([record.value, before]))
        context.forward(record.with_value([record.value, "end"]))

    return waits if kind == "async def" else plain


@pytest.mark.parametrize("kind", ["async def", "def"])
def test_a_processors_writes_are_seen_by_the_next_record_of_its_key_and_never_half_way(kind: str) -> None:
    builder = ks.StreamsBuilder()
    builder.add_state_store(ks.StoreBuilder("counts", ks.StoreKind.KEY_VALUE, ks.serdes.string, ks.serdes.long))
    stream = builder.stream("in", key_serde="string", value_serde="json")
    stream.process_async(counted(kind), stores=["counts"]).to("out", key_serde="string", value_serde="json")
    latency = {"def": lambda call: (100, 10, 50, 20)[call.offset], "async def": None}[kind]
    with ks.testing.TopologyTestDriver(builder.build(), start_ms=0, call_latency=latency) as driver:
        pipe(driver, *ROWS)
        driver.advance_wall_clock_time(99)
        assert driver.state_store("counts").get("a") is None  # nothing of an unfinished call
        driver.advance_wall_clock_time(1000)
        assert driver.state_store("counts").get("a") == 2
        rows = out(driver)
        assert [value for key, value in rows if key == "a"] == [[100, 0], [100, "end"], [10, 1], [10, "end"]]


def test_a_processor_is_opened_once_and_closed_on_every_way_out() -> None:
    life: list[str] = []

    class Pool:
        async def init(self) -> None:
            life.append("init")

        async def process(self, record: Any, context: Any) -> None:
            life.append("call")
            if record.value == 50:
                raise ValueError(record.value)
            context.forward(record)

        async def close(self) -> None:
            life.append("close")

    driver = driver_of(lambda stream: stream.process_values_async(Pool))
    with pytest.raises(StreamsProcessingError), driver:
        pipe(driver, *ROWS)
    assert life == ["init", "call", "call", "call", "close"]


def test_a_call_knows_its_record_and_gives_the_same_key_each_time() -> None:
    seen: list[Any] = []

    async def look(value: Any) -> Any:
        seen.append(ks.current_call())
        return value

    def build(stream: Any) -> Any:
        return stream.flat_map_values(lambda value: [value, value]).map_values_async(look, name="look", value_serde="json")

    with driver_of(build) as driver:
        pipe(driver, ("a", 1), ("b", 2))
    assert [call.idempotency_key for call in seen] == [f"test/look/in-0@{offset}.{index}" for offset in (0, 1) for index in (0, 1)]
    assert seen[0].timestamp == 0


def test_windows_behind_a_node_in_input_order_drop_nothing() -> None:
    """By arrival order the slow early record would be too late for its window."""

    def build(order: str) -> Build:
        def windowed(stream: Any) -> Any:
            counts = stream.map_values_async(slept, order=order, name="slow").group_by_key(value_serde="json")
            windows = ks.TimeWindows.of_size(10)
            return counts.windowed_by(windows).count().to_stream(name="changes").select_key(lambda key, count: key.key)

        return windowed

    for order, dropped in (("partition", 0), ("none", 1)):
        with driver_of(build(order)) as driver:
            topic = driver.create_input_topic("in", "string", "json")
            topic.pipe_input("a", 100, timestamp=0)
            topic.pipe_input("b", 1, timestamp=50)
            driver.advance_wall_clock_time(200)
            assert driver.dropped == dropped, order


def test_the_task_reads_no_further_than_its_nodes_take() -> None:
    with driver_of(lambda stream: stream.map_values_async(slept, in_flight=2, order="none", name="slow")) as driver:
        pipe(driver, *((f"k{at}", 10) for at in range(20)))
        task = driver._task
        assert task is not None and task.calls is not None
        assert (task.calls.waiting, task.buffered) == (4, 16)
        assert driver._host.calls.callers["slow"].most_running == 2
        driver.advance_wall_clock_time(1000)
        assert [key for key, _ in out(driver)] == [f"k{at}" for at in range(20)]


def test_a_commit_says_how_many_records_wait() -> None:
    """A bounded run ends by that (`batch.completion`). The number of an earlier commit does not stay."""
    with driver_of(lambda stream: stream.map_values_async(slept, name="slow")) as driver:
        pipe(driver, ("a", 10), ("b", 20))
        task = driver._task
        assert task is not None
        assert task.prepare_commit().metadata["repl.waiting"] == 2
        driver.advance_wall_clock_time(10)
        assert task.prepare_commit().metadata["repl.waiting"] == 1
        task.set_metadata({"repl.waiting": 7})
        driver.advance_wall_clock_time(10)
        task.initialize()
        assert "repl.waiting" not in task.prepare_commit().metadata


def test_values_that_cannot_be_stored_are_refused_at_the_first_record() -> None:
    with driver_of(lambda stream: stream.map_values(lambda value: {value}).map_values_async(len, name="sized")) as driver:
        with pytest.raises(StreamsProcessingError, match="sized cannot store a waiting record") as caught:
            pipe(driver, ("a", 1))
        assert "value_serde=" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_flights": 3}, "map_values_async\\(\\) has no option 'in_flights'\nHint: did you mean 'in_flight'?"),
        ({"in_flight": 0}, "in_flight must be a whole number >= 1, got 0"),
        ({"order": "time"}, "order must be 'key' or 'partition' or 'none', got 'time'"),
        ({"timeout": "soon"}, "timeout must be a duration above 0 s, got 'soon'"),
        ({"rate": 0}, "rate must be a number of calls per second above 0, got 0"),
    ],
)
def test_wrong_options_are_refused_with_a_hint(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        driver_of(lambda stream: stream.map_values_async(slept, **options))


def test_calls_run_on_the_thread_of_a_notebook_whose_own_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser tab has a running loop, and cannot start a second thread."""

    def no_threads(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def cell() -> list[tuple[Any, Any]]:
        monkeypatch.setattr(threading.Thread, "start", no_threads)
        mine = asyncio.current_task()
        with driver_of(lambda stream: stream.map_values_async(slept, name="slow")) as driver:
            pipe(driver, ("a", 20), ("b", 10))
            driver.advance_wall_clock_time(30)
            assert asyncio.current_task() is mine and asyncio.get_running_loop().is_running()
            await asyncio.sleep(0)
            return out(driver)

    assert asyncio.run(cell()) == [("b", 10), ("a", 20)]


def test_an_error_of_a_call_leaves_the_notebooks_loop_running() -> None:
    async def broken(value: Any) -> Any:
        raise ValueError(value)

    async def cell() -> None:
        mine = asyncio.current_task()
        with driver_of(lambda stream: stream.map_values_async(broken, name="slow")) as driver, pytest.raises(StreamsProcessingError):
            pipe(driver, ("a", 20))
            driver.advance_wall_clock_time(30)
        assert asyncio.current_task() is mine
        await asyncio.sleep(0)

    asyncio.run(cell())
