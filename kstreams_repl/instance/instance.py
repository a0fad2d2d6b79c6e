"""One open instance: its clients, its tasks, what it has done. `take_over.open_instance` makes it, `loop` drives it, `warm`
keeps it between epochs.
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
from kstreams_repl.instance.active_task import ActiveTask
from kstreams_repl.instance.collector import KafkaRecordCollector
from kstreams_repl.instance.crash_watch import CrashWatch
from kstreams_repl.instance.cut import cut_of
from kstreams_repl.instance.global_tables import GlobalTables
from kstreams_repl.instance.instance_counters import InstanceCounters
from kstreams_repl.instance.plan import ApplicationPlan
from kstreams_repl.instance.snapshots import Snapshotter
from kstreams_repl.instance.standby import Spares, StandbyCopies
from kstreams_repl.instance.state_updater import StateUpdater
from kstreams_repl.instance.taps import TapBoard
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.group_offsets import known_end
from kstreams_repl.kafka.transactional import TransactionalProducer
from kstreams_repl.types import TaskId, TopicPartition

_LOG = logging.getLogger("kstreams_repl.instance")
_PURGE_SECONDS = 30.0
"""Kafka Streams' ``repartition.purge.interval.ms``."""
_REFRESH_SECONDS = 24 * 3600.0
"""The broker forgets an offset that was committed under ``assign()`` ``offsets.retention.minutes`` (7 days) after its last commit,
whoever reads on: a day leaves room for some days at rest, and for a broker that keeps them for less.
"""
_FIRST_REFRESH_SECONDS = 60.0
"""How old offsets are at a take-over nobody knows; they may be about to go. Not at once: most starts bring records, or are over soon."""


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Totals:
    """What an instance did since it was taken over.

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
    """Clients and tasks of one slot. Not thread-safe. After any error but a user's it may only be closed."""

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
        """Holds the instance's transactional id. Under exactly once it sends everything; under at least once it only commits
        offsets, because only so the broker refuses a zombie that wakes up before its commit.
        """
        self.transactions = fence if plan.config.exactly_once else None
        self.collector = collector
        self.tasks: list[ActiveTask] = []
        self.by_partition: dict[TopicPartition, ActiveTask] = {}
        self.updater: StateUpdater | None = None
        """Has the tasks whose stores are not up to date yet; None: all are RUNNING."""
        self.ends: dict[TopicPartition, int] = {}
        """Where the consumer last met the end of each partition, beyond any transaction markers."""
        self.reached: dict[TopicPartition, int] = {}
        """Up to where input has been taken off the consumer, of tasks with more than one partition."""
        self.stable: dict[TopicPartition, tuple[int, int]] = {}
        """Where nothing more can be read, for what follows is of an open transaction: that offset, and the log's end as of then."""
        self.globals: GlobalTables | None = None
        self.standbys: StandbyCopies | None = None
        self.snapshotter: Snapshotter | None = None
        self.snapshot_trouble: str | None = None
        """Why snapshots could not be read when the tasks were taken over."""
        self.from_snapshots: dict[str, int] = {}
        """Tasks whose stores began from a snapshot, and its commit id."""
        self.restored = 0
        """Changelog records read when the tasks were taken over."""
        self.recycled = 0
        """Environments that were open in this process already."""
        self.totals = Totals()
        self.counters = InstanceCounters()
        self.meter: Any = None
        """Makes metrics of the counters (`instance.meter`)."""
        self.closed = False
        self.stores_busy = False
        """Whether threads of its own are at work in the stores, so that nobody else may look into them."""
        self.commit_id = 0
        self.last_commit = time.monotonic()
        self.changelog_ends: dict[TopicPartition, int] = {}
        self.group = consumer.consumer_group_metadata()
        self.warm = False
        self.watch: CrashWatch | None = None
        """Knows what user code did to the processes before; None: this process is not the instance's own."""
        self.taps: TapBoard | None = None
        """What clients look at while it runs; it stays with the instance from epoch to epoch."""
        self.refresh_at = math.inf
        """When (monotonic) offsets are to be committed again though nothing happened: see `refresh`."""
        self._next_purge = self.last_commit + _PURGE_SECONDS
        self._waited = 0.0

    # ---- commit

    def begin(self) -> None:
        """Open a transaction; nothing reaches the broker before the first record."""
        if self.transactions is not None:
            self.transactions.begin()

    @property
    def touched(self) -> bool:
        return any(task.touched for task in self.tasks)

    def refresh_soon(self) -> None:
        """A task begins: its offsets may have been committed days ago."""
        self.refresh_at = min(self.refresh_at, time.monotonic() + _FIRST_REFRESH_SECONDS)

    def refresh(self, now: float) -> None:
        """Have every task take part in the next commit, also the idle ones, so that the group does not forget their offsets.

        It is a commit like any other, fenced like any other; one more a day costs less than to know who needs it.
        """
        self.refresh_at = now + _REFRESH_SECONDS
        for task in self.tasks:
            task.touched = True

    def commit(self, *, more: bool = False) -> bool:
        """Commit every task that did something; False when none did.

        Args:
            more: more records are waiting, so that local stores may take several commits together (`ActiveTask.may_wait`), those
                of all tasks at the same one (`instance.cut`).
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
        if not wait:  # all local stores are at this commit, or none
            self.settle()
            for task in self.tasks:
                task.rest()
        self.collector.refusals.committed()
        self.totals.commits += 1
        self.totals.committed_at = time.time()
        self.last_commit = time.monotonic()
        self.counters.commit.add(self.last_commit - began)
        if self.last_commit >= self._next_purge:
            self._next_purge = self.last_commit + _PURGE_SECONDS
            self._purge()
        return True

    @property
    def settled(self) -> bool:
        """Whether all local stores hold the last commit."""
        return all(task.settled for task in self.tasks)

    def settle(self) -> None:
        """Commit to the local stores what they were spared, in tasks that have done nothing since."""
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
        """Give each task what its stores note with the commit they take next: at which commits all of them are then.

        Args:
            commit_id: of the commit that touched tasks take part in now.
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
        """Delete from repartition topics what every commit has passed; they have no retention of their own."""
        passed = {
            at: offset for task in self.tasks for at, offset in task.committed.items() if task.is_internal(at) and offset > 0
        }
        try:
            self.admin.delete_records(passed)
        except KStreamsError as error:  # it is repeated in a while
            _LOG.info("repartition topics were not purged: %s", error)

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
        wanted = [at for task in tasks if not task.wait for at in task.changelogs]
        return self.admin.end_offsets(wanted, isolation="read_uncommitted") if wanted else {}

    # ---- end

    def close(self) -> None:
        """Let go of everything; what is not committed is taken back by whoever comes next."""
        beside = (self.snapshotter, self.standbys, self.updater)
        self._close([*(each.close for each in beside if each is not None), *(task.close for task in self.tasks)])

    def give_up(self) -> Spares:
        """`close`, but leave the environments open, of tasks and of standby copies, for the generation that comes next in this
        process.
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
        except Exception as error:  # its clients are fenced by now; the environments are what is wanted of it
            _LOG.info("instance %d of %s was not closed in order: %s", self.slot, self.plan.application_id, error)
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
            except Exception as error:  # every client and environment must be let go of; the first error is raised below
                errors.append(error)
        self.tasks = []
        if errors:
            raise errors[0]

    def _close_plain(self) -> None:
        self.producer.purge()
        self.producer.close(0)

    # ---- looks

    def lags(self) -> dict[TaskId, int]:
        """Records behind the end of the log as of the last fetch; -1 while unknown. Transaction markers at the end are no
        lag, nor is what a join has found to be in an open transaction.
        """
        lags = {}
        for task in self.tasks:
            lag = 0
            for at, offset in task.committed.items():
                end = known_end(self.consumer, at)
                if not task.task.buffered:
                    offset = max(offset, self.ends.get(at, 0))
                if self.stable.get(at) == (offset, end):  # of an open transaction
                    continue
                lag = -1 if end is None or lag < 0 else lag + max(0, end - offset)
            lags[task.id] = lag
        return lags
