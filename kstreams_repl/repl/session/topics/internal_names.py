"""Find the topics of a cluster that belong to applications: journals, changelogs, repartition topics, those of foreign-key joins.

A topic that only has a similar name is not one of them.
"""

from __future__ import annotations

import re
from contextlib import suppress

from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.system.errors import KStreamsError

JOURNAL = "-journal"
_INTERNAL = re.compile(
    r".*-changelog|.*-repartition|.*-subscription-(registration|response)-topic"
    r"|(.*-)?KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-[0-9]+-topic"
)
"""Names without the application's prefix, as Kafka Streams' `StreamsResetter.matchesInternalTopicFormat` knows them."""


def journals(admin: Admin) -> list[str]:
    """Return the applications' journals: one partition, compacted. A user's topic may have the same suffix."""
    named = [topic for topic, partitions in admin.topics().items() if topic.endswith(JOURNAL) and partitions == 1]
    try:
        configs = admin.topic_configs(named)
    except KStreamsError:  # not authorized to describe topics: decide by the name alone
        configs = {}
    return sorted(topic for topic in named if "compact" in configs.get(topic, {}).get("cleanup.policy", "compact"))


def is_called_internal(topic: str, application: str) -> bool:
    """Return whether a topic has the name of an internal topic of an application."""
    own = f"{application}-"
    return topic.startswith(own) and _INTERNAL.fullmatch(topic.removeprefix(own)) is not None


def internal_names(admin: Admin) -> frozenset[str]:
    """Return journals, and topics named like internal ones of an application.

    The application has a journal or, if it is one of Kafka Streams, a group.
    """
    found = journals(admin)
    applications = {topic.removesuffix(JOURNAL) for topic in found}
    with suppress(KStreamsError):  # a user may be authorized to list topics but not groups
        applications.update(admin.groups())
    named = (topic for topic in admin.topics() if _INTERNAL.fullmatch(topic))
    return frozenset(found).union(topic for topic in named if any(is_called_internal(topic, name) for name in applications))
