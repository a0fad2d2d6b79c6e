"""The topics a topology needs of its own: repartition and changelog topics with their settings. Pure descriptions.

Sources: Kafka Streams' `RepartitionTopicConfig`, `UnwindowedUnversionedChangelogTopicConfig`, `WindowedChangelogTopicConfig`,
`VersionedChangelogTopicConfig`, `InternalTopologyBuilder.subtopologyToTopicsInfo`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kstreams_repl.topology.names import changelog_topic
from kstreams_repl.topology.stores import StoreBuilder, StoreKind

DAY_MS = 24 * 60 * 60 * 1000
WINDOWED_KINDS = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION, StoreKind.TIME_ORDERED_WINDOW})


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """One topic to create.

    Attributes:
        name: on the broker, with the application id.
        kind: "repartition" or "changelog".
        partitions: how many; None while it is not known.
        config: topic settings.
        store: the store of a changelog.
    """

    name: str
    kind: str
    partitions: int | None
    config: Mapping[str, str] = field(default_factory=dict)
    store: str | None = None


def repartition_config(defaults: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Kept until read: never expires by time, is purged up to the committed offset. `defaults` go over that."""
    return {
        "cleanup.policy": "delete",
        "segment.bytes": "52428800",
        "retention.ms": "-1",
        "message.timestamp.type": "CreateTime",
        **defaults,
    }


def changelog_config(
    store: StoreBuilder, additional_retention_ms: int = DAY_MS, defaults: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Settings of a store's changelog topic; the store's own `topic_config` wins.

    Args:
        store: the store.
        additional_retention_ms: ``windowstore.changelog.additional.retention.ms``.
        defaults: the application's ``topic.`` settings; what the store's retention says goes over them.
    """
    config = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime", **defaults}
    if store.kind in WINDOWED_KINDS:
        config["cleanup.policy"] = "delete" if store.retain_duplicates else "compact,delete"
        config["retention.ms"] = str(min((store.retention_ms or 0) + additional_retention_ms, 2**63 - 1))
    elif store.kind is StoreKind.VERSIONED:
        config["min.compaction.lag.ms"] = str(min((store.retention_ms or 0) + additional_retention_ms, 2**63 - 1))
    return config | store.topic_config


def changelog(
    store: StoreBuilder,
    application_id: str,
    partitions: int | None,
    additional_retention_ms: int = DAY_MS,
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> InternalTopic | None:
    """The changelog topic to create for a store; None when it has none or its source topic serves as one."""
    if not store.logging or store.source_topic is not None:
        return None
    return InternalTopic(
        changelog_topic(application_id, store.name),
        "changelog",
        partitions,
        changelog_config(store, additional_retention_ms, defaults),
        store.name,
    )
