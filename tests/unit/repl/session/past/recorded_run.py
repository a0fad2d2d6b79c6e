"""An application that has run in replicas of its tasks, record by record, and what the test driver makes of the same input."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import kstreams_repl as ks
from kstreams_repl.engine.commit.offset_metadata import COMMIT_ID, STREAM_TIME, encode
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.global_task import GlobalTask
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.host.kafka.offset_history import OffsetCommit
from kstreams_repl.repl.session.views.past.causes.result import Cause, once
from kstreams_repl.repl.session.views.past.causes.search import CauseSearch
from kstreams_repl.repl.session.views.past.causes.used_rows import UsedRow
from kstreams_repl.repl.session.views.past.replay.record_trace import RecordTrace
from kstreams_repl.repl.session.views.past.replay.replays import Interval, Replays, Written
from kstreams_repl.repl.session.views.past.replay.replica import TaskReplica
from kstreams_repl.repl.session.views.past.state.commit_history import CommitHistory
from kstreams_repl.repl.session.views.past.state.ran_versions import Ran
from kstreams_repl.system.types import RecordBatch, RecordPosition, TaskId, TopicPartition
from kstreams_repl.test_driver.driver_tasks import DriverTopics
from tests.unit.repl.session.past.workloads import Piped, from_the_start

SETTINGS = {"application.id": "test", "repl.outer.join.emit.interval.ms": 0, "statestore.cache.max.bytes": 0}


@dataclass
class Application:
    name: str
    topology: Any
    config: StreamsConfig


@dataclass
class Versions:
    present: Ran

    def at(self, commit: object) -> Ran:
        return self.present


@dataclass
class RecordedRun(Replays):
    """`Replays` of a run that is known whole: each task has one commit, before which it had nothing, and topics are lists."""

    topology: Any
    topics: dict[str, list[Written]] = field(default_factory=dict)
    traces: dict[TaskId, list[RecordTrace]] = field(default_factory=dict)
    inputs: dict[TaskId, dict[RecordPosition, Written]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = StreamsConfig(SETTINGS)
        self.app: Any = Application("test", self.topology, config)
        ran: Any = Ran(self.app, 1)
        ran.specs = {spec.task_id: spec for spec in DriverTopics(self.topology, "test", config, 1).specs}
        self.versions: Any = Versions(ran)
        parts = [part for part in self.topology.subtopologies() if part.global_]
        self._global = (
            GlobalTask("test", parts, config=config, environment=MemoryEnvironment(), wall_clock=lambda: 0) if parts else None
        )
        stores = None if self._global is None else self._global.stores
        self._replicas = {
            task: TaskReplica(spec, starts=from_the_start(spec), global_stores=stores) for task, spec in ran.specs.items()
        }
        self.traces, self.inputs = {task: [] for task in ran.specs}, {task: {} for task in ran.specs}

    def run(self, rows: list[Piped]) -> RecordedRun:
        """Process all records, each with all that follows from it before the next one."""
        for row in rows:
            waiting = deque([self._written(*row)])
            while waiting:
                waiting.extend(self._processed(waiting.popleft()))
        for replica in self._replicas.values():
            replica.close()
        commits = [self._commit(task, at) for task, spec in self.versions.present.specs.items() for at in spec.partitions]
        nothing: Any = None
        self.history = CommitHistory(nothing, "test", self.versions.present.specs)
        self.history._offsets = type("Offsets", (), {"read": lambda self: iter(commits)})()  # type: ignore[assignment]
        self.history.update()
        return self

    def _commit(self, task: TaskId, at: TopicPartition) -> OffsetCommit:
        times = [record.timestamp for record in self.inputs[task].values()]
        metadata = encode(-1, {COMMIT_ID: 1, STREAM_TIME: max(times, default=-1)}, b"", None, 1)
        return OffsetCommit(at, len(self.topics.get(at.topic, [])), metadata, 1 << 50)

    def _written(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int) -> Written:
        records = self.topics.setdefault(topic, [])
        records.append(Written(RecordPosition(topic, 0, len(records)), key, value, timestamp))
        return records[-1]

    def _processed(self, record: Written) -> list[Written]:
        topic, offset = record.position.topic, record.position.offset
        batch = RecordBatch([record.key], [record.value], [record.timestamp], [offset])
        if self._global is not None and topic in self._global.topics:
            self._global.update(topic, 0, batch)
            return []
        sent = []
        for task, replica in self._replicas.items():
            if TopicPartition(topic, 0) not in self.versions.present.specs[task].partitions:
                continue
            replica.feed(TopicPartition(topic, 0), batch)
            trace = replica.step_record()
            assert trace is not None and trace.error is None, trace
            self.traces[task].append(trace)
            self.inputs[task][trace.position] = record
            sent += [self._written(*each[:4]) for each in trace.sent]
        return sent

    # ---- Replays

    def interval(self, task: TaskId, first: int, last: int | None = None, *, key: bytes | None = None) -> Interval:
        return Interval(self.versions.present, task, 0, 0, self.traces[task], self.inputs[task])

    def record(self, position: RecordPosition) -> Written:
        return self.topics[position.topic][position.offset]

    def equal(self, record: Written) -> tuple[int, int]:
        same = [each.position.offset for each in self.topics[record.position.topic] if each[1:] == record[1:]]
        return sum(each < record.position.offset for each in same), len(same)

    def end_before(self, interval: Interval, topic: str) -> int:
        return 0

    def last(self, partition: TopicPartition, end: int, wanted: Any, key: Any = lambda key: True) -> Written | None:
        records = reversed(self.topics.get(partition.topic, [])[:end])
        return next((record for record in records if key(record.key) and wanted(record)), None)

    def last_of_key(self, topic: str, key: bytes, until_ms: int | None = None) -> Written | None:
        return next((record for record in reversed(self.topics.get(topic, [])) if record.key == key), None)

    # ---- questions

    def why_record(self, position: RecordPosition, *, all: bool) -> tuple[Cause, ...]:
        return once(CauseSearch(self, all=all).of_output(self.record(position))[1])

    def why_row(self, store: str, key: Any, *, all: bool, at_ms: int | None = None) -> tuple[Cause, ...]:
        [task] = [task for task in self.traces if store in self.versions.present.logs(task)]
        found = CauseSearch(self, all=all).of_row(
            self.interval(task, 0), len(self.traces[task]), self.versions.present.logs(task)[store], UsedRow(store, key, at_ms)
        )
        return () if found is None else once(found[1])

    def sent_during(self, output: str) -> list[tuple[Written, int]]:
        """Return each record of an output, with the timestamp of the input record in whose processing it was sent."""
        found, inputs = [], [topic for topic in self.topics if not topic.startswith("test-")]
        order: dict[tuple[Any, ...], list[Written]] = {}
        for record in self.topics.get(output, []):
            order.setdefault(record[1:], []).append(record)
        for task, traces in self.traces.items():
            for trace in traces:
                for sent in trace.sent:
                    if sent.topic == output:
                        found.append((order[sent[1:4]].pop(0), self.root(task, trace.position)))
        assert inputs
        return sorted(found, key=lambda each: each[0].position.offset)

    def root(self, task: TaskId, position: RecordPosition) -> int:
        """Return the timestamp of the input record from which a record of an internal topic has come."""
        if not position.topic.startswith("test-"):
            return self.inputs[task][position].timestamp
        for other, traces in self.traces.items():
            seen = 0
            for trace in traces:
                for sent in trace.sent:
                    if sent.topic == position.topic:
                        if seen == position.offset:
                            return self.root(other, trace.position)
                        seen += 1
        raise AssertionError(position)


Sent = tuple[str, bytes | None, bytes | None, int, int]
"""Of an output record: topic, key, value, timestamp, and the timestamp of the input record in whose processing it was sent."""


def driven(
    topology: Any, rows: list[Piped], outputs: tuple[str, ...], stores: tuple[str, ...] = ()
) -> tuple[list[Sent], dict[Any, Any]]:
    """Return what the test driver sends, and the rows that its stores have at the end."""
    found: list[Sent] = []
    with ks.testing.TopologyTestDriver(topology, SETTINGS, mode="deployed", start_ms=0) as driver:
        for row in rows:
            driver.pipe_bytes(*row)
            for topic in outputs:
                queue = driver._outputs.get(topic) or []
                found += [(topic, each.key, each.value, each.timestamp, row[3]) for each in queue]
                if queue:
                    queue.clear()
        state = {(store, key): value for store in stores for key, value in driver.state_store(store).all()}
    return found, state


def needed(
    topology: Any, rows: list[Piped], outputs: tuple[str, ...], stores: tuple[str, ...] = (), *, when: bool = True
) -> tuple[dict[Sent, set[int]], dict[Any, set[int]]]:
    """Return, for each output record and each row, the timestamps of the input records without which it would not be the same.

    Args:
        when: an output record is the same only if it is sent in the processing of the same input record; False: that one is named, too.
    """
    whole, state = driven(topology, rows, outputs, stores)
    assert len(set(whole)) == len(whole)
    records: dict[Sent, set[int]] = {each: set() for each in whole}
    kept: dict[Any, set[int]] = {each: set() for each in state}
    for at, row in enumerate(rows):
        less, without = driven(topology, rows[:at] + rows[at + 1 :], outputs, stores)
        same = set(less) if when else {each[:4] for each in less}
        for each in whole:
            if (each if when else each[:4]) not in same or each[4] == row[3]:
                records[each].add(row[3])
        for each, value in state.items():
            if without.get(each) != value:
                kept[each].add(row[3])
    return records, kept
