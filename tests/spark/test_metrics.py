"""An application measures itself: the figures are those of what it was given, at each recording level."""

from __future__ import annotations

import pytest

import kstreams_repl as ks
from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.metrics.catalogue import DEBUG, SPECS, TASK
from kstreams_repl.host.spark.deployment import Deployment
from kstreams_repl.repl.session.views.counts.metrics_view import MetricsView
from tests.spark.hosting import Host, counting, numbered, processed, running, settle
from tests.unit.engine.metrics.contract import ABSENT, TAGS
from tests.unit.engine.metrics.dashboards import selectors, without_data, without_meaning
from tests.unit.engine.metrics.prometheus_page import read_page

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

RECORDS = 4_000


def view(deployment: Deployment) -> MetricsView:
    return MetricsView(deployment.application_id, deployment.metrics)


def dropping(source: str, sink: str) -> object:
    """Every fourth record has no key, which a count drops; the rest is counted, and written under its key."""
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde=serdes.string, value_serde=serdes.string, name="read")
    keyed = stream.select_key(lambda key, value: None if int(value) % 4 == 0 else key, name="rekey")
    keyed.filter(lambda key, value: key is not None, name="keyed").to(
        sink, key_serde=serdes.string, value_serde=serdes.string, name="write"
    )
    stream.map_values(lambda value: value, name="same").group_by_key().count(store="counts")
    return builder.build()


