"""`MockProcessorContext`: unit-test one processor without a topology.

It captures what the processor forwards, schedules and asks for; time and record metadata are set by the test. Source: Kafka Streams'
MockProcessorContext.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kstreams_repl import serdes
from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import InvalidStateStoreError, did_you_mean
from kstreams_repl.processor import PunctuationType
from kstreams_repl.processor.punctuation import checked_schedule
from kstreams_repl.runtime.record_context import RecordContext
from kstreams_repl.stores.engine.memory import MemoryEnvironment
from kstreams_repl.stores.factory import open_store
from kstreams_repl.topology.stores import StoreBuilder
from kstreams_repl.types import Headers, RecordMetadata, TaskId


@dataclass(frozen=True, slots=True)
class CapturedForward:
    """One call of `forward`: the record, and the child it was for (None: all)."""

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
        self.cancelled = True


class MockProcessorContext:
    """A `ProcessorContext` for tests.

    Args:
        config: settings the processor may read.
        stores: builders of the stores it uses; they are opened in memory, with the default serdes of `config` where they name none.

    Example:
        >>> from kstreams_repl.processor import Processor, Record
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
        self, config: Mapping[str, Any] | None = None, *, stores: tuple[StoreBuilder, ...] = (), task_id: TaskId | None = None
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
        environment = MemoryEnvironment()
        self.key_serde = serdes.resolve(self.config["default.key.serde"])
        self.value_serde = serdes.resolve(self.config["default.value.serde"])
        defaults = self.key_serde, self.value_serde
        self._stores = {
            builder.name: open_store(builder, environment, record_context=self._record, defaults=defaults) for builder in stores
        }

    def forward(self, record: Any, child: str | None = None) -> None:
        self._forwarded.append(CapturedForward(record, child))

    def forwarded(self, child: str | None = None) -> list[CapturedForward]:
        """What was forwarded so far; with `child`, what that child would have got."""
        return [call for call in self._forwarded if child is None or call.child in (None, child)]

    def reset_forwards(self) -> None:
        self._forwarded.clear()

    def schedule(
        self,
        interval: timedelta | int,
        punctuation: PunctuationType,
        callback: Callable[[int], None],
        *,
        start: datetime | int | None = None,
    ) -> CapturedPunctuator:
        """Capture a punctuation; nothing runs by itself."""
        every, clock, first = checked_schedule(interval, punctuation, callback, start)
        captured = CapturedPunctuator(every, clock, callback, first)
        self._punctuators.append(captured)
        return captured

    def scheduled_punctuators(self) -> list[CapturedPunctuator]:
        return [captured for captured in self._punctuators if not captured.cancelled]

    def commit(self) -> None:
        self.committed = True

    def reset_commit(self) -> None:
        self.committed = False

    def add_state_store(self, store: Any) -> None:
        """Let the processor use an open store, one of a driver or of your own, under its name."""
        self._stores[store.name] = store

    def get_state_store(self, name: str) -> Any:
        if name not in self._stores:
            raise InvalidStateStoreError(
                f"the mock context has no store {name!r}",
                hint=did_you_mean(name, self._stores) or "pass its builder: stores=(...,)",
                store=name,
            )
        return self._stores[name]

    def record_metadata(self) -> RecordMetadata | None:
        return self._record.metadata()

    def set_record_metadata(self, topic: str, partition: int, offset: int) -> None:
        self._record.topic, self._record.partition, self._record.offset = topic, partition, offset
        self._record.known = True

    def set_headers(self, headers: Headers) -> None:
        self._record.headers = headers

    def current_stream_time_ms(self) -> int:
        return self._stream_time

    def set_current_stream_time_ms(self, timestamp: int) -> None:
        self._stream_time = timestamp

    def current_system_time_ms(self) -> int:
        return self._system_time

    def set_current_system_time_ms(self, timestamp: int) -> None:
        self._system_time = timestamp
