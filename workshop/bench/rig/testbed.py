"""The environment of a benchmark: a broker (embedded, or the user's), a session with it, input topics; all stopped at the end.

With a directory the broker's data remains, and the next run reuses its input topics; otherwise everything is temporary.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import psutil

from kstreams_repl import connect
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.embedded import EmbeddedBroker
from kstreams_repl.repl.session.session import Session
from kstreams_repl.system.errors import KStreamsError, ProductionError
from kstreams_repl.system.types import TopicPartition
from workshop.bench.rig import json_output, workloads
from workshop.bench.rig.processes import tree
from workshop.bench.rig.workloads import Row, Topics

PARTITIONS = 4
LINGER_MS = 50
COMPRESSION = "lz4"
_KEPT = {"retention.ms": "-1"}
"""The records' timestamps are old, and by default a broker deletes records whose timestamp is more than a week ago."""


@dataclass(frozen=True, slots=True)
class Testbed:
    """A running broker and a session with it; `registry_pid` is a Schema Registry's, which belongs to neither system; `partitions`: of
    each topic made here."""

    session: Session
    scratch: Path
    broker_pid: int | None
    registry_pid: int | None = None
    partitions: int = PARTITIONS

    @property
    def admin(self) -> Admin:
        return self.session.admin

    @property
    def settings(self) -> ClientSettings:
        return self.session.settings

    def broker_processes(self) -> list[psutil.Process]:
        """Return the broker's processes; none if it is not embedded."""
        return [] if self.broker_pid is None else tree(self.broker_pid)

    def own_processes(self) -> list[psutil.Process]:
        """Return the processes of driver, Spark's JVM and workers, without the broker and a Schema Registry."""
        services = [*self.broker_processes(), *([] if self.registry_pid is None else tree(self.registry_pid))]
        others = {process.pid for process in services}
        return [process for process in tree(os.getpid()) if process.pid not in others]

    def parts(self) -> dict[str, list[psutil.Process]]:
        """Return the processes by part: driver, Spark's JVM, workers with their daemons, and an embedded broker."""
        found: dict[str, list[psutil.Process]] = {"driver": [], "jvm": [], "workers": [], "broker": self.broker_processes()}
        for process in self.own_processes():
            with suppress(psutil.NoSuchProcess):
                own = process.pid == os.getpid()
                found["driver" if own else "jvm" if process.name() == "java" else "workers"].append(process)
        return found

    def fresh_topic(self, name: str, partitions: int | None = None) -> str:
        """Create an empty topic; an existing topic of that name is deleted first."""
        self.admin.delete_topics([name] if name in self.admin.topics() else [])
        self.admin.create_topic(name, partitions or self.partitions, configs=_KEPT)
        return name

    def forget(self, application: str) -> None:
        """Delete the internal topics and the consumer group of an application that does not belong to the session."""
        self.admin.delete_topics([name for name in self.admin.topics(internal=True) if name.startswith(f"{application}-")])
        with suppress(KStreamsError):  # a killed application stays a member for a while; the broker removes its group later
            self.admin.delete_groups([application])

    def input_topics(self, records: int, keys: int) -> Topics:
        """Return the stream and the table of a size; created unless they already exist completely."""
        topics = Topics(f"bench-input-{records}-{keys}", f"bench-table-{keys}", "bench-output")
        now = int(time.time() * 1000)
        first = now - records // 1000
        self.fill(topics.table, keys, workloads.table_rows(keys, at_ms=first - 3_600_000))
        self.fill(topics.input, records, workloads.stream_rows(records, keys, first_ms=first))
        return topics

    def fill(self, topic: str, records: int, rows: Iterable[Row]) -> None:
        """Write rows to a topic, unless it already has so many records."""
        known = self.admin.topics()
        if topic in known:
            partitions = [TopicPartition(topic, number) for number in range(known[topic])]
            ends, starts = self.admin.end_offsets(partitions), self.admin.beginning_offsets(partitions)
            if known[topic] == self.partitions and sum(ends[at] - starts[at] for at in partitions) == records:
                return
        click.echo(f"producing {records:,} records to {topic} ...", err=True)
        produce(self.settings, self.fresh_topic(topic), rows)


def produce(settings: ClientSettings, topic: str, rows: Iterable[Row], *, linger_ms: int = LINGER_MS) -> int:
    """Write rows and wait until they are on the broker.

    Raises:
        ProductionError: the broker did not accept all rows.
    """
    failed: list[Any] = []
    options: dict[str, Any] = {"linger_ms": linger_ms, "compression_type": COMPRESSION}
    producer = make_producer(settings, on_delivery_error=lambda error, message: failed.append(error), **options)
    send, count = producer.produce, 0
    try:
        for key, value, timestamp in rows:
            while True:
                try:
                    send(topic, value, key, -1, None, None, timestamp)
                    break
                except BufferError:
                    producer.poll(0.05)
            count += 1
        left = producer.flush(60)
    finally:
        producer.close()
    if failed or left:
        raise ProductionError(f"{len(failed) + left} records for topic {topic!r} are not on the broker", topic=topic)
    return count


@contextmanager
def open_testbed(bootstrap: str | None, directory: Path | None) -> Iterator[Testbed]:
    """Open a broker and a session for one benchmark."""
    if bootstrap is not None:
        with connect(bootstrap, directory=directory or "temporary") as session:
            yield Testbed(session, session.directory.path, None)
        return
    broker = EmbeddedBroker(None if directory is None else directory.expanduser().absolute() / "broker")
    broker.start()
    try:
        home = broker.directory / "session" if directory is None else directory.expanduser().absolute() / "session"
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with connect(broker.bootstrap_servers, directory=home) as session:
            yield Testbed(session, home, broker.pid)
    finally:
        broker.stop()


def where(command: Any) -> Any:
    """Add the options that every benchmark on a broker has."""
    for option in (
        json_output.strict_option,
        click.option("--bootstrap", metavar="HOST:PORT", help="An existing cluster, host:port; default: an embedded broker."),
        click.option(
            "--directory",
            type=click.Path(file_okay=False, path_type=Path),
            help="Directory of broker data and input topics, reused by later runs; default: a temporary one.",
        ),
    ):
        command = option(command)
    return command


def give_up(what: str, seconds: float) -> KStreamsError:
    return KStreamsError(f"{what} did not happen within {seconds:.0f} s", hint="check the machine's load, or use a larger --max-seconds")
