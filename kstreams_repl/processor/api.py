"""The Processor API: what a user writes when the DSL is not enough.

A *supplier* is a callable without arguments that returns a fresh processor for each task (usually the class itself). It may have a
`stores()` method that returns store builders: they are then added and connected by themselves. Source: KIP-28, KIP-478, KIP-820.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Protocol

from kstreams_repl.processor.punctuation import PunctuationType
from kstreams_repl.processor.record import FixedKeyRecord, Record
from kstreams_repl.types import RecordMetadata


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class ProcessingContext(Protocol):
    """What one task gives one processor; handed to `init` and kept by the processor."""

    @property
    def application_id(self) -> str: ...

    @property
    def task_id(self) -> Any: ...

    @property
    def config(self) -> Any: ...

    @property
    def key_serde(self) -> Any:
        """The application's default."""

    @property
    def value_serde(self) -> Any: ...

    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the source record: None, -1, -1 in a punctuation; None while `init` runs."""

    def get_state_store(self, name: str) -> Any:
        """A store this processor is connected to; InvalidStateStoreError otherwise."""

    def schedule(
        self,
        interval: timedelta | int,
        punctuation: PunctuationType,
        callback: Callable[[int], None],
        *,
        start: datetime | int | None = None,
    ) -> Cancellable:
        """Call `callback(timestamp_ms)` every `interval` (timedelta or ms) of stream or wall-clock time, first at `start` (ms or a
        datetime, naive ones are UTC) when given."""

    def commit(self) -> None:
        """Ask for a commit soon; a request, not the commit itself."""

    def current_stream_time_ms(self) -> int: ...

    def current_system_time_ms(self) -> int: ...


class ProcessorContext(ProcessingContext, Protocol):
    def forward(self, record: Record, child: str | None = None) -> None:
        """Hand a record to all children in insertion order, depth first, or to the named one."""


class FixedKeyProcessorContext(ProcessingContext, Protocol):
    def forward(self, record: FixedKeyRecord, child: str | None = None) -> None: ...


class _Lifecycle:
    def init(self, context: Any) -> None:
        """Called once per task after its stores are open; keeps the context."""
        self.context = context

    def close(self) -> None:
        """Called once when the task ends; stores are still open, nothing can be forwarded."""


class Processor(_Lifecycle):
    """Base of a user's processor; override `process`, and `init`/`close` where needed."""

    context: ProcessorContext

    def process(self, record: Record) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no process(self, record)")


class FixedKeyProcessor(_Lifecycle):
    """Base of a processor that cannot change keys (`process_values`)."""

    context: FixedKeyProcessorContext

    def process(self, record: FixedKeyRecord) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no process(self, record)")


ProcessorSupplier = Callable[[], Processor]
FixedKeyProcessorSupplier = Callable[[], FixedKeyProcessor]
