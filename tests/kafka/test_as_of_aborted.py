"""What aborted transactions leave in a changelog is not taken for what the cleaner removed, and what the cleaner removed is found.

All keys differ, so that no record shows by itself that the log was not cleaned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer, make_transactional_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.views.past.past_state import Past as PastStates
from kstreams_repl.repl.session.views.past.state.commit_history import TaskCommit
from kstreams_repl.repl.session.views.past.state.state_builder import history_of
from kstreams_repl.repl.session.views.tables.sql_query import run_query
from kstreams_repl.system.errors import InvalidStateStoreError
from kstreams_repl.system.types import TaskId, TopicPartition
from tests.kafka.as_of_instance import config_of, start
from tests.kafka.test_as_of import Application

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
TASK = TaskId(0, 0)


class Counting:
    """An application that counts by key, in one task, run by generations; and who else writes to its changelog."""

    def __init__(self, admin: Admin, settings: ClientSettings, root: Path, name: str) -> None:
        self.admin, self.settings, self.root, self.name = admin, settings, root, name
        self.input, self.log = TopicPartition(f"{name}-in", 0), TopicPartition(f"{name}-counts-changelog", 0)
        admin.create_topic(self.input.topic, 1)
        builder = ks.StreamsBuilder()
        builder.stream(self.input.topic, key_serde="string", value_serde="string").group_by_key().count(store="counts")
        config = config_of(name, settings.bootstrap_servers, root)
        self.app: Any = Application(name, builder.build(), config, ClusterClient(settings))
        self.app.registry[name] = self.app
        self._generation, self._others = 0, 0

    def run(self, *keys: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Run a generation until it has committed these keys; meanwhile is called when it runs."""
        self._generation += 1
        threads, stop = start(self.settings, self.app.config, self.app.topology, self._generation)
        try:
            self.count(f"running {self._generation}")
            meanwhile()
            for key in keys:
                self.count(key)
        finally:
            stop()
            _join(threads)

    def count(self, key: str) -> None:
        producer = make_producer(self.settings)
        producer.produce(self.input.topic, b"v", key.encode())
        assert producer.flush(20) == 0
        producer.close()
        end, deadline = self.admin.end_offsets([self.input])[self.input], time.monotonic() + 60
        while True:
            committed = self.admin.committed_offsets(self.name, [self.input], stable=False).get(self.input)
            if committed is not None and committed.offset >= end:
                return
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def transaction(self, *keys: str) -> Callable[[], None]:
        """Begin a transaction of another instance, with these records in the changelog; return what aborts it.

        Without a key it is one that was killed after the partition was added to it and before its records were there.
        """
        self._others += 1
        producer = make_transactional_producer(
            self.settings, transactional_id=f"{self.name}-other-{self._others}", **{"linger.ms": 0 if keys else 5_000}
        )
        producer.init_transactions(20)
        producer.begin_transaction()
        for key in keys or ("never sent",):
            producer.produce(self.log.topic, b"\0" * 16, key.encode(), self.log.partition)
        if keys:
            assert producer.flush(20) == 0
        else:
            producer.poll(1.0)

        def abort() -> None:
            producer.abort_transaction(20)
            producer.close()
            self.admin.settled_end_offsets([self.log])

        return abort

    def commits(self) -> list[TaskCommit]:
        return history_of(self.app).of(TASK)

    def keys_as_of(self, commit: TaskCommit) -> set[str]:
        states = PastStates(f"commit {commit.commit_id}")
        return {row[0] for row in run_query(self.app.client, self.app.registry, "SELECT key FROM counts", past=states).fetchall()}

    def expected(self, commit: TaskCommit) -> set[str]:
        ranges = ranges_of(self.admin, self.input.topic, end=commit.offsets[self.input])
        return {key.decode() for _, batch in read_ranges(self.settings, ranges) for key in batch.keys if key is not None}

    def check(self) -> None:
        for commit in self.commits():
            assert self.keys_as_of(commit) == self.expected(commit), commit


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(30)


@pytest.fixture
def counting(admin: Admin, settings: ClientSettings, tmp_path: Path, name: str) -> Iterator[Counting]:
    made = Counting(admin, settings, tmp_path, name)
    yield made
    made.app.client.close()


def test_the_marker_of_a_killed_transaction_without_records_is_no_compaction(counting: Counting) -> None:
    counting.run("a", "b")
    counting.transaction()()  # in the middle: records of later commits come after it
    counting.transaction()()
    counting.run("c", "d")
    counting.transaction()()  # at the end
    log = [
        offset
        for _, batch in read_ranges(counting.settings, ranges_of(counting.admin, counting.log.topic))
        for offset in batch.offsets
    ]
    ends = {commit.end_of(counting.log.topic) for commit in counting.commits()}
    lone = set(range(counting.admin.end_offsets([counting.log])[counting.log])) - set(log) - ends
    assert len(lone) == 3, (log, ends)
    counting.check()


def test_aborted_records_among_committed_ones_are_no_compaction(counting: Counting) -> None:
    """The records of a zombie, and later its marker, which comes after records and a commit of the instance that took over."""

    def meanwhile() -> None:
        abort = counting.transaction("x", "y")
        counting.count("c")
        abort()

    counting.run("a", "b", meanwhile=meanwhile)
    counting.check()


@pytest.mark.slow  # the broker's cleaner waits
def test_what_the_cleaner_removed_is_found_behind_a_killed_transaction(counting: Counting) -> None:
    counting.run("a", "b")
    counting.transaction()()
    counting.run("c")
    early = counting.commits()
    counting.run("a", "d")
    log, cleaned = counting.log, {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0"}
    counting.admin.alter_topic_configs(log.topic, cleaned)
    deadline = time.monotonic() + 90
    while True:
        time.sleep(1)
        counting.transaction("x")()  # closes a segment: the cleaner leaves the last one as it is
        left = [key for _, batch in read_ranges(counting.settings, ranges_of(counting.admin, log.topic)) for key in batch.keys]
        if left.count(b"a") == 1:
            break
        assert time.monotonic() < deadline, left
    refused = []
    for commit in counting.commits():
        try:
            assert counting.keys_as_of(commit) == counting.expected(commit), commit
        except InvalidStateStoreError as error:
            assert "was compacted since" in str(error)  # noqa: PT017
            refused.append(commit)
    assert refused == [commit for commit in early if "a" in counting.expected(commit)]
