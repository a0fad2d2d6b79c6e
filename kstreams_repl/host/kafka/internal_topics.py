"""Create the topics that an application owns, and check those that exist.

`engine.topology.internal_topics` describes repartition topics and changelogs, `journal_topic` the journal; `ensure_internal_topics` creates
the missing ones and checks the others. An existing topic with a different number of partitions is refused, because its keys are in other
partitions; so is a changelog whose cleanup policy would lose state. Retention and timestamp bounds that are too low are raised.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from kstreams_repl.host.kafka.admin import Admin, NewTopicSpec
from kstreams_repl.system.errors import DeployError, KStreamsError

_LOG = logging.getLogger("kstreams_repl.host.kafka")
_NO_LESS = ("retention.ms", "retention.bytes", "min.compaction.lag.ms", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms")
"""Settings that must not be lower on an existing topic: state would be lost, or records rejected."""


def journal_topic(application_id: str) -> NewTopicSpec:
    """Return the spec of the control journal: one compacted partition with small segments, which keeps a read from the start short."""
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(4 * 1024 * 1024),
        "segment.ms": str(60 * 60 * 1000),
        "min.cleanable.dirty.ratio": "0.3",
        "message.timestamp.type": "CreateTime",
    }
    return NewTopicSpec(journal_topic_name(application_id), 1, configs)


def journal_topic_name(application_id: str) -> str:
    """``<application.id>-journal``."""
    return f"{application_id}-journal"


def ensure_internal_topics(admin: Admin, topics: Iterable[NewTopicSpec], existing: Mapping[str, int] | None = None) -> tuple[str, ...]:
    """Create the missing topics, check the existing ones, and return the names of those created.

    Args:
        existing: partitions of all topics on the broker, Kafka's own included; None: ask.

    Raises:
        DeployError: a topic of that name exists with another number of partitions or a cleanup policy that would lose state. Nothing is
            created in that case.
    """
    wanted = list(topics)
    if existing is None:
        existing = admin.topics(internal=True)
    present = [spec for spec in wanted if spec.name in existing]
    configs = admin.topic_configs(spec.name for spec in present)
    for spec in present:
        check_internal_topic(spec, existing[spec.name], configs.get(spec.name, {}))
    for spec in present:
        _raise_settings(admin, spec, configs.get(spec.name, {}))
    return admin.create_topics([spec for spec in wanted if spec.name not in existing], exist_ok=True)


def lacking_settings(spec: NewTopicSpec, configs: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of an existing topic that are too low, with the value the application needs (-1: unlimited)."""

    def number(text: str) -> float:
        return float("inf") if int(text) < 0 else float(text)

    return {
        name: spec.configs[name]
        for name in _NO_LESS
        if name in spec.configs and name in configs and number(configs[name]) < number(spec.configs[name])
    }


def _raise_settings(admin: Admin, spec: NewTopicSpec, configs: Mapping[str, str]) -> None:
    """Raise settings that an earlier release, Kafka Streams or the broker's defaults left too low, before any record arrives."""
    lacking = lacking_settings(spec, configs)
    if not lacking:
        return
    before = ", ".join(f"{name}={configs[name]}" for name in lacking)
    try:
        admin.alter_topic_configs(spec.name, lacking)
        _LOG.info("%s: %s raised, because event time may differ from the broker's clock", spec.name, before)
    except KStreamsError as error:
        _LOG.warning(
            "the internal topic %s has %s and cannot be altered (%s). The broker compares these with its own clock: it deletes or rejects "
            "records with older or later event times, and a restored store lacks them. "
            "Hint: ask the topic's administrator to remove these settings or to set them to %s",
            spec.name, before, error.message, ", ".join(f"{name}={value}" for name, value in lacking.items()),
        )  # fmt: skip


def check_internal_topic(spec: NewTopicSpec, partitions: int, configs: dict[str, str]) -> None:
    """Raise if an existing topic does not fit the application.

    Raises:
        DeployError: see `ensure_internal_topics`.
    """
    way_out = "reset the application (this recreates its internal topics and state), or use another application.id"
    if partitions != spec.partitions:
        raise DeployError(
            f"the internal topic {spec.name!r} has {partitions} partitions but the topology needs {spec.partitions}",
            hint=f"{way_out}; or restore the previous number of partitions of the source topics",
            topic=spec.name,
            expected=spec.partitions,
            actual=partitions,
        )
    wanted = _policy(spec.configs.get("cleanup.policy", "delete"))
    actual = _policy(configs.get("cleanup.policy", ",".join(wanted)))
    if actual != wanted:
        raise DeployError(
            f"the internal topic {spec.name!r} has cleanup.policy={','.join(sorted(actual))} but needs {','.join(sorted(wanted))}; "
            "state would be lost",
            hint=f"set cleanup.policy of the topic back if nothing was lost yet; otherwise {way_out}",
            topic=spec.name,
        )


def _policy(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())
