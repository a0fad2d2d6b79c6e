"""Find the topics of a cluster that belong to applications: journals, changelogs, repartition topics.

A topic that only has a similar name is not one of them.
"""

from __future__ import annotations

from contextlib import suppress

from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.system.errors import KStreamsError

JOURNAL = "-journal"
SUFFIXES = ("-changelog", "-repartition")


def journals(admin: Admin) -> list[str]:
    """Return the applications' journals: one partition, compacted. A user's topic may have the same suffix."""
    named = [topic for topic, partitions in admin.topics().items() if topic.endswith(JOURNAL) and partitions == 1]
    try:
        configs = admin.topic_configs(named)
    except KStreamsError:  # not authorized to describe topics: decide by the name alone
        configs = {}
    return sorted(topic for topic in named if "compact" in configs.get(topic, {}).get("cleanup.policy", "compact"))


def is_called_internal(topic: str, application: str) -> bool:
    """Return whether a topic has the name of a changelog or repartition topic of an application."""
    own = f"{application}-"
    return topic.startswith(own) and topic.removeprefix(own).endswith(SUFFIXES)


def internal_names(admin: Admin) -> frozenset[str]:
    """Return journals, and topics named like internal ones of an application.

    The application has a journal or, if it is one of Kafka Streams, a group.
    """
    found = journals(admin)
    applications = {topic.removesuffix(JOURNAL) for topic in found}
    with suppress(KStreamsError):  # a user may be authorized to list topics but not groups
        applications.update(admin.groups())
    named = (topic for topic in admin.topics() if topic.endswith(SUFFIXES))
    return frozenset(found).union(topic for topic in named if any(is_called_internal(topic, name) for name in applications))
