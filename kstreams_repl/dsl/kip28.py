"""KIP-28's own front, under its own names: `TopologyBuilder`, `ProcessorDef`, `KStreamBuilder`, windowed streams with `join` and
`join_prior`.

Thin: it builds the same topologies as `Topology` and `StreamsBuilder`. What became of the proposal: a processor sees `(key,
value)` and has one `punctuate`, which runs on stream time; stream time is today's (the largest timestamp so far), not the
proposal's minimum; stores are declared by the definition instead of being made in `init`; `context.send` goes to topics that were
declared for the processor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from kstreams_repl.dsl.builder import StreamsBuilder
from kstreams_repl.dsl.kstream import KStream
from kstreams_repl.dsl.stream_base import check_kind
from kstreams_repl.dsl.windows import JoinWindows, Millis, not_negative
from kstreams_repl.errors import TopologyError, did_you_mean
from kstreams_repl.processor import Processor as StreamsProcessor
from kstreams_repl.processor import PunctuationType, Record
from kstreams_repl.topology.names import validate_name
from kstreams_repl.topology.partitions import DefaultPartitionGrouper, PartitionGrouper
from kstreams_repl.topology.stores import StoreBuilder
from kstreams_repl.topology.topology import Topology
from kstreams_repl.types import RecordMetadata


class Processor:
    """KIP-28's processor: override `process`, and the others where needed.

    Example:
        >>> class Upper(Processor):
        ...     def process(self, key, value):
        ...         self.context.forward(key, value.upper())
    """

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Called once per task, after its stores are open."""
        self.context = context

    def process(self, key: Any, value: Any) -> None:
        """Called for each record."""
        raise TopologyError(f"{type(self).__name__} has no process(self, key, value)", hint="define it")

    def punctuate(self, stream_time: int) -> None:
        """Called each time the interval given to `context.schedule` has passed on stream time."""

    def close(self) -> None:
        """Called once when the task ends."""


class ProcessorDef:
    """Makes a fresh processor for each task. Override `instance`; list the stores it needs in `stores`."""

    def instance(self) -> Processor:
        """A new processor."""
        raise TopologyError(f"{type(self).__name__} has no instance(self)", hint="return a new Processor from it")

    def stores(self) -> Iterable[StoreBuilder]:
        """Stores that are added and connected to the processor."""
        return ()


class ProcessorContext:
    """What KIP-28 gives a processor, over today's context.

    During `process` the coordinates are those of the record; during `punctuate` topic is None, partition and offset are -1.
    """

    def __init__(self, context: Any, punctuate: Callable[[int], None], supplier: _Supplier) -> None:
        self._context = context
        self._punctuate = punctuate
        self._sends = supplier.sends
        self._children = supplier.children
        self._record = Record(None, None, 0)

    def forward(self, key: Any, value: Any, child: str | None = None) -> None:
        """Hand a key and value to all children, or to one, with the time and headers of the record at work."""
        record = self._record.with_key(key).with_value(value)
        if child is not None or not self._sends:
            self._context.forward(record, child)
            return
        for name in self._children:  # not to the sinks of `send`
            self._context.forward(record, name)

    def send(self, topic: str, key: Any, value: Any) -> None:
        """Write to a topic that `add_processor(..., sends_to=[...])` declared for this processor."""
        sink = self._sends.get(topic)
        if sink is None:
            raise TopologyError(
                f"send() to topic {topic!r}, which was not declared for this processor",
                hint=did_you_mean(topic, self._sends) or f'add_processor(..., sends_to=["{topic}"])',
                topic=topic,
            )
        self.forward(key, value, sink)

    def schedule(self, interval: Millis) -> Any:
        """Call `punctuate(stream_time)` each time that so much stream time has passed; returns what can be cancelled."""
        return self._context.schedule(interval, PunctuationType.STREAM_TIME, self._punctuated)

    def _punctuated(self, stream_time: int) -> None:
        self._record = Record(None, None, stream_time)
        self._punctuate(stream_time)

    def commit(self) -> None:
        """Ask for a commit soon."""
        self._context.commit()

    def get_state_store(self, name: str) -> Any:
        """A store of the definition."""
        return self._context.get_state_store(name)

    def _metadata(self) -> RecordMetadata | None:
        return self._context.record_metadata()  # type: ignore[no-any-return]

    def topic(self) -> str | None:
        metadata = self._metadata()
        return None if metadata is None else metadata.topic

    def partition(self) -> int:
        metadata = self._metadata()
        return -1 if metadata is None else metadata.partition

    def offset(self) -> int:
        metadata = self._metadata()
        return -1 if metadata is None else metadata.offset

    def timestamp(self) -> int:
        """Time of the record at work, or stream time in a punctuation."""
        return self._record.timestamp


class _Adapter(StreamsProcessor):
    """A KIP-28 processor as a processor of today."""

    def __init__(self, processor: Processor, supplier: _Supplier) -> None:
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


class _Supplier:
    """Makes adapted processors of a definition; `sends` maps topics to sinks, `children` are the other children."""

    def __init__(self, definition: ProcessorDef | Callable[[], Processor], sends: dict[str, str]) -> None:
        self._definition = definition
        self.sends = sends
        self.children: tuple[str, ...] = ()

    def __call__(self) -> _Adapter:
        definition = self._definition
        processor = definition.instance() if isinstance(definition, ProcessorDef) else definition()
        return _Adapter(processor, self)

    def stores(self) -> Iterable[StoreBuilder]:
        return self._definition.stores() if isinstance(self._definition, ProcessorDef) else ()


