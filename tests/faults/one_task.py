"""An application with one task on a real broker, taken over and run in this process: for faults between and inside take-overs."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.initialization.task_initialization import open_instance
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from kstreams_repl.system.types import TaskId

SECONDS = 60.0
BOTH = {"key_serde": serdes.bytes, "value_serde": serdes.bytes}


class OneTask:
    """Args:
    topology: made of the names of the input and the sink; by default the last value of each key in the store ``kept``.
    """

    def __init__(self, bootstrap: str, directory: Path, topology: Callable[[str, str], Any] | None = None, **config: Any) -> None:
        self.name = f"o{uuid.uuid4().hex[:6]}"
        self.settings, self.directory = ClientSettings(bootstrap), directory
        self.admin = Admin(self.settings)
        self.source, self.sink, self.changelog = f"{self.name}-in", f"{self.name}-out", f"{self.name}-kept-changelog"
        for topic in (self.source, self.sink):
            self.admin.create_topic(topic, 1, configs={"retention.ms": "-1"})
        self.topology = topology or keeping
        self.generation = 0
        self.rows: dict[bytes, bytes] = {}
        self._config = StreamsConfig(
            {
                "application.id": self.name,
                "bootstrap.servers": bootstrap,
                "processing.guarantee": "exactly_once_v2",
                "state.dir": str(directory),
            }
            | config
        )

    def write(self, rows: dict[bytes, bytes]) -> None:
        producer, at_ms = make_producer(self.settings), int(time.time() * 1000)
        for key, value in rows.items():
            while True:
                try:
                    producer.produce(self.source, value, key, timestamp=at_ms)
                    break
                except BufferError:
                    producer.poll(0.05)
        assert producer.flush(30) == 0
        producer.close()
        self.rows |= rows

    def plan(self) -> Any:
        """Of the next generation."""
        self.generation += 1
        return make_plan(
            self.topology(self.source, self.sink),
            self._config,
            self.settings,
            admin=self.admin,
            generation=self.generation,
            state_root=self.directory,
        )

    def open(self, meanwhile: Callable[[], None] = lambda: None) -> Instance:
        """A take-over.

        Args:
            meanwhile: called again and again while stores are restored.
        """

        def go_on() -> bool:
            meanwhile()
            return True

        return open_instance(self.plan(), 0, in_force=lambda: True, go_on=go_on)

    def run(self, instance: Instance, records: int) -> None:
        """Until so many records are processed and committed, at the end of the input."""
        deadline = time.monotonic() + SECONDS

        def signal(now: float) -> Signal:
            assert now < deadline, f"{instance.counters.records} of {records}"
            return Signal.PAUSE if instance.counters.records >= records else Signal.RUN

        PollLoop(instance, signal=signal, report=lambda _: None).run(deadline)

    def process(self, rows: dict[bytes, bytes]) -> None:
        """Write, take over, process, let go."""
        self.write(rows)
        instance = self.open()
        self.run(instance, len(rows))
        instance.close()

    @property
    def store(self) -> Path:
        return task_directory(self.directory, self.name, TaskId(0, 0))

    def wipe(self) -> None:
        shutil.rmtree(self.store)

    def content(self, instance: Instance) -> dict[bytes, bytes]:
        """What the store serves."""
        return {key: value[8:] for key, value in instance.tasks[0].environment.engine("kept").range()}

    def results(self) -> list[tuple[bytes | None, bytes | None]]:
        rows: list[tuple[bytes | None, bytes | None]] = []
        for _, batch in read_ranges(self.settings, ranges_of(self.admin, self.sink, settled=True)):
            rows += zip(batch.keys, batch.values, strict=True)
        return rows


def _last(before: bytes, value: bytes) -> bytes:
    return value


def keeping(source: str, sink: str) -> Any:
    builder = StreamsBuilder()
    builder.stream(source, **BOTH).group_by_key(**BOTH).reduce(_last, store="kept")
    return builder.build()
