"""What tests of the deployed host share: topics of their own on the shared broker, one local Spark, deployments that are
stopped.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.application_state import Status
from kstreams_repl.host.spark.deployment import Deployment
from kstreams_repl.host.spark.startup.spark_session import get_session, stop_session
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import TopicPartition

SECONDS = 60.0
_numbers = itertools.count(1)


class Host:
    """One test's corner of the broker and of Spark."""

    def __init__(self, broker: Any, spark: Any, directory: Path, *, on_cluster: bool = False) -> None:
        self.bootstrap = broker.bootstrap_servers
        self.settings = ClientSettings(self.bootstrap)
        self.admin = Admin(self.settings, seconds=SECONDS)
        self.spark = spark
        self.directory = directory
        self.on_cluster = on_cluster
        """Executors then find their state directories themselves."""
        self._next_ms = int(time.time() * 1000) - 1_000_000
        self.name = f"t{uuid.uuid4().hex[:6]}"
        self.deployments: list[Deployment] = []

    def topic(self, name: str, partitions: int = 4) -> str:
        topic = f"{self.name}-{name}"
        self.admin.create_topic(topic, partitions)
        return topic

    def produce(self, topic: str, rows: list[tuple[Any, Any]]) -> None:
        """Timestamps are a millisecond apart, later than those of all calls before and not in the future (the broker deletes what is
        older than a week, and does so half a minute after its start).
        """
        start_ms, self._next_ms = self._next_ms, self._next_ms + len(rows)
        assert self._next_ms < time.time() * 1000
        producer = make_producer(self.settings)
        for number, (key, value) in enumerate(rows):
            while True:
                try:
                    producer.produce(topic, value, key, -1, None, None, start_ms + number)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(30) == 0
        producer.close()

    def read(self, topic: str, *, settled: bool = True) -> list[tuple[bytes | None, bytes | None]]:
        """Every committed record of a topic, partition by partition.

        Args:
            settled: wait for open transactions to end: a commit is acknowledged before what it wrote can be read. That of a
                failed application ends only when its time is over.
        """
        rows: list[tuple[bytes | None, bytes | None]] = []
        for _, batch in read_ranges(self.settings, ranges_of(self.admin, topic, settled=settled)):
            rows += zip(batch.keys, batch.values, strict=True)
        return rows

    def table(self, topic: str, *, settled: bool = True) -> dict[bytes | None, bytes | None]:
        """The last committed value of each key."""
        return dict(self.read(topic, settled=settled))

    def deployment(self, topology: Any, app: str = "app", *, failpoints: str = "", **config: Any) -> Deployment:
        settings = {
            "application.id": f"{self.name}-{app}",
            "bootstrap.servers": self.bootstrap,
            "processing.guarantee": "exactly_once_v2",
            "num.stream.threads": 2,
            "state.dir": str(self.directory / "state"),
        }
        if self.on_cluster:
            del settings["state.dir"]
        settings |= {name.replace("_", "."): value for name, value in config.items()}
        made = Deployment(topology, settings, spark=self.spark, failpoints=failpoints)
        self.deployments.append(made)
        return made

    def deploy(self, topology: Any, app: str = "app", **options: Any) -> Deployment:
        return self.deployment(topology, app, **options).start()

    def close(self) -> None:
        for deployment in self.deployments:
            deployment.stop()


def settle(condition: Callable[[], bool], what: str, seconds: float = SECONDS, story: Callable[[], object] = lambda: "") -> None:
    """Wait for a condition; a generous bound that only a hang reaches."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}; {story()}"
        time.sleep(0.02)


def cut(admin: Admin, at: TopicPartition, first: int) -> None:
    """Delete the records before that offset from a compacted topic, whose policy is "delete" from then on."""
    admin.alter_topic_configs(at.topic, {"cleanup.policy": "delete"})

    def deleted() -> bool:
        try:
            admin.delete_records({at: first})
        except KStreamsError:  # the broker has not heard of the policy everywhere yet
            return False
        return True

    settle(deleted, f"{at} to be cut")


def processed(deployment: Deployment, count: int) -> None:
    """Wait until so many input records are committed."""

    def reached() -> bool:
        if deployment.error is not None:
            raise AssertionError(f"{deployment.error}\n{deployment.error.fields.get('worker_trace')}")
        return (
            sum(offset for at, offset in deployment.reports.committed.items() if not at.startswith(deployment.application_id))
            >= count
        )

    settle(reached, f"{count} records", story=lambda: (deployment, deployment.reports))


def running(deployment: Deployment) -> None:
    instances = deployment.plan.instances if deployment.plan else 0
    settle(
        lambda: sum(report.state == "running" for report in deployment.reports.instances.values()) == instances,
        f"{instances} running instances",
    )


def failed(deployment: Deployment) -> None:
    settle(lambda: deployment.status is Status.FAILED, "the application to fail")


def kill_worker(deployment: Deployment, slot: int = 0) -> int:
    """kill -9 of the process that runs a slot."""
    pid = deployment.reports.instances[slot].pid
    os.kill(pid, signal.SIGKILL)
    return pid


def passing(source: str, sink: str, mapper: Callable[[Any], Any] = str) -> Any:
    """A stateless topology over JSON numbers."""
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde=serdes.string, value_serde=serdes.json)
    stream.map_values(mapper, name="shape").to(sink, key_serde=serdes.string, value_serde=serdes.string)
    return builder.build()


def counting(source: str, sink: str, *, store: str = "counts", caching: bool = True) -> Any:
    """Counts per key into a store and a topic."""
    builder = StreamsBuilder()
    table = (
        builder.stream(source, key_serde=serdes.string, value_serde=serdes.bytes)
        .group_by_key()
        .count(store=store, caching=caching)
    )
    table.to_stream().to(sink, key_serde=serdes.string, value_serde=serdes.long)
    return builder.build()


def numbered(count: int, keys: int = 50, start: int = 0) -> list[tuple[bytes, bytes]]:
    """Records ``k<i mod keys>`` -> ``i``."""
    return [(b"k%d" % (i % keys), b"%d" % i) for i in range(start, start + count)]


def expected_counts(rows: list[tuple[bytes, bytes]]) -> dict[bytes, int]:
    return dict(Counter(key for key, _ in rows))


def decoded(table: dict[bytes | None, bytes | None]) -> dict[bytes | None, int]:
    """A table of Java longs."""
    return {key: int.from_bytes(value or b"", "big", signed=True) for key, value in table.items()}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    session = get_session(slots=6)
    yield session
    stop_session()


@pytest.fixture
def host(broker: Any, spark: Any, tmp_path: Path) -> Iterator[Host]:
    made = Host(broker, spark, tmp_path)
    yield made
    made.close()
