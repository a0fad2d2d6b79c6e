"""Serdes for sources that name none: a topology reads a topic with the serdes that the session knows for it.

The session knows those with which it produced and those of its topologies; otherwise the last records decide. The serdes are filled
into ``repl.source.serdes`` once, when an application first reads the topic, and recorded with its version. From then on the recorded
serdes are used, whatever the session learns later: with another key serde no key would match its stored row. A default serde that was
set is never overridden.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.dsl.graph.call_log import Handle
from kstreams_repl.engine.serdes import Serde, registry
from kstreams_repl.engine.serdes.by_topic import SETTING, Pair, has_name, parse, write
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.repl.session.application.edits.topology_resolution import topology_of
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.topics.topic_serdes import UNKNOWN


def built_with_serdes(
    client: ClusterClient, thing: object, config: StreamsConfig, *, settled: Collection[str] = (), report: bool = False
) -> tuple[Topology, StreamsConfig]:
    """Return the topology, with the known serdes for its sources, and the settings that record them.

    Args:
        settled: topics whose serdes must not change, because the application reads them already.
        report: report the serdes that were found.
    """
    topology = topology_of(thing, config)
    if not isinstance(thing, Handle):  # a topology that is built already has its serdes
        return topology, config
    recorded = parse(config[SETTING])
    allowed = ["default.key.serde" not in config.given, "default.value.serde" not in config.given]
    fresh: dict[str, Pair] = {}
    for topic, open_parts in _open_topics(topology).items():
        if topic in recorded or topic in settled:
            continue
        serdes = client.serdes_of(topic)
        if serdes == UNKNOWN or any(map(_is_of_a_schema, serdes)):
            seen = client.recognise_serdes(topic)
            serdes = seen if serdes == UNKNOWN else (_readable(serdes[0], seen[0]), _readable(serdes[1], seen[1]))
        pair = tuple(
            serde if want and may and has_name(serde) else None for serde, want, may in zip(serdes, open_parts, allowed, strict=True)
        )
        if pair != UNKNOWN:
            fresh[topic] = (pair[0], pair[1])
    if not fresh:
        return topology, config
    if report:
        client.report("\n".join(f"{topic} is read as {_text_of(pair)}, as it was written" for topic, pair in fresh.items()))
    more = config.with_(**{SETTING: write({**recorded, **fresh})})
    return topology_of(thing, more), more


def _is_of_a_schema(serde: Serde | None) -> bool:
    """Return whether a registered schema reads the serde's bytes, which has no name itself."""
    return serde is not None and serde.reads_header_ids and not has_name(serde)


def _readable(known: Serde | None, seen: Serde | None) -> Serde | None:
    """Return the registry's serde for one of a schema, if the topic is recognised as such; else the known one."""
    return seen if _is_of_a_schema(known) and seen is registry else known


def _text_of(pair: Pair) -> str:
    """Return the serdes as text: ``string keys and json values``."""
    return " and ".join(f"{serde.name} {what}" for serde, what in zip(pair, ("keys", "values"), strict=True) if serde is not None)


def filled_in_serdes(config: Mapping[str, Any], topics: Collection[str]) -> str | None:
    """Return the text for a source in the picture: the serdes that were filled in for its topics."""
    texts = {_text_of(pair) for topic, pair in parse(config[SETTING]).items() if topic in topics}
    return "; ".join(sorted(texts)) or None


def _open_topics(topology: Topology) -> dict[str, tuple[bool, bool]]:
    """Return the topics of sources that lack a serde, with whether the key serde and whether the value serde is missing."""
    topics: dict[str, tuple[bool, bool]] = {}
    for node in topology.nodes.values():
        if isinstance(node, SourceNode) and (node.key_serde is None or node.value_serde is None):
            for topic in node.topics:
                if topic not in topology.internal_topics:
                    key, value = topics.get(topic, (False, False))
                    topics[topic] = (key or node.key_serde is None, value or node.value_serde is None)
    return topics
