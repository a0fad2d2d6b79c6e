"""What Spark itself shows of an application: its progress and a listener of the user's have the figures of each epoch and task."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql.streaming import StreamingQueryListener

from kstreams_repl.system.errors import KStreamsError
from tests.spark.hosting import Host, counting, failed, numbered, passing, processed, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

RECORDS = 3_000


class Heard(StreamingQueryListener):
    """Keeps what the listener was told of queries with a name."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, dict[str, Any]]] = []
        self.ended = threading.Event()

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        self.rows.append((progress.name, {name: row.asDict(recursive=True) for name, row in progress.observedMetrics.items()}))

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        self.ended.set()

    def of(self, row: str) -> list[dict[str, Any]]:
        return [observed[row] for _, observed in self.rows if row in observed]


@pytest.fixture(scope="session")
def callbacks(spark: Any) -> None:
    """What pyspark starts for the first listener and keeps for as long as its JVM lives."""
    ensure_callback_server_started(spark.sparkContext._gateway)


@pytest.fixture
def heard(spark: Any, callbacks: None) -> Iterator[Heard]:
    listener = Heard()
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)


def test_a_listener_hears_the_records_and_lag_of_every_epoch_and_task(host: Host, heard: Heard) -> None:
    source, sink = host.topic("in"), host.topic("out")
    rows: list[tuple[bytes | None, bytes]] = [*numbered(RECORDS), *((None, b"x") for _ in range(60))]
    host.produce(source, rows)
    deployment = host.deploy(counting(source, sink), repl_epoch_ms=700, repl_epoch_idle_ms=0)
    processed(deployment, len(rows))
    settle(lambda: sum(row["records"] or 0 for row in heard.of("epoch")) == len(rows), "all records", story=lambda: heard.rows)
    settle(lambda: any(row["lag"] == 0 and not row["records"] for row in heard.of("epoch")), "an epoch without lag")
    deployment.stop()
    assert heard.ended.wait(30)
    assert {name for name, _ in heard.rows} == {f"{deployment.application_id}-1"}
    epochs, tasks = heard.of("epoch"), heard.of("tasks")
    assert sum(row["dropped"] or 0 for row in epochs) == 60
    assert not any(row["failures"] for row in epochs)
    busiest = max(epochs, key=lambda row: row["records"] or 0)
    assert busiest["rate"] == pytest.approx(busiest["records"] / busiest["seconds"])
    ends = host.admin.committed_offsets(deployment.application_id)
    for at, known in ends.items():
        name = f"0_{at.partition}"
        assert sum(row[name]["records"] for row in tasks if row[name] is not None) == known.offset


def test_progress_tells_the_failure_and_its_task(host: Host, heard: Heard) -> None:
    source, sink = host.topic("in", 1), host.topic("out")
    host.produce(source, [(b"k", b"1"), (b"k", b"0")])
    deployment = host.deploy(passing(source, sink, lambda number: str(1 / number)), num_stream_threads=1)
    failed(deployment)
    assert isinstance(deployment.error, KStreamsError)
    settle(lambda: any(row["failures"] for row in heard.of("epoch")), "the failure", story=lambda: heard.rows)
    told = next(row["0_0"] for row in heard.of("tasks") if row["0_0"] is not None)
    assert told["state"] == "failed" and "ZeroDivisionError" in told["error"]
