"""Step 6 of the take-over: from a restored task to a running one.

Actors: the take-over, for tasks whose stores are complete at once; the instance runner, at a commit, for tasks that the state
updater restored in the meantime (`activate_restored`). Both create a task from the same `RestoringTask`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from kstreams_repl.engine.commit.committed_counts import committed_counts
from kstreams_repl.engine.runtime.nodes.node_counts import NodeCount, added
from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.host.instance.epochs.lifecycle import TaskLifecycle
from kstreams_repl.host.instance.initialization.start_offsets import StartOffset, restore_progress
from kstreams_repl.host.instance.instance import Instance, wall_clock
from kstreams_repl.host.instance.state.changelog_retention import ChangelogFloors, floors_of
from kstreams_repl.host.instance.state.changelogs import changelogs_of
from kstreams_repl.host.instance.state.environment_attributes import has_forgotten_inputs
from kstreams_repl.host.instance.state.snapshot_directory import snapshot_directory
from kstreams_repl.host.instance.state.snapshots import Snapshotter
from kstreams_repl.host.instance.state.state_directory import application_directory, files_directory
from kstreams_repl.host.instance.state.state_updater import RestoringTask
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.host.instance.tasks.task_instrumentation import task_meter
from kstreams_repl.host.kafka.group_offsets import assign_more
from kstreams_repl.system.types import TopicPartition


def activate_restored(instance: Instance) -> int:
    """Run step 6 for tasks that were restored while others ran; return how many. Call only at a commit.

    Each of them takes part in the next commit, with or without records: readers of live state learn from that commit that
    the instance now has the task (`host.instance.tasks.consistent_cut`), and that commit fails if there is a successor that the instance
    has not noticed yet.

    Raises:
        KStreamsError: the restore failed.
    """
    updater, activated = instance.updater, 0
    while updater is not None and (restored := updater.next_complete()) is not None:
        task = start_task(instance, restored)
        updater.activated()
        task.touched = True
        instance.add(task)
        assign_more(instance.clients.consumer, task.starts)
        if instance.snapshotter is None:
            instance.snapshotter = snapshotter_of(instance)
        elif task.environment.path is not None and task.changelogs:
            instance.snapshotter.add(str(task.id), task.environment)
        activated += 1
    if updater is not None and not updater.restoring:
        instance.updater = None
        instance.run("all tasks are restored")
    return activated


def restoring_task(
    spec: TaskSpec, environment: Environment, starts: Mapping[TopicPartition, StartOffset], token: str
) -> RestoringTask:
    """Return a task after step 4."""
    own_starts = {partition: starts[partition] for partition in spec.partitions}
    offsets = {partition: start.offset for partition, start in own_starts.items()}
    logs = frozenset(log.partition for log in changelogs_of(spec) if not log.is_source and log.store.persistent)
    return RestoringTask(spec, environment, own_starts, offsets, logs, token, TaskLifecycle(spec.task_id))


def counts_before(restored: RestoringTask) -> dict[str, NodeCount]:
    """Return the counts of the task's nodes as of the commit that it continues from."""
    nodes = [node.name for node in restored.spec.subtopology.nodes]
    return added(committed_counts(start.metadata.counts, nodes) for start in restored.starts.values())


def start_task(instance: Instance, restored: RestoringTask) -> ActiveTask:
    """Create the task, initialize it and return it running."""
    spec, environment, starts = restored.spec, restored.environment, restored.starts
    marks = None if instance.watchdog is None else instance.watchdog.task(str(spec.task_id), len(instance.tasks))
    task = StreamTask(
        spec,
        environment=environment,
        collector=instance.collector,
        wall_clock=wall_clock,
        global_stores={} if instance.globals is None else instance.globals.stores,
        meter=task_meter(spec),
        by_record=instance.collector.careful,
        trace=marks if marks is not None and marks.traced else None,
        tracer=instance.tracer,
    )
    plan = instance.plan
    task.attach(
        state_dir=partial(files_directory, Path(plan.state_directory), plan.application_id, spec.task_id, instance.executor),
        runner=instance.call_runner,
        submit=lambda: instance.task_pool().submit,
    )
    restore_progress(task, starts)
    task.recover_tables()
    logs = changelogs_of(spec)
    floors = floors_of(logs, [start.metadata for start in starts.values()], instance.take_over.topic_ids)
    task.counts.begin(counts_before(restored))
    active = ActiveTask(
        task,
        environment,
        restored.offsets,
        restored.changelogs,
        frozenset(log.partition for log in logs if log.is_source and log.store.persistent),
        restored.token,
        marks,
        restored.life,
        ChangelogFloors(logs, instance.take_over.topic_ids, floors),
        instance.take_over.topic_ids,
        plan.version,
    )
    instance.clients.begin()
    active.initialize()
    advanced = has_forgotten_inputs(environment)  # readers wait for a commit with records otherwise
    active.touched = environment.commit_id < 0 or advanced or any(start.reset for start in starts.values())
    instance.counters.created += 1
    instance.committer.refresh_soon()
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
