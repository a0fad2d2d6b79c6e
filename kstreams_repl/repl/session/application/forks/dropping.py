"""Drop a fork: nothing of it stays. Each step may be repeated, so that another drop finishes one that died in the middle.

Numbered: 1. stop it · 2. delete the topics that it writes · 3. its internal topics, group and local state · 4. its base · 5. its session
file · 6. its record, by which it is found until then. The broker forgets its transactional ids by itself
(``transactional.id.expiration.ms``); nobody can take them up: the ids are those of an application that does not exist.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import MutableMapping
from pathlib import Path

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.engine.config import SNAPSHOT_DIR
from kstreams_repl.host.instance.state.snapshot_directory import snapshot_directory
from kstreams_repl.host.instance.state.state_directory import application_directory
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.forks.fork_record import ForkRecord, read_records, remove_record
from kstreams_repl.repl.session.cleanup import cleanup_of
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.system.errors import IllegalStateError, KStreamsError

Registry = MutableMapping[str, ApplicationCore]


def drop_fork(client: ClusterClient, applications: Registry, record: ForkRecord) -> None:
    """Drop a fork, as `Fork.drop`.

    Raises:
        IllegalStateError: another process holds it.
    """
    admin, name = client.admin, record.id
    if not record.is_orphan and record.pid != os.getpid():
        raise IllegalStateError(
            f"fork {name} is held by process {record.pid} on {record.host}",
            hint="drop it there: fork.drop(); or end that process",
        )
    # 1. Stop.
    core = applications.get(name)
    snapshots = record.snapshots
    if core is not None:
        core.stop()
        snapshots = core.config[SNAPSHOT_DIR]
        del applications[name]
    failpoint("K1")
    # 2. Outputs.
    there = admin.topics()
    admin.delete_topics([topic for topic in record.outputs.values() if topic in there])
    failpoint("K2")
    # 3. Internal topics, group, local state.
    cleanup_of(client, applications, name).apply()
    shutil.rmtree(application_directory(Path(record.state), name), ignore_errors=True)
    failpoint("K3")
    # 4. The base.
    if snapshots:
        snapshot_directory(snapshots).remove(name)
    # 5. The session file.
    client.files.remove(name)
    failpoint("K4")
    # 6. The record.
    remove_record(client.directory.path, name)


def drop_orphans(client: ClusterClient, applications: Registry) -> list[str]:
    """Drop the forks in the session's directory whose process is gone; return their ids. One that cannot be dropped now is reported."""
    dropped = []
    for record in read_records(client.directory.path):
        if record.is_orphan:
            try:
                drop_fork(client, applications, record)
            except KStreamsError as error:
                client.report(f"fork {record.id}, whose kernel is gone, is not dropped: {error.message}")
                continue
            dropped.append(record.id)
            client.report(f"fork {record.id}, whose kernel is gone, is dropped")
    return dropped


def drop_own(client: ClusterClient, applications: Registry) -> None:
    """Drop the forks that this process holds: they end with its session."""
    for record in read_records(client.directory.path):
        if record.process.is_alive and record.pid == os.getpid():
            drop_fork(client, applications, record)
