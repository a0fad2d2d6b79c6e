"""Serdes for sources that name none: a topology reads a topic with the serdes that the session knows for it.

The session knows those with which it produced and those of its topologies. Otherwise the last records decide: only JSON objects,
and text keys with them, are recognised. The serdes are filled into ``repl.source.serdes`` once, when an application first reads
the topic, and recorded with its version. From then on the recorded serdes are used, whatever the session learns later: with
another key serde no key would match its stored row. A default serde that was set is never overridden.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kstreams_repl import serdes
from kstreams_repl.config import StreamsConfig
from kstreams_repl.dsl.call_log import Handle
from kstreams_repl.errors import KStreamsError
from kstreams_repl.inspection.columns import guess
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.reading import OffsetRange, ranges_of
from kstreams_repl.serdes.by_topic import SETTING, Pair, has_name, parse, write
from kstreams_repl.session.application.topology_resolution import topology_of
from kstreams_repl.session.topics.read import rows_of
from kstreams_repl.topology.nodes import SourceNode
from kstreams_repl.topology.topology import Topology

if TYPE_CHECKING:
    from kstreams_repl.session.session import Session

_LOOKED_AT = 20
_NOTHING: Pair = (None, None)


def built_with_serdes(
    session: Session, thing: Any, config: StreamsConfig, *, settled: Collection[str] = (), tell: bool = False
) -> tuple[Topology, StreamsConfig]:
    """Return the topology, with the known serdes for its sources, and the settings that record them.

    Args:
        settled: topics whose serdes must not change, because the application reads them already.
        tell: report the serdes that were found.
    """
    topology = topology_of(thing, config)
    if not isinstance(thing, Handle):  # a topology that is built already has its serdes
        return topology, config
    recorded = parse(config[SETTING])
    allowed = ["default.key.serde" not in config.given, "default.value.serde" not in config.given]
    fresh: dict[str, Pair] = {}
    for topic, wanted in _open_topics(topology).items():
        if topic in recorded or topic in settled:
            continue
        found = known_or_recognised(session, topic)
        pair = tuple(
            serde if want and may and has_name(serde) else None for serde, want, may in zip(found, wanted, allowed, strict=True)
        )
        if pair != _NOTHING:
            fresh[topic] = (pair[0], pair[1])
    if not fresh:
        return topology, config
    if tell:
        session.report("\n".join(f"{topic} is read as {said(pair)}, as it was written" for topic, pair in fresh.items()))
    more = config.with_(**{SETTING: write({**recorded, **fresh})})
    return topology_of(thing, more), more


def known_or_recognised(session: Session, topic: str) -> Pair:
    """Return the serdes that the session knows for a topic, else those recognised from its last records."""
    known = session.serdes_of(topic)
    return known if known != _NOTHING else session._recognised(topic)


def recognised(admin: Admin, topic: str) -> Pair:
    """Return the serdes recognised from a topic's last records: JSON objects, with or without text keys, nothing else."""
    try:
        rows, _ = rows_of(admin, _last(ranges_of(admin, topic)), _LOOKED_AT, first=False)
    except KStreamsError:  # for example an unknown topic, which the deploy reports
        return _NOTHING
    values, keys = [row[4] for row in rows], [row[3] for row in rows if row[3] is not None]
    if guess(values) != "json":
        return _NOTHING
    texts = [bytes(key) for key in keys]
    plain = bool(texts) and all(text.isascii() and text.decode().isprintable() and text for text in texts)
    return serdes.string if plain else None, serdes.json


def said(pair: Pair) -> str:
    """Return the serdes as text: ``string keys and json values``."""
    return " and ".join(f"{serde.name} {what}" for serde, what in zip(pair, ("keys", "values"), strict=True) if serde is not None)


def serdes_said(config: Mapping[str, Any], topics: Collection[str]) -> str | None:
    """Return the text for a source in the picture: the serdes that were filled in for its topics."""
    found = {said(pair) for topic, pair in parse(config[SETTING]).items() if topic in topics}
    return "; ".join(sorted(found)) or None


def _open_topics(topology: Topology) -> dict[str, tuple[bool, bool]]:
    """Return the topics of sources that lack a serde, with whether the key serde and whether the value serde is missing."""
    found: dict[str, tuple[bool, bool]] = {}
    for node in topology.nodes.values():
        if isinstance(node, SourceNode) and (node.key_serde is None or node.value_serde is None):
            for topic in node.topics:
                if topic not in topology.internal_topics:
                    key, value = found.get(topic, (False, False))
                    found[topic] = (key or node.key_serde is None, value or node.value_serde is None)
    return found


def _last(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    return [OffsetRange(item.partition, max(item.start, item.end - _LOOKED_AT), item.end) for item in ranges]

