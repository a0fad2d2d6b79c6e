"""The serdes a topic was written with, as far as the session knows: from its topologies, and from the records it produced."""

from __future__ import annotations

from typing import Any

from kstreams_repl import serdes
from kstreams_repl.config import StreamsConfig
from kstreams_repl.serdes import Serde
from kstreams_repl.topology.graph import TopologyGraph
from kstreams_repl.topology.names import internal_topic
from kstreams_repl.topology.nodes import SinkNode, SourceNode

Pair = tuple[Serde | None, Serde | None]


class KnownSerdes:
    """Serdes of keys and values by topic; None: unknown, so the bytes decide."""

    def __init__(self) -> None:
        self._known: dict[str, Pair] = {}

    def note(self, topic: str, key: Serde | None, value: Serde | None) -> None:
        """Remember serdes. A known one stays if the new one is None or the bytes serde, which tells nothing about the data."""
        old_key, old_value = self._known.get(topic, (None, None))
        self._known[topic] = (_telling(key) or old_key, _telling(value) or old_value)

    def learn(self, topology: TopologyGraph, application_id: str, config: StreamsConfig | None = None) -> None:
        """Remember the serdes of every topic that a topology reads or writes."""
        defaults = (None, None) if config is None else (config["default.key.serde"], config["default.value.serde"])
        for node in topology.nodes.values():
            if not isinstance(node, SourceNode | SinkNode):
                continue
            topics = node.topics if isinstance(node, SourceNode) else () if node.topic is None else (node.topic,)
            for topic in topics:
                name = internal_topic(application_id, topic) if topic in topology.internal_topics else topic
                self.note(name, _known(node.key_serde, defaults[0]), _known(node.value_serde, defaults[1]))

    def of(self, topic: str) -> Pair:
        return self._known.get(topic, (None, None))


def _telling(serde: Serde | None) -> Serde | None:
    return None if serde is serdes.bytes_ else serde


def _known(serde: Any, default: Any) -> Serde | None:
    chosen = serde if serde is not None else default
    return None if chosen is None else serdes.resolve(chosen)