def test_figures_at_info_are_those_of_what_went_in(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    rows: list[tuple[bytes | None, bytes]] = [*numbered(RECORDS), *((None, b"x") for _ in range(100))]
    host.produce(source, rows)
    deployment = host.deploy(counting(source, sink))
    processed(deployment, len(rows))
    deployment.stop()
    told = view(deployment)
    assert told.total("records-consumed-total", topic=source) == len(rows)
    assert told.total("process-total", group="stream-thread-metrics") == len(rows)
    assert told.total("dropped-records-total") == 100
    commits = {metric.tags["thread-id"]: metric.value for metric in told["commit-total"]}
    assert commits == {
        f"{deployment.application_id}-StreamThread-{slot + 1}": report.commits
        for slot, report in deployment.reports.instances.items()
    }
    assert sum(commits.values()) > 0
    assert told.total("task-created-total") == 4
    assert {metric.value for metric in told.filter("state", group="stream-thread-metrics")} == {"stopped"}
    assert told.value("recording-level") == 0
    assert told.total("repl-lag") == 0
    assert told.total("estimate-num-keys", lmdb_state_id="counts") == 50
    ages = [metric.value for metric in told["record-e2e-latency-min"] if metric.value is not None]
    assert ages and min(ages) >= 0
    blocked = [metric.value for metric in told["blocked-time-ns-total"]]
    assert min(blocked) > 0


def test_nothing_but_documented_metrics_with_their_tags_is_measured(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(200))
    builder = StreamsBuilder()
    looked_up = builder.stream(source, key_serde=serdes.string, value_serde=serdes.bytes).map_values_async(
        bytes, breaker=5, key_serde=serdes.string, value_serde=serdes.bytes
    )
    looked_up.group_by_key(key_serde=serdes.string, value_serde=serdes.bytes).count(store="counts").to_stream().to(
        sink, key_serde=serdes.string, value_serde=serdes.long
    )
    deployment = host.deploy(builder.build(), num_stream_threads=1, metrics_recording_level="TRACE")
    processed(deployment, 200)
    deployment.stop()
    told = view(deployment)
    for metric in told:
        assert (metric.group, metric.name) in SPECS, metric
        kinds = tuple("state-id" if tag.endswith("-state-id") else tag for tag in metric.tags)
        assert kinds == TAGS[metric.group], metric
    names = {(metric.group, metric.name) for metric in told}
    elsewhere = {"num-keys", "suppression-emit", "suppression-buffer", "window-aggregate-final-emit", "put-", "get-", "fetch-", "all-",
                 "range-", "prefix-scan-", "delete-", "remove-"}  # fmt: skip
    missing = {key for key in SPECS if key not in names and not key[1].startswith(tuple(elsewhere))}
    assert not missing
    assert not names & set(ABSENT)


def test_every_node_and_store_is_counted_at_debug(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(RECORDS))
    deployment = host.deploy(dropping(source, sink), metrics_recording_level=DEBUG)
    processed(deployment, RECORDS)
    deployment.stop()
    told = view(deployment)
    entered = {name: told.total("process-total", processor_node_id=name) for name in ("read", "rekey", "keyed", "write", "same")}
    assert entered == {"read": RECORDS, "rekey": RECORDS, "keyed": RECORDS, "write": RECORDS * 3 // 4, "same": RECORDS}
    assert told.total("records-produced-total", topic=sink) == RECORDS * 3 // 4
    assert told.total("bytes-produced-total", topic=sink) == sum(
        len(key or b"") + len(value or b"") for key, value in host.read(sink)
    )
    assert told.total("bytes-consumed-total") == sum(len(key) + len(value) for key, value in numbered(RECORDS))
    assert told.total("process-total", group="stream-task-metrics") == RECORDS
    assert all(metric.value is not None and metric.value >= 0 for metric in told["put-latency-max"])  # type: ignore[operator]


def test_restored_records_are_counted_and_nothing_remains(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    builder = StreamsBuilder()
    table = builder.stream(source, key_serde=serdes.string, value_serde=serdes.bytes).group_by_key()
    table.count(store="counts", persistent=False).to_stream().to(sink, key_serde=serdes.string, value_serde=serdes.long)
    host.produce(source, numbered(RECORDS, keys=500))
    deployment = host.deploy(builder.build(), metrics_recording_level="DEBUG", num_stream_threads=1)
    processed(deployment, RECORDS)
    deployment.stop()
    assert view(deployment).total("restore-total") == 0
    logged = len(host.read(f"{deployment.application_id}-counts-changelog"))
    deployment.resume()
    running(deployment)  # otherwise it may still restore
    settle(lambda: "restore-total" in view(deployment) and "process-ratio" in view(deployment), "the metrics of a running instance")
    deployment.stop()
    told = view(deployment)
    assert told.total("restore-total") == logged
    assert told.total("num-keys", in_memory_state_id="counts") == 500
    assert told.total("restore-remaining-records-total") == 0


def test_the_page_for_prometheus_can_be_read(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(500))
    deployment = host.deploy(counting(source, sink), num_stream_threads=1, metrics_recording_level="DEBUG")
    processed(deployment, 500)
    deployment.stop()
    told = view(deployment)
    page = read_page(told.prometheus())
    processed_ = [value for name, labels, value in page.samples if name == "kafka_streams_stream_thread_metrics_process_total"]
    assert processed_ == [500.0]


class UsesItsStore:
    """Makes each call that dashboards show, and punctuates."""

    def init(self, context: ks.ProcessorContext) -> None:
        self.store = context.get_state_store("seen")
        context.schedule(1, ks.PunctuationType.WALL_CLOCK_TIME, lambda at: None)

    def process(self, record: ks.Record) -> None:
        if self.store.get(record.key) is None:
            self.store.put_if_absent(record.key, record.value)
        else:
            self.store.put(record.key, record.value)
        if int(record.value) % 3 == 0:
            self.store.delete(record.key)

    def close(self) -> None: ...


@pytest.mark.slow
def test_public_dashboards_find_data_wherever_there_can_be_some(host: Host) -> None:
    source = host.topic("in")
    host.produce(source, numbered(500))
    builder = StreamsBuilder()
    builder.add_state_store(ks.StoreBuilder("seen", ks.StoreKind.KEY_VALUE, serdes.string, serdes.string))
    stream = builder.stream(source, key_serde=serdes.string, value_serde=serdes.string)
    stream.process(UsesItsStore, stores=["seen"])
    windows = ks.TimeWindows.of_size_with_no_grace(1_000)
    stream.group_by_key().windowed_by(windows).count(store="windowed")
    deployment = host.deploy(builder.build(), num_stream_threads=1, metrics_recording_level="DEBUG")
    processed(deployment, 500)
    settle(lambda: "client-state" in view(deployment) and view(deployment).total("process-total", group=TASK) == 500, "metrics")
    running_ = view(deployment)
    deployment.stop()
    assert running_.value("client-state") == 2
    empty = {metric for metric, _ in without_data(running_.prometheus())}
    assert empty == {metric for metric, _ in selectors() if without_meaning(metric)}