class TopologyBuilder:
    """KIP-28's low-level builder: sources, processors and sinks by name.

    Example:
        >>> class MyProcessorDef(ProcessorDef):
        ...     def instance(self):
        ...         return Upper()
        >>> class Upper(Processor):
        ...     def process(self, key, value):
        ...         self.context.forward(key, value.upper())
        >>> builder = TopologyBuilder()
        >>> _ = builder.add_source("SOURCE", "topic-source").add_processor("PROCESS", MyProcessorDef(), "SOURCE")
        >>> builder.add_sink("SINK", "topic-sink", "PROCESS").build()
        Topology(3 nodes, 0 stores, 1 sub-topologies)
    """

    def __init__(self, partition_grouper: PartitionGrouper | None = None) -> None:
        self._topology = Topology()
        self._suppliers: dict[str, _Supplier] = {}
        self.partition_grouper: PartitionGrouper = partition_grouper or DefaultPartitionGrouper()
        """Goes with the topology: each application that runs it groups its partitions so, unless ``partition.grouper`` is set."""
        self._topology.partition_grouper = partition_grouper

    def add_source(self, name: str, *topics: str | re.Pattern[str], **options: Any) -> TopologyBuilder:
        """A node that reads topics; options as for `Topology.add_source`."""
        self._topology.add_source(name, *topics, **options)
        return self

    def add_processor(
        self,
        name: str,
        definition: ProcessorDef | Callable[[], Processor],
        *parents: str,
        sends_to: Iterable[str] = (),
    ) -> TopologyBuilder:
        """A node that runs a processor.

        Args:
            name: of the node.
            definition: a `ProcessorDef`, or a callable that returns a fresh `Processor`.
            *parents: nodes it gets its records from.
            sends_to: topics that the processor may `context.send` to; each is a sink ``<name>-send-<topic>`` behind it.
        """
        if not isinstance(definition, ProcessorDef) and not callable(definition):
            raise TopologyError(
                f"processor {name!r} needs a ProcessorDef, not {definition!r}", hint="derive one from ProcessorDef", node=name
            )
        topics = (sends_to,) if isinstance(sends_to, str) else tuple(sends_to)
        sends = {validate_name(topic, "topic"): f"{name}-send-{topic}" for topic in topics}
        supplier = _Supplier(definition, sends)
        self._topology.add_processor(name, supplier, *parents)
        self._suppliers[name] = supplier
        for topic, sink in sends.items():
            self._topology.add_sink(sink, topic, name)
        return self

    def add_sink(self, name: str, topic: str, *parents: str, **options: Any) -> TopologyBuilder:
        """A node that writes a topic; options as for `Topology.add_sink`."""
        self._topology.add_sink(name, topic, *parents, **options)
        return self

    def build(self) -> Topology:
        """The topology."""
        for name, supplier in self._suppliers.items():
            sinks = supplier.sends.values()
            supplier.children = tuple(child for child in self._topology.children(name) if child not in sinks)
        return self._topology


class KStreamBuilder(StreamsBuilder):
    """KIP-28's name of the DSL's builder."""

    def from_(self, *topics: str, **options: Any) -> KStream:
        """A stream of topics (`from` is a word of Python's own); options as for `StreamsBuilder.stream`."""
        return self.stream(topics, **options)


class KStreamWindowed:
    """A stream whose records stay joinable for a while: `left.with_(60_000).join(right.with_(60_000), joiner)`.

    Everything else a stream has is reached through it: `windowed.filter(...)`.
    """

    def __init__(self, stream: KStream, window: JoinWindows | Millis) -> None:
        self.stream = stream
        if isinstance(window, JoinWindows):
            self._keep_ms, self._grace_ms = window.before_ms, window.grace_ms
        else:
            self._keep_ms, self._grace_ms = not_negative(window, "window"), 0

    def join(self, other: KStreamWindowed, joiner: Callable[..., Any], **options: Any) -> KStream:
        """Each record of either stream joins the other's records with its key, as long as their windows hold them.

        Args:
            other: the other windowed stream.
            joiner: (value, other value) -> value.
            **options: as for `KStream.join` with a stream.
        """
        return self._join(other, joiner, options)

    def join_prior(self, other: KStreamWindowed, joiner: Callable[..., Any], **options: Any) -> KStream:
        """As `join`, but a record joins only those of the other stream that have an *older timestamp* than its own.

        A record that comes late does not join newer ones that were there before it.
        """
        return self._join(other, joiner, options | {"prior": True})

    def _join(self, other: KStreamWindowed, joiner: Callable[..., Any], options: dict[str, Any]) -> KStream:
        check_kind(other, KStreamWindowed, "join of windowed streams")
        windows = JoinWindows(other._keep_ms, self._keep_ms, max(self._grace_ms, other._grace_ms))
        return self.stream.join(other.stream, joiner, windows, **options)

    def __getattr__(self, name: str) -> Any:
        if name == "stream":
            raise AttributeError(name)
        return getattr(self.stream, name)

    def __repr__(self) -> str:
        return f"KStreamWindowed({self.stream.name}, {self._keep_ms} ms)"


__all__ = [
    "DefaultPartitionGrouper",
    "KStreamBuilder",
    "KStreamWindowed",
    "PartitionGrouper",
    "Processor",
    "ProcessorContext",
    "ProcessorDef",
    "TopologyBuilder",
]
