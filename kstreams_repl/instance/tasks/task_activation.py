"""The last step of a take-over: from a restored task to a running one (step 6 of `task_initialization`).

Actors: the take-over, for tasks whose stores are complete at once; the instance runner, at a commit, for tasks that the state
updater restored in the meantime (`admit`). Both create a task from the same `RestoringTask`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kstreams_repl.commit.committed_counts import committed_counts
from kstreams_repl.commit.offset_metadata import COMMIT_ID, STREAM_TIME, OffsetMetadata
from kstreams_repl.instance.instance import Instance, wall_clock
from kstreams_repl.instance.metrics.task_instrumentation import task_meter
from kstreams_repl.instance.state.changelog_retention import FLOOR, ChangelogFloors, floors_of
from kstreams_repl.instance.state.snapshot_directory import snapshot_directory
from kstreams_repl.instance.state.snapshots import Snapshotter
from kstreams_repl.instance.state.state_directory import application_directory, files_directory
from kstreams_repl.instance.state.state_manager import changelogs_of
from kstreams_repl.instance.state.state_updater import RestoringTask
from kstreams_repl.instance.tasks.active_task import ActiveTask
from kstreams_repl.instance.tasks.task_state import TaskLife
from kstreams_repl.kafka.group_offsets import assign_more
from kstreams_repl.runtime.node_counts import NodeCount, added
from kstreams_repl.runtime.task import StreamTask, TaskSpec
from kstreams_repl.stores.engine.base import Environment
from kstreams_repl.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Start:
    """Where one input partition begins, and the metadata committed with that offset.

    Attributes:
        reset: the offset is not the committed one, which the broker no longer has; the next commit must include it.
    """

    offset: int
    metadata: OffsetMetadata
    reset: bool = False


def admit(instance: Instance) -> int:
    """Run step 6 for tasks that were restored while others ran; return how many. Call only at a commit.

    Each admitted task takes part in the next commit, with or without records: readers of live state learn from that commit that
    the instance now has the task (`instance.tasks.consistent_cut`), and that commit fails if there is a successor that the instance
    has not noticed yet.

    Raises:
        KStreamsError: the restore failed.
    """
    updater, admitted = instance.updater, 0
    while updater is not None and (restored := updater.next_complete()) is not None:
        task = start_task(instance, restored)
        updater.admitted()
        task.touched = True
        instance.tasks.append(task)
        instance.by_partition |= dict.fromkeys(task.starts, task)
        assign_more(instance.consumer, task.starts)
        if instance.snapshotter is None:
            instance.snapshotter = snapshotter_of(instance)
        elif task.environment.path is not None and task.changelogs:
            instance.snapshotter.add(str(task.id), task.environment)
        admitted += 1
    if updater is not None and not updater.restoring:
        instance.updater = None
    return admitted


def taken_over(
    spec: TaskSpec, environment: Environment, starts: Mapping[TopicPartition, Start], token: str
) -> RestoringTask:
    """Return a task after step 4."""
    mine = {at: starts[at] for at in spec.partitions}
    offsets = {at: start.offset for at, start in mine.items()}
    logs = frozenset(log.partition for log in changelogs_of(spec) if not log.is_source and log.store.persistent)
    return RestoringTask(spec, environment, mine, offsets, logs, token, TaskLife(spec.task_id))


def counts_before(restored: RestoringTask) -> dict[str, NodeCount]:
    """Return the counts of the task's nodes as of the commit that it continues from."""
    nodes = [node.name for node in restored.spec.subtopology.nodes]
    return added(committed_counts(restored.starts[at].metadata.counts, nodes) for at in restored.spec.partitions)


def start_task(instance: Instance, restored: RestoringTask) -> ActiveTask:
    """Create the task, initialize it and return it running."""
    spec, environment, starts = restored.spec, restored.environment, restored.starts
    watch = None if instance.watch is None else instance.watch.task(str(spec.task_id), len(instance.tasks))
    task = StreamTask(
        spec,
        environment=environment,
        collector=instance.collector,
        wall_clock=wall_clock,
        global_stores={} if instance.globals is None else instance.globals.stores,
        meter=task_meter(spec),
        by_record=instance.collector.careful,
        trace=watch if watch is not None and watch.traced else None,
    )
    plan = instance.plan
    task.services.make_state_dir = partial(
        files_directory, Path(plan.state_directory), plan.application_id, spec.task_id, instance.executor
    )
    for at in spec.partitions:
        metadata: Any = starts[at].metadata
        task.set_partition_time(at, metadata.partition_time)
        task.services.clock.now = max(task.services.clock.now, metadata.stream_time)
        task.set_metadata(
            {
                name: number
                for name, number in metadata.entries.items()
                if name not in (COMMIT_ID, STREAM_TIME) and not name.startswith(FLOOR)
            }
        )
    logs = changelogs_of(spec)
    floors = floors_of(logs, [start.metadata for start in starts.values()], instance.topic_ids)
    task.counts.begin(counts_before(restored))
    active = ActiveTask(
        task,
        environment,
        restored.offsets,
        restored.changelogs,
        frozenset(log.partition for log in logs if log.is_source and log.store.persistent),
        restored.token,
        watch,
        restored.life,
        ChangelogFloors(logs, instance.topic_ids, floors),
    )
    instance.begin()
    active.initialize()
    active.touched = environment.commit_id < 0 or any(start.reset for start in starts.values())
    instance.counters.created += 1
    instance.refresh_soon()
    return active


def snapshotter_of(instance: Instance) -> Snapshotter | None:
    """Start and return an instance's snapshotter; None without a snapshot directory or tasks with changelogs on disk."""
    config = instance.plan.config
    uri = config["repl.snapshot.dir"]
    tasks = [(str(task.id), task.environment) for task in instance.tasks if task.environment.path is not None and task.changelogs]
    if uri is None or not tasks:
        return None
    return Snapshotter(
        tasks,
        snapshot_directory(uri),
        instance.plan.application_id,
        seconds=config["repl.snapshot.interval.ms"] / 1000,
        keep=config["repl.snapshot.retention"],
        work=application_directory(Path(instance.plan.state_directory), instance.plan.application_id) / "snapshots",
    ).start()
