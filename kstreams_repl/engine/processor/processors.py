"""The Processor API, for applications that need more than the DSL.

A *supplier* is a callable without arguments that returns a new processor for each task (usually the class itself). It may have a
`stores()` method that returns store builders, which are then added and connected automatically. Source: KIP-28, KIP-478, KIP-820.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from kstreams_repl.engine.processor.punctuation import PunctuationType
from kstreams_repl.engine.processor.record import FixedKeyRecord, Record
from kstreams_repl.system.durations import Millis
from kstreams_repl.system.types import RecordMetadata, TaskId


class Cancellable(Protocol):
    def cancel(self) -> None:
        """Stop calling the punctuator; a second call does nothing.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> punctuator = context.schedule(1000, ks.PunctuationType.WALL_CLOCK_TIME, print)
            >>> punctuator.cancel()
        """


class ProcessingContext(Protocol):
    """The context of one processor in one task; passed to `init` and kept by the processor."""

    @property
    def application_id(self) -> str:
        """The application's name.

        Example:
            >>> import kstreams_repl as ks
            >>> class Work(ks.Processor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(self.context.application_id))
            ...
            >>> topology = ks.Topology().add_source("in", "words", key_serde="string", value_serde="string")
            >>> topology = topology.add_processor("work", Work, "in")
            >>> topology = topology.add_sink("out", "results", "work", key_serde="string", value_serde="string")
            >>> with ks.testing.TopologyTestDriver(topology, start_ms=5000) as driver:
            ...     driver.create_input_topic("words", "string", "string").pipe_input("a", "to", timestamp=1000)
            ...     print(driver.create_output_topic("results", "string", "string").read_value())
            ...
            test
        """

    @property
    def task_id(self) -> TaskId:
        """Which task this is.

        Example:
            >>> import kstreams_repl as ks
            >>> class Work(ks.Processor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(str(self.context.task_id)))
            ...
            >>> topology = ks.Topology().add_source("in", "words", key_serde="string", value_serde="string")
            >>> topology = topology.add_processor("work", Work, "in")
            >>> topology = topology.add_sink("out", "results", "work", key_serde="string", value_serde="string")
            >>> with ks.testing.TopologyTestDriver(topology, start_ms=5000) as driver:
            ...     driver.create_input_topic("words", "string", "string").pipe_input("a", "to", timestamp=1000)
            ...     print(driver.create_output_topic("results", "string", "string").read_value())
            ...
            0_0
        """

    @property
    def config(self) -> Any:
        """The application's settings.

        Example:
            >>> import kstreams_repl as ks
            >>> class Work(ks.Processor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(str(self.context.config["num.stream.threads"])))
            ...
            >>> topology = ks.Topology().add_source("in", "words", key_serde="string", value_serde="string")
            >>> topology = topology.add_processor("work", Work, "in")
            >>> topology = topology.add_sink("out", "results", "work", key_serde="string", value_serde="string")
            >>> with ks.testing.TopologyTestDriver(topology, start_ms=5000) as driver:
            ...     driver.create_input_topic("words", "string", "string").pipe_input("a", "to", timestamp=1000)
            ...     print(driver.create_output_topic("results", "string", "string").read_value())
            ...
            1
        """

    @property
    def key_serde(self) -> Any:
        """The application's default.

        Example:
            >>> import kstreams_repl as ks
            >>> class Work(ks.Processor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(self.context.key_serde.name))
            ...
            >>> topology = ks.Topology().add_source("in", "words", key_serde="string", value_serde="string")
            >>> topology = topology.add_processor("work", Work, "in")
            >>> topology = topology.add_sink("out", "results", "work", key_serde="string", value_serde="string")
            >>> with ks.testing.TopologyTestDriver(topology, start_ms=5000) as driver:
            ...     driver.create_input_topic("words", "string", "string").pipe_input("a", "to", timestamp=1000)
            ...     print(driver.create_output_topic("results", "string", "string").read_value())
            ...
            bytes
        """

    @property
    def value_serde(self) -> Any:
        """The application's default serde of values.

        Example:
            >>> import kstreams_repl as ks
            >>> class Work(ks.Processor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(self.context.value_serde.name))
            ...
            >>> topology = ks.Topology().add_source("in", "words", key_serde="string", value_serde="string")
            >>> topology = topology.add_processor("work", Work, "in")
            >>> topology = topology.add_sink("out", "results", "work", key_serde="string", value_serde="string")
            >>> with ks.testing.TopologyTestDriver(topology, start_ms=5000) as driver:
            ...     driver.create_input_topic("words", "string", "string").pipe_input("a", "to", timestamp=1000)
            ...     print(driver.create_output_topic("results", "string", "string").read_value())
            ...
            bytes
        """

    def record_metadata(self) -> RecordMetadata | None:
        """Return topic, partition and offset of the source record: None, -1, -1 in a punctuation; None while `init` runs.

        Example:
            >>> import kstreams_repl as ks
            >>> class Work(ks.Processor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(f"{record.value} of {self.context.record_metadata().topic}"))
            ...
            >>> topology = ks.Topology().add_source("in", "words", key_serde="string", value_serde="string")
            >>> topology = topology.add_processor("work", Work, "in")
            >>> topology = topology.add_sink("out", "results", "work", key_serde="string", value_serde="string")
            >>> with ks.testing.TopologyTestDriver(topology, start_ms=5000) as driver:
            ...     driver.create_input_topic("words", "string", "string").pipe_input("a", "to", timestamp=1000)
            ...     print(driver.create_output_topic("results", "string", "string").read_value())
            ...
            to of words
        """

    def get_state_store(self, name: str) -> Any:
        """Return a store that this processor is connected to; raises InvalidStateStoreError otherwise.

        Args:
            name: name of a store that is connected to the processor.

        Example:
            >>> import kstreams_repl as ks
            >>> class Seen(ks.Processor):
            ...     @staticmethod
            ...     def stores():
            ...         return [ks.StoreBuilder("seen", ks.StoreKind.KEY_VALUE, key_serde="string", value_serde="string")]
            ...     def process(self, record):
            ...         self.context.get_state_store("seen").put(record.key, record.value)
            ...
            >>> topology = ks.Topology().add_source("in", "words", key_serde="string", value_serde="string")
            >>> topology = topology.add_processor("see", Seen, "in")
            >>> with ks.testing.TopologyTestDriver(topology) as driver:
            ...     driver.create_input_topic("words", "string", "string").pipe_input("a", "to")
            ...     print(driver.state_store("seen").get("a"))
            ...
            to
        """

    def schedule(
        self,
        interval: Millis,
        punctuation: PunctuationType,
        callback: Callable[[int], None],
        *,
        start: datetime | int | None = None,
    ) -> Cancellable:
        """Call `callback(timestamp_ms)` every `interval` (ms, timedelta or "30 s") of stream or wall-clock time, first at `start` (ms or a
        datetime; naive ones are UTC) if given.

        Args:
            interval: time between two calls, 1 ms or more (ms, timedelta or "30 s").
            punctuation: which time decides.
            callback: called with the time (ms since 1970).
            start: time of the first call (ms since 1970 or a datetime; naive ones are UTC); None: one `interval` from now.

        Example:
            >>> import kstreams_repl as ks
            >>> class Tick(ks.Processor):
            ...     def init(self, context):
            ...         context.schedule(1000, ks.PunctuationType.STREAM_TIME, lambda now: context.forward(ks.Record("tick", now, now)))
            ...     def process(self, record): pass
            ...
            >>> topology = ks.Topology().add_source("in", "words").add_processor("tick", Tick, "in")
            >>> topology = topology.add_sink("out", "ticks", "tick", key_serde="string", value_serde="long")
            >>> with ks.testing.TopologyTestDriver(topology) as driver:
            ...     driver.create_input_topic("words").pipe_input(b"a", b"to", timestamp=5000)
            ...     print(driver.create_output_topic("ticks", "string", "long").read_key_value())
            ...
            ('tick', 5000)
        """

    def metrics(self) -> Any:
        """The task's `StreamsMetrics` (`engine.metrics.custom`): ``metrics()`` reads the instance's metrics; ``add_sensor``,
        ``add_rate_total_sensor`` and ``add_latency_rate_total_sensor`` add sensors. Not available to processors of global stores.

        Example:
            >>> import kstreams_repl as ks
            >>> class Work(ks.Processor):
            ...     def init(self, context):
            ...         super().init(context)
            ...         self.sensor = context.metrics().add_rate_total_sensor('lookup', 'prices', 'fetch')
            ...     def process(self, record):
            ...         self.sensor.record(2.5)
            ...         found = [each.value for each in self.context.metrics().metrics() if each.name == "fetch-total"]
            ...         self.context.forward(record.with_value(str(found[0])))
            ...
            >>> topology = ks.Topology().add_source("in", "words", key_serde="string", value_serde="string")
            >>> topology = topology.add_processor("work", Work, "in")
            >>> topology = topology.add_sink("out", "results", "work", key_serde="string", value_serde="string")
            >>> with ks.testing.TopologyTestDriver(topology, start_ms=5000) as driver:
            ...     driver.create_input_topic("words", "string", "string").pipe_input("a", "to", timestamp=1000)
            ...     print(driver.create_output_topic("results", "string", "string").read_value())
            ...
            1
        """

    @property
    def state_dir(self) -> Path:
        """A directory for files of this task's processors, which share it. It is local, like a cache: it does not follow the task to
        another machine, is not part of a commit, and is deleted when the task's local state is removed or rebuilt.

        Example:
            >>> import kstreams_repl as ks
            >>> class Work(ks.Processor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(str(self.context.state_dir.is_dir())))
            ...
            >>> topology = ks.Topology().add_source("in", "words", key_serde="string", value_serde="string")
            >>> topology = topology.add_processor("work", Work, "in")
            >>> topology = topology.add_sink("out", "results", "work", key_serde="string", value_serde="string")
            >>> with ks.testing.TopologyTestDriver(topology, start_ms=5000) as driver:
            ...     driver.create_input_topic("words", "string", "string").pipe_input("a", "to", timestamp=1000)
            ...     print(driver.create_output_topic("results", "string", "string").read_value())
            ...
            True
        """

    def commit(self) -> None:
        """Request a commit soon; the call does not commit itself.

        Example:
            >>> import kstreams_repl as ks
            >>> class Flush(ks.Processor):
            ...     def process(self, record):
            ...         self.context.commit()
            ...
            >>> context = ks.testing.MockProcessorContext()
            >>> flush = Flush()
            >>> flush.init(context)
            >>> flush.process(ks.Record("a", "to", 1000))
            >>> context.committed
            True
        """

    def current_stream_time_ms(self) -> int:
        """Return the largest timestamp so far, in milliseconds; -1 before the first record.

        Example:
            >>> import kstreams_repl as ks
            >>> class Work(ks.Processor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(str(self.context.current_stream_time_ms())))
            ...
            >>> topology = ks.Topology().add_source("in", "words", key_serde="string", value_serde="string")
            >>> topology = topology.add_processor("work", Work, "in")
            >>> topology = topology.add_sink("out", "results", "work", key_serde="string", value_serde="string")
            >>> with ks.testing.TopologyTestDriver(topology, start_ms=5000) as driver:
            ...     driver.create_input_topic("words", "string", "string").pipe_input("a", "to", timestamp=1000)
            ...     print(driver.create_output_topic("results", "string", "string").read_value())
            ...
            1000
        """

    def current_system_time_ms(self) -> int:
        """Return the clock, in milliseconds.

        Example:
            >>> import kstreams_repl as ks
            >>> class Work(ks.Processor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(str(self.context.current_system_time_ms())))
            ...
            >>> topology = ks.Topology().add_source("in", "words", key_serde="string", value_serde="string")
            >>> topology = topology.add_processor("work", Work, "in")
            >>> topology = topology.add_sink("out", "results", "work", key_serde="string", value_serde="string")
            >>> with ks.testing.TopologyTestDriver(topology, start_ms=5000) as driver:
            ...     driver.create_input_topic("words", "string", "string").pipe_input("a", "to", timestamp=1000)
            ...     print(driver.create_output_topic("results", "string", "string").read_value())
            ...
            5000
        """


class ProcessorContext(ProcessingContext, Protocol):
    def forward(self, record: Record, child: str | None = None) -> None:
        """Forward a record to all children in the order they were added, depth first, or only to the named one.

        Args:
            record: the record to forward.
            child: name of a child node; None: all children.

        Example:
            >>> import kstreams_repl as ks
            >>> class Work(ks.Processor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(record.value.upper()))
            ...
            >>> topology = ks.Topology().add_source("in", "words", key_serde="string", value_serde="string")
            >>> topology = topology.add_processor("work", Work, "in")
            >>> topology = topology.add_sink("out", "results", "work", key_serde="string", value_serde="string")
            >>> with ks.testing.TopologyTestDriver(topology, start_ms=5000) as driver:
            ...     driver.create_input_topic("words", "string", "string").pipe_input("a", "to", timestamp=1000)
            ...     print(driver.create_output_topic("results", "string", "string").read_value())
            ...
            TO
        """


class FixedKeyProcessorContext(ProcessingContext, Protocol):
    def forward(self, record: FixedKeyRecord, child: str | None = None) -> None:
        """Forward a record to all children in the order they were added, depth first, or only to the named one.

        Args:
            record: the record, made from the one that was processed: `record.with_value(...)`.
            child: name of a child; None: all of them.

        Example:
            >>> import kstreams_repl as ks
            >>> class Upper(ks.FixedKeyProcessor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(record.value.upper()))
            ...
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> words.process_values(Upper).to("shouts", value_serde="string")
            >>> with ks.testing.TopologyTestDriver(builder.build(), start_ms=0) as driver:
            ...     driver.create_input_topic("words", "string", "string").pipe_input("a", "to")
            ...     print(driver.create_output_topic("shouts", "string", "string").read_value())
            ...
            TO
        """


class _Lifecycle:
    def init(self, context: Any) -> None:
        """Store the context. Called once per task, after its stores are open.

        Example:
            >>> import kstreams_repl as ks
            >>> class Count(ks.Processor):
            ...     def init(self, context):
            ...         super().init(context)
            ...         self.count = 0
        """
        self.context = context

    def close(self) -> None:
        """Release resources. Called once when the task ends; stores are still open, but nothing can be forwarded.

        Example:
            >>> import kstreams_repl as ks
            >>> class Log(ks.Processor):
            ...     def close(self):
            ...         print("the task ends")
        """


class Processor(_Lifecycle):
    """Base of a user's processor; override `process`, and `init` and `close` where needed."""

    context: ProcessorContext

    def process(self, record: Record) -> None:
        """Process a record.

        Args:
            record: the record.

        Raises:
            NotImplementedError: a subclass does not define it.

        Example:
            >>> import kstreams_repl as ks
            >>> class Upper(ks.Processor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(record.value.upper()))
        """
        raise NotImplementedError(f"{type(self).__name__} has no process(self, record)")


class FixedKeyProcessor(_Lifecycle):
    """Base of a processor that cannot change keys (`process_values`)."""

    context: FixedKeyProcessorContext

    def process(self, record: FixedKeyRecord) -> None:
        """Process a record.

        Args:
            record: the record; `record.with_value(...)` makes the one to forward.

        Raises:
            NotImplementedError: a subclass does not define it.

        Example:
            >>> import kstreams_repl as ks
            >>> class Upper(ks.FixedKeyProcessor):
            ...     def process(self, record):
            ...         self.context.forward(record.with_value(record.value.upper()))
        """
        raise NotImplementedError(f"{type(self).__name__} has no process(self, record)")


ProcessorSupplier = Callable[[], Processor]
FixedKeyProcessorSupplier = Callable[[], FixedKeyProcessor]
