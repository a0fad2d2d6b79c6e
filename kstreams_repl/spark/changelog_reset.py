"""Delete the changelogs of stores that are reset, so that no old instance can write to the new topics of the same names."""

from __future__ import annotations

from collections.abc import Collection

from kstreams_repl.instance.control.channel import ControlChannel
from kstreams_repl.instance.initialization.task_initialization import fence_instances
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.spark.generation_fencing import Generations, held


def delete_changelogs(
    topics: Collection[str],
    holding: Generations | None,
    settings: ClientSettings,
    application_id: str,
    lease: ControlChannel,
    *,
    timeout_ms: int,
) -> None:
    """Delete changelogs of an application at rest.

    Every instance that may still hold a transactional id of the application is fenced first: a late record of it would be written to the
    topic that the next start creates under the same name.
    """
    if not topics:
        return
    with held(holding, settings, application_id, lease) as generations:
        fence_instances(settings, application_id, range(generations.slots), timeout_ms=timeout_ms)
    Admin(settings).delete_topics(topics)
