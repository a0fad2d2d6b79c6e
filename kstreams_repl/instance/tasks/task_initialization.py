"""The take-over: how an instance comes to own its tasks. Steps are numbered as in docs/design/010-host.md.

1. The driver has raised the generation and fenced every transactional id of earlier generations (`fence_instances`); this
   instance checks that its generation is still in force.
2. `init_transactions` on its own id, then the generation again: one of the two checks detects a zombie that comes between.
3. Write the owner token of each environment.
4. Read committed offsets and their metadata. A missing offset is never reset for a store that has content.
5. Restore up to the read_uncommitted end as it is after step 2. Longer restores continue in the restore thread (`state_updater`)
   while the tasks that are ready run.
6. RUNNING; for a task restored in the meantime later, at a commit (`task_activation.admit`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from kstreams_repl.commit.offset_metadata import OffsetMetadata, decode
from kstreams_repl.errors import InputOffsetError, KStreamsError, SnapshotError, TaskCorruptedError, TaskMigratedError
from kstreams_repl.instance.application_plan import ApplicationPlan, transactional_id
from kstreams_repl.instance.failures.crash_watchdog import CrashWatch
from kstreams_repl.instance.failures.rejected_records import Refusals, producer_settings
from kstreams_repl.instance.instance import Instance, wall_clock
from kstreams_repl.instance.state.changelog_reader import Restore, RestoreProgress
from kstreams_repl.instance.state.changelog_retention import floors_of
from kstreams_repl.instance.state.expired_offsets import refuse_forgotten_inputs
from kstreams_repl.instance.state.global_tables import GlobalTables
from kstreams_repl.instance.state.snapshot_directory import snapshot_directory
from kstreams_repl.instance.state.snapshots import fetch_snapshot, why_refused
from kstreams_repl.instance.state.standby_tasks import Spares, StandbyCopies
from kstreams_repl.instance.state.state_directory import task_directory
from kstreams_repl.instance.state.state_manager import (
    INPUT,
    MADE_ANEW,
    Changelog,
    InForce,
    changelogs_of,
    fresh_environment,
    known_ids,
    open_environment,
    owner_token,
    remember_inputs,
    remember_topics,
    topic_ids_of,
    why_not_trusted,
)
from kstreams_repl.instance.state.state_updater import StateUpdater
from kstreams_repl.instance.tasks.record_collector import KafkaRecordCollector, counts_of
from kstreams_repl.instance.tasks.task_activation import Start, snapshotter_of, start_task, taken_over
from kstreams_repl.kafka.admin import Admin, CommittedOffset
from kstreams_repl.kafka.clients import ClientSettings, make_consumer, make_producer
from kstreams_repl.kafka.group_offsets import assign
from kstreams_repl.kafka.transactional import TransactionalProducer
from kstreams_repl.runtime.task import TaskSpec
from kstreams_repl.stores.engine.base import Environment
from kstreams_repl.topology.nodes import SourceNode
from kstreams_repl.topology.offset_reset import duration_ms
from kstreams_repl.types import TopicPartition

_LOG = logging.getLogger("kstreams_repl.instance")
_MOMENT_SECONDS = 0.2
"""How long the tasks that are ready wait for the others: most restores are shorter."""


class Interrupted(KStreamsError):
    """A signal came during the take-over; no task is owned."""


def fence_instances(settings: ClientSettings, application_id: str, slots: Iterable[int], *, timeout_ms: int) -> None:
    """Run step 2 for instances of earlier generations: none of their open transactions can commit after this.

    A zombie with another id could otherwise commit in parallel with its successor, because the broker fences per id only.
    """

    def fence(slot: int) -> None:
        producer = TransactionalProducer(settings, transactional_id(application_id, slot), timeout_ms=timeout_ms)
        try:
            producer.initialise()
        finally:
            producer.close()

    every = list(slots)
    if every:
        with ThreadPoolExecutor(min(8, len(every)), thread_name_prefix="fence") as pool:
            list(pool.map(fence, every))


def open_instance(
    plan: ApplicationPlan,
    slot: int,
    *,
    in_force: InForce,
    executor: str = "driver",
    progress: Callable[[RestoreProgress], None] | None = None,
    stage: Callable[[str], None] = lambda name: None,
    refusals: Refusals | None = None,
    go_on: Callable[[], bool] | None = None,
    spares: Spares | None = None,
    watch: CrashWatch | None = None,
    beside: bool = False,
) -> Instance:
    """Take over the slot's tasks and return them running.

    Args:
        go_on: like `in_force`, but its answer may be a few milliseconds old; called repeatedly while stores are restored.
        spares: environments that this process has open from a former generation; unused ones are closed.
        stage: called with the name of each step as it begins, so that a step that does not end can be identified.
        refusals: the slot's known records that the broker rejected; it outlives the instance.
        watch: notified when user code runs.
        beside: return the ready tasks after `_MOMENT_SECONDS` and restore the stores of the others in a thread; the caller must
            admit them (`task_activation.admit`).

    Raises:
        TaskMigratedError: a newer generation is in force.
        Interrupted: the application is to pause or stop.
        TaskCorruptedError: offsets or changelog do not fit the local store and this cannot be repaired.
    """
    config = plan.config
    exactly_once = config.exactly_once
    refusals = refusals or Refusals()
    spare = {} if spares is None else spares
    with ExitStack() as undo, closing_all(spare):
        # 1. Check that the generation is still in force.
        _check(in_force, plan)
        admin = Admin(plan.settings)
        sending = producer_settings(plan, admin, refusals)
        # 2. Fence older holders of this id, under at least once too: this stops a holder on another host.
        stage("fencing older holders")
        transactions = TransactionalProducer(
            plan.settings,
            plan.transactional_id(slot),
            timeout_ms=config["transaction.timeout.ms"],
            **sending if exactly_once else {},
        )
        undo.callback(transactions.close)
        transactions.initialise()
        _check(in_force, plan)
        instance = _clients(plan, slot, admin, transactions, refusals, sending)
        instance.watch, instance.executor = watch, executor
        if watch is not None:
            watch.arm()
        undo.pop_all()
        undo.callback(_quietly(instance.close))
        if plan.global_subtopologies:
            stage("loading global tables")
            instance.globals = GlobalTables(plan, admin, wall_clock=wall_clock)
            if not instance.globals.load(in_force):
                raise Interrupted("stopped while a global table was loaded")
        specs = plan.assignment[slot]
        # 3. Own the stores.
        stage("taking the stores")
        token = owner_token(plan.generation, slot)
        open_before = len(spare)
        environments, logs = _own_stores(instance, specs, executor, undo, token, admin, spare, in_force)
        instance.recycled = open_before - len(spare)
        # 4. Find where input begins.
        stage("reading committed offsets")
        starts = _starts(plan, specs, environments, admin)
        # 5. Restore the stores.
        def told(restored: RestoreProgress) -> None:
            instance.restored = restored.records
            if progress is not None:
                progress(restored)

        stage("restoring stores")
        restore = Restore(
            plan.settings,
            admin,
            [(environments[str(log.task)], log) for log in logs],
            limits={at: start.offset for at, start in starts.items()},
            floors=_floors(specs, logs, starts, instance.topic_ids),
            isolation=plan.isolation,
        )
        undo.callback(_quietly(restore.close))
        until = time.monotonic() + _MOMENT_SECONDS if beside else None
        if not restore.run(in_force if go_on is None else go_on, told, until=until):
            raise Interrupted("stopped while stores were restored")
        # 6. RUNNING. Commit ids continue from the highest of all tasks, including those still being restored.
        committed = [start.metadata.commit_id for start in starts.values()]
        instance.commit_id = max([0, *committed, *(environment.commit_id for environment in environments.values())])
        taken = [taken_over(spec, environments[str(spec.task_id)], starts, token) for spec in specs]
        lacking = restore.lacking
        for task in taken:
            if str(task.spec.task_id) not in lacking:
                instance.tasks.append(start_task(instance, task))
        instance.by_partition = {at: task for task in instance.tasks for at in task.starts}
        assign(instance.consumer, {at: task.starts[at] for at, task in instance.by_partition.items()})
        if lacking:
            still = [task for task in taken if str(task.spec.task_id) in lacking]
            instance.updater = StateUpdater(f"{plan.application_id}-{slot}", restore, still)
        if slot < len(plan.standbys) and plan.standbys[slot]:
            instance.standbys = StandbyCopies(plan, slot, executor, spare).start()
        instance.snapshotter = snapshotter_of(instance)
        if instance.updater is not None:
            instance.updater.start()
        undo.pop_all()
        names = ", ".join(str(spec.task_id) for spec in specs) or "no tasks"
        _LOG.info(
            "assigned %s; %d records restored, %d tasks still restoring; commit %d, generation %d",
            names, instance.restored, len(lacking), instance.commit_id, plan.generation,
        )  # fmt: skip
        return instance


@contextmanager
def closing_all(spares: Spares) -> Iterator[None]:
    """Close every environment that remains in `spares` at the end."""
    try:
        yield
    finally:
        for environment in spares.values():
            with suppress(KStreamsError):
                environment.close()
        spares.clear()


def _check(in_force: InForce, plan: ApplicationPlan) -> None:
    if not in_force():
        raise TaskMigratedError(f"generation {plan.generation} of {plan.application_id} is over")


def _quietly(close: Callable[[], None]) -> Callable[[], None]:
    """Return `close` with its errors suppressed: cleaning up after an error must not hide that error."""

    def quiet() -> None:
        with suppress(Exception):
            close()

    return quiet


def _clients(
    plan: ApplicationPlan,
    slot: int,
    admin: Admin,
    transactions: TransactionalProducer,
    refusals: Refusals,
    sending: Mapping[str, Any],
) -> Instance:
    exactly_once = plan.config.exactly_once
    holder: list[KafkaRecordCollector] = []
    if exactly_once:
        producer = transactions.client
    elif refusals.careful:  # every record has a delivery callback
        producer = make_producer(plan.settings, **sending)
    else:
        producer = make_producer(
            plan.settings, on_delivery_error=lambda error, message: holder[0].delivery_failed(error, message), **sending
        )
    collector = KafkaRecordCollector(
        producer,
        count=counts_of(plan.partition_counts, admin.partitions),
        changelogs=plan.changelogs(),
        track=exactly_once,
        refusals=refusals,
    )
    holder.append(collector)
    consumer = make_consumer(
        plan.settings,
        group_id=plan.application_id,
        isolation=plan.isolation,
        role="main",
        enable_partition_eof=any(len(spec.partitions) > 1 for spec in plan.assignment[slot]),
    )
    return Instance(
        plan,
        slot,
        admin=admin,
        consumer=consumer,
        producer=producer,
        fence=transactions,
        collector=collector,
    )


def _own_stores(
    instance: Instance,
    specs: Iterable[TaskSpec],
    executor: str,
    undo: ExitStack,
    token: str,
    admin: Admin,
    spares: Spares,
    in_force: InForce,
) -> tuple[dict[str, Environment], list[Changelog]]:
    """Run step 3: open and own each task's environment; one that does not fit its changelogs is rebuilt from empty."""
    logs = [log for spec in specs for log in changelogs_of(spec)]
    partitions = {log.partition for log in logs}
    firsts = admin.beginning_offsets(partitions)
    ends = admin.end_offsets(partitions, isolation="read_uncommitted")
    topic_ids = instance.topic_ids = topic_ids_of(admin, logs, (at for spec in specs for at in spec.partitions))
    plan = instance.plan
    environments: dict[str, Environment] = {}
    for spec in specs:
        path = task_directory(Path(plan.state_directory), plan.application_id, spec.task_id, executor)
        environment = open_environment(
            path,
            spec,
            token,
            spares.pop(os.path.realpath(path), None),
            end_former=not plan.config.exactly_once,
            in_force=in_force,
        )
        undo.callback(_quietly(environment.close))
        mine = [log for log in logs if log.task == spec.task_id]
        former = known_ids(environment, list(spec.partitions))
        why = why_not_trusted(
            environment,
            mine,
            firsts,
            ends,
            topic_ids,
            config=plan.config,
            committed=partial(admin.committed_offsets, plan.application_id, list(spec.partitions)),
        )
        if why is not None:
            _LOG.warning("rebuilding the stores from their changelogs: %s", why, extra={"task": str(spec.task_id)})
            environment = fresh_environment(environment, token, in_force=in_force)
        if environment.path is not None and environment.commit_id < 0 and not environment.positions:
            environment = _from_snapshot(instance, environment, spec, mine, (firsts, ends, topic_ids), token, in_force)
        undo.callback(_quietly(environment.close))
        remember_inputs(environment, list(spec.partitions), topic_ids, former)
        remember_topics(environment, mine, topic_ids)
        environments[str(spec.task_id)] = environment
    return environments, logs


