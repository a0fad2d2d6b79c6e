"""One open instance: everything that is open for one slot, and its end.

The parts: `clients` (Kafka), `tasks` with their environments, `committer` (when and how they commit), `input` (how far partitions
are read), `counters`, and what serves the tasks concurrently: global tables, the state updater, standby tasks, the snapshotter,
the crash watchdog. `task_initialization.open_instance` creates it, the poll loop runs it, `instance_cache` keeps it between
epochs. Its states are in `lifecycle.InstanceState`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.node_taps import TapBoard
from kstreams_repl.host.instance.control.retry_orders import RetryBoard
from kstreams_repl.host.instance.epochs.lifecycle import InstanceLifecycle, InstanceState
from kstreams_repl.host.instance.epochs.task_pool import TaskPool
from kstreams_repl.host.instance.failures.crash_watchdog import CrashWatchdog
from kstreams_repl.host.instance.instance_clients import InstanceClients
from kstreams_repl.host.instance.polling.alignment import Alignment
from kstreams_repl.host.instance.polling.committer import Committer
from kstreams_repl.host.instance.polling.followed_input import followed_input
from kstreams_repl.host.instance.polling.input_bounds import InputBounds
from kstreams_repl.host.instance.polling.input_positions import InputPositions
from kstreams_repl.host.instance.polling.table_completion import TableCompletion
from kstreams_repl.host.instance.polling.window_closing import WindowClosing
from kstreams_repl.host.instance.reports.instance_counters import InstanceCounters
from kstreams_repl.host.instance.state.global_tables import GlobalTables
from kstreams_repl.host.instance.state.snapshots import Snapshotter
from kstreams_repl.host.instance.state.standby_tasks import StandbyTasks
from kstreams_repl.host.instance.state.state_manager import OpenEnvironments
from kstreams_repl.host.instance.state.state_updater import StateUpdater
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.host.instance.tasks.record_collector import KafkaRecordCollector
from kstreams_repl.host.telemetry import tracer_of
from kstreams_repl.system.errors import KStreamsError

if TYPE_CHECKING:
    from kstreams_repl.host.instance.calls.call_runner import InstanceCallRunner

_LOG = logging.getLogger("kstreams_repl.host.instance")


def wall_clock() -> int:
    """Return the current time in ms since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class TakeOver:
    """What the take-over of an instance found and did.

    Attributes:
        topic_ids: the broker's ids of changelogs and inputs.
        restored: changelog records read.
        recycled: number of environments that were already open in this process.
        from_snapshots: tasks whose stores began from a snapshot, with the snapshot's commit id.
        snapshot_error: why snapshots could not be read.
        skipped: by input partition, the number of offsets that were deleted from the topic before they were read.
    """

    topic_ids: Mapping[str, str] = field(default_factory=dict)
    restored: int = 0
    recycled: int = 0
    from_snapshots: dict[str, int] = field(default_factory=dict)
    snapshot_error: str | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)


