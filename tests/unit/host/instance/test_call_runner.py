"""Asynchronous nodes in a real poll loop: an event loop in its thread, functions in threads, and an end that waits for nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import time
from typing import Any

import psutil
import pytest

import kstreams_repl as ks
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.system.errors import StreamsProcessingError
from tests.unit.engine.runtime.rig import Outbox
from tests.unit.host.instance.rig import Client, rows


def instance_of(build: Any, client: Client) -> tuple[Instance, Outbox]:
    """A real instance whose tasks have a call runner."""
    from tests.unit.host.instance import rig

    builder = ks.StreamsBuilder()
    build(builder, builder.stream("in", key_serde="string", value_serde="json")).to("out", key_serde="string", value_serde="json")
    instance = rig.instance_of(builder.build(), client)
    (task,) = instance.tasks
    return instance, task.task.services.collector  # type: ignore[return-value]


def runner_of(instance: Instance) -> Any:
    """The instance's call runner; the rig's clients cannot be closed."""
    return instance.call_runner()


def run(instance: Instance, outbox: Outbox, wanted: int, seconds: float = 10.0) -> float:
    """Run until so many records have left; return how long it took."""
    began = time.monotonic()

    def signal(now: float) -> Signal:
        return Signal.STOP if len(outbox.to("out")) >= wanted or now > began + seconds else Signal.RUN

    PollLoop(instance, signal=signal, report=lambda instance: None).run(began + seconds)
    return time.monotonic() - began


@pytest.mark.parametrize("kind", ["async def", "def"])
def test_calls_run_at_the_same_time_and_only_the_event_loop_and_the_threads_call(kind: str) -> None:
    threads: set[str] = set()
    together = threading.Barrier(64, timeout=10.0)
    begun = 0

    async def waits(value: Any) -> Any:
        nonlocal begun
        threads.add(threading.current_thread().name)
        begun += 1
        while begun < 64:
            await asyncio.sleep(0.001)
        return ks.current_call().offset

    def plain(value: Any) -> Any:
        threads.add(threading.current_thread().name)
        together.wait()
        return ks.current_call().offset

    function = {"def": plain, "async def": waits}[kind]
    client = Client(rows("in", 64))
    instance, outbox = instance_of(lambda builder, stream: stream.map_values_async(function, in_flight=64, order="partition"), client)
    run(instance, outbox, 64)
    assert [int(value or b"-1") for _, value, _ in outbox.to("out")] == list(range(64))
    assert len(threads) == (1 if kind == "async def" else 64)
    assert threading.current_thread().name not in threads
    runner_of(instance).close()


@pytest.mark.slow
def test_a_service_that_never_answers_stops_no_stop_and_takes_no_memory() -> None:
    stuck = threading.Event()

    async def never(value: Any) -> Any:
        await asyncio.Event().wait()

    def blocks(value: Any) -> Any:
        stuck.wait()

    for function in (never, blocks):
        client = Client(*(rows("in", 100, start=start) for start in range(0, 1000, 100)))
        instance, outbox = instance_of(lambda builder, stream, f=function: stream.map_values_async(f, in_flight=8, order="none"), client)
        (task,) = instance.tasks
        end = time.monotonic() + 30
        full: list[float] = []

        def signal(now: float, task: Any = task, end: float = end, full: list[float] = full) -> Signal:
            if task.calls_waiting >= 16:
                full.append(now)
            return Signal.STOP if now > end or (full and now > full[0] + 0.3) else Signal.RUN

        PollLoop(instance, signal=signal, report=lambda instance: None).run(end)
        assert task.calls_waiting == 16
        began = time.monotonic()
        runner_of(instance).close()
        assert time.monotonic() - began < 10  # the functions still wait
    stuck.set()


def test_a_processors_reads_are_answered_by_the_tasks_thread_and_it_is_closed_with_the_instance() -> None:
    life: list[str] = []

    class Counts:
        def init(self) -> None:
            life.append("init")

        def process(self, record: Any, context: Any) -> None:
            store = context.store("counts")
            count = (store.get(record.key) or 0) + 1
            store.put(record.key, count)
            time.sleep(0.001)
            context.forward(record.with_value(count))

        def close(self) -> None:
            life.append("close")

    def build(builder: Any, stream: Any) -> Any:
        builder.add_state_store(ks.StoreBuilder("counts", ks.StoreKind.KEY_VALUE, ks.serdes.string, ks.serdes.long))
        return stream.process_async(Counts, stores=["counts"])

    instance, outbox = instance_of(build, Client(rows("in", 50)))
    run(instance, outbox, 50)
    assert [int(value or b"-1") for _, value, _ in outbox.to("out")] == list(range(1, 51))
    runner_of(instance).close()
    assert life == ["init", "close"]


def test_an_error_of_a_call_ends_the_loop_with_its_place_and_nothing_is_left_running() -> None:
    async def refused(value: Any) -> Any:
        raise ConnectionError("refused")

    before = threading.active_count()
    instance, outbox = instance_of(lambda builder, stream: stream.map_values_async(refused, name="service"), Client(rows("in", 5)))
    with pytest.raises(StreamsProcessingError, match="ConnectionError: refused") as caught:
        run(instance, outbox, 5)
    assert (caught.value.node, caught.value.offset) == ("service", 0)
    runner_of(instance).close()
    assert threading.active_count() <= before


ROUNDS = int(os.environ.get("KSTREAMS_PAUSES", "2"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["async def", "def"])
def test_nothing_is_left_when_runners_with_connections_come_and_go(kind: str) -> None:
    """KSTREAMS_PAUSES: how many. Every second one ends with calls in flight."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    life: list[str] = []

    class Pool:
        def init(self) -> None:
            self.connections = [socket.create_connection(listener.getsockname()) for _ in range(4)]
            self.accepted = [listener.accept()[0] for _ in range(4)]
            life.append("open")

        def close(self) -> None:
            for connection in (*self.connections, *self.accepted):
                connection.close()
            life.append("close")

    class Waits(Pool):
        async def process(self, record: Any, context: Any) -> None:
            await asyncio.sleep(0.001)
            context.forward(record)

    class Blocks(Pool):
        def process(self, record: Any, context: Any) -> None:
            time.sleep(0.001)
            context.forward(record)

    def left() -> tuple[int, int, int]:
        gc.collect()
        return threading.active_count(), len(os.listdir("/proc/self/fd")), len(process.net_connections())

    process, seen = psutil.Process(), []
    processor = {"async def": Waits, "def": Blocks}[kind]
    for number in range(ROUNDS):
        client = Client(rows("in", 8))
        instance, outbox = instance_of(lambda builder, stream: stream.process_async(processor, in_flight=4, order="none"), client)
        run(instance, outbox, 8 if number % 2 else 1)
        runner_of(instance).close()
        for thread in threading.enumerate():
            if thread.name.startswith("calls-"):
                thread.join(5.0)
        seen.append(left())
    print(f"threads, descriptors, sockets after the first and the last of {ROUNDS}: {seen[0]}, {seen[-1]}")
    assert life == ["open", "close"] * ROUNDS
    assert all(last <= first for first, last in zip(seen[0], seen[-1], strict=True))  # fewer: what an earlier test held is gone
    listener.close()