def _from_snapshot(
    instance: Instance,
    empty: Environment,
    spec: TaskSpec,
    logs: list[Changelog],
    broker: tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int], Mapping[str, str]],
    token: str,
    in_force: InForce,
) -> Environment:
    """Return the environment from the newest snapshot that fits the changelogs, or the empty one if there is none."""
    plan = instance.plan
    uri = plan.config["repl.snapshot.dir"]
    if uri is None or empty.path is None or not any(broker[1][log.partition] > broker[0][log.partition] for log in logs):
        return empty
    path = Path(empty.path)
    now_ms = wall_clock()
    empty.close()
    try:
        manifest = fetch_snapshot(
            snapshot_directory(uri),
            plan.application_id,
            str(spec.task_id),
            path,
            lambda made: why_refused(made, logs, *broker, config=plan.config, now_ms=now_ms),
            in_force=in_force,
        )
    except (OSError, SnapshotError) as error:  # the changelog holds all rows
        instance.snapshot_trouble = f"snapshots of task {spec.task_id} cannot be read: {error}"
        _LOG.warning("%s", instance.snapshot_trouble)
        manifest = None
    if manifest is not None:
        instance.from_snapshots[str(spec.task_id)] = manifest.commit_id
    return open_environment(path, spec, token)


def _starts(
    plan: ApplicationPlan, specs: Iterable[TaskSpec], environments: Mapping[str, Environment], admin: Admin
) -> dict[TopicPartition, Start]:
    wanted = {at: spec for spec in specs for at in spec.partitions}
    committed = admin.committed_offsets(plan.application_id, list(wanted))
    for spec in specs:
        refuse_forgotten_inputs(plan, spec, environments[str(spec.task_id)], committed, admin)
    first = admin.beginning_offsets(list(wanted))
    last = admin.end_offsets(list(wanted), isolation="read_uncommitted")
    starts = {}
    for at, spec in wanted.items():
        known = committed.get(at)
        environment = environments[str(spec.task_id)]
        if known is None:
            known = _kept(environment, at)
        if known is not None:
            offset = max(known.offset, first[at]) if _may_skip(spec, at) else known.offset
            there = first[at] <= offset <= last[at]
            if not there:
                offset = _other_offset(plan, spec, at, offset, first[at], last[at], admin)
            starts[at] = Start(offset, decode(known.metadata), reset=not there)
        elif environment.commit_id >= 0 and not _is_new(environment, at) and any(store.persistent for store in spec.subtopology.stores):
            raise TaskCorruptedError(
                f"task {spec.task_id} has local state of commit {environment.commit_id}, but {at} has no committed offset",
                hint="reset the application, so that state and offsets begin together",
                path=environment.path,
                topic=at.topic,
                partition=at.partition,
            )
        else:
            anew = environment.positions.get(f"{INPUT}{at}") == MADE_ANEW
            offset = _beginning(plan, at, _reset(plan, spec, at), first[at], last[at], admin)
            starts[at] = Start(offset, OffsetMetadata(), reset=anew)
    return starts


