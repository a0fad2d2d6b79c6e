"""The take-over: how an instance comes to own its tasks. Steps are numbered as in docs/design/010-host.md.

1. The driver has raised the generation and fenced every transactional id of earlier generations (`fence_instances`); this
   instance checks that its generation is still in force.
2. `init_transactions` on its own id, then the generation again: one of the two checks detects a zombie that comes between.
3. Write the owner token of each environment (`store_ownership`).
4. Read committed offsets and their metadata (`start_offsets`). A missing offset is never reset for a store that has content.
5. Restore up to the read_uncommitted end as it is after step 2. Longer restores continue in the restore thread (`state_updater`)
   while the tasks that are ready run.
6. RUNNING; for a task restored in the meantime later, at a commit (`task_activation.activate_restored`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from kstreams_repl.host.instance.application_plan import ApplicationPlan, transactional_id
from kstreams_repl.host.instance.failures.crash_watchdog import CrashWatchdog
from kstreams_repl.host.instance.failures.rejected_records import RejectedRecords, producer_settings
from kstreams_repl.host.instance.initialization.start_offsets import start_offsets
from kstreams_repl.host.instance.initialization.store_ownership import own_stores, quietly
from kstreams_repl.host.instance.initialization.task_activation import restoring_task, snapshotter_of, start_task
from kstreams_repl.host.instance.instance import Instance, wall_clock
from kstreams_repl.host.instance.instance_clients import InstanceClients
from kstreams_repl.host.instance.state.changelog_reader import ChangelogReader, RestoreProgress
from kstreams_repl.host.instance.state.changelog_retention import floors_of
from kstreams_repl.host.instance.state.global_tables import GlobalTables
from kstreams_repl.host.instance.state.owner_token import owner_token
from kstreams_repl.host.instance.state.standby_tasks import StandbyTasks
from kstreams_repl.host.instance.state.state_manager import InForce, OpenEnvironments
from kstreams_repl.host.instance.state.state_updater import StateUpdater
from kstreams_repl.host.instance.tasks.record_collector import KafkaRecordCollector, counts_of
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_consumer, make_producer
from kstreams_repl.host.kafka.group_offsets import assign
from kstreams_repl.host.kafka.transactional import TransactionalProducer
from kstreams_repl.system.errors import KStreamsError, TaskMigratedError
from kstreams_repl.system.types import TopicPartition
from kstreams_repl.table_files.instance_tables import InstanceTables

_LOG = logging.getLogger("kstreams_repl.host.instance")
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
    rejected: RejectedRecords | None = None,
    go_on: Callable[[], bool] | None = None,
    opened: OpenEnvironments | None = None,
    watchdog: CrashWatchdog | None = None,
    in_background: bool = False,
) -> Instance:
    """Take over the slot's tasks and return them running.

    Args:
        go_on: like `in_force`, but its answer may be a few milliseconds old; called repeatedly while stores are restored.
        opened: environments that this process has open from a former generation; unused ones are closed.
        stage: called with the name of each step as it begins, so that a step that does not end can be identified.
        rejected: the slot's known records that the broker rejected; it outlives the instance.
        watchdog: notified when user code runs.
        in_background: return the ready tasks after `_MOMENT_SECONDS` and restore the stores of the others in a thread; the caller
            must activate them (`task_activation.activate_restored`).

    Raises:
        TaskMigratedError: a newer generation is in force.
        Interrupted: the application is to pause or stop.
        TaskCorruptedError: offsets or changelog do not fit the local store and this cannot be repaired.
    """
    config = plan.config
    rejected = rejected or RejectedRecords()
    environments_open = {} if opened is None else opened
    with ExitStack() as undo, closing_all(environments_open):
        # 1. Check that the generation is still in force.
        _check(in_force, plan)
        admin = Admin(plan.settings)
        sending = producer_settings(plan, admin, rejected)
        # 2. Fence older holders of this id, under at least once too: this stops a holder on another host.
        stage("fencing older holders")
        transactions = TransactionalProducer(
            plan.settings,
            plan.transactional_id(slot),
            timeout_ms=config["transaction.timeout.ms"],
            **sending if config.exactly_once else {},
        )
        undo.callback(transactions.close)
        transactions.initialise()
        _check(in_force, plan)
        instance = Instance(plan, slot, *_open_clients(plan, slot, admin, transactions, rejected, sending), executor)
        instance.watchdog = watchdog
        if watchdog is not None:
            watchdog.arm()
        undo.pop_all()
        undo.callback(quietly(instance.close))
        if plan.global_subtopologies:
            stage("loading global tables")
            instance.globals = GlobalTables(plan, admin, wall_clock=wall_clock)
            if not instance.globals.load(in_force):
                raise Interrupted("stopped while a global table was loaded")
        specs = plan.assignment[slot]
        # 3. Own the stores.
        stage("opening the stores")
        token = owner_token(plan.generation, slot)
        open_before = len(environments_open)
        environments, logs = own_stores(instance, specs, undo, token, environments_open, in_force)
        instance.take_over.recycled = open_before - len(environments_open)
        # 4. Find where input begins.
        stage("reading committed offsets")
        starts = start_offsets(plan, specs, environments, admin)
        instance.take_over.skipped = {str(at): start.skipped for at, start in starts.items() if start.skipped}
        # 5. Restore the stores.
        stage("restoring stores")
        floors: dict[TopicPartition, int] = {}
        for spec in specs:
            own_logs = [log for log in logs if log.task == spec.task_id]
            floors |= floors_of(own_logs, [starts[partition].metadata for partition in spec.partitions], instance.take_over.topic_ids)
        reader = ChangelogReader(
            plan.settings,
            admin,
            [(environments[str(log.task)], log) for log in logs],
            limits={partition: start.offset for partition, start in starts.items()},
            floors=floors,
            isolation=plan.isolation,
        )
        undo.callback(quietly(reader.close))

        def report(restored: RestoreProgress) -> None:
            instance.take_over.restored = restored.records
            if progress is not None:
                progress(restored)

        until = time.monotonic() + _MOMENT_SECONDS if in_background else None
        if not reader.run(in_force if go_on is None else go_on, report, until=until):
            raise Interrupted("stopped while stores were restored")
        # 6. RUNNING. Commit ids continue from the highest of all tasks, including those still being restored.
        committed = [start.metadata.commit_id for start in starts.values()]
        instance.committer.commit_id = max([0, *committed, *(environment.commit_id for environment in environments.values())])
        tasks = [restoring_task(spec, environments[str(spec.task_id)], starts, token) for spec in specs]
        lacking = reader.lacking
        for task in tasks:
            if str(task.spec.task_id) not in lacking:
                instance.add(start_task(instance, task))
        assign(instance.clients.consumer, {partition: task.starts[partition] for partition, task in instance.input.by_partition.items()})
        if lacking:
            still = [task for task in tasks if str(task.spec.task_id) in lacking]
            instance.updater = StateUpdater(f"{plan.application_id}-{slot}", reader, still)
        if slot < len(plan.standbys) and plan.standbys[slot]:
            instance.standbys = StandbyTasks(plan, slot, executor, environments_open).start()
        instance.snapshotter = snapshotter_of(instance)
        if instance.updater is not None:
            instance.updater.start()
        instance.run(f"generation {plan.generation}")
        undo.pop_all()
        names = ", ".join(str(spec.task_id) for spec in specs) or "no tasks"
        _LOG.info(
            "assigned %s; %d records restored, %d tasks still restoring; commit %d, generation %d",
            names, instance.take_over.restored, len(lacking), instance.committer.commit_id, plan.generation,
        )  # fmt: skip
        return instance


@contextmanager
def closing_all(environments: OpenEnvironments) -> Iterator[None]:
    """Close every environment that remains in `environments` at the end."""
    try:
        yield
    finally:
        for environment in environments.values():
            with suppress(KStreamsError):
                environment.close()
        environments.clear()


def _check(in_force: InForce, plan: ApplicationPlan) -> None:
    if not in_force():
        raise TaskMigratedError(f"generation {plan.generation} of {plan.application_id} is superseded by a newer one")


def _open_clients(
    plan: ApplicationPlan,
    slot: int,
    admin: Admin,
    transactions: TransactionalProducer,
    rejected: RejectedRecords,
    sending: Mapping[str, Any],
) -> tuple[InstanceClients, KafkaRecordCollector]:
    collectors: list[KafkaRecordCollector] = []
    if plan.config.exactly_once:
        producer = transactions.client
    elif rejected.careful:  # every record has a delivery callback
        producer = make_producer(plan.settings, **sending)
    else:
        producer = make_producer(
            plan.settings, on_delivery_error=lambda error, message: collectors[0].delivery_failed(error, message), **sending
        )
    collector = KafkaRecordCollector(
        producer,
        count=counts_of(plan.partition_counts, admin.partitions),
        changelogs=plan.changelogs(),
        track=plan.config.exactly_once,
        rejected=rejected,
        tables=InstanceTables(plan.application_id),
    )
    collectors.append(collector)
    consumer = make_consumer(
        plan.settings,
        group_id=plan.application_id,
        isolation=plan.isolation,
        role="main",
        enable_partition_eof=plan.stops is not None
        or any(len(spec.partitions) > 1 for spec in plan.assignment[slot])
        or bool(plan.alignment),
    )
    return InstanceClients(plan, admin=admin, consumer=consumer, producer=producer, fence=transactions), collector
