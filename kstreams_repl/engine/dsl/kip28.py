"""KIP-28's API under its own names: `TopologyBuilder`, `ProcessorDef`, `KStreamBuilder`, windowed streams with `join` and
`join_prior`.

A thin layer that builds the same topologies as `Topology` and `StreamsBuilder`. Differences from the proposal: a processor gets
`(key, value)` and has one `punctuate`, which runs on stream time; stream time is that of Kafka Streams (the largest timestamp so
far), not the proposal's minimum; stores are declared by the definition instead of being made in `init`; `context.send` writes
only to topics that were declared for the processor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from kstreams_repl.engine.dsl.builder import StreamsBuilder, TimestampExtractor
from kstreams_repl.engine.dsl.kip28_processor import Processor, ProcessorContext, ProcessorDef, Supplier
from kstreams_repl.engine.dsl.kstream import KStream
from kstreams_repl.engine.dsl.streams.join_operators import KStreamWindowed
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.engine.topology.partitions import DefaultPartitionGrouper, PartitionGrouper
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import StreamPartitioner


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
        Topology(3 nodes, 0 stores, 1 sub-topology)
    """

    def __init__(self, partition_grouper: PartitionGrouper | None = None) -> None:
        self._topology = Topology()
        self._suppliers: dict[str, Supplier] = {}
        self.partition_grouper: PartitionGrouper = partition_grouper or DefaultPartitionGrouper()
        """Part of the topology: each application that runs it groups its partitions by this, unless ``partition.grouper`` is
        set."""
        self._topology.partition_grouper = partition_grouper

    def add_source(
        self,
        name: str,
        *topics: str | re.Pattern[str],
        key_serde: object = None,
        value_serde: object = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
    ) -> TopologyBuilder:
        """Add a node that reads topics; arguments as for `Topology.add_source`.

        Example:
            >>> from kstreams_repl import kip28
            >>> class Upper(kip28.Processor):
            ...     def process(self, key, value):
            ...         self.context.forward(key, value.upper())
            ...
            >>> builder = kip28.TopologyBuilder().add_source("in", "words", key_serde="string", value_serde="string")
            >>> builder.build().source_topics()
            ('words',)
        """
        self._topology.add_source(
            name, *topics, key_serde=key_serde, value_serde=value_serde, timestamp_extractor=timestamp_extractor, offset_reset=offset_reset
        )
        return self

    def add_processor(
        self,
        name: str,
        definition: ProcessorDef | Callable[[], Processor],
        *parents: str,
        sends_to: Iterable[str] = (),
    ) -> TopologyBuilder:
        """Add a node that runs a processor.

        Args:
            name: name of the node.
            definition: a `ProcessorDef`, or a callable that returns a fresh `Processor`.
            *parents: nodes that forward to this one.
            sends_to: topics to which the processor may `context.send`; each gets a sink ``<name>-send-<topic>``.

        Raises:
            TopologyError: `definition` is neither, the name is taken, or a parent is unknown.

        Example:
            >>> from kstreams_repl import kip28
            >>> class Upper(kip28.Processor):
            ...     def process(self, key, value):
            ...         self.context.forward(key, value.upper())
            ...
            >>> builder = kip28.TopologyBuilder().add_source("in", "words", key_serde="string", value_serde="string")
            >>> builder.add_processor("upper", Upper, "in").build().children("in")
            ('upper',)
        """
        if not isinstance(definition, ProcessorDef) and not callable(definition):
            raise TopologyError(
                f"expected a ProcessorDef or a callable for processor {name!r}, got {definition!r}",
                hint="derive one from ProcessorDef", node=name,
            )
        topics = (sends_to,) if isinstance(sends_to, str) else tuple(sends_to)
        sends = {validate_name(topic, "topic"): f"{name}-send-{topic}" for topic in topics}
        supplier = Supplier(definition, sends)
        self._topology.add_processor(name, supplier, *parents)
        self._suppliers[name] = supplier
        for topic, sink in sends.items():
            self._topology.add_sink(sink, topic, name)
        return self

    def add_sink(
        self,
        name: str,
        topic: str,
        *parents: str,
        key_serde: object = None,
        value_serde: object = None,
        partitioner: StreamPartitioner | None = None,
    ) -> TopologyBuilder:
        """Add a node that writes a topic; arguments as for `Topology.add_sink`.

        Example:
            >>> from kstreams_repl import kip28
            >>> class Upper(kip28.Processor):
            ...     def process(self, key, value):
            ...         self.context.forward(key, value.upper())
            ...
            >>> builder = kip28.TopologyBuilder().add_source("in", "words", key_serde="string", value_serde="string")
            >>> builder.add_sink("out", "copy", "in", key_serde="string", value_serde="string").build().sink_topics()
            ('copy',)
        """
        self._topology.add_sink(name, topic, *parents, key_serde=key_serde, value_serde=value_serde, partitioner=partitioner)
        return self

    def build(self, config: Mapping[str, object] | None = None) -> Topology:
        """Return the topology.

        Args:
            config: not used: it is there because `StreamsBuilder.build` takes the settings.

        Example:
            >>> from kstreams_repl import kip28
            >>> class Upper(kip28.Processor):
            ...     def process(self, key, value):
            ...         self.context.forward(key, value.upper())
            ...
            >>> builder = kip28.TopologyBuilder().add_source("in", "words", key_serde="string", value_serde="string")
            >>> builder.add_processor("upper", Upper, "in").build()
            Topology(2 nodes, 0 stores, 1 sub-topology)
        """
        for name, supplier in self._suppliers.items():
            sinks = supplier.sends.values()
            supplier.children = tuple(child for child in self._topology.children(name) if child not in sinks)
        return self._topology


class KStreamBuilder(StreamsBuilder):
    """KIP-28's name for the DSL's builder."""

    def from_(
        self,
        *topics: str,
        key_serde: object = None,
        value_serde: object = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
        name: str | None = None,
    ) -> KStream:
        """Return a stream of topics (`from` is a Python keyword); arguments as for `StreamsBuilder.stream`.

        Example:
            >>> from kstreams_repl import kip28
            >>> kip28.KStreamBuilder().from_("words", key_serde="string", value_serde="string").to("copy")
        """
        return self.stream(
            topics, key_serde=key_serde, value_serde=value_serde, timestamp_extractor=timestamp_extractor, offset_reset=offset_reset,
            name=name,
        )


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
