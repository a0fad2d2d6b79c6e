"""`Topology`: sources, processors, sinks and stores, added one by one (KIP-28's `TopologyBuilder`, Kafka Streams' `Topology`).

Mistakes are refused at the call that makes them: unknown parent or store, a name used twice, a topic read by two sources. The DSL
writes the same object, so whatever it builds can be extended here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kstreams_repl.errors import TopologyError, did_you_mean
from kstreams_repl.topology.graph import TopologyGraph
from kstreams_repl.topology.names import validate_name
from kstreams_repl.topology.nodes import Node, Origin, ProcessorNode, SinkNode, SourceNode
from kstreams_repl.topology.origin import user_origin
from kstreams_repl.topology.stores import HISTORY_SUFFIX, StoreBuilder, StoreKind
from kstreams_repl.topology.suppliers import supplied_stores

TopicExtractor = Callable[..., str]
OFFSET_RESETS = (None, "earliest", "latest", "none")


class Topology(TopologyGraph):
    """A topology under construction.

    Example:
        >>> topology = Topology().add_source("words", "text").add_sink("copy", "text-copy", "words")
        >>> [node.name for node in topology.subtopologies()[0].nodes]
        ['words', 'copy']
    """

    def __init__(self) -> None:
        super().__init__()
        self._store_users: dict[str, list[str]] = {}
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._topic_sources: dict[str, str] = {}

    def add_source(
        self,
        name: str,
        *topics: str | re.Pattern[str],
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: Callable[[Any, int], int] | None = None,
        offset_reset: str | None = None,
        origin: Origin | None = None,
    ) -> Topology:
        """Add a node that reads topics, or all topics a compiled pattern matches in full.

        Args:
            name: of the node.
            *topics: names, or exactly one compiled pattern.
            key_serde, value_serde: how bytes are read; None = the application's defaults.
            timestamp_extractor: (record, partition time) -> ms; None = the record's own, negative ones rejected.
            offset_reset: "earliest", "latest", "none" or None (the application's ``auto.offset.reset``).
            origin: where the user made it; found out when not given.

        Raises:
            TopologyError: no topic, the name is taken, or another source already reads one of the topics.
        """
        self._free_node_name(name)
        if not topics:
            raise TopologyError(
                f"source {name!r} reads no topic", hint="give at least one topic name or one compiled pattern", node=name
            )
        if offset_reset not in OFFSET_RESETS:
            raise TopologyError(
                f"source {name!r} has offset_reset={offset_reset!r}",
                hint="use 'earliest', 'latest', 'none' or leave it out",
                node=name,
            )
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

    def add_processor(self, name: str, supplier: Any, *parents: str, origin: Origin | None = None) -> Topology:
        """Add a node that runs a processor.

        Args:
            name: of the node.
            supplier: callable that returns a fresh `Processor` for each task; or an operator of the DSL. When it has a `stores()`
                method, the store builders that it returns are added and connected.
            *parents: nodes that forward to this one.
            origin: where the user made it; found out when not given.

        Raises:
            TopologyError: the name is taken, a parent is unknown or a sink, or the supplier is no callable.
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
        topic: str | TopicExtractor,
        *parents: str,
        key_serde: Any = None,
        value_serde: Any = None,
        partitioner: Callable[..., Any] | None = None,
        origin: Origin | None = None,
    ) -> Topology:
        """Add a node that writes a topic, or the topic that a callable `(key, value, record metadata) -> name` chooses per
        record.

        Raises:
            TopologyError: the name is taken, a parent is unknown or a sink.
            InvalidNameError: Kafka would refuse the topic's name.
        """
        self._free_node_name(name)
        self._check_parents(name, parents, "sink")
        extractor = None
        if callable(topic):
            extractor, topic_name = topic, None
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
            ),
            parents,
        )
        return self

    def add_state_store(self, builder: StoreBuilder, *processors: str) -> Topology:
        """Add a store and connect it to processors; adding the very same builder again only connects.

        Raises:
            TopologyError: another store has that name, or a processor is unknown.
        """
        name = self._store_name(builder)
        known = self._stores.get(name)
        if (known is not None and known is not builder) or name in self._global_stores:
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
        """Let a processor use stores that were added before; processors that share a store are in one sub-topology.

        Raises:
            TopologyError: the processor or a store is unknown, or a store is global (those need no connection).
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
        supplier: Any,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: Callable[[Any, int], int] | None = None,
        reprocess_on_restore: bool = True,
        origin: Origin | None = None,
    ) -> Topology:
        """Add a store that every instance fills from all partitions of a topic, through a processor of its own.

        The store has no changelog: it is restored from the topic. All processors may read it without being connected.

        Args:
            builder: the store.
            source, processor: names of the two nodes.
            topic: read in full before anything is processed.
            supplier: returns the processor that writes the store.
            key_serde, value_serde, timestamp_extractor: as for `add_source`.
            reprocess_on_restore: run the processor while restoring (True) or copy the topic's bytes into the store (global
                tables).
            origin: where the user made it; found out when not given.

        Raises:
            TopologyError: a name or the topic is taken, or the builder asks for a changelog.
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
        self._global_stores[name] = builder.with_(options={**builder.options, "reprocess_on_restore": reprocess_on_restore})
        self._connect_source_topic(name, topic)
        return self

    def add_read_only_state_store(
        self,
        builder: StoreBuilder,
        source: str,
        topic: str,
        processor: str,
        supplier: Any,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: Callable[[Any, int], int] | None = None,
        origin: Origin | None = None,
    ) -> Topology:
        """Add a store that mirrors a topic partition by partition; the topic is its changelog (KIP-813).

        Raises:
            TopologyError: as `add_source`, `add_processor` and `add_state_store`.
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
        self.add_state_store(builder.with_(logging=False), processor)
        self._connect_source_topic(builder.name, topic)
        return self

    def add_internal_topic(self, name: str, partitions: int | None = None) -> Topology:
        """Declare a topic that the application creates for itself; on the broker ``<application.id>-`` goes before its name."""
        self._internal_topics[validate_name(name, "topic")] = partitions
        return self

    def copartition_sources(self, sources: Iterable[str]) -> Topology:
        """Demand that the topics of these sources have the same number of partitions."""
        self._copartition_sources.append(set(sources))
        return self

    def replace_copartition_source(self, old: str, new: str) -> None:
        """A source took another one's place (merged repartition topics)."""
        for group in self._copartition_sources:
            if old in group:
                group.remove(old)
                group.add(new)

    def validate_copartitioning(self) -> None:
        """Refuse groups of internal topics only whose given partition counts differ.

        Raises:
            TopologyError: with the topics and their counts.
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
        """Make a source topic the changelog of a store."""
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
                f"processor {processor!r} asks for store {store!r}, which was not added",
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

    def _store_name(self, builder: Any) -> str:
        if not isinstance(builder, StoreBuilder):
            raise TopologyError(
                f"a store builder is needed, not {builder!r}",
                hint='StoreBuilder("name", StoreKind.KEY_VALUE); connect_processor_and_state_stores connects a store by name',
            )
        return validate_name(builder.name, "store")

    def _check_history(self, builder: StoreBuilder) -> None:
        """The history of a versioned store is kept under a name of its own beside the other stores of its task."""
        known = {**self._stores, **self._global_stores, builder.name: builder}
        for store in known.values():
            other = store.name + HISTORY_SUFFIX
            if store.kind is StoreKind.VERSIONED and other in known and builder.name in (store.name, other):
                raise TopologyError(
                    f"a store cannot be named {other!r} beside the versioned store {store.name!r}, which keeps its history under that name",
                    hint="choose another name",
                    store=builder.name,
                )

    def _free_node_name(self, name: Any) -> None:
        if not isinstance(name, str) or not name:
            raise TopologyError(f"a node needs a name, not {name!r}", hint="pass its name as non-empty text first")
        if name in self._nodes:
            raise TopologyError(
                f"a node named {name!r} was already added",
                hint=f"node names are unique in a topology: choose another one, or change this one: builder.replace({name!r}, function)",
                node=name,
            )

    def _check_parents(self, name: str, parents: tuple[str, ...], kind: str) -> None:
        if not parents:
            raise TopologyError(
                f"{kind} {name!r} has no parent", hint="name at least one source or processor as its parent", node=name
            )
        for parent in parents:
            if parent == name:
                raise TopologyError(
                    f"{kind} {name!r} cannot be its own parent", hint="name another node as its parent", node=name
                )
            node = self._nodes.get(parent)
            if node is None:
                raise TopologyError(
                    f"{kind} {name!r} names the parent {parent!r}, which was not added",
                    hint=did_you_mean(parent, self._nodes) or "add parents before their children",
                    node=name,
                )
            if isinstance(node, SinkNode):
                raise TopologyError(
                    f"{kind} {name!r} names the sink {parent!r} as parent", hint="a sink has no children", node=name
                )

    def _check_supplier(self, name: str, supplier: Any) -> None:
        if not callable(supplier) and not hasattr(supplier, "build"):
            raise TopologyError(
                f"processor {name!r} was given {supplier!r}, which cannot be called",
                hint="pass a class or function that returns a fresh processor for each task, not a processor",
                node=name,
            )

    def _split_pattern(self, name: str, topics: tuple[Any, ...]) -> tuple[re.Pattern[str] | None, tuple[str, ...]]:
        if isinstance(topics[0], re.Pattern):
            if len(topics) > 1:
                raise TopologyError(
                    f"source {name!r} mixes a pattern with other topics", hint="use one source for each", node=name
                )
            return topics[0], ()
        return None, tuple(validate_name(topic, "topic") for topic in topics)

    def _free_topic(self, name: str, topic: str) -> None:
        taken = self._topic_sources.get(validate_name(topic, "topic"))
        if taken is None:
            taken = next((source for source, pattern in self._patterns.items() if pattern.fullmatch(topic)), None)
        if taken is not None:
            raise TopologyError(
                f"source {name!r} reads topic {topic!r}, which source {taken!r} reads already",
                hint="read it once and let both branches start from that source",
                node=name,
                topic=topic,
            )

    def _free_pattern(self, name: str, pattern: re.Pattern[str]) -> None:
        for topic, source in self._topic_sources.items():
            if pattern.fullmatch(topic):
                raise TopologyError(
                    f"the pattern {pattern.pattern!r} of source {name!r} matches topic {topic!r}, which source {source!r} reads already",
                    hint="make the pattern narrower",
                    node=name,
                    topic=topic,
                )
