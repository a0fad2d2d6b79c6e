"""What is seen of asynchronous nodes, and of synchronous ones that wait: figures of a real instance, metrics, and lines of the picture."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.metrics.counters import Counter
from kstreams_repl.engine.metrics.metrics_registry import Registry
from kstreams_repl.engine.metrics.sensors import Window
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.metrics.call_metrics import CallMetrics, call_figures
from kstreams_repl.host.instance.metrics.slow_tasks import SlowTasks
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.spark.instance_reports import ApplicationReport, InstanceReport, TaskReport
from kstreams_repl.repl.session.views.values.calls_view import call_lines, slow_lines
from tests.unit.host.instance.rig import Client, rows
from tests.unit.host.instance.test_call_runner import instance_of, runner_of


def report_of(figures: Any) -> ApplicationReport:
    return ApplicationReport(1, {0: InstanceReport(0, "running", 1, 0, calls=figures)})


def test_figures_and_metrics_of_calls_that_wait_end_and_fail() -> None:
    failed: list[int] = []

    async def service(value: Any) -> Any:
        call = ks.current_call()
        if call.offset == 3 and not failed:
            failed.append(3)
            raise ConnectionError("away")
        if call.offset >= 8:
            await asyncio.Event().wait()
        return value

    def build(builder: Any, stream: Any) -> Any:
        return stream.map_values_async(service, in_flight=4, retries=1, backoff="1ms", breaker=50, order="none", name="call")

    instance, outbox = instance_of(build, Client(rows("in", 20)))
    end = time.monotonic() + 30

    def signal(now: float) -> Signal:
        waits = call_figures(instance).get("call", {})
        filled = (waits.get("in_flight"), waits.get("waiting"), len(outbox.to("out"))) == (4, 4, 8)
        return Signal.STOP if filled or now > end else Signal.RUN

    PollLoop(instance, signal=signal, report=lambda instance: None).run(end)
    figures = call_figures(instance)["call"]
    assert {name: figures[name] for name in ("in_flight", "waiting", "repeats", "breaker")} == {
        "in_flight": 4, "waiting": 4, "repeats": 1, "breaker": "closed",
    }  # fmt: skip
    registry = Registry("INFO", Window(2, 30_000))
    CallMetrics(registry, {"thread-id": "app-StreamThread-1"}).fold(instance, 1_000)
    found = {metric.name: metric.value for metric in registry.snapshot(1_000) if metric.tags.get("processor-node-id") == "call"}
    assert (found["repl-calls-in-flight"], found["repl-calls-waiting"], found["repl-breaker-state"]) == (4, 4, "closed")
    assert (found["repl-call-total"], found["repl-call-failures-total"], found["repl-call-repeats-total"]) == (8, 1, 1)
    assert found["repl-call-latency-avg"] > 0
    runner_of(instance).close()


def test_a_call_that_reaches_its_time_limit_and_waits_for_its_next_try_is_counted() -> None:
    async def service(value: Any) -> Any:
        if ks.current_call().offset == 1:
            await asyncio.Event().wait()
        return value

    def build(builder: Any, stream: Any) -> Any:
        return stream.map_values_async(service, timeout="20ms", on_error="retry", attempts=3, retry_backoff="1h", order="none", name="call")

    instance, _ = instance_of(build, Client(rows("in", 4)))
    end = time.monotonic() + 30

    def signal(now: float) -> Signal:
        waits = call_figures(instance).get("call", {}).get("to_retry")
        return Signal.STOP if waits or now > end else Signal.RUN

    PollLoop(instance, signal=signal, report=lambda instance: None).run(end)
    registry = Registry("INFO", Window(2, 30_000))
    CallMetrics(registry, {"thread-id": "app-StreamThread-1"}).fold(instance, 1_000)
    found = {metric.name: metric.value for metric in registry.snapshot(1_000) if metric.tags.get("processor-node-id") == "call"}
    assert (found["repl-call-timeouts-total"], found["repl-calls-to-retry"]) == (1, 1)
    runner_of(instance).close()


def test_lines_of_a_node_sum_its_instances() -> None:
    one = {"in_flight": 3, "waiting": 1_000, "to_retry": 2, "repeats": 1, "breaker": "closed", "latency_ms": 40.0}
    two = {"in_flight": 4, "waiting": 0, "to_retry": 0, "repeats": 0, "breaker": "opened", "latency_ms": 60.0}
    report = ApplicationReport(1, {n: InstanceReport(n, "running", 1, 0, calls={"call": figures}) for n, figures in enumerate((one, two))})
    assert call_lines(report) == {"call": ("7 in flight, 1,000 waiting", "50 ms a call", "1 retry", "2 to retry", "breaker open")}
    assert call_lines(report_of({})) == {}


def test_a_task_whose_records_take_long_is_said_once_and_shown_at_the_nodes_that_may_wait(caplog: pytest.LogCaptureFixture) -> None:
    slow, process = SlowTasks(), Counter()
    with caplog.at_level(logging.WARNING, "kstreams_repl.host.instance"):
        process.add_many(4, 4.0)
        assert slow.of("0_0", process) is None  # too few records
        process.add_many(1, 0.25)
        assert slow.of("0_0", process) == 850.0
        process.add_many(10, 2.0)
        assert slow.of("0_0", process) == 200.0
        process.add_many(100, 0.1)
        assert slow.of("0_0", process) is None
    assert ["850 ms" in record.getMessage() and " map_values_async" in record.getMessage() for record in caplog.records] == [True]
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde="json")
    stream.map_values(lambda value: value, name="ask").filter(lambda key, value: True, name="keep").to("out")
    task = TaskReport("0_0", 10, 0, 0, 0, slow_ms=120.0)
    report = ApplicationReport(1, {0: InstanceReport(0, "running", 1, 0, tasks={"0_0": task})})
    assert slow_lines(report, builder.build()) == {
        "ask": "120 ms a record: try map_values_async", "keep": "120 ms a record: try filter_async",
    }  # fmt: skip
