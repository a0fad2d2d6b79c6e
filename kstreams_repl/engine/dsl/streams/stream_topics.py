"""Operators of a stream that write topics: `to`, `through`, `repartition`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from kstreams_repl.engine.dsl.graph.call_log import logged
from kstreams_repl.engine.dsl.graph.graph_nodes import Consumed, SinkGraphNode, SourceGraphNode
from kstreams_repl.engine.dsl.streams.stream_base import AbstractStream, check_callable
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import StreamPartitioner


class TopicOperators(AbstractStream):
    """The operators of `KStream` that send its records to a topic."""

    @logged
    def repartition(
        self,
        *,
        name: str | None = None,
        key_serde: object = None,
        value_serde: object = None,
        partitions: int | None = None,
        partitioner: StreamPartitioner | None = None,
    ) -> Self:
        """Write to a topic that the application creates (``<application.id>-<name>-repartition``) and continue from there.

        Records with a None key are dropped, uncounted, unless a left or outer join follows.

        Args:
            name: prefix of the topic's name; unlike other names it consumes no number.
            key_serde, value_serde: None = the stream's, else the application's defaults.
            partitions: number of partitions; None = as many as upstream has.
            partitioner: as for `to`.

        Raises:
            TopologyError: `partitions` is not a number of 1 or more.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> moved = words.select_key(lambda key, word: word).repartition(name="by-word", partitions=4)
        """
        if partitions is not None and (isinstance(partitions, bool) or not isinstance(partitions, int) or partitions <= 0):
            raise TopologyError(
                f"partitions must be a whole number >= 1, got {partitions!r}", hint="leave it out for as many as upstream has"
            )
        if partitioner is not None:
            check_callable(partitioner, "partitioner", "repartition")
        prefix = self._graph.new_processor_name("KSTREAM-REPARTITION-") if name is None else validate_name(name, "node")
        key, value = self._serdes(key_serde, value_serde)
        node = self._graph.new_repartition(
            prefix,
            key_serde=key,
            value_serde=value,
            partitioner=partitioner,
            partitions=partitions,
            optimizable=False,
        )
        self._graph.add(self._node, node)
        return type(self)(self._log, node.name, node.key_serde, node.value_serde, frozenset((node.name,)), node)

    @logged
    def to(
        self,
        topic: str | Callable[..., str],
        *,
        name: str | None = None,
        key_serde: object = None,
        value_serde: object = None,
        partitioner: StreamPartitioner | None = None,
    ) -> None:
        """Write the stream to a topic, or to the topic that `topic(key, value, record_metadata)` names for each record.

        Args:
            topic: a name or a function; its third argument has `topic`, `partition` and `offset` of the source record, and the
                `timestamp` and `headers` of the record to write.
            name: name of the node.
            key_serde, value_serde: None = the stream's, else the application's defaults.
            partitioner: (topic, key, value, partitions) -> a partition, a set of partitions (an empty set drops the record) or
                None (by key); with a parameter named `headers`, (topic, key, value, headers, partitions) (KIP-1321).

        Raises:
            InvalidNameError: Kafka does not accept the name of the topic.
            TopologyError: the partitioner is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> words.to("copy")
        """
        if callable(topic):
            check_callable(topic, "topic", "to")
        else:
            validate_name(topic, "topic")
        if partitioner is not None:
            check_callable(partitioner, "partitioner", "to")
        node_name = self._graph.name_or_generate(name, "KSTREAM-SINK-")
        key, value = self._serdes(key_serde, value_serde)
        self._graph.add(self._node, SinkGraphNode(node_name, self._graph.here(), topic, key, value, partitioner))

    def send_to(
        self,
        topic: str | Callable[..., str],
        *,
        name: str | None = None,
        key_serde: object = None,
        value_serde: object = None,
        partitioner: StreamPartitioner | None = None,
    ) -> None:
        """Write to a topic as `to` does, under KIP-28's name.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> words.send_to("copy")
        """
        self.to(topic, name=name, key_serde=key_serde, value_serde=value_serde, partitioner=partitioner)

    @logged
    def through(
        self,
        topic: str,
        *,
        name: str | None = None,
        key_serde: object = None,
        value_serde: object = None,
        partitioner: StreamPartitioner | None = None,
    ) -> Self:
        """Write to an existing topic and continue from there (KIP-28): `to(topic)`, then `stream(topic)`.

        For a topic that the application creates and sizes itself use `repartition`.

        Args:
            topic: name of the topic; it must exist.
            name: name of the source node, and prefix of the sink's; None = generated.
            key_serde, value_serde: serdes of the topic; None = the stream's, else the application's defaults.
            partitioner: as for `to`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> copied = words.through("copy")
        """
        key, value = self._serdes(key_serde, value_serde)
        self.to(topic, name=None if name is None else f"{name}-sink", key_serde=key, value_serde=value, partitioner=partitioner)
        source = self._graph.name_or_generate(name, "KSTREAM-SOURCE-")
        node = SourceGraphNode(source, self._graph.here(), (validate_name(topic, "topic"),), None, Consumed(key, value))
        self._graph.add(self._graph.root, node)
        return type(self)(self._log, source, key, value, frozenset((source,)), node)