def _floors(
    specs: Iterable[TaskSpec], logs: Iterable[Changelog], starts: Mapping[TopicPartition, Start], topic_ids: Mapping[str, str]
) -> dict[TopicPartition, int]:
    """Return the committed floors: the offsets below which changelogs of windows are no longer needed."""
    floors: dict[TopicPartition, int] = {}
    for spec in specs:
        mine = [log for log in logs if log.task == spec.task_id]
        floors |= floors_of(mine, [starts[at].metadata for at in spec.partitions], topic_ids)
    return floors


def _kept(environment: Environment, at: TopicPartition) -> CommittedOffset | None:
    """Return the input offset in the store's own commit: group offsets expire, the store's do not."""
    offset = environment.positions.get(f"{INPUT}{at}", -1)
    return None if offset < 0 else CommittedOffset(offset)


def _is_new(environment: Environment, at: TopicPartition) -> bool:
    """Return whether the task's last commit knew its inputs but not this one: it was added since, or its topic was recreated."""
    known = {name: offset for name, offset in environment.positions.items() if name.startswith(INPUT)}
    return bool(known) and known.get(f"{INPUT}{at}", MADE_ANEW) == MADE_ANEW


def _may_skip(spec: TaskSpec, at: TopicPartition) -> bool:
    """Return whether missing offsets may be skipped: repartition topics are purged up to the committed offset, so no record is
    lost.
    """
    return (
        at.topic.startswith(f"{spec.application_id}-")
        and at.topic.removeprefix(f"{spec.application_id}-") in spec.internal_topics
    )


