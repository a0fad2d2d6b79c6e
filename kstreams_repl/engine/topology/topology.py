"""`Topology`: sources, processors, sinks and stores, added one by one (KIP-28's `TopologyBuilder`, Kafka Streams' `Topology`).

Each call raises on a mistake: an unknown parent or store, a name used twice, a topic read by two sources. The DSL writes the same
object, so a topology built by the DSL can be extended here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from kstreams_repl.engine.topology.bounds.offset_reset import checked_of_source
from kstreams_repl.engine.topology.checks import TopologyChecks, refuse_async
from kstreams_repl.engine.topology.connected_stores import supplied_stores
from kstreams_repl.engine.topology.description.source_location import user_origin
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.engine.topology.nodes import Node, Origin, ProcessorNode, SinkNode, SourceNode
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.system.errors import TopologyError, did_you_mean
from kstreams_repl.system.types import StreamPartitioner, TimestampExtractor

TopicExtractor = Callable[..., str]


class Topology(TopologyChecks):
    """A topology under construction.

    Example:
        >>> topology = Topology().add_source("words", "text").add_sink("copy", "text-copy", "words")
        >>> [node.name for node in topology.subtopologies()[0].nodes]
        ['words', 'copy']
    """

    def add_source(
        self,
        name: str,
        *topics: str | re.Pattern[str],
        key_serde: object = None,
        value_serde: object = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
        origin: Origin | None = None,
    ) -> Topology:
        """Add a node that reads topics, or all topics whose full name a compiled pattern matches.

        Args:
            name: name of the node.
            *topics: names, or exactly one compiled pattern.
            key_serde, value_serde: deserialize records; None = the application's defaults.
            timestamp_extractor: (record, partition time) -> ms; None = the record's own timestamp, and a negative one is an
                error.
            offset_reset: an `AutoOffsetReset` or its text; None (the application's ``auto.offset.reset``).
            origin: where the user made it; None: determined from the call stack.

        Raises:
            TopologyError: no topic, the name is taken, or another source already reads one of the topics.

        Example:
            >>> import kstreams_repl as ks
            >>> topology = ks.Topology()
            >>> topology.add_source("in", "words", key_serde="string")
            Topology(1 node, 0 stores, 1 sub-topology)
        """
        self._free_node_name(name)
        if not topics:
            raise TopologyError(
                f"source {name!r} reads no topic", hint="give at least one topic name or one compiled pattern", node=name
            )
        offset_reset = checked_of_source(offset_reset, node=name)
        refuse_async(timestamp_extractor, "timestamp_extractor", "add_source")
        pattern, names = self._split_pattern(name, topics)
        if pattern is not None:
            self._free_pattern(name, pattern)
            self._patterns[name] = pattern
        for topic in names:
            self._free_topic(name, topic)
        self._topic_sources.update(dict.fromkeys(names, name))
        self._put(
            SourceNode(
                name,
                names,
                pattern,
                key_serde,
                value_serde,
                timestamp_extractor,
                offset_reset,
                origin if origin is not None else user_origin(),
            )
        )
        return self

    def add_processor(self, name: str, supplier: object, *parents: str, origin: Origin | None = None) -> Topology:
        """Add a node that runs a processor.

        Args:
            name: name of the node.
            supplier: callable that returns a fresh `Processor` for each task; or an operator of the DSL. If it has a `stores()`
                method, the store builders that it returns are added and connected.
            *parents: nodes that forward to this one.
            origin: where the user made it; None: determined from the call stack.

        Raises:
            TopologyError: the name is taken, a parent is unknown or a sink, or the supplier is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> topology = ks.Topology()
            >>> class Twice(ks.Processor):
            ...     def process(self, record):
            ...         self.context.forward(record)
            ...         self.context.forward(record)
            ...
            >>> topology.add_source("in", "words").add_processor("twice", Twice, "in").children("in")
            ('twice',)
        """
        self._free_node_name(name)
        self._check_supplier(name, supplier)
        self._check_parents(name, parents, "processor")
        stores = supplied_stores(supplier, name)
        self._put(ProcessorNode(name, parents, supplier, (), origin if origin is not None else user_origin()), parents)
        for builder in stores:
            self.add_state_store(builder, name)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicExtractor | TableFiles,
        *parents: str,
        key_serde: object = None,
        value_serde: object = None,
        partitioner: StreamPartitioner | None = None,
        origin: Origin | None = None,
    ) -> Topology:
        """Add a node that writes a topic, or the topic that a callable `(key, value, record metadata) -> name` chooses per
        record.

        Args:
            name: name of the node.
            topic: name of the topic, or (key, value, record metadata) -> name; or the `TableFiles` to write instead of a topic.
            *parents: nodes that forward to this one.
            key_serde, value_serde: a serde or its name; None = the application's defaults.
            partitioner: (topic, key, value, partitions) -> a partition, several or None; None = by key.
            origin: where the user added the node; None = the caller's line.

        Raises:
            TopologyError: the name is taken, a parent is unknown or a sink.
            InvalidNameError: Kafka does not accept the topic's name.

        Example:
            >>> import kstreams_repl as ks
            >>> topology = ks.Topology()
            >>> topology.add_source("in", "words").add_sink("out", "copy", "in").sink_topics()
            ('copy',)
        """
        self._free_node_name(name)
        self._check_parents(name, parents, "sink")
        refuse_async(topic, "topic", "add_sink")
        refuse_async(partitioner, "partitioner", "add_sink")
        extractor, table, topic_name = None, None, None
        if isinstance(topic, TableFiles):
            table = topic
        elif callable(topic):
            extractor = topic
        else:
            topic_name = validate_name(topic, "topic")
        self._put(
            SinkNode(
                name,
                parents,
                topic_name,
                extractor,
                key_serde,
                value_serde,
                partitioner,
                topic_name in self._internal_topics,
                origin if origin is not None else user_origin(),
                table,
            ),
            parents,
        )
        return self

    def add_state_store(self, builder: StoreBuilder, *processors: str) -> Topology:
        """Add a store and connect it to processors; adding the same builder object again only connects it.

        Raises:
            TopologyError: another store has that name, or a processor is unknown.

        Example:
            >>> import kstreams_repl as ks
            >>> topology = ks.Topology()
            >>> class Last(ks.Processor):
            ...     def process(self, record):
            ...         self.context.get_state_store("last").put(record.key, record.value)
            ...
            >>> topology = topology.add_source("in", "words").add_processor("keep", Last, "in")
            >>> sorted(topology.add_state_store(ks.StoreBuilder("last", ks.StoreKind.KEY_VALUE), "keep").stores)
            ['last']
        """
        name = self._store_name(builder)
        earlier = self._stores.get(name)
        if (earlier is not None and earlier is not builder) or name in self._global_stores:
            raise TopologyError(
                f"a different store named {name!r} was already added",
                hint="store names are unique in a topology: choose another one, or share the store by passing its name in stores=[...]",
                store=name,
                node=next(iter([*processors, *self._store_users.get(name, ())]), None),
            )
        self._check_history(builder)
        self._stores[name] = builder
        self._store_users.setdefault(name, [])
        for processor in processors:
            self._connect(processor, name)
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Connect a processor to stores that were added before; processors that share a store are in one sub-topology.

        Raises:
            TopologyError: the processor or a store is unknown, or a store is global (global stores need no connection).

        Example:
            >>> import kstreams_repl as ks
            >>> topology = ks.Topology()
            >>> topology = topology.add_source("in", "words").add_processor("keep", ks.Processor, "in")
            >>> topology = topology.add_state_store(ks.StoreBuilder("last", ks.StoreKind.KEY_VALUE))
            >>> topology.connect_processor_and_state_stores("keep", "last").node("keep").stores
            ('last',)
        """
        if not stores:
            raise TopologyError(f"no store to connect to {processor!r}", hint="name at least one store", node=processor)
        for store in stores:
            self._connect(processor, store)
        return self

    def add_global_store(
        self,
        builder: StoreBuilder,
        source: str,
        topic: str,
        processor: str,
        supplier: object,
        *,
        key_serde: object = None,
        value_serde: object = None,
        timestamp_extractor: TimestampExtractor | None = None,
        reprocess_on_restore: bool = True,
        origin: Origin | None = None,
    ) -> Topology:
        """Add a store that every instance fills from all partitions of a topic, through the given processor.

        The store has no changelog: it is restored from the topic. All processors may read it without a connection.

        Args:
            builder: the store.
            source, processor: names of the two nodes.
            topic: read in full before processing starts.
            supplier: returns the processor that writes the store.
            key_serde, value_serde, timestamp_extractor: as for `add_source`.
            reprocess_on_restore: run the processor while restoring (True), or copy the topic's bytes into the store (global
                tables).
            origin: where the user made it; None: determined from the call stack.

        Raises:
            TopologyError: a name or the topic is taken, or the builder has a changelog.

        Example:
            >>> import kstreams_repl as ks
            >>> topology = ks.Topology()
            >>> class Keep(ks.Processor):
            ...     def process(self, record):
            ...         self.context.get_state_store("limits").put(record.key, record.value)
            ...
            >>> store = ks.StoreBuilder("limits", ks.StoreKind.KEY_VALUE, logging=False)
            >>> topology.add_global_store(store, "limits-in", "limits", "keep", Keep).global_stores().stores[0].name
            'limits'
        """
        self._free_node_name(source)
        self._free_node_name(processor)
        name = self._store_name(builder)
        if name in self._stores or name in self._global_stores:
            raise TopologyError(f"a different store named {name!r} was already added", hint="choose another name", store=name)
        self._check_history(builder)
        if builder.logging:
            raise TopologyError(
                f"global store {name!r} cannot have a changelog", hint="its topic is its changelog: use logging=False", store=name
            )
        if source == processor:
            raise TopologyError(f"source and processor are both named {source!r}", hint="give them different names", node=source)
        self._check_supplier(processor, supplier)
        self._free_topic(source, topic)
        where = origin if origin is not None else user_origin()
        self._topic_sources[topic] = source
        self._put(SourceNode(source, (topic,), None, key_serde, value_serde, timestamp_extractor, None, where))
        self._put(ProcessorNode(processor, (source,), supplier, (name,), where), (source,))
        self._global_nodes |= {source, processor}
        self._global_stores[name] = replace(builder, options={**builder.options, "reprocess_on_restore": reprocess_on_restore})
        self._connect_source_topic(name, topic)
        return self

    def add_read_only_state_store(
        self,
        builder: StoreBuilder,
        source: str,
        topic: str,
        processor: str,
        supplier: object,
        *,
        key_serde: object = None,
        value_serde: object = None,
        timestamp_extractor: TimestampExtractor | None = None,
        origin: Origin | None = None,
    ) -> Topology:
        """Add a store that mirrors a topic partition by partition; the topic is its changelog (KIP-813).

        Raises:
            TopologyError: as `add_source`, `add_processor` and `add_state_store`.

        Example:
            >>> import kstreams_repl as ks
            >>> topology = ks.Topology()
            >>> class Keep(ks.Processor):
            ...     def process(self, record):
            ...         self.context.get_state_store("prices").put(record.key, record.value)
            ...
            >>> store = ks.StoreBuilder("prices", ks.StoreKind.KEY_VALUE)
            >>> topology.add_read_only_state_store(store, "prices-in", "prices", "keep", Keep).store("prices").source_topic
            'prices'
        """
        self._store_name(builder)
        where = origin if origin is not None else user_origin()
        self.add_source(
            source,
            topic,
            key_serde=key_serde,
            value_serde=value_serde,
            timestamp_extractor=timestamp_extractor,
            offset_reset="earliest",
            origin=where,
        )
        self.add_processor(processor, supplier, source, origin=where)
        self.add_state_store(replace(builder, logging=False), processor)
        self._connect_source_topic(builder.name, topic)
        return self

    def add_internal_topic(self, name: str, partitions: int | None = None) -> Topology:
        """Declare a topic that the application creates; its name on the broker has the prefix ``<application.id>-``.

        Args:
            name: name without the prefix.
            partitions: number of partitions; None = as many as upstream has.

        Example:
            >>> import kstreams_repl as ks
            >>> topology = ks.Topology()
            >>> topology = topology.add_internal_topic("by-word", 4).add_source("in", "words").add_sink("out", "by-word", "in")
            >>> dict(topology.internal_topics)
            {'by-word': 4}
        """
        self._internal_topics[validate_name(name, "topic")] = partitions
        return self

    def copartition_sources(self, sources: Iterable[str]) -> Topology:
        """Require that the topics of these sources have the same number of partitions.

        Example:
            >>> import kstreams_repl as ks
            >>> topology = ks.Topology()
            >>> topology = topology.add_source("one", "a").add_source("two", "b").copartition_sources(["one", "two"])
            >>> [sorted(group) for group in topology.copartition_groups()]
            [['a', 'b']]
        """
        self._copartition_sources.append(set(sources))
        return self

    def replace_copartition_source(self, old: str, new: str) -> None:
        """Replace a source by another in all co-partitioned groups (merged repartition topics).

        Args:
            old: name of the source to replace.
            new: name of the source that takes its place.

        Example:
            >>> import kstreams_repl as ks
            >>> topology = ks.Topology()
            >>> topology = topology.add_source("one", "a").add_source("two", "b").add_source("new", "c").copartition_sources(["one", "two"])
            >>> topology.replace_copartition_source("two", "new")
            >>> [sorted(group) for group in topology.copartition_groups()]
            [['a', 'c']]
        """
        for group in self._copartition_sources:
            if old in group:
                group.remove(old)
                group.add(new)

    def validate_copartitioning(self) -> None:
        """Raise if a group of only internal topics has different partition counts.

        Raises:
            TopologyError: with the topics and their counts.

        Example:
            >>> import kstreams_repl as ks
            >>> topology = ks.Topology()
            >>> topology = topology.add_source("one", "a").add_source("two", "b").copartition_sources(["one", "two"])
            >>> topology.validate_copartitioning()
        """
        for sources in self._copartition_sources:
            topics = {topic for name in sources for topic in self._topics_of(name)}
            counts = {topic: count for topic in sorted(topics) if (count := self._internal_topics.get(topic)) is not None}
            if counts and set(counts) == topics and len(set(counts.values())) > 1:
                shown = ", ".join(f"{topic}={count}" for topic, count in counts.items())
                raise TopologyError(
                    f"topics that are joined or merged by key have different numbers of partitions: {shown}",
                    hint="give the same partitions= to both repartition() calls, or to one of them only",
                    topic=next(iter(counts)),
                )

    def connect_source_topic(self, store: str, topic: str) -> None:
        """Use a source topic as the changelog of a store.

        Example:
            >>> import kstreams_repl as ks
            >>> topology = ks.Topology()
            >>> topology = topology.add_source("in", "prices").add_processor("keep", ks.Processor, "in")
            >>> topology = topology.add_state_store(ks.StoreBuilder("prices", ks.StoreKind.KEY_VALUE), "keep")
            >>> topology.connect_source_topic("prices", "prices")
        """
        self._connect_source_topic(store, topic)

    # ------------------------------------------------------------------------------------------------------------ checks
    def _put(self, node: Node, parents: Iterable[str] = ()) -> None:
        self._nodes[node.name] = node
        self._groups.add(node.name)
        self._groups.unite(node.name, parents)

    def _connect_source_topic(self, store: str, topic: str) -> None:
        if store in self._source_of_store:
            raise TopologyError(f"store {store!r} already has a source topic", hint="use another store", store=store, topic=topic)
        self._source_of_store[store] = topic

    def _connect(self, processor: str, store: str) -> None:
        if store in self._global_stores:
            raise TopologyError(
                f"store {store!r} is global",
                hint="every processor can read it; leave it out of the connected stores",
                node=processor,
                store=store,
            )
        if store not in self._stores:
            raise TopologyError(
                f"processor {processor!r} needs store {store!r}, which was not added",
                hint=did_you_mean(store, self._stores) or "add it first: add_state_store(...)",
                node=processor,
                store=store,
            )
        node = self._nodes.get(processor)
        if node is None:
            raise TopologyError(
                f"store {store!r} cannot be connected to {processor!r}: there is no such processor",
                hint=did_you_mean(processor, self._nodes) or "add the processor first",
                node=processor,
                store=store,
            )
        if not isinstance(node, ProcessorNode):
            raise TopologyError(
                f"store {store!r} cannot be connected to {processor!r}, a source or sink",
                hint="only processors use stores",
                node=processor,
                store=store,
            )
        users = self._store_users[store]
        if users:
            self._groups.unite(users[0], (processor,))
        if processor not in users:
            users.append(processor)
        if store not in node.stores:
            self._nodes[processor] = replace(node, stores=(*node.stores, store))
