"""The commits of an instance: which tasks take part, when local stores write them, and what follows a commit.

All tasks with activity commit together, by the protocol of `engine.commit.exactly_once` or `engine.commit.at_least_once`. While more
records wait, local stores may write several commits at once (`ActiveTask.may_wait`); `settle` writes the postponed ones.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Any

from kstreams_repl.engine.commit.at_least_once import commit_at_least_once
from kstreams_repl.engine.commit.exactly_once import commit_exactly_once
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.instance_clients import InstanceClients
from kstreams_repl.host.instance.reports.instance_counters import InstanceCounters
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.host.instance.tasks.consistent_cut import cut_of
from kstreams_repl.host.instance.tasks.record_collector import KafkaRecordCollector
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import TopicPartition

_LOG = logging.getLogger("kstreams_repl.host.instance")
_REFRESH_SECONDS = 24 * 3600.0
"""Interval of offset commits without activity. The broker deletes an offset that was committed under ``assign()``
``offsets.retention.minutes`` (7 days) after its last commit, even while the consumer reads: a day leaves room for some days at
rest, and for brokers with a shorter retention.
"""
_FIRST_REFRESH_SECONDS = 60.0
"""Delay of the first such commit after a take-over, when the age of offsets is unknown and they may be about to expire. It is not
immediate: most starts bring records, or end soon.
"""


class Committer:
    """Commits the tasks of one instance.

    Args:
        tasks: the instance's own list, which changes as tasks are activated.

    Attributes:
        commit_id: of the last commit.
        last_commit: when it ended (monotonic seconds).
        refresh_at: when to commit offsets again without activity (monotonic seconds; `refresh`).
    """

    def __init__(
        self,
        tasks: list[ActiveTask],
        clients: InstanceClients,
        collector: KafkaRecordCollector,
        counters: InstanceCounters,
        config: StreamsConfig,
    ) -> None:
        self._tasks = tasks
        self._clients = clients
        self._collector = collector
        self._counters = counters
        self.commit_id = 0
        self.last_commit = time.monotonic()
        self.refresh_at = math.inf
        self._purge_seconds = config["repartition.purge.interval.ms"] / 1000
        self._next_purge = self.last_commit + self._purge_seconds

    @property
    def touched(self) -> bool:
        """Whether any task had activity since the last commit."""
        return any(task.touched for task in self._tasks)

    @property
    def settled(self) -> bool:
        """Whether all local stores hold the last commit."""
        return all(task.settled for task in self._tasks)

    def refresh_soon(self) -> None:
        """Schedule a refresh for a new task: its offsets may have been committed days ago."""
        self.refresh_at = min(self.refresh_at, time.monotonic() + _FIRST_REFRESH_SECONDS)

    def refresh(self, now: float) -> None:
        """Include every task, also idle ones, in the next commit, so that the group's offsets do not expire.

        It is an ordinary, fenced commit; one more a day costs less than finding out which tasks need it.
        """
        self.refresh_at = now + _REFRESH_SECONDS
        for task in self._tasks:
            task.touched = True

    def commit(self, *, more: bool = False) -> bool:
        """Commit every task that had activity; return False when none had.

        Args:
            more: more records are waiting, so local stores may write several commits together (`ActiveTask.may_wait`), all tasks'
                stores after the same commit (`host.instance.tasks.consistent_cut`).
        """
        tasks = [task for task in self._tasks if task.touched]
        wait = more and all(task.may_wait() for task in self._tasks if task.touched or not task.settled)
        for task in tasks:
            task.wait = wait
        began = self.last_commit = time.monotonic()
        if not tasks:
            return False
        commit_id = self.commit_id + 1
        self._note_cut(commit_id)
        clients = self._clients
        if clients.transactions is not None:
            clients.transactions.begin()
            commit_exactly_once(tasks, commit_id, producer=clients.transactions, output=self._collector, group=clients.group)
        else:
            commit_at_least_once(
                tasks,
                commit_id,
                flush=lambda: clients.flush(self._collector.check),
                output=self._collector,
                commit_offsets=clients.commit_offsets,
                changelog_ends=self._changelog_ends,
            )
        self.commit_id = commit_id
        if not wait:  # all local stores hold this commit, or none does
            self.settle()
            for task in self._tasks:
                task.rest()
        self._collector.rejected.committed()
        self.last_commit = time.monotonic()
        _LOG.debug("commit %d of %d tasks: %.1f ms", commit_id, len(tasks), (self.last_commit - began) * 1000)
        self._counters.committed(self.last_commit - began)
        if self.last_commit >= self._next_purge:
            self._next_purge = self.last_commit + self._purge_seconds
            self._purge()
        return True

    def settle(self) -> None:
        """Write postponed commits to the local stores of tasks without activity since."""
        tasks = [task for task in self._tasks if not task.settled and not task.touched]
        if not tasks:
            return
        self._note_cut(None)
        for task in tasks:
            task.wait = False
        positions = {} if self._clients.transactions is not None else self._changelog_ends(tasks)
        for task in tasks:
            task.settle(positions)

    def _note_cut(self, commit_id: int | None) -> None:
        """Give each task the note for its stores' next commit: the commit of every task's stores at that time.

        Args:
            commit_id: the commit in progress, in which touched tasks take part.
        """
        by_token: dict[str, dict[str, int]] = {}
        on_disk = [task for task in self._tasks if task.on_disk]
        for task in on_disk:
            commits = by_token.setdefault(task.token, {})
            commits[str(task.id)] = commit_id if commit_id is not None and task.touched else task.commit_id
        notes = {token: cut_of(token, commits) for token, commits in by_token.items()}
        for task in on_disk:
            task.cut = notes[task.token]

    def _purge(self) -> None:
        """Delete records that every commit has passed from repartition topics and from logs of durable results, and records that
        stream time has expired from changelogs of windows; none of these has a retention of its own.
        """
        passed = {
            partition: offset
            for task in self._tasks
            for partition, offset in task.committed.items()
            if task.is_internal(partition) and offset > 0
        }
        expired = {partition: floor for task in self._tasks for partition, floor in task.floors.deletable.items()}
        results = {partition: floor for task in self._tasks for partition, floor in task.results_passed.items() if floor > 0}
        try:
            self._clients.admin.delete_records(passed | expired | results)
            for task in self._tasks:
                task.floors.deleted(expired)
        except KStreamsError as error:
            _LOG.info("purging internal topics failed, retrying in %.0f s: %s", self._purge_seconds, error)

    def _changelog_ends(self, tasks: Any) -> Mapping[TopicPartition, int]:
        return self._clients.changelog_ends(log for task in tasks if not task.wait for log in task.logged)
