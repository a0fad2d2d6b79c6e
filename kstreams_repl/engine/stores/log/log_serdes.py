"""The serdes of a store as its task has them: the application's defaults where it names none, bound to the topic that logs its rows.

Readers of the rows need them, too. Serdes of registered schemas write a key only for a topic, whose subject has the schema; and of a store
that is filled from a source topic, only the serdes tell whether schema ids in headers belong to its rows (`header_ids.framing`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kstreams_repl.engine import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes.deferred import DeferredSerde
from kstreams_repl.engine.serdes.schemas.schema_registry import Part, settings_from
from kstreams_repl.engine.topology.names import changelog_topic, internal_topic
from kstreams_repl.engine.topology.store_builder import StoreBuilder


def with_log_serdes(
    builder: StoreBuilder, config: StreamsConfig, topic: str | None = None, internal_topics: Collection[str] = ()
) -> StoreBuilder:
    """Return the builder with both serdes.

    Args:
        config: the application's settings.
        topic: the topic that logs the rows; None: the source topic, or the changelog by its name.
        internal_topics: of the topology, without the application id; a source topic may be one of them.
    """
    log = topic or builder.source_topic
    if log is None:
        log = changelog_topic(config["application.id"], builder.name)
    elif log in internal_topics:
        log = internal_topic(config["application.id"], log)
    registry = settings_from(config.client)
    key, value = (serdes.resolve(config[f"default.{part}.serde"]) for part in ("key", "value"))

    def bound(own: object, default: serdes.Serde, part: Part) -> serdes.Serde:
        serde = own.bind(key, value) if isinstance(own, DeferredSerde) else serdes.resolve(own, default)
        return serde.for_topic(log, part, registry)

    return replace(builder, key_serde=bound(builder.key_serde, key, "key"), value_serde=bound(builder.value_serde, value, "value"))
