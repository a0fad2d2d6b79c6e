"""`context.metrics()` and `context.state_dir`: what a processor measures shows under Kafka Streams' names; its files are its task's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import FixedKeyProcessor, KStreamsError, Processor, StoreBuilder, StoreKind, StreamsBuilder
from kstreams_repl.engine.metrics.custom import StreamsMetrics
from kstreams_repl.engine.metrics.metrics_registry import Registry
from kstreams_repl.engine.metrics.prometheus import prometheus_text
from kstreams_repl.engine.metrics.sensors import Window
from kstreams_repl.test_driver.driver import TopologyTestDriver
from kstreams_repl.testing import MockProcessorContext

TEXT = {"default.key.serde": "string", "default.value.serde": "json", "application.id": "shop"}
THREAD = {"thread-id": "shop-StreamThread-1"}


class Measures(Processor):
    """Measures how long each value is, and keeps the last one in a file."""

    def init(self, context: Any) -> None:
        self.context = context
        self.took = context.metrics().add_latency_rate_total_sensor("lookup", "prices", "fetch", tags={"kind": "slow"})
        self.fine = context.metrics().add_rate_total_sensor("lookup", "prices", "detail", "DEBUG")
        own = context.metrics().add_sensor("sizes")
        if context.metrics().add_sensor("sizes") is own:
            for kind in ("min", "max", "avg", "windowed_sum", "windowed_count", "rate", "cumulative_sum", "cumulative_count"):
                own.add(f"size-{kind}", kind, group="stream-size-metrics")
        self.sizes = own

    def process(self, record: Any) -> None:
        self.took.record(record.value)
        self.fine.record()
        self.sizes.record(record.value)
        (self.context.state_dir / "last").write_text(str(record.value))
        self.context.forward(record)


class MeasuresValues(FixedKeyProcessor):
    init = Measures.init
    process = Measures.process


def shop(measuring: Any, **config: str) -> TopologyTestDriver:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    (stream.process(measuring) if issubclass(measuring, Processor) else stream.process_values(measuring)).to("out")
    return TopologyTestDriver(builder.build(), TEXT | {name.replace("_", "."): value for name, value in config.items()}, start_ms=0)


def values(driver: Any, group: str) -> dict[str, Any]:
    return {metric.name: metric.value for metric in driver.metrics() if metric.group == group}


@pytest.mark.parametrize("measuring", [Measures, MeasuresValues])
def test_sensors_of_processors_show_under_the_names_groups_and_tags_of_kafka_streams(measuring: Any) -> None:
    with shop(measuring) as driver:
        driver.create_input_topic("in", "string", "json").pipe_records([("a", 10, 1), ("b", 30, 2)])
        lookup = [metric for metric in driver.metrics() if metric.group == "stream-lookup-metrics"]
        assert {metric.name: metric.value for metric in lookup} == {
            "fetch-latency-avg": 20, "fetch-latency-max": 30, "fetch-rate": pytest.approx(2 / 30), "fetch-total": 2,
        }  # fmt: skip
        assert all(metric.tags == {**THREAD, "lookup-id": "prices", "kind": "slow"} for metric in lookup)
        assert values(driver, "stream-size-metrics") == {
            "size-min": 10, "size-max": 30, "size-avg": 20, "size-windowed_sum": 40, "size-windowed_count": 2,
            "size-rate": pytest.approx(40 / 30), "size-cumulative_sum": 40, "size-cumulative_count": 2,
        }  # fmt: skip
        assert values(driver, "stream-task-metrics")["dropped-records-total"] == 0
        assert 'kafka_streams_stream_lookup_metrics_fetch_total{thread_id="shop-StreamThread-1",' in prometheus_text(driver.metrics(), {})
        driver.advance_wall_clock_time(120_000)
        later = values(driver, "stream-size-metrics")
        assert later["size-windowed_sum"] == 0 and later["size-avg"] is None and later["size-cumulative_sum"] == 40


def test_a_processor_reads_what_it_and_the_engine_measured() -> None:
    class Reads(Measures):
        def process(self, record: Any) -> None:
            super().process(record)
            found = {metric.name: metric.value for metric in self.context.metrics().metrics()}
            self.context.forward(record.with_value([found["fetch-total"], found["dropped-records-total"]]))

    with shop(Reads) as driver:
        driver.create_input_topic("in", "string", "json").pipe_records([("a", 10, 1), ("b", 30, 2)])
        assert driver.create_output_topic("out", "string", "json").read_values()[1::2] == [[1, 0], [2, 0]]


def test_a_finer_sensor_records_at_its_level_only() -> None:
    for level, found in (("INFO", False), ("DEBUG", True)):
        with shop(Measures, **{"metrics_recording_level": level}) as driver:
            driver.create_input_topic("in", "string", "json").pipe_input("a", 1, 1)
            assert ("detail-total" in values(driver, "stream-lookup-metrics")) is found


def test_a_record_that_an_own_timestamp_drops_counts_as_dropped_in_the_drivers_metrics() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count().to_stream().to("out")
    with TopologyTestDriver(builder.build(), TEXT) as driver:
        driver.create_input_topic("in", "string", "json").pipe_input(None, 1, 1)
        assert values(driver, "stream-task-metrics")["dropped-records-total"] == 1


def test_the_directory_is_one_for_the_task_and_goes_with_the_driver() -> None:
    driver = shop(Measures)
    driver.create_input_topic("in", "string", "json").pipe_input("a", 17, 1)
    place = driver._host.state_dir()
    assert (place / "last").read_text() == "17"
    driver.close()
    assert not place.exists()


def test_the_mock_context_has_metrics_and_a_directory() -> None:
    context = MockProcessorContext(TEXT)
    measuring = Measures()
    measuring.init(context)
    measuring.took.record(5)
    assert {m.name: m.value for m in context.metrics().metrics()}["fetch-latency-max"] == 5
    assert isinstance(context.state_dir, Path) and context.state_dir == context.state_dir and context.state_dir.is_dir()


def test_tasks_of_one_instance_add_to_the_same_metric() -> None:
    registry, tasks = Registry("INFO", Window()), [StreamsMetrics("INFO"), StreamsMetrics("INFO")]
    for task in tasks:
        task.add_rate_total_sensor("lookup", "prices", "fetch").record()
        task.fold(registry, THREAD, 0)
    (metrics,) = registry.snapshot(0).groups
    assert metrics[2]["fetch-total"] == 2


def test_mistakes_are_told_where_they_are_made() -> None:
    metrics = StreamsMetrics("INFO")
    sensor = metrics.add_sensor("mine").add("size", "avg", group="stream-size-metrics", tags={"a": "b"})
    with pytest.raises(KStreamsError, match="no statistic 'averge'") as told:
        sensor.add("size", "averge", group="stream-size-metrics")
    assert "avg" in str(told.value.hint)
    with pytest.raises(KStreamsError, match="exists already in sensor 'mine'"):
        metrics.add_sensor("other").add("size", "max", group="stream-size-metrics", tags={"a": "b"})
    with pytest.raises(KStreamsError, match="a built-in metric"):
        sensor.add("dropped-records-total", "max", group="stream-task-metrics")
    with pytest.raises(KStreamsError, match="expected a recording level"):
        metrics.add_sensor("third", "LOUD")
    for wrong in (float("nan"), float("inf"), "1", None):
        with pytest.raises(KStreamsError, match="expected a finite number"):
            sensor.record(wrong)  # type: ignore[arg-type]
    with pytest.raises(KStreamsError, match="must be strings, got 7"):
        metrics.add_rate_total_sensor("lookup", "prices", "fetch", tags={"partition": 7})  # type: ignore[dict-item]
    metrics.add_rate_total_sensor("lookup", "prices", "fetch", tags={"partition": "7"}).record()


def test_a_processor_of_a_global_store_is_told_that_it_has_neither() -> None:
    for what, told in (("metrics", "no metrics of its own"), ("state_dir", "no directory")):

        class Keep(Processor):
            def init(self, context: Any) -> None:
                asked = getattr(context, what)  # noqa: B023
                asked()

            def process(self, record: Any) -> None: ...

        builder = StreamsBuilder()
        builder = builder.add_global_store(StoreBuilder("prices", StoreKind.KEY_VALUE, logging=False), "prices", Keep)
        builder.stream("in").to("out")
        with pytest.raises(KStreamsError, match=told):
            TopologyTestDriver(builder.build(), TEXT)
