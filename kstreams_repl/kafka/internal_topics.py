"""The topics that an application owns: repartition topics, changelogs and its journal, with Kafka Streams' configurations.

The functions that make a description are pure; `ensure_internal_topics` creates what is missing and checks what is there. An existing topic
with another number of partitions is refused, for its keys lie elsewhere; so is a changelog whose clean-up policy would lose state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from kstreams_repl.errors import DeployError
from kstreams_repl.kafka.admin import Admin, NewTopicSpec

ChangelogKind = Literal["key_value", "window", "session", "stream_join", "versioned"]

ADDITIONAL_RETENTION_MS = 24 * 60 * 60 * 1000
"""Kafka Streams' ``windowstore.changelog.additional.retention.ms``: kept beyond the store's own retention, against clocks that differ."""

REPARTITION_SEGMENT_BYTES = 50 * 1024 * 1024
_CREATE_TIME = {"message.timestamp.type": "CreateTime"}


def repartition_topic(name: str, partitions: int) -> NewTopicSpec:
    """A repartition topic: kept for ever, purged by the application up to its committed offset (``RepartitionTopicConfig``)."""
    configs = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": str(REPARTITION_SEGMENT_BYTES), **_CREATE_TIME}
    return NewTopicSpec(name, partitions, configs)


def changelog_topic(
    name: str,
    partitions: int,
    *,
    kind: ChangelogKind = "key_value",
    retention_ms: int | None = None,
    additional_retention_ms: int = ADDITIONAL_RETENTION_MS,
) -> NewTopicSpec:
    """A store's changelog topic.

    Compacted for key-value stores; compacted *and* deleted by time for window and session stores; deleted only for the stores of a
    stream-stream join, which keep duplicates of a key that compaction would merge; compacted after a lag for versioned stores
    (``UnwindowedUnversionedChangelogTopicConfig``, ``WindowedChangelogTopicConfig``, ``VersionedChangelogTopicConfig``).

    Args:
        retention_ms: the store's retention (versioned: its history); needed for every kind but ``key_value``.
    """
    if kind == "key_value":
        return NewTopicSpec(name, partitions, {"cleanup.policy": "compact", **_CREATE_TIME})
    if retention_ms is None:
        raise ValueError(f"a {kind} changelog needs the store's retention: {name}")
    kept = str(retention_ms + additional_retention_ms)
    if kind == "versioned":
        return NewTopicSpec(name, partitions, {"cleanup.policy": "compact", "min.compaction.lag.ms": kept, **_CREATE_TIME})
    policy = "delete" if kind == "stream_join" else "compact,delete"
    return NewTopicSpec(name, partitions, {"cleanup.policy": policy, "retention.ms": kept, **_CREATE_TIME})


def journal_topic(application_id: str) -> NewTopicSpec:
    """The control journal: one compacted partition in small segments, so that reading it from the start stays short."""
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(4 * 1024 * 1024),
        "segment.ms": str(60 * 60 * 1000),
        "min.cleanable.dirty.ratio": "0.3",
        **_CREATE_TIME,
    }
    return NewTopicSpec(journal_topic_name(application_id), 1, configs)


def journal_topic_name(application_id: str) -> str:
    """``<application.id>-journal``."""
    return f"{application_id}-journal"


def ensure_internal_topics(admin: Admin, topics: Iterable[NewTopicSpec]) -> tuple[str, ...]:
    """Creates the topics that are missing and checks the others; returns the names of those created.

    Raises:
        DeployError: a topic of that name exists with other partitions or a clean-up policy that would lose state. Nothing is created then.
    """
    wanted = list(topics)
    existing = admin.topics(internal=True)
    present = [spec for spec in wanted if spec.name in existing]
    configs = admin.topic_configs(spec.name for spec in present)
    for spec in present:
        check_internal_topic(spec, existing[spec.name], configs.get(spec.name, {}))
    return admin.create_topics([spec for spec in wanted if spec.name not in existing], exist_ok=True)


def check_internal_topic(spec: NewTopicSpec, partitions: int, configs: dict[str, str]) -> None:
    """Compares an existing topic with what the application needs.

    Raises:
        DeployError: see `ensure_internal_topics`.
    """
    way_out = "reset the application (its internal topics and state are made anew), or give it another application.id"
    if partitions != spec.partitions:
        raise DeployError(
            f"the internal topic {spec.name!r} has {partitions} partitions and the topology needs {spec.partitions}",
            hint=f"{way_out}; or bring the source topics back to the number of partitions they had",
            topic=spec.name,
            expected=spec.partitions,
            actual=partitions,
        )
    wanted = _policy(spec.configs.get("cleanup.policy", "delete"))
    actual = _policy(configs.get("cleanup.policy", ",".join(wanted)))
    if actual != wanted:
        raise DeployError(
            f"the internal topic {spec.name!r} has cleanup.policy={','.join(sorted(actual))} and needs {','.join(sorted(wanted))}, "
            "or state would be lost",
            hint=f"set cleanup.policy back on the topic if nothing was lost yet; else {way_out}",
            topic=spec.name,
        )


def _policy(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())
