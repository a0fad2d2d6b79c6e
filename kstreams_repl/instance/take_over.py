"""The take-over: how an instance comes to own its tasks. Numbered as in docs/design/010-host.md.

1. The driver has raised the generation and fenced every transactional id of earlier generations (`fence_instances`); this
   instance checks that its
   generation is still the one in force.
2. `init_transactions` on its own id, then the generation again: a zombie that comes between is seen by one of the two looks.
3. The owner token of each environment.
4. Committed offsets and their metadata. A missing offset is never reset for a store that has content.
5. Restore up to the read_uncommitted end as it is after step 2. What takes longer than a moment goes on in the restore thread
   (`state_updater`), beside the tasks that are ready.
6. RUNNING; for a task that was restored meanwhile later, at a commit (`admission.admit`).
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
from kstreams_repl.instance.admission import Start, snapshotter_of, start_task, taken_over
from kstreams_repl.instance.collector import KafkaRecordCollector, counts_of
from kstreams_repl.instance.crash_watch import CrashWatch
from kstreams_repl.instance.forgotten_inputs import refuse_forgotten_inputs
from kstreams_repl.instance.global_tables import GlobalTables
from kstreams_repl.instance.instance import Instance, wall_clock
from kstreams_repl.instance.local_state import (
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
from kstreams_repl.instance.plan import ApplicationPlan, transactional_id
from kstreams_repl.instance.refusals import Refusals, producer_settings
from kstreams_repl.instance.restore import Restore, RestoreProgress
from kstreams_repl.instance.snapshot_directory import snapshot_directory
from kstreams_repl.instance.snapshots import fetch_snapshot, why_refused
from kstreams_repl.instance.standby import Spares, StandbyCopies
from kstreams_repl.instance.state_directory import task_directory
from kstreams_repl.instance.state_updater import StateUpdater
from kstreams_repl.kafka.admin import Admin, CommittedOffset
from kstreams_repl.kafka.clients import ClientSettings, make_consumer, make_producer
from kstreams_repl.kafka.group_offsets import assign
from kstreams_repl.kafka.transactional import TransactionalProducer
from kstreams_repl.runtime.task import TaskSpec
from kstreams_repl.stores.engine.base import Environment
from kstreams_repl.topology.nodes import SourceNode
from kstreams_repl.types import TopicPartition

_LOG = logging.getLogger("kstreams_repl.instance")
_MOMENT_SECONDS = 0.2
"""How long the tasks that are ready wait for the others: most restores are shorter."""


class Interrupted(KStreamsError):
    """A signal came during the take-over; nothing is owned."""


def fence_instances(settings: ClientSettings, application_id: str, slots: Iterable[int], *, timeout_ms: int) -> None:
    """Step 2 for instances of earlier generations: nothing they still have open can commit after this.

    A zombie with another id would otherwise commit beside its successor, for the broker fences per id only.
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
    """Take the slot's tasks over and return them running.

    Args:
        go_on: as `in_force`, but may be a few milliseconds old; asked again and again while stores are restored.
        spares: environments that this process has open from a former generation; those that are not used are closed.
        stage: told each step as it begins, so that one that does not end can be seen.
        refusals: what the slot knows of output that the broker refused; it outlives the instance.
        watch: is told when user code runs.
        beside: return the tasks that are ready after a moment, while the stores of the others are brought up to date by a thread;
            whoever runs the instance admits them (`admission.admit`).

    Raises:
        TaskMigratedError: a newer generation is in force.
        Interrupted: the application is to pause or stop.
        TaskCorruptedError: offsets or changelog do not fit the local store and cannot be made to.
    """
    config = plan.config
    exactly_once = config.exactly_once
    refusals = refusals or Refusals()
    spare = {} if spares is None else spares
    with ExitStack() as undo, closing_all(spare):
        # 1. Still the generation in force?
        _check(in_force, plan)
        admin = Admin(plan.settings)
        sending = producer_settings(plan, admin, refusals)
        # 2. Fence older holders of this id, under at least once too: it is what stops one on another host.
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
        instance.watch = watch
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
        # 4. Where input begins.
        stage("reading committed offsets")
        starts = _starts(plan, specs, environments, admin)
        # 5. Bring the stores up to date.
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
            isolation=plan.isolation,
        )
        undo.callback(_quietly(restore.close))
        until = time.monotonic() + _MOMENT_SECONDS if beside else None
        if not restore.run(in_force if go_on is None else go_on, told, until=until):
            raise Interrupted("stopped while stores were restored")
        # 6. Running. Commit ids go on from the highest of all, of those that are still restored, too.
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
        return instance


@contextmanager
def closing_all(spares: Spares) -> Iterator[None]:
    """Whatever is left in it at the end is closed."""
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
    """Cleaning up after an error must not hide it."""

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
    elif refusals.careful:  # every record reports for itself
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
    """Step 3: open and own each task's environment; one that does not fit its changelogs begins anew."""
    logs = [log for spec in specs for log in changelogs_of(spec)]
    partitions = {log.partition for log in logs}
    firsts = admin.beginning_offsets(partitions)
    ends = admin.end_offsets(partitions, isolation="read_uncommitted")
    topic_ids = topic_ids_of(admin, logs, (at for spec in specs for at in spec.partitions))
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
            _LOG.warning("task %s is rebuilt from its changelogs: %s", spec.task_id, why)
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
    """The environment from the newest snapshot that fits the changelogs; the empty one when there is none."""
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
    except (OSError, SnapshotError) as error:  # the changelog has it all
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
            offset = first[at] if _reset(plan, spec, at) == "earliest" else _latest(plan, at, last[at], admin)
            starts[at] = Start(offset, OffsetMetadata(), reset=anew)
    return starts


def _kept(environment: Environment, at: TopicPartition) -> CommittedOffset | None:
    """The input offset in the store's own commit: group offsets expire, the store's do not."""
    offset = environment.positions.get(f"{INPUT}{at}", -1)
    return None if offset < 0 else CommittedOffset(offset)


def _is_new(environment: Environment, at: TopicPartition) -> bool:
    """Whether the task's last commit knew its inputs and this one was not among them: it was added since, or made anew."""
    known = {name: offset for name, offset in environment.positions.items() if name.startswith(INPUT)}
    return bool(known) and known.get(f"{INPUT}{at}", MADE_ANEW) == MADE_ANEW


def _may_skip(spec: TaskSpec, at: TopicPartition) -> bool:
    """Repartition topics are purged up to the committed offset; skipping what is gone there loses nothing."""
    return (
        at.topic.startswith(f"{spec.application_id}-")
        and at.topic.removeprefix(f"{spec.application_id}-") in spec.internal_topics
    )


def _latest(plan: ApplicationPlan, at: TopicPartition, last: int, admin: Admin) -> int:
    """Where what comes from now on begins: exactly once that is before what open transactions hold, which nobody could read yet."""
    return admin.end_offsets([at], isolation="read_committed")[at] if plan.config.exactly_once else last


def _other_offset(
    plan: ApplicationPlan, spec: TaskSpec, at: TopicPartition, committed: int, first: int, last: int, admin: Admin
) -> int:
    """Where to go on when the broker has the committed offset no more, as the source's reset policy says; it is logged."""
    policy = _reset(plan, spec, at, committed, first, last)
    offset = first if policy == "earliest" else _latest(plan, at, last, admin)
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
