"""Deleting the changelogs of stores that are to begin empty, so that nobody can write to the new topics of the old names."""

from __future__ import annotations

from collections.abc import Collection

from kstreams_repl.instance.control import LeaseWriter
from kstreams_repl.instance.take_over import fence_instances
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.spark.generations import Generations, held


def delete_changelogs(
    topics: Collection[str],
    holding: Generations | None,
    settings: ClientSettings,
    application_id: str,
    lease: LeaseWriter,
    *,
    timeout_ms: int,
) -> None:
    """Delete changelogs of an application at rest. Whoever may still hold a transactional id of it is fenced first, for a record of his
    that came later would go into the topic that the next start makes under the same name.
    """
    if not topics:
        return
    with held(holding, settings, application_id, lease) as generations:
        fence_instances(settings, application_id, range(generations.slots), timeout_ms=timeout_ms)
    Admin(settings).delete_topics(topics)
