"""The last step of a take-over: from what was found and restored to a task that runs (`take_over`, step 6).

Actors: the take-over, for the tasks whose stores are complete at once; the runner, at a commit, for those that the restore thread brought
up to date meanwhile (`admit`). Both make a task of the same `RestoringTask`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kstreams_repl.commit.offset_metadata import COMMIT_ID, STREAM_TIME, OffsetMetadata
from kstreams_repl.instance.active_task import ActiveTask
from kstreams_repl.instance.instance import Instance, wall_clock
from kstreams_repl.instance.local_state import changelogs_of
from kstreams_repl.instance.snapshot_directory import snapshot_directory
from kstreams_repl.instance.snapshots import Snapshotter
from kstreams_repl.instance.state_directory import application_directory
from kstreams_repl.instance.state_updater import RestoringTask
from kstreams_repl.instance.task_meter import task_meter
from kstreams_repl.instance.task_state import TaskLife
from kstreams_repl.kafka.group_offsets import assign_more
from kstreams_repl.runtime.task import StreamTask, TaskSpec
from kstreams_repl.stores.engine.base import Environment
from kstreams_repl.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Start:
    """Where one input partition begins, and what was committed beside that offset.

    Attributes:
        reset: it is not the committed one, which the broker does not have any more; the next commit is to say so.
    """

    offset: int
    metadata: OffsetMetadata
    reset: bool = False


def admit(instance: Instance) -> int:
    """Step 6 for tasks that have been restored beside the others. Only at a commit; returns how many there were.

    Each takes part in the next commit, whatever it has to do: readers of live state learn from it that the instance has it now
    (`instance.cut`), and a successor that nobody has seen yet refuses it there.

    Raises:
        KStreamsError: what the restore met.
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
    """A task after step 4."""
    mine = {at: starts[at] for at in spec.partitions}
    offsets = {at: start.offset for at, start in mine.items()}
    logs = frozenset(log.partition for log in changelogs_of(spec) if not log.is_source and log.store.persistent)
    return RestoringTask(spec, environment, mine, offsets, logs, token, TaskLife(spec.task_id))


def start_task(instance: Instance, restored: RestoringTask) -> ActiveTask:
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
    for at in spec.partitions:
        metadata: Any = starts[at].metadata
        task.set_partition_time(at, metadata.partition_time)
        task.services.clock.now = max(task.services.clock.now, metadata.stream_time)
        task.set_metadata({name: number for name, number in metadata.entries.items() if name not in (COMMIT_ID, STREAM_TIME)})
    active = ActiveTask(
        task,
        environment,
        restored.offsets,
        restored.changelogs,
        frozenset(log.partition for log in changelogs_of(spec) if log.is_source and log.store.persistent),
        restored.token,
        watch,
        restored.life,
    )
    instance.begin()
    active.initialize()
    active.touched = environment.commit_id < 0 or any(start.reset for start in starts.values())
    instance.counters.created += 1
    instance.refresh_soon()
    return active


def snapshotter_of(instance: Instance) -> Snapshotter | None:
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
