"""KIP-28's processors: `Processor`, `ProcessorDef`, `ProcessorContext`, and the adapter to the current Processor API."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kstreams_repl.engine.processor import Processor as StreamsProcessor
from kstreams_repl.engine.processor import PunctuationType, Record
from kstreams_repl.engine.processor.processors import ProcessorContext as StreamsContext
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.system.durations import Millis
from kstreams_repl.system.errors import TopologyError, did_you_mean
from kstreams_repl.system.types import RecordMetadata


class Processor:
    """KIP-28's processor: override `process`, and the other methods if needed.

    Example:
        >>> class Upper(Processor):
        ...     def process(self, key, value):
        ...         self.context.forward(key, value.upper())
    """

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Initialize the processor; called once per task, after its stores are open.

        Args:
            context: the processor's context, kept as `self.context`.

        Example:
            >>> class Count(Processor):
            ...     def init(self, context):
            ...         super().init(context)
            ...         self.count = 0
        """
        self.context = context

    def process(self, key: Any, value: Any) -> None:
        """Process one record; called for each record.

        Args:
            key, value: of the record; its timestamp is `context.timestamp()`.

        Raises:
            TopologyError: a subclass does not define it.

        Example:
            >>> class Upper(Processor):
            ...     def process(self, key, value):
            ...         self.context.forward(key, value.upper())
        """
        raise TopologyError(f"{type(self).__name__} does not define process(self, key, value)", hint="override process")

    def punctuate(self, stream_time: int) -> None:
        """Act on stream time; called each time the interval given to `context.schedule` has passed on stream time.

        Args:
            stream_time: the largest timestamp so far (ms since 1970).

        Example:
            >>> class Tick(Processor):
            ...     def init(self, context):
            ...         super().init(context)
            ...         context.schedule(1000)
            ...     def punctuate(self, stream_time):
            ...         self.context.forward('tick', stream_time)
        """

    def close(self) -> None:
        """Release resources; called once when the task ends.

        Example:
            >>> class Log(Processor):
            ...     def close(self):
            ...         print('the task ends')
        """


class ProcessorDef:
    """Makes a fresh processor for each task. Override `instance`; list the stores it needs in `stores`."""

    def instance(self) -> Processor:
        """Return a new processor.

        Raises:
            TopologyError: a subclass does not define it.

        Example:
            >>> class Definition(ProcessorDef):
            ...     def instance(self):
            ...         return Processor()
        """
        raise TopologyError(f"{type(self).__name__} does not define instance(self)", hint="return a new Processor from it")

    def stores(self) -> Iterable[StoreBuilder]:
        """Return the stores to add and connect to the processor.

        Example:
            >>> class Definition(ProcessorDef):
            ...     def stores(self):
            ...         return [StoreBuilder('seen', 'key-value')]
        """
        return ()


