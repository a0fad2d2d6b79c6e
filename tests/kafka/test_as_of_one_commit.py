"""A query of a running application sees all stores of an instance at one commit. Real broker, real instance and loop, without Spark."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.initialization.task_initialization import open_instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from kstreams_repl.repl.session.views.stores.store_reader import read_stores

pytestmark = pytest.mark.kafka
PARTITIONS = 3
QUERIES = 25


class Running:
    """One instance with three tasks of two stores each; records come in all the time, and what each commit makes of them is kept."""

    def __init__(self, admin: Admin, settings: ClientSettings, name: str, directory: Path) -> None:
        self.settings, self.topic = settings, f"{name}-in"
        admin.create_topic(self.topic, PARTITIONS)
        self.topology = topology(self.topic)
        self.config = StreamsConfig({
            "application.id": name, "bootstrap.servers": settings.bootstrap_servers, "state.dir": str(directory),
            "processing.guarantee": "exactly_once_v2", "commit.interval.ms": 10, "statestore.cache.max.bytes": 0,
        })  # fmt: skip
        plan = make_plan(self.topology, self.config, settings, admin=admin, generation=1, state_root=directory)
        self.instance = open_instance(plan, 0, in_force=lambda: True)
        self.done_by_commit: dict[int, int] = {}
        """Records committed up to each commit."""
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._work, name="loop"), threading.Thread(target=self._feed, name="feeder")]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        commit = self.instance.committer.commit

        def kept(*, more: bool = False) -> bool:
            committed = commit(more=more)
            self.done_by_commit[self.instance.committer.commit_id] = self.instance.counters.records
            return committed

        self.instance.committer.commit = kept  # type: ignore[method-assign]
        signal = lambda now: Signal.STOP if self._end.is_set() else Signal.RUN  # noqa: E731
        PollLoop(self.instance, signal=signal, report=lambda instance: None).run(time.monotonic() + 120)

    def _feed(self) -> None:
        producer = make_producer(self.settings)
        number = 0
        while not self._end.is_set():
            for _ in range(30):
                number += 1
                producer.produce(self.topic, struct.pack(">q", 1), b"k%d" % (number % 50), partition=number % PARTITIONS, timestamp=number)
            producer.flush(20)
            self._end.wait(0.002)
        producer.close()

    def stop(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        self.instance.close()


def topology(topic: str) -> Any:
    builder = StreamsBuilder()
    grouped = builder.stream(topic, key_serde="string", value_serde="long").group_by_key()
    grouped.count(store="counts", name="counts")
    grouped.reduce(lambda total, value: total + value, store="sums", name="sums")
    return builder.build()


@pytest.fixture
def running(admin: Admin, settings: ClientSettings, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Its tasks' stores take each commit some time after one another, as they do where they have much to write."""
    settle = ActiveTask.settle

    def slowly(task: ActiveTask, positions: Any) -> None:
        time.sleep(0.004)
        settle(task, positions)

    monkeypatch.setattr(ActiveTask, "settle", slowly)
    running = Running(admin, settings, name, tmp_path)
    yield running
    running.stop()


def test_the_totals_of_two_stores_are_those_of_one_commit_in_every_query(running: Running) -> None:
    builders = [running.topology.store(name) for name in ("counts", "sums")]
    seen: set[int] = set()
    deadline = time.monotonic() + 60
    while len(seen) < QUERIES and time.monotonic() < deadline:
        found = read_stores(None, running.config, running.topology, builders, limit=None)  # type: ignore[arg-type]
        totals = {name: sum(struct.unpack(">qq", row)[1] for part in rows.parts for row in part.values) for name, rows in found.items()}
        said = found["counts"].as_of
        if len(found["counts"].parts) < PARTITIONS or "not consistent" in said:
            continue  # it says so
        assert totals["counts"] == totals["sums"], said
        told = found["counts"].commits.partition("commits ")[2].partition(" (")[0]
        commit = max(int(pair.rpartition(":")[2]) for pair in told.split(", "))
        if commit < min(running.done_by_commit, default=1):  # stores that are only just made
            continue
        while commit not in running.done_by_commit:  # the loop's thread notes it right after the stores
            time.sleep(0.001)
            assert time.monotonic() < deadline, said
        assert totals["counts"] == running.done_by_commit[commit], f"{said}: not what commit {commit} made"
        seen.add(commit)
    assert len(seen) > 10, "queries of too few moments"
