"""One open instance: its clients, its tasks, its totals. `task_initialization.open_instance` creates it, `poll_loop` runs it,
`instance_cache` keeps it between epochs.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kstreams_repl.commit.at_least_once import commit_at_least_once
from kstreams_repl.commit.exactly_once import commit_exactly_once
from kstreams_repl.commit.protocol import OffsetAndMetadata
from kstreams_repl.errors import BrokerUnavailableError, KStreamsError
from kstreams_repl.instance.application_plan import ApplicationPlan
from kstreams_repl.instance.control.node_taps import TapBoard
from kstreams_repl.instance.failures.crash_watchdog import CrashWatch
from kstreams_repl.instance.metrics.instance_counters import InstanceCounters
from kstreams_repl.instance.state.global_tables import GlobalTables
from kstreams_repl.instance.state.snapshots import Snapshotter
from kstreams_repl.instance.state.standby_tasks import Spares, StandbyCopies
from kstreams_repl.instance.state.state_updater import StateUpdater
from kstreams_repl.instance.tasks.active_task import ActiveTask
from kstreams_repl.instance.tasks.consistent_cut import cut_of
from kstreams_repl.instance.tasks.record_collector import KafkaRecordCollector
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.group_offsets import known_end
from kstreams_repl.kafka.transactional import TransactionalProducer
from kstreams_repl.types import TaskId, TopicPartition

_LOG = logging.getLogger("kstreams_repl.instance")
_REFRESH_SECONDS = 24 * 3600.0
"""Interval of offset commits without activity. The broker deletes an offset that was committed under ``assign()``
``offsets.retention.minutes`` (7 days) after its last commit, even while the consumer reads: a day leaves room for some days at
rest, and for brokers with a shorter retention.
"""
_FIRST_REFRESH_SECONDS = 60.0
"""Delay of the first such commit after a take-over, when the age of offsets is unknown and they may be about to expire. It is not
immediate: most starts bring records, or end soon.
"""


def wall_clock() -> int:
    """Return the current time in ms since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Totals:
    """The totals of an instance since its take-over.

    Attributes:
        first_at, committed_at: when it began to process its first records, and when it last committed any (seconds since 1970).
    """

    records: int = 0
    commits: int = 0
    produced: int = 0
    first_at: float | None = None
    committed_at: float | None = None
    started: float = field(default_factory=time.monotonic)


