"""The serdes a topic was written with: as far as the session knows, from its topologies and from the records it produced; else as far as
the topic's last records show. Only JSON objects, values with a schema in the session's registry, and text keys are recognised.
"""

from __future__ import annotations

from collections.abc import Sequence

from kstreams_repl.engine import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.engine.topology.names import internal_topic
from kstreams_repl.engine.topology.nodes import SinkNode, SourceNode
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.reading import OffsetRange, ranges_of
from kstreams_repl.pictures.columns import recognised
from kstreams_repl.repl.session.topics.read import rows_of
from kstreams_repl.system.errors import KStreamsError

Pair = tuple[Serde | None, Serde | None]
UNKNOWN: Pair = (None, None)
_SAMPLED_RECORDS = 20


class TopicSerdes:
    """Serdes of keys and values by topic; None: unknown, so the bytes decide."""

    def __init__(self) -> None:
        self._known: dict[str, Pair] = {}

    def remember(self, topic: str, key: Serde | None, value: Serde | None) -> None:
        """Remember serdes. A known one stays if the new one is None or the bytes serde, which tells nothing about the data."""
        old_key, old_value = self._known.get(topic, (None, None))
        self._known[topic] = (_informative(key) or old_key, _informative(value) or old_value)

    def forget(self, topic: str) -> None:
        """Forget the serdes of a topic that was deleted."""
        self._known.pop(topic, None)

    def learn(self, topology: TopologyGraph, application_id: str, config: StreamsConfig | None = None) -> None:
        """Remember the serdes of every topic that a topology reads or writes."""
        defaults = (None, None) if config is None else (config["default.key.serde"], config["default.value.serde"])
        for node in topology.nodes.values():
            if not isinstance(node, SourceNode | SinkNode):
                continue
            topics = node.topics if isinstance(node, SourceNode) else () if node.topic is None else (node.topic,)
            for topic in topics:
                name = internal_topic(application_id, topic) if topic in topology.internal_topics else topic
                self.remember(name, _resolved(node.key_serde, defaults[0]), _resolved(node.value_serde, defaults[1]))

    def of(self, topic: str) -> Pair:
        return self._known.get(topic, UNKNOWN)


def recognise(admin: Admin, topic: str) -> Pair:
    """Return the serdes recognised from a topic's last records: JSON objects, or values whose schema is in the session's registry; with
    or without text keys."""
    try:
        rows, _ = rows_of(admin, _last(ranges_of(admin, topic)), _SAMPLED_RECORDS, first=False)
    except KStreamsError:  # for example an unknown topic, which the deploy reports
        return UNKNOWN
    headers = [row[5] for row in rows]
    value, _ = recognised(None, [row[4] for row in rows], headers, "value")
    if value not in (serdes.json, serdes.registry):
        return UNKNOWN
    keys = [row[3] for row in rows]
    if recognised(None, keys, headers, "key")[0] is serdes.registry:
        return serdes.registry, value
    texts = [bytes(key) for key in keys if key is not None]
    plain = bool(texts) and all(text.isascii() and text.decode().isprintable() and text for text in texts)
    return serdes.string if plain else None, value


def _last(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    return [OffsetRange(item.partition, max(item.start, item.end - _SAMPLED_RECORDS), item.end) for item in ranges]


def _informative(serde: Serde | None) -> Serde | None:
    return None if serde is serdes.bytes_ else serde


def _resolved(serde: object, default: object) -> Serde | None:
    chosen = serde if serde is not None else default
    return None if chosen is None else serdes.resolve(chosen)