def _beginning(plan: ApplicationPlan, at: TopicPartition, policy: str, first: int, last: int, admin: Admin) -> int:
    """Return the offset at which a reset policy begins."""
    if policy == "earliest":
        return first
    ago = duration_ms(policy)
    latest = _latest(plan, at, last, admin)  # before the lookup by time: every later record has an offset at or above it
    found = None if ago is None else admin.offsets_for_time({at: max(0, time.time_ns() // 1_000_000 - ago)})[at]
    return latest if found is None else found


def _latest(plan: ApplicationPlan, at: TopicPartition, last: int, admin: Admin) -> int:
    """Return the offset of new records; under exactly once it lies before records of open transactions, which no consumer has
    read.
    """
    return admin.end_offsets([at], isolation="read_committed")[at] if plan.config.exactly_once else last


def _other_offset(
    plan: ApplicationPlan, spec: TaskSpec, at: TopicPartition, committed: int, first: int, last: int, admin: Admin
) -> int:
    """Return where to continue when the broker no longer has the committed offset, by the source's reset policy; log a warning.
    """
    policy = _reset(plan, spec, at, committed, first, last)
    offset = _beginning(plan, at, policy, first, last, admin)
    lost = f"{first - committed} offsets that were not processed are gone" if committed < first else "the log is shorter than it was"
    _LOG.warning(
        "%s: the committed offset %d is not in the log any more, which has %d to %d (%s); going on at %d (auto.offset.reset: %s)",
        at, committed, first, last, lost, offset, policy,
    )  # fmt: skip
    return offset


def _reset(
    plan: ApplicationPlan, spec: TaskSpec, at: TopicPartition, committed: int | None = None, first: int = 0, last: int = 0
) -> str:
    name = spec.partitions[at]
    node = next(node for node in spec.subtopology.nodes if node.name == name)
    policy = (node.offset_reset if isinstance(node, SourceNode) else None) or plan.config["auto.offset.reset"]
    if _may_skip(spec, at):
        return "earliest"
    if policy == "none":
        lacks = (
            "has no committed offset"
            if committed is None
            else f"has the committed offset {committed} not any more, the log has {first} to {last}"
        )
        raise InputOffsetError(
            f"{at} {lacks}, and auto.offset.reset is 'none'",
            hint="commit an offset for the group, or set auto.offset.reset to 'earliest' or 'latest'",
            topic=at.topic,
            partition=at.partition,
            offset=committed,
        )
    return str(policy)
