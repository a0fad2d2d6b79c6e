"""The internal topics of a topology: repartition and changelog topics with their settings. Pure descriptions.

Sources: Kafka Streams' `RepartitionTopicConfig`, `UnwindowedUnversionedChangelogTopicConfig`, `WindowedChangelogTopicConfig`,
`VersionedChangelogTopicConfig`, `InternalTopologyBuilder.subtopologyToTopicsInfo`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kstreams_repl.engine.topology.names import changelog_topic
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind

FOR_EVER = str(2**63 - 1)
"""For settings in milliseconds. Not -1, because Kafka Streams compares such a setting numerically with the retention it needs."""
_ANY_TIME = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": FOR_EVER,
    "message.timestamp.before.max.ms": FOR_EVER,
}
"""Records of internal topics carry event time, so the broker must accept any timestamp."""
WINDOWED_KINDS = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION, StoreKind.TIME_ORDERED_WINDOW})


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """One topic to create.

    Attributes:
        name: full name on the broker, with the application id.
        kind: "repartition" or "changelog".
        partitions: number of partitions; None if not known yet.
        config: topic settings.
        store: the store of a changelog; None for one of durable results, and otherwise.
    """

    name: str
    kind: str
    partitions: int | None
    config: Mapping[str, str] = field(default_factory=dict)
    store: str | None = None


def repartition_config(defaults: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return settings that keep records until they are read: no expiry by time, purged up to the committed offset. `defaults`
    override."""
    return {
        "cleanup.policy": "delete",
        "segment.bytes": "52428800",
        "retention.ms": "-1",
        **_ANY_TIME,
        **defaults,
    }


def changelog_config(store: StoreBuilder, defaults: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return the settings of a store's changelog topic; the store's own `topic_config` takes precedence.

    The broker would compare a retention or a compaction lag with its clock, while a store needs what is within its retention by
    stream time. So changelogs of windows are kept until the instance deletes expired records
    (`host.instance.state.changelog_retention`), and those of versioned stores are not compacted.

    Args:
        store: the store.
        defaults: the application's ``topic.`` settings; overridden by what the store's kind requires.
    """
    config = {"cleanup.policy": "compact", **_ANY_TIME, **defaults}
    if store.kind in WINDOWED_KINDS:
        config["cleanup.policy"] = "delete" if store.retain_duplicates else "compact,delete"
        config |= {"retention.ms": FOR_EVER, "retention.bytes": "-1"}
    elif store.kind is StoreKind.VERSIONED:
        config["min.compaction.lag.ms"] = FOR_EVER
    return {**config, **store.topic_config}


def result_log(log: str, application_id: str, partitions: int | None, defaults: Mapping[str, str] = MappingProxyType({})) -> InternalTopic:
    """Return the topic of a node's durable results. The instance deletes those that are not needed, so the broker expires none."""
    config = {**_ANY_TIME, **defaults, "cleanup.policy": "compact,delete", "retention.ms": FOR_EVER, "retention.bytes": "-1"}
    return InternalTopic(changelog_topic(application_id, log), "changelog", partitions, config)


def changelog(
    store: StoreBuilder,
    application_id: str,
    partitions: int | None,
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> InternalTopic | None:
    """Return the changelog topic to create for a store; None if it has none or its source topic serves as one."""
    if not store.logging or store.source_topic is not None:
        return None
    return InternalTopic(
        changelog_topic(application_id, store.name),
        "changelog",
        partitions,
        changelog_config(store, defaults),
        store.name,
    )
