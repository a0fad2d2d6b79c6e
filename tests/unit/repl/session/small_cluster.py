"""A session without a broker and without Spark: the real session, plan, take-over, tasks and stores on disk; topics are lists.

`SmallCluster` answers what `Admin` answers and takes a commit as a whole. `SmallDeployment` stands where `spark.deployment.Deployment`
stands and does its steps in its order, in this thread: plan, generation into the journal, take-over
(`instance.initialization`), records, commits (`ActiveTask`). What it says nothing about: Kafka, Spark, several processes.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.partitioning import murmur2
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.stores.log.changelog_restore import Restorer
from kstreams_repl.host.instance.initialization.start_offsets import start_offsets
from kstreams_repl.host.instance.initialization.store_ownership import own_stores
from kstreams_repl.host.instance.initialization.task_activation import restoring_task, start_task
from kstreams_repl.host.instance.instance import TakeOver
from kstreams_repl.host.instance.state.environment_attributes import forget_inputs
from kstreams_repl.host.instance.state.owner_token import owner_token
from kstreams_repl.host.instance.state.state_directory import state_root
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.host.journal.journal_records import DesiredState, VersionRecord
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.kafka.admin import NewTopicSpec, TopicDescription
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.host.kafka.reading import OffsetRange
from kstreams_repl.host.kafka.record_counter import RecordCounter
from kstreams_repl.host.spark.fencing.generation_fencing import VersionText
from kstreams_repl.host.spark.fencing.state_migration import Migration
from kstreams_repl.host.spark.instance_reports import ApplicationReport
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from kstreams_repl.repl.session.application.life.registry import ApplicationRegistry
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.session import Session
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import RecordBatch, TopicPartition

PARTITIONS = 2
Record = tuple[bytes | None, bytes | None, int]


def partition_of(key: bytes) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % PARTITIONS


class SmallCluster:
    """Topics, committed offsets and journals of one cluster; everything an `Admin` is asked for."""

    settings = ClientSettings("nowhere:9092")

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, list[Record]] = {}
        self.described: dict[str, TopicDescription] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        self.journal: JournalState | None = None

    def topics(self, *, internal: bool = False) -> dict[str, int]:
        return {name: topic.partitions for name, topic in self.described.items()}

    def partitions(self, topic: str) -> int:
        return self.described[topic].partitions

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        return {name: self.described[name] for name in names if name in self.described}

    def missing_rights(self, *, reads: Collection[str], writes: Collection[str], group: str) -> tuple[str, ...]:
        """A cluster without ACLs."""
        return ()

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        return {name: self.configs[name] for name in names if name in self.configs}

    def create_topic(self, name: str, partitions: int, *, configs: Any = None, exist_ok: bool = False) -> bool:
        return bool(self.create_topics([NewTopicSpec(name, partitions, configs or {})], exist_ok=exist_ok))

    def create_topics(self, specs: Iterable[NewTopicSpec], *, exist_ok: bool = False) -> tuple[str, ...]:
        made = []
        for spec in specs:
            self.described[spec.name] = TopicDescription(spec.name, uuid.uuid4().hex, spec.partitions, False)
            self.configs[spec.name] = dict(spec.configs)
            self.logs |= {TopicPartition(spec.name, number): [] for number in range(spec.partitions)}
            made.append(spec.name)
        return tuple(made)

    def delete_topics(self, names: Iterable[str]) -> tuple[str, ...]:
        gone = tuple(name for name in names if self.described.pop(name, None) is not None)
        self.logs = {at: log for at, log in self.logs.items() if at.topic not in gone}
        self.offsets = {at: offset for at, offset in self.offsets.items() if at.topic not in gone}
        return gone

    def groups(self) -> tuple[str, ...]:
        return ("app",) if self.offsets else ()

    def delete_groups(self, names: Iterable[str]) -> None:
        self.offsets.clear()

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Iterable[TopicPartition], *, isolation: str = "") -> dict[TopicPartition, int]:
        return {at: len(self.logs[at]) for at in partitions}

    def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, stable: bool = True
    ) -> dict[TopicPartition, CommittedOffset]:
        return {at: self.offsets[at] for at in (self.offsets if partitions is None else partitions) if at in self.offsets}

    def commit_offsets(self, group: str, offsets: dict[TopicPartition, int]) -> None:
        self.offsets |= {at: CommittedOffset(offset) for at, offset in offsets.items()}

    def offsets_for_time(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {
            at: next((offset for offset, record in enumerate(self.logs[at]) if record[2] >= time), None)
            for at, time in times.items()
        }

    def values(self, topic: str) -> list[Record]:
        return [record for at in sorted(self.logs) if at.topic == topic for record in self.logs[at]]


class SmallCounter(RecordCounter):
    """Every offset of a list is a record."""

    def count(self, settings: Any, ranges: Iterable[OffsetRange], *, most: int = 0) -> dict[TopicPartition, int | None]:
        return {item.partition: item.end - item.start for item in ranges}


class SmallCollector:
    """What tasks send, until their transaction commits or is given up."""

    careful = False

    def __init__(self, cluster: SmallCluster) -> None:
        self._cluster = cluster
        self.open: list[tuple[TopicPartition, Record]] = []

    def sender(self, topic: str, site: Any = None) -> Any:
        def send(key: bytes | None, value: bytes | None, timestamp: int, headers: Any, partition: int | None = None) -> None:
            at = partition if partition is not None else 0 if key is None else partition_of(key)
            self.open.append((TopicPartition(topic, at), (key, value, timestamp)))

        return send

    def partitions(self, topic: str) -> int:
        return self._cluster.partitions(topic)

    def partition_of(self, topic: str, key: bytes) -> int:
        return partition_of(key)


class SmallDeployment:
    """`spark.deployment.Deployment` for one process and one thread."""

    def __init__(self, topology: Any, config: StreamsConfig, cluster: SmallCluster) -> None:
        self.topology, self.config, self.cluster = topology, config, cluster
        self.status, self.plan = "created", None
        self.error: KStreamsError | None = None
        self.reports = ApplicationReport(0, {})
        self.metrics: list[Any] = []
        self.version: VersionText | None = None
        self._tasks: list[ActiveTask] = []
        self._fed: dict[TopicPartition, int] = {}
        self._collector = SmallCollector(cluster)
        self._spares: dict[str, Environment] = {}

    # ---- life, as the real one

    def start(self) -> None:
        if self.status == "running":
            return
        journal = self.cluster.journal = self.cluster.journal or JournalState()
        self.plan = plan = make_plan(
            self.topology,
            self.config,
            self.cluster.settings,
            admin=self.cluster,  # type: ignore[arg-type]
            generation=journal.generation + 1,
            state_root=state_root(self.config),
        )
        self._declare(self.version, plan.generation, "running")
        self._take_over(plan)
        self.status, self.error = "running", None
        self.work()

    def fail(self, error: KStreamsError) -> None:
        """Fail with nothing committed since the last commit."""
        self._collector.open.clear()
        self._let_go(keep=False)
        self.status, self.error = "failed", error

    def replace(
        self,
        topology: Any,
        *,
        version: VersionText | None = None,
        emptied: Collection[str] = (),
        migrations: Collection[Migration] = (),
    ) -> None:
        running = self.status == "running"
        if running:
            self.pause()
        before, earlier = self.topology, self.version
        try:
            self.cluster.delete_topics(emptied)
            self._convert(migrations)
            self.topology, self.version = topology, version
            if running:
                self.start()
            else:
                self._declare(version, self.cluster.journal.generation if self.cluster.journal else 0, self.status)
        except BaseException:
            self.topology, self.version = before, earlier
            if running and self.status != "running":
                self.start()
            raise

    def _convert(self, migrations: Collection[Migration]) -> None:
        converted = []
        for migration in migrations:
            if migration.changelog not in self.cluster.described:
                continue
            last: dict[tuple[int, bytes], tuple[bytes, int]] = {}
            for at, log in self.cluster.logs.items():
                for key, value, timestamp in log if at.topic == migration.changelog else ():
                    assert key is not None
                    if value is None:
                        last.pop((at.partition, key), None)
                    else:
                        last[at.partition, key] = value, timestamp
            converted += list(migration.converted(last, self.cluster.partitions(migration.changelog)))
        for topic, partition, key, new, timestamp in converted:
            self.cluster.logs[TopicPartition(topic, partition)].append((key, new, timestamp))

    def pause(self) -> None:
        self._halt("paused", keep=True)

    def stop(self) -> None:
        self._halt("stopped", keep=False)

    abandon = stop

    def is_taken_over(self) -> bool:
        return False

    def _halt(self, status: str, *, keep: bool) -> None:
        if self.status == status or (status == "paused" and self.status != "running"):
            return
        self.work()
        self._let_go(keep=keep)
        self.status = status
        if self.cluster.journal is not None and self.cluster.journal.desired is not None:
            self._declare(None, self.cluster.journal.generation, status)

    def _declare(self, version: VersionText | None, generation: int, state: str) -> None:
        journal = self.cluster.journal
        if journal is None:
            return
        number = journal.desired.version if journal.desired is not None else 1
        if version is not None:
            number = version.number
            journal._versions[number] = VersionRecord.of(version.source, generation=generation, version=number)
        journal.desired = DesiredState(generation, state if state != "created" else "stopped", number, 1)  # type: ignore[arg-type]

    # ---- instances

    def _take_over(self, plan: Any) -> None:
        for slot, specs in enumerate(plan.assignment):
            token = owner_token(plan.generation, slot)
            instance: Any = SimpleNamespace(
                plan=plan,
                globals=None,
                executor="driver",
                watchdog=None,
                tracer=None,
                collector=self._collector,
                clients=SimpleNamespace(admin=self.cluster, begin=lambda: None),
                committer=SimpleNamespace(refresh_soon=lambda: None),
                counters=SimpleNamespace(created=0),
                take_over=TakeOver(),
                call_runner=None,
            )
            with ExitStack() as undo:
                environments, logs = own_stores(instance, specs, undo, token, self._spares, lambda: True)
                undo.pop_all()
            starts = start_offsets(plan, specs, environments, self.cluster)  # type: ignore[arg-type]
            for log in logs:
                self._restore(environments[str(log.task)], log)
            self._tasks += [
                start_task(instance, restoring_task(spec, environments[str(spec.task_id)], starts, token)) for spec in specs
            ]
        for environment in self._spares.values():
            environment.close()
        self._spares = {}
        self._fed = {at: offset for task in self._tasks for at, offset in task.starts.items()}

    def _restore(self, environment: Environment, log: Any) -> None:
        records = self.cluster.logs[log.partition]
        start = environment.positions.get(str(log.partition), 0) if log.store.persistent else 0
        if start < len(records):
            forget_inputs(environment)
            restorer = Restorer(log.store, environment, str(log.partition))
            keys, values, times = (list(column) for column in zip(*records[start:], strict=True))
            restorer.apply(RecordBatch(keys, values, times, list(range(start, len(records)))))
            restorer.finish(len(records))

    def work(self) -> None:
        """Process everything there is, with a commit after each round."""
        if self.status in ("running", "created", "paused", "stopped") and self._tasks:
            while self.process():
                self.commit()

    def process(self) -> int:
        """Give every task what its partitions have, and run it; nothing of it counts before `commit`."""
        done = 0
        for task in self._tasks:
            for at in task.starts:
                records, begin = self.cluster.logs[at], self._fed[at]
                if begin < len(records):
                    keys, values, times = (list(column) for column in zip(*records[begin:], strict=True))
                    task.task.add_records(at, RecordBatch(keys, values, times, list(range(begin, len(records)))))
                    self._fed[at] = len(records)
            while step := task.process(100):
                done += step
        return done

    def commit(self, *, until: str = "end") -> None:
        """As `commit_exactly_once`; `until="transaction"`: the local stores do not get to know of it."""
        number = max([0, *(task.commit_id for task in self._tasks)]) + 1
        offsets: dict[TopicPartition, tuple[int, str]] = {}
        for task in self._tasks:
            offsets.update(task.prepare(number))
        for at, record in self._collector.open:
            self.cluster.logs[at].append(record)
        written = {at for at, _ in self._collector.open}
        self._collector.open.clear()
        self.cluster.offsets |= {at: CommittedOffset(offset, text) for at, (offset, text) in offsets.items()}
        if until == "end":
            positions = {at: len(self.cluster.logs[at]) for at in written}
            for task in self._tasks:
                task.finish(number, positions)

    def die(self, when: str) -> None:
        """The process is killed: in the middle of records, before the commit, or between the transaction and the local stores."""
        if self._tasks and when != "idle":
            self.process()
            if when == "after the transaction":
                self.commit(until="transaction")
        self._collector.open.clear()
        self._let_go(keep=False)

    def _let_go(self, *, keep: bool) -> None:
        for task in self._tasks:
            task.close(keep=keep and task.environment.path is not None)
            if keep and task.environment.path is not None:
                self._spares[str(task.environment.path)] = task.environment
        self._tasks = []
        if not keep:
            for environment in self._spares.values():
                environment.close()
            self._spares = {}


class SmallApplications(ApplicationRegistry):
    """Applications that run here."""

    def __init__(self, client: ClusterClient, cluster: SmallCluster) -> None:
        super().__init__(client)
        self._cluster = cluster

    def create_deployment(self, name: str, topology: Any, config: StreamsConfig, *, detached: bool) -> Any:
        return SmallDeployment(topology, config, self._cluster)


class SmallSession(Session):
    """A session whose applications run here."""

    def __init__(self, cluster: SmallCluster, directory: Path) -> None:
        super().__init__(cluster.settings, directory=SessionDirectory(directory))
        self._cluster = cluster
        self.client._admin = cluster  # type: ignore[assignment]
        self.client.counter = SmallCounter()
        self.client.recognise_serdes = lambda topic: (None, None)  # type: ignore[method-assign]
        self._applications = SmallApplications(self.client, cluster)
