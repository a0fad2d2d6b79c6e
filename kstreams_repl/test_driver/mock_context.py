"""`MockProcessorContext`: unit-test one processor without a topology.

It captures what the processor forwards, schedules and requests; the test sets time and record metadata. Source: Kafka Streams'
MockProcessorContext.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.metrics.custom import StreamsMetrics
from kstreams_repl.engine.processor import PunctuationType
from kstreams_repl.engine.processor.punctuation import checked_schedule
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.stores.factory import open_store
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.system.durations import Millis
from kstreams_repl.system.errors import InvalidStateStoreError, did_you_mean
from kstreams_repl.system.types import Headers, RecordMetadata, TaskId
from kstreams_repl.test_driver.host import DriverHost

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class CapturedForward:
    """One call of `forward`: the record, and its child node (None: all)."""

    record: Any
    child: str | None = None


@dataclass(slots=True)
class CapturedPunctuator:
    """One call of `schedule`; call `punctuate(timestamp)` to run it."""

    interval_ms: int
    type: PunctuationType
    punctuate: Callable[[int], None]
    start_ms: int | None = None
    cancelled: bool = False

    def cancel(self) -> None:
        """Cancel the punctuation.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context.schedule(1000, ks.PunctuationType.STREAM_TIME, print).cancel()
            >>> context.scheduled_punctuators()
            []
        """
        self.cancelled = True


class MockProcessorContext:
    """A `ProcessorContext` for tests.

    Args:
        config: settings that the processor can read.
        stores: builders of the stores it uses; opened in memory, with the default serdes of `config` unless they have their own.

    Example:
        >>> from kstreams_repl.engine.processor import Processor, Record
        >>> class Double(Processor):
        ...     def process(self, record):
        ...         self.context.forward(record.with_value(record.value * 2))
        >>> context = MockProcessorContext()
        >>> double = Double()
        >>> double.init(context)
        >>> double.process(Record("a", 21, 0))
        >>> context.forwarded()[0].record.value
        42
    """

    def __init__(
        self, config: Mapping[str, object] | None = None, *, stores: tuple[StoreBuilder, ...] = (), task_id: TaskId | None = None
    ) -> None:
        self.config = StreamsConfig({"application.id": "mock"} | dict(config or {}))
        self.application_id: str = self.config["application.id"]
        self.task_id = task_id or TaskId(0, 0)
        self.committed = False
        self._forwarded: list[CapturedForward] = []
        self._punctuators: list[CapturedPunctuator] = []
        self._record = RecordContext()
        self._stream_time = -1
        self._system_time = 0
        self._host = DriverHost(self.config, self.current_system_time_ms)
        environment = MemoryEnvironment()
        self.key_serde = serdes.resolve(self.config["default.key.serde"])
        self.value_serde = serdes.resolve(self.config["default.value.serde"])
        defaults = self.key_serde, self.value_serde
        self._stores = {
            builder.name: open_store(builder, environment, record_context=self._record, defaults=defaults) for builder in stores
        }

    def forward(self, record: object, child: str | None = None) -> None:
        """Capture a record that the processor forwards, for `forwarded`.

        Args:
            record: the record to forward.
            child: name of the child it is for; None: all children.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context.forward(ks.Record("a", 1, 0))
            >>> len(context.forwarded())
            1
        """
        self._forwarded.append(CapturedForward(record, child))

    def forwarded(self, child: str | None = None) -> list[CapturedForward]:
        """Return what was forwarded so far; with `child`, what that child would have received.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context.forward(ks.Record("a", 1, 0))
            >>> context.forward(ks.Record("b", 2, 0), "left")
            >>> [call.record.value for call in context.forwarded("right")]
            [1]
        """
        return [call for call in self._forwarded if child is None or call.child in (None, child)]

    def reset_forwards(self) -> None:
        """Clear the captured records.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context.forward(ks.Record("a", 1, 0))
            >>> context.reset_forwards()
            >>> context.forwarded()
            []
        """
        self._forwarded.clear()

    def schedule(
        self,
        interval: Millis,
        punctuation: PunctuationType,
        callback: Callable[[int], None],
        *,
        start: datetime | int | None = None,
    ) -> CapturedPunctuator:
        """Capture a punctuation; it runs only when the test calls it.

        Args:
            interval: time between two calls, 1 ms or more (ms, timedelta or "30 s").
            punctuation: which time decides.
            callback: called with the time (ms since 1970).
            start: time of the first call (ms since 1970 or a datetime; naive ones are UTC); None: one `interval` from now.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> ticks = []
            >>> context.schedule(1000, ks.PunctuationType.WALL_CLOCK_TIME, ticks.append).punctuate(5000)
            >>> ticks
            [5000]
        """
        every, clock, first = checked_schedule(interval, punctuation, callback, start)
        captured = CapturedPunctuator(every, clock, callback, first)
        self._punctuators.append(captured)
        return captured

    def scheduled_punctuators(self) -> list[CapturedPunctuator]:
        """Return the scheduled punctuators that were not cancelled.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> tick = context.schedule(1000, ks.PunctuationType.STREAM_TIME, print)
            >>> [captured.interval_ms for captured in context.scheduled_punctuators()]
            [1000]
            >>> tick.cancel()
            >>> context.scheduled_punctuators()
            []
        """
        return [captured for captured in self._punctuators if not captured.cancelled]

    def commit(self) -> None:
        """Record in `committed` that the processor requested a commit.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context.commit()
            >>> context.committed
            True
        """
        self.committed = True

    def reset_commit(self) -> None:
        """Clear `committed`.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context.commit()
            >>> context.reset_commit()
            >>> context.committed
            False
        """
        self.committed = False

    def add_state_store(self, store: Any) -> None:
        """Let the processor use an open store, a driver's or your own, by its name.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> other = ks.testing.MockProcessorContext(stores=(ks.StoreBuilder("seen", ks.StoreKind.KEY_VALUE),))
            >>> context.add_state_store(other.get_state_store("seen"))
            >>> context.get_state_store("seen").name
            'seen'
        """
        self._stores[store.name] = store

    def get_state_store(self, name: str) -> Any:
        """Return a store that was given to the constructor or added.

        Args:
            name: name of the store.

        Raises:
            InvalidStateStoreError: there is no such store.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context = ks.testing.MockProcessorContext(stores=(ks.StoreBuilder("seen", ks.StoreKind.KEY_VALUE, value_serde="long"),))
            >>> context.get_state_store("seen").put(b"a", 1)
            >>> context.get_state_store("seen").get(b"a")
            1
        """
        if name not in self._stores:
            raise InvalidStateStoreError(
                f"the mock context has no store {name!r}",
                hint=did_you_mean(name, self._stores) or "pass its builder: stores=(...,)",
                store=name,
            )
        return self._stores[name]

    def record_metadata(self) -> RecordMetadata | None:
        """Return the coordinates of the current record; None until they are set.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context.set_record_metadata("words", 1, 42)
            >>> context.record_metadata().offset
            42
        """
        return self._record.metadata()

    def set_record_metadata(self, topic: str, partition: int, offset: int) -> None:
        """Set the coordinates of the current record.

        Args:
            topic: name of the topic.
            partition: number of the partition.
            offset: offset of the record.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context.set_record_metadata("words", 1, 42)
            >>> context.record_metadata().topic
            'words'
        """
        self._record.topic, self._record.partition, self._record.offset = topic, partition, offset
        self._record.known = True

    def set_headers(self, headers: Headers) -> None:
        """Set the headers of the current record.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context.set_headers([("trace", b"1")])
        """
        self._record.headers = headers

    def current_stream_time_ms(self) -> int:
        """Return stream time in milliseconds; -1 until it is set.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context.current_stream_time_ms()
            -1
        """
        return self._stream_time

    def set_current_stream_time_ms(self, timestamp: int) -> None:
        """Set stream time in milliseconds.

        Args:
            timestamp: milliseconds since 1970.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context.set_current_stream_time_ms(1000)
            >>> context.current_stream_time_ms()
            1000
        """
        self._stream_time = timestamp

    def current_system_time_ms(self) -> int:
        """Return the mocked system time in milliseconds.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context.current_system_time_ms()
            0
        """
        return self._system_time

    def set_current_system_time_ms(self, timestamp: int) -> None:
        """Set the mocked system time in milliseconds.

        Args:
            timestamp: milliseconds since 1970.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context.set_current_system_time_ms(1000)
            >>> context.current_system_time_ms()
            1000
        """
        self._host.fold()
        self._system_time = timestamp

    def metrics(self) -> StreamsMetrics:
        """Return the processor's sensors and their metrics: ``metrics().metrics()``.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> context.metrics().add_latency_rate_total_sensor("lookup", "prices", "fetch").record(12.5)
            >>> [metric.value for metric in context.metrics().metrics() if metric.name == "fetch-latency-max"]
            [12.5]
        """
        return self._host.custom

    @property
    def state_dir(self) -> Path:
        """Return a temporary directory that is removed with the context.

        Example:
            >>> import kstreams_repl as ks
            >>> context = ks.testing.MockProcessorContext()
            >>> place = context.state_dir / "notes"
            >>> place.write_text("seen")
            4
        """
        return self._host.state_dir()