class ProcessorContext:
    """KIP-28's processor context, on top of the current one.

    During `process` the coordinates are those of the record; during `punctuate` the topic is None, partition and offset are -1.
    """

    def __init__(self, context: StreamsContext, punctuate: Callable[[int], None], supplier: Supplier) -> None:
        self._context = context
        self._punctuate = punctuate
        self._sends = supplier.sends
        self._children = supplier.children
        self._record = Record(None, None, 0)

    def forward(self, key: object, value: object, child: str | None = None) -> None:
        """Forward a key and value to all children, or to one, with the timestamp and headers of the current record.

        Args:
            key, value: of the new record.
            child: name of a child node; None: all children.

        Example:
            >>> class Upper(Processor):
            ...     def process(self, key, value):
            ...         self.context.forward(key, value.upper())
        """
        record = self._record.with_key(key).with_value(value)
        if child is not None or not self._sends:
            self._context.forward(record, child)
            return
        for name in self._children:  # without the sinks of `send`
            self._context.forward(record, name)

    def send(self, topic: str, key: object, value: object) -> None:
        """Write to a topic that `add_processor(..., sends_to=[...])` declared for this processor.

        Args:
            topic: name of the topic.
            key, value: of the record to write.

        Raises:
            TopologyError: the topic was not declared for this processor.

        Example:
            >>> class Copy(Processor):
            ...     def process(self, key, value):
            ...         self.context.send('copy', key, value)
        """
        sink = self._sends.get(topic)
        if sink is None:
            raise TopologyError(
                f"send() expected a topic that was declared for this processor, got {topic!r}",
                hint=did_you_mean(topic, self._sends) or f'add_processor(..., sends_to=["{topic}"])',
                topic=topic,
            )
        self.forward(key, value, sink)

    def schedule(self, interval: Millis) -> Any:
        """Call `punctuate(stream_time)` each time this much stream time has passed; returns an object that can be cancelled.

        Args:
            interval: stream time between two calls (ms, timedelta or "30 s").

        Example:
            >>> class Tick(Processor):
            ...     def init(self, context):
            ...         super().init(context)
            ...         context.schedule(1000)
        """
        return self._context.schedule(interval, PunctuationType.STREAM_TIME, self._punctuated)

    def _punctuated(self, stream_time: int) -> None:
        self._record = Record(None, None, stream_time)
        self._punctuate(stream_time)

    def commit(self) -> None:
        """Request a commit soon.

        Example:
            >>> class Flush(Processor):
            ...     def process(self, key, value):
            ...         self.context.commit()
        """
        self._context.commit()

    def get_state_store(self, name: str) -> Any:
        """Return a store of the definition.

        Args:
            name: name of a store that the `ProcessorDef` lists.

        Example:
            >>> class Last(Processor):
            ...     def process(self, key, value):
            ...         self.context.get_state_store('last').put(key, value)
        """
        return self._context.get_state_store(name)

    def _metadata(self) -> RecordMetadata | None:
        return self._context.record_metadata()

    def topic(self) -> str | None:
        """Return the topic of the current record; None in a punctuation.

        Example:
            >>> class From(Processor):
            ...     def process(self, key, value):
            ...         self.context.forward(key, self.context.topic())
        """
        metadata = self._metadata()
        return None if metadata is None else metadata.topic

    def partition(self) -> int:
        """Return the partition of the current record; -1 in a punctuation.

        Example:
            >>> class From(Processor):
            ...     def process(self, key, value):
            ...         self.context.forward(key, self.context.partition())
        """
        metadata = self._metadata()
        return -1 if metadata is None else metadata.partition

    def offset(self) -> int:
        """Return the offset of the current record; -1 in a punctuation.

        Example:
            >>> class From(Processor):
            ...     def process(self, key, value):
            ...         self.context.forward(key, self.context.offset())
        """
        metadata = self._metadata()
        return -1 if metadata is None else metadata.offset

    def timestamp(self) -> int:
        """Return the timestamp of the current record, or stream time in a punctuation.

        Example:
            >>> class From(Processor):
            ...     def process(self, key, value):
            ...         self.context.forward(key, self.context.timestamp())
        """
        return self._record.timestamp


class Adapter(StreamsProcessor):
    """Adapts a KIP-28 processor to the current Processor API."""

    def __init__(self, processor: Processor, supplier: Supplier) -> None:
        self._processor = processor
        self._supplier = supplier

    def init(self, context: Any) -> None:
        self._old = ProcessorContext(context, self._processor.punctuate, self._supplier)
        self._processor.init(self._old)

    def process(self, record: Record) -> None:
        self._old._record = record
        self._processor.process(record.key, record.value)

    def close(self) -> None:
        self._processor.close()


class Supplier:
    """Supplies adapted processors of a definition; `sends` maps topics to sinks, `children` are the other children."""

    def __init__(self, definition: ProcessorDef | Callable[[], Processor], sends: dict[str, str]) -> None:
        self._definition = definition
        self.sends = sends
        self.children: tuple[str, ...] = ()

    def __call__(self) -> Adapter:
        definition = self._definition
        processor = definition.instance() if isinstance(definition, ProcessorDef) else definition()
        return Adapter(processor, self)

    def stores(self) -> Iterable[StoreBuilder]:
        return self._definition.stores() if isinstance(self._definition, ProcessorDef) else ()


def adapted(supplier: Any) -> Any:
    """Return the supplier of the current Processor API for a definition or processor class of KIP-28; any other one as it is."""
    old = isinstance(supplier, ProcessorDef) or (isinstance(supplier, type) and issubclass(supplier, Processor))
    return Supplier(supplier, {}) if old else supplier
