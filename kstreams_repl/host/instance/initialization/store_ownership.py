"""Step 3 of the take-over: open and own each task's environment; one that does not fit its changelogs is rebuilt, from a snapshot
if there is one that fits.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from kstreams_repl.engine.config import SNAPSHOT_REQUIRED
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.stores.layers.row_format import keep_row_format
from kstreams_repl.host.instance.instance import Instance, wall_clock
from kstreams_repl.host.instance.state.changelogs import ChangelogBounds, ChangelogPartition, changelogs_of
from kstreams_repl.host.instance.state.environment_attributes import input_topic_ids, is_empty, remember_inputs, remember_topics
from kstreams_repl.host.instance.state.snapshot_directory import shown_address, snapshot_directory
from kstreams_repl.host.instance.state.snapshots import fetch_snapshot, why_refused
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.host.instance.state.state_manager import (
    InForce,
    OpenEnvironments,
    fresh_environment,
    open_environment,
    why_not_trusted,
)
from kstreams_repl.system.errors import SnapshotError, TaskCorruptedError

_LOG = logging.getLogger("kstreams_repl.host.instance")


def own_stores(
    instance: Instance, specs: Iterable[TaskSpec], undo: ExitStack, token: str, opened: OpenEnvironments, in_force: InForce
) -> tuple[dict[str, Environment], list[ChangelogPartition]]:
    """Open and own the environments; return them by task, and their changelogs.

    Args:
        undo: closes the environments if the take-over fails.
        opened: environments open in this process; those of the tasks are removed from it and used as they are.
    """
    specs = list(specs)
    plan, admin = instance.plan, instance.clients.admin
    logs = [log for spec in specs for log in changelogs_of(spec)]
    bounds = ChangelogBounds.read(admin, logs, (partition for spec in specs for partition in spec.partitions))
    instance.take_over.topic_ids = bounds.topic_ids
    environments: dict[str, Environment] = {}
    for spec in specs:
        path = task_directory(Path(plan.state_directory), plan.application_id, spec.task_id, instance.executor)
        inputs = list(spec.partitions)
        environment = open_environment(
            path,
            spec,
            token,
            opened.pop(os.path.realpath(path), None),
            end_former=not plan.config.exactly_once,
            in_force=in_force,
        )
        undo.callback(quietly(environment.close))
        own_logs = [log for log in logs if log.task == spec.task_id]
        ids_before = input_topic_ids(environment, inputs)
        committed = partial(admin.committed_offsets, plan.application_id, inputs)
        why = why_not_trusted(environment, own_logs, bounds, config=plan.config, committed=committed)
        if why is not None:
            _LOG.warning("rebuilding the stores from their changelogs: %s", why, extra={"task": str(spec.task_id)})
            environment = fresh_environment(environment, token, in_force=in_force)
        if environment.path is not None and is_empty(environment):
            environment = _from_snapshot(instance, environment, spec, own_logs, bounds, token, in_force)
        undo.callback(quietly(environment.close))
        for store in spec.subtopology.stores:
            keep_row_format(environment, store)
        remember_inputs(environment, inputs, bounds.topic_ids, ids_before)
        remember_topics(environment, own_logs, bounds.topic_ids)
        environments[str(spec.task_id)] = environment
    return environments, logs


def _from_snapshot(
    instance: Instance,
    empty: Environment,
    spec: TaskSpec,
    logs: list[ChangelogPartition],
    bounds: ChangelogBounds,
    token: str,
    in_force: InForce,
) -> Environment:
    """Return the environment from the newest snapshot that fits the changelogs, or the empty one if there is none.

    Raises:
        TaskCorruptedError: there is none, and the changelogs lack what the stores began with (``repl.snapshot.required``).
    """
    plan, task = instance.plan, str(spec.task_id)
    uri, required = plan.config["repl.snapshot.dir"], plan.config[SNAPSHOT_REQUIRED] and bool(logs)
    written = any(bounds.ends[log.partition] > bounds.firsts[log.partition] for log in logs)
    if uri is None or empty.path is None or not (written or required):
        return empty
    path = Path(empty.path)
    now_ms = wall_clock()
    empty.close()
    try:
        manifest = fetch_snapshot(
            snapshot_directory(uri),
            plan.application_id,
            task,
            path,
            lambda found: why_refused(found, logs, bounds, config=plan.config, now_ms=now_ms),
            in_force=in_force,
        )
    except (OSError, SnapshotError) as error:  # the changelog holds all rows
        instance.take_over.snapshot_error = f"reading snapshots of task {task} failed: {error}"
        _LOG.warning("%s", instance.take_over.snapshot_error)
        manifest = None
    if manifest is not None:
        instance.take_over.from_snapshots[task] = manifest.commit_id
    elif required:
        raise TaskCorruptedError(
            f"the stores of task {task} began with a snapshot, and {shown_address(uri)} has none that fits their changelogs",
            hint="make the fork again: fork.drop(), then app.fork(…)",
            task=task,
            path=shown_address(uri),
        )
    return open_environment(path, spec, token)


def quietly(close: Callable[[], None]) -> Callable[[], None]:
    """Return `close` with its errors suppressed."""

    def quiet() -> None:
        with suppress(Exception):  # cleaning up after an error must not hide that error
            close()

    return quiet
