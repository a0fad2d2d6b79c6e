"""Which topics of a cluster are applications' own: journals, changelogs, repartition topics; not what is only called like one."""

from __future__ import annotations

from contextlib import suppress

from kstreams_repl.errors import KStreamsError
from kstreams_repl.kafka.admin import Admin

JOURNAL = "-journal"
SUFFIXES = ("-changelog", "-repartition")


def journals(admin: Admin) -> list[str]:
    """The applications' journals: one partition, compacted. A topic of the user's may end like one."""
    named = [topic for topic, partitions in admin.topics().items() if topic.endswith(JOURNAL) and partitions == 1]
    try:
        configs = admin.topic_configs(named)
    except KStreamsError:  # this user may not ask: then the name has to do
        configs = {}
    return sorted(topic for topic in named if "compact" in configs.get(topic, {}).get("cleanup.policy", "compact"))


def is_called_internal(topic: str, application: str) -> bool:
    """Whether a topic has the name of a changelog or repartition topic of an application."""
    own = f"{application}-"
    return topic.startswith(own) and topic.removeprefix(own).endswith(SUFFIXES)


def internal_names(admin: Admin) -> frozenset[str]:
    """Journals, and what has the name of an internal topic of an application that has a journal or, as those of Kafka Streams, a group."""
    found = journals(admin)
    applications = {topic.removesuffix(JOURNAL) for topic in found}
    with suppress(KStreamsError):  # who may list topics need not be one who may list groups
        applications.update(admin.groups())
    named = (topic for topic in admin.topics() if topic.endswith(SUFFIXES))
    return frozenset(found).union(topic for topic in named if any(is_called_internal(topic, name) for name in applications))