class Instance:
    """Clients and tasks of one slot. Not thread-safe. After any error except a user's it may only be closed."""

    def __init__(
        self,
        plan: ApplicationPlan,
        slot: int,
        *,
        admin: Admin,
        consumer: Any,
        producer: Any,
        fence: TransactionalProducer,
        collector: KafkaRecordCollector,
    ) -> None:
        self.plan = plan
        self.slot = slot
        self.admin = admin
        self.consumer = consumer
        self.producer = producer
        self.fence = fence
        """The producer that holds the instance's transactional id. Under exactly once it sends everything; under at least once it
        only commits offsets, because the broker then rejects a zombie that wakes up before its commit.
        """
        self.transactions = fence if plan.config.exactly_once else None
        self.collector = collector
        self.tasks: list[ActiveTask] = []
        self.by_partition: dict[TopicPartition, ActiveTask] = {}
        self.updater: StateUpdater | None = None
        """Holds the tasks whose stores are not up to date yet; None: all are RUNNING."""
        self.ends: dict[TopicPartition, int] = {}
        """Where the consumer last met the end of each partition, beyond any transaction markers."""
        self.reached: dict[TopicPartition, int] = {}
        """Next offset to be taken from the consumer, for inputs of tasks with more than one partition."""
        self.stable: dict[TopicPartition, tuple[int, int]] = {}
        """(offset, end of the log as of then) where no more records are readable, because those that follow are of an open
        transaction.
        """
        self.globals: GlobalTables | None = None
        self.standbys: StandbyCopies | None = None
        self.snapshotter: Snapshotter | None = None
        self.snapshot_trouble: str | None = None
        """Why snapshots could not be read at the take-over."""
        self.from_snapshots: dict[str, int] = {}
        """Tasks whose stores began from a snapshot, with the snapshot's commit id."""
        self.restored = 0
        """Changelog records read at the take-over."""
        self.recycled = 0
        """Number of environments that were already open in this process."""
        self.totals = Totals()
        self.counters = InstanceCounters()
        self.meter: Any = None
        """Converts the counters to metrics (`instance.metrics.instance_metrics`)."""
        self.executor = "driver"
        """Executor whose directory holds the tasks' local state."""
        self.closed = False
        self.stores_busy = False
        """Whether the instance's processing threads use the stores, so that no other thread may read them."""
        self.commit_id = 0
        self.topic_ids: Mapping[str, str] = {}
        """The broker's ids of changelogs and inputs, as of the take-over."""
        self.last_commit = time.monotonic()
        self.changelog_ends: dict[TopicPartition, int] = {}
        self.group = consumer.consumer_group_metadata()
        self.warm = False
        self.watch: CrashWatch | None = None
        """Knows the crashes of previous processes; None: this process is not dedicated to the instance."""
        self.taps: TapBoard | None = None
        """Clients' taps; they stay with the instance from epoch to epoch."""
        self.refresh_at = math.inf
        """When (monotonic) to commit offsets again without activity: see `refresh`."""
        self._purge_seconds = plan.config["repartition.purge.interval.ms"] / 1000
        self._next_purge = self.last_commit + self._purge_seconds
        self._waited = 0.0

    # ---- commit

    def begin(self) -> None:
        """Open a transaction; nothing reaches the broker before the first record."""
        if self.transactions is not None:
            self.transactions.begin()

    @property
    def touched(self) -> bool:
        """Whether any task had activity since the last commit."""
        return any(task.touched for task in self.tasks)

    def refresh_soon(self) -> None:
        """Schedule a refresh for a new task: its offsets may have been committed days ago."""
        self.refresh_at = min(self.refresh_at, time.monotonic() + _FIRST_REFRESH_SECONDS)

    def refresh(self, now: float) -> None:
        """Include every task, also idle ones, in the next commit, so that the group's offsets do not expire.

        It is an ordinary, fenced commit; one more a day costs less than finding out which tasks need it.
        """
        self.refresh_at = now + _REFRESH_SECONDS
        for task in self.tasks:
            task.touched = True

    def commit(self, *, more: bool = False) -> bool:
        """Commit every task that had activity; return False when none had.

        Args:
            more: more records are waiting, so local stores may write several commits together (`ActiveTask.may_wait`), all tasks'
                stores after the same commit (`instance.tasks.consistent_cut`).
        """
        tasks = [task for task in self.tasks if task.touched]
        wait = more and all(task.may_wait() for task in self.tasks if task.touched or not task.settled)
        for task in tasks:
            task.wait = wait
        began = self.last_commit = time.monotonic()
        if not tasks:
            return False
        commit_id = self.commit_id + 1
        self._note(commit_id)
        if self.transactions is not None:
            self.transactions.begin()
            commit_exactly_once(tasks, commit_id, producer=self.transactions, output=self.collector, group=self.group)
        else:
            commit_at_least_once(
                tasks,
                commit_id,
                flush=self._flush,
                output=self.collector,
                commit_offsets=self._commit_offsets,
                changelog_ends=self._changelog_ends,
            )
        self.commit_id = commit_id
        if not wait:  # all local stores hold this commit, or none does
            self.settle()
            for task in self.tasks:
                task.rest()
        self.collector.refusals.committed()
        _LOG.debug("commit %d of %d tasks: %.1f ms", commit_id, len(tasks), (time.monotonic() - began) * 1000)
        self.totals.commits += 1
        self.totals.committed_at = time.time()
        self.last_commit = time.monotonic()
        self.counters.commit.add(self.last_commit - began)
        if self.last_commit >= self._next_purge:
            self._next_purge = self.last_commit + self._purge_seconds
            self._purge()
        return True

    @property
    def settled(self) -> bool:
        """Whether all local stores hold the last commit."""
        return all(task.settled for task in self.tasks)

    def settle(self) -> None:
        """Write postponed commits to the local stores of tasks without activity since."""
        tasks = [task for task in self.tasks if not task.settled and not task.touched]
        if not tasks:
            return
        self._note(None)
        for task in tasks:
            task.wait = False
        positions = {} if self.transactions is not None else self._changelog_ends(tasks)
        for task in tasks:
            task.settle(positions)

    def _note(self, commit_id: int | None) -> None:
        """Give each task the note for its stores' next commit: the commit of every task's stores at that time.

        Args:
            commit_id: the commit in progress, in which touched tasks take part.
        """
        by_token: dict[str, dict[str, int]] = {}
        held = [task for task in self.tasks if task.on_disk]
        for task in held:
            known = by_token.setdefault(task.token, {})
            known[str(task.id)] = commit_id if commit_id is not None and task.touched else task.commit_id
        notes = {token: cut_of(token, commits) for token, commits in by_token.items()}
        for task in held:
            task.cut = notes[task.token]

    def _purge(self) -> None:
        """Delete records that every commit has passed from repartition topics, and records that stream time has expired from
        changelogs of windows; neither has a retention of its own.
        """
        passed = {
            at: offset for task in self.tasks for at, offset in task.committed.items() if task.is_internal(at) and offset > 0
        }
        expired = {at: floor for task in self.tasks for at, floor in task.floors.deletable.items()}
        try:
            self.admin.delete_records(passed | expired)
            for task in self.tasks:
                task.floors.deleted(expired)
        except KStreamsError as error:  # it is repeated later
            _LOG.info("internal topics were not purged: %s", error)

    @property
    def waited(self) -> float:
        """Seconds spent waiting for the broker in commits."""
        return self._waited + self.fence.waited

    def _flush(self) -> None:
        began = time.monotonic()
        while self.producer.flush(0.5):
            self.collector.check()
            if time.monotonic() > began + 30:
                raise BrokerUnavailableError(
                    "records were not acknowledged within 30 s", bootstrap_servers=self.plan.settings.bootstrap_servers
                )
        self._waited += time.monotonic() - began

    def _commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.fence.begin()
        self.fence.send_offsets(offsets, self.group)
        self.fence.commit()

    def _changelog_ends(self, tasks: Any) -> Mapping[TopicPartition, int]:
        wanted = [at for task in tasks if not task.wait for at in task.logged]
        return self.admin.end_offsets(wanted, isolation="read_uncommitted") if wanted else {}

    # ---- end

    def close(self) -> None:
        """Close all clients and stores; a successor processes uncommitted input again."""
        beside = (self.snapshotter, self.standbys, self.updater)
        self._close([*(each.close for each in beside if each is not None), *(task.close for task in self.tasks)])

    def give_up(self) -> Spares:
        """Close all but the environments of tasks and standby copies, which stay open for the next generation in this process;
        return them.
        """
        restoring = [] if self.updater is None else self.updater.release()
        if self.snapshotter is not None:
            self.snapshotter.close()
        spares = {} if self.standbys is None else self.standbys.release()
        for environment in (*restoring, *(task.environment for task in self.tasks)):
            if environment.path is not None and getattr(environment, "failed", None) is None:
                spares[environment.path] = environment
        keep = {id(environment) for environment in spares.values()}
        for environment in restoring:
            if id(environment) not in keep:
                with suppress(KStreamsError):
                    environment.close()
        try:
            self._close([partial(task.close, keep=id(task.environment) in keep) for task in self.tasks])
        except Exception as error:  # its clients are fenced by now; only the environments are needed
            _LOG.info("was not closed in order: %s", error)
        return spares

    def _close(self, steps: list[Callable[[], object]]) -> None:
        self.closed = True
        self.counters.closed += len(self.tasks)
        if self.globals is not None:
            steps.append(self.globals.close)
        if self.watch is not None:
            steps.append(self.watch.close)
        steps.append(self.consumer.close)
        steps.append(self.fence.close)
        if self.transactions is None:
            steps.append(self._close_plain)
        errors: list[Exception] = []
        for step in steps:
            try:
                step()
            except Exception as error:  # every client and environment must be closed; the first error is raised below
                errors.append(error)
        self.tasks = []
        if errors:
            raise errors[0]

    def _close_plain(self) -> None:
        self.producer.purge()
        self.producer.close(0)

    # ---- reading

    def lags(self) -> dict[TaskId, int]:
        """Return records behind the end of the log, of all partitions of a task; -1 if that of one is unknown."""
        known = self.partition_lags()
        by_task = {task.id: [known[at] for at in task.committed] for task in self.tasks}
        return {task: -1 if -1 in lags else sum(lags) for task, lags in by_task.items()}

    def partition_lags(self) -> dict[TopicPartition, int]:
        """Return records behind the end of the log as of the last fetch; -1 while unknown. Transaction markers at the end do not
        count as lag, nor do records that a join has found to belong to an open transaction.
        """
        lags = {}
        for task in self.tasks:
            for at, offset in task.committed.items():
                end = known_end(self.consumer, at)
                if not task.task.buffered:
                    offset = max(offset, self.ends.get(at, 0))
                if self.stable.get(at) == (offset, end):  # the rest belongs to an open transaction
                    lags[at] = 0
                else:
                    lags[at] = -1 if end is None else max(0, end - offset)
        return lags