class Instance:
    """Clients and tasks of one slot. Not thread-safe. After any error except a user's it may only be closed.

    Attributes:
        alignment: keeps tasks together in event time; None: no operator needs it.
        bounds: where the input ends; None: the application runs as a stream.
        followed: the same if it ends, for now, where another application has committed; else None.
        closing: closes windows at the end of a bounded run; None: they stay open.
        executor: executor whose directory holds the tasks' local state.
        updater: holds the tasks whose stores are not up to date yet; None: all are RUNNING.
        watchdog: detects crashes of user code; None: this process is not dedicated to the instance.
        calls: runs the functions of asynchronous nodes; None: no task has such a node.
        taps: clients' taps; they stay with the instance from epoch to epoch.
        retries: clients' orders about records that wait for another try.
        metrics: converts the counters to metrics (`host.instance.metrics.instance_metrics`).
        stores_busy: whether processing threads use the stores, so that no other thread may read them.
        warm: whether it continues from an earlier epoch.
    """

    def __init__(
        self, plan: ApplicationPlan, slot: int, clients: InstanceClients, collector: KafkaRecordCollector, executor: str = "driver"
    ) -> None:
        self.plan = plan
        self.slot = slot
        self.executor = executor
        self.life = InstanceLifecycle(f"{plan.application_id}[{slot}]")
        self.clients = clients
        self.collector = collector
        self.counters = InstanceCounters()
        self.tasks: list[ActiveTask] = []
        self.committer = Committer(self.tasks, clients, collector, self.counters, plan.config)
        self.followed = followed_input(plan, slot, clients)
        self.bounds = self.followed if plan.stops is None else InputBounds(plan.stops, clients)
        self.closing = None if plan.closes is None else WindowClosing(plan, plan.closes, clients.admin, self.tasks)
        self.table_completion = None if plan.stops is None else TableCompletion(plan, clients.admin, collector.tables)
        self.input = InputPositions(clients, self.tasks, plan.isolation, self.bounds)
        rules = plan.alignment
        self.alignment = Alignment(rules, self.input, plan.instances) if rules else None
        self.take_over = TakeOver()
        self.globals: GlobalTables | None = None
        self.updater: StateUpdater | None = None
        self.standbys: StandbyTasks | None = None
        self.snapshotter: Snapshotter | None = None
        self.watchdog: CrashWatchdog | None = None
        self.taps: TapBoard | None = None
        self.retries: RetryBoard | None = None
        self.calls: InstanceCallRunner | None = None
        self.pool: TaskPool | None = None
        self.tracer = tracer_of(plan.config, plan.application_id)
        self.metrics: Any = None
        self.stores_busy = False
        self.warm = False

    def call_runner(self) -> InstanceCallRunner:
        """Return the instance's call runner; started at the first call."""
        if self.calls is None:
            from kstreams_repl.host.instance.calls.call_runner import InstanceCallRunner  # brings asyncio
            from kstreams_repl.host.kafka.followed_results import FollowedResultLog
            from kstreams_repl.host.kafka.result_log import BrokerResultLog

            name, settings, admin = f"{self.plan.application_id}-{self.slot}", self.plan.settings, self.clients.admin
            followed = self.followed
            log = BrokerResultLog(settings, admin, name) if followed is None else FollowedResultLog(settings, admin, name, followed.results)
            self.calls = InstanceCallRunner(name, log)
        return self.calls

    def task_pool(self) -> TaskPool:
        """Return the threads on which functions of the tasks run; started with the first function."""
        if self.pool is None:
            self.pool = TaskPool(f"task-{self.plan.application_id}-{self.slot}", self.plan.config.thread_groups[self.slot])
        return self.pool

    def add(self, task: ActiveTask) -> None:
        """Add a running task."""
        self.tasks.append(task)
        self.input.assign(task)
        if self.bounds is not None:
            self.bounds.assign(task)
        if self.alignment is not None:
            self.alignment.add(task)

    # ---- states

    def run(self, why: str) -> None:
        """Enter RUNNING, or RESTORING while the state updater holds tasks."""
        self.life.enter(InstanceState.RUNNING if self.updater is None else InstanceState.RESTORING, why)

    def rest(self) -> None:
        """Suspend the restore and enter IDLE. Call at a commit."""
        if self.updater is not None:
            self.updater.rest()
        self.life.enter(InstanceState.IDLE, "kept between epochs")

    def resume(self) -> None:
        """Continue after `rest`."""
        self.warm = True
        self.run("taken from the instance cache")
        if self.updater is not None:
            self.updater.start()

    # ---- end

    def close(self) -> None:
        """Close all clients and stores; a successor processes uncommitted input again."""
        helpers = (self.snapshotter, self.standbys, self.updater)
        self._close([*(helper.close for helper in helpers if helper is not None), *(task.close for task in self.tasks)])

    def hand_over(self) -> OpenEnvironments:
        """Close all but the environments of tasks and standby tasks, which stay open for the next generation in this process;
        return them.
        """
        restoring = [] if self.updater is None else self.updater.release()
        if self.snapshotter is not None:
            self.snapshotter.close()
        kept = {} if self.standbys is None else self.standbys.release()
        for environment in (*restoring, *(task.environment for task in self.tasks)):
            if environment.path is not None and getattr(environment, "failed", None) is None:
                kept[environment.path] = environment
        keep = {id(environment) for environment in kept.values()}
        for environment in restoring:
            if id(environment) not in keep:
                with suppress(KStreamsError):
                    environment.close()
        try:
            self._close([partial(task.close, keep=id(task.environment) in keep) for task in self.tasks])
        except Exception as error:  # its clients are fenced by now; only the environments are needed
            _LOG.info("closing a superseded instance failed: %s", error)
        return kept

    def _close(self, steps: list[Callable[[], object]]) -> None:
        if self.life.state is not InstanceState.CLOSED:
            self.life.enter(InstanceState.CLOSED, "closed")
        self.counters.closed += len(self.tasks)
        parts = (self.globals, self.watchdog, self.collector.tables, self.pool, self.tracer, self.followed)
        steps += [part.close for part in parts if part is not None]
        if self.calls is not None:
            steps.insert(0, self.calls.close)
        errors: list[Exception] = []
        for step in (*steps, *self.clients.closers()):
            try:
                step()
            except Exception as error:  # every client and environment must be closed; the first error is raised below
                errors.append(error)
        self.tasks.clear()
        if errors:
            raise errors[0]
