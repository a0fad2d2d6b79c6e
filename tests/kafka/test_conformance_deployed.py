"""Cases of the conformance kit, deployed: a real broker, deployed store layers and loops, against the JVM's results.

The test driver keeps what a producer might lose (headers, times), and runs record by record. Here each case's records come in
batches, and outputs are compared with the JVM's trace: keys, values, times, headers, order. Changelogs are compared, bytes and
headers, with those of the test driver, which the kit compares with the JVM's where it observes them.

Left out are cases whose trace depends on a commit after each record (caches) or on a mocked wall clock, those that fail, global tables
(their records have no order with others'), the time 0, which the client library reads as now, and one in which what a record sends to two
internal topics meets again: one may be read before the other.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.initialization.task_initialization import open_instance
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from kstreams_repl.system.types import TopicPartition
from kstreams_repl.test_driver.driver import TestRecord, TopologyTestDriver
from workshop.conformance.loader import build_topology
from workshop.conformance.runner import BASE_CONFIG, _observed_serdes, _shown, read_cases

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
FILES = sorted((Path(__file__).parents[1] / "conformance" / "cases").glob("*.jsonl"))
MEETS_AGAIN = "repartition/time-order-across-topics"
THREADS = 4


def can_be_deployed(case: dict[str, Any]) -> bool:
    """Whether the trace does not depend on what only the test driver does; see the module."""
    text = json.dumps(case["ops"])
    return (
        bool(case["events"])
        and case.get("config", {}).get("statestore.cache.max.bytes") == "0"
        and not case.get("start_ms")
        and "quirk" not in case
        and case["id"] != MEETS_AGAIN
        and all(event.get("ts", 0) > 0 for event in case["events"])
        and not any("error" in part for part in (case["expect"], *case["expect"].get("trace", ())))
        and not any(word in text for word in ("GlobalStore", "globalTable", "pattern", "WALL_CLOCK", '"meta', "wall-clock", "partitions"))
    )


CASES = {path.stem: [case for case in read_cases(path) if can_be_deployed(case)] for path in FILES}
WITH_HEADERS = FILES[0].parents[1] / "headers" / "dsl.jsonl.gz"
CASES["stores-with-headers"] = [case for case in read_cases(WITH_HEADERS) if can_be_deployed(case)]


class DeployedCase:
    """One case on the broker: its topics' names, and its application's, begin with a prefix of their own."""

    def __init__(
        self, case: dict[str, Any], admin: Admin, settings: ClientSettings, prefix: str, directory: Path, suppression: bool
    ) -> None:
        self.case, self.admin, self.settings, self.prefix, self.directory = case, admin, settings, prefix, directory
        self.suppression = suppression
        self.fed: dict[str, int] = {}

    def difference(self) -> str | None:
        """What is not as on the JVM; None when all is."""
        moved = self.moved = copy.deepcopy(self.case)
        for op in moved["ops"]:
            for place in ("topic", "topicFn"):
                if place in op:
                    op[place] = self.prefix + op[place]
            if "topics" in op:
                op["topics"] = [self.prefix + topic for topic in op["topics"]]
        config = BASE_CONFIG | moved.get("config", {}) | {"application.id": f"{self.prefix}app"}
        del config["repl.changelog.suppression"]
        topology = build_topology(moved, config)
        observed = self.case.get("observe", {})
        named = {f"{self.prefix}{topic}" for topic in observed if not topic.startswith("app-")}
        named |= {*topology.source_topics(), *topology.sink_topics()} - set(topology.internal_topics)
        for topic in named:
            self.admin.create_topic(topic, 1, configs={"retention.ms": "-1"}, exist_ok=True)
        self._run(topology, config)
        want = self._driven()
        for topic, types in observed.items():
            if topic.startswith("app-"):
                continue
            trace = [row for step in self.case["expect"]["trace"] for row in step.get(topic, ())]
            key_serde, value_serde = _observed_serdes(types)
            got = [
                _shown(TestRecord(key_serde.deserialize(key), value_serde.deserialize(value), at, headers), types)
                for key, value, at, headers in self._read(self.prefix + topic)
            ]
            if got != trace:
                return f"topic {topic}:\n  expected (JVM) {json.dumps(trace)}\n  got            {json.dumps(got)}"
        for topic, rows in want.items():
            got_rows = self._read(topic)
            buffer = any(row[2] is None for row in rows)
            if buffer:  # its records have the clock's time
                rows, got_rows = [[(key, value, None, headers) for key, value, _, headers in part] for part in (rows, got_rows)]
            if self.suppression or buffer:  # one record per key and commit
                same = last_of_each(rows) == last_of_each(got_rows)
            else:
                same = rows == got_rows
            if not same:
                return f"changelog {topic}:\n  expected {rows}\n  got      {got_rows}"
        return None

    def _driven(self) -> dict[str, list[tuple[Any, ...]]]:
        """What the test driver writes to changelogs."""
        config = BASE_CONFIG | self.case.get("config", {}) | {"application.id": f"{self.prefix}app"}
        with TopologyTestDriver(build_topology(self.moved, config), config) as driver:
            for event in self.case["events"]:
                driver.pipe_bytes(self.prefix + event["t"], *_bytes_of(event), event["ts"], _headers_of(event))
            return {
                topic: [
                    (record.key, record.value, None if record.timestamp is None else record.timestamp or 1, list(record.headers))
                    for record in driver.create_output_topic(topic, serdes.bytes, serdes.bytes).read_records()
                ]
                for topic in driver.produced_topic_names()
                if topic.endswith("-changelog")
            }

    def _read(self, topic: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for _, batch in read_ranges(self.settings, ranges_of(self.admin, topic, settled=True)):
            headers = batch.headers or [None] * len(batch.keys)
            found += zip(batch.keys, batch.values, batch.timestamps, (list(own or ()) for own in headers), strict=True)
        return found

    def _run(self, topology: Any, config: dict[str, Any]) -> None:
        deployed = StreamsConfig(config | {
            "bootstrap.servers": self.settings.bootstrap_servers, "processing.guarantee": "exactly_once_v2",
            "state.dir": str(self.directory), "num.stream.threads": 1,
            "repl.outer.join.emit.interval.ms": 0, "repl.changelog.suppression": self.suppression,
        })  # fmt: skip
        plan = make_plan(topology, deployed, self.settings, admin=self.admin, generation=1, state_root=self.directory)
        for topic in self.admin.topics():  # times are of 1970: the first commit's marker rolls the log, which is then compacted
            if topic.startswith(f"{self.prefix}app-") and topic.endswith("-changelog"):
                self.admin.alter_topic_configs(topic, {"cleanup.policy": "delete", "retention.ms": "-1"})
        instance = open_instance(plan, 0, in_force=lambda: True)
        producer = make_producer(self.settings)
        try:
            for events in self._batches():
                for event in events:
                    key, value = _bytes_of(event)
                    topic = f"{self.prefix}{event['t']}"
                    producer.produce(topic, value, key, 0, None, None, event["ts"], _headers_of(event))
                    self.fed[topic] = self.fed.get(topic, 0) + 1
                assert producer.flush(20) == 0
                self._until_quiet(instance)
        finally:
            producer.close()
            instance.close()

    def _batches(self) -> Iterator[list[dict[str, Any]]]:
        """Runs of records of one topic: between two topics the order is that of the case, not that of times. Results of a foreign-key join
        depend on which of two tables is ahead, and punctuations run after the batch in which they became due: there each record is a run.
        """
        batch: list[dict[str, Any]] = []
        text = json.dumps(self.case["ops"])
        racing = any(word in text for word in ('"kind": "fk"', "punctuate", "STREAM_TIME"))
        for event in self.case["events"]:
            if batch and (racing or batch[-1]["t"] != event["t"]):
                yield batch
                batch = []
            batch.append(event)
        yield batch

    def _until_quiet(self, instance: Instance) -> None:
        """Until everything is read and committed, also what the application itself writes to topics that it reads."""
        deadline, read = time.monotonic() + 30, list(instance.input.by_partition)

        def signal(now: float) -> Signal:
            if instance.committer.touched or not instance.committer.settled:
                return Signal.RUN
            committed: dict[TopicPartition, int] = {at: task.committed[at] for at, task in instance.input.by_partition.items()}
            if any(committed.get(TopicPartition(topic, 0), 0) < count for topic, count in self.fed.items()):
                return Signal.RUN
            self.admin.settled_end_offsets(read)  # as of before the last markers
            ends = self.admin.end_offsets(read)
            return Signal.PAUSE if all(committed[at] >= ends[at] - 1 for at in read) else Signal.RUN  # 1: a transaction's marker

        ending = PollLoop(instance, signal=signal, report=lambda instance: None).run(deadline)
        assert time.monotonic() < deadline, f"{self.case['id']}: {ending}, {self.fed}, {instance.input.lags()}"


def last_of_each(rows: list[tuple[Any, ...]]) -> dict[Any, tuple[Any, ...]]:
    return {row[0]: row[1:] for row in rows}


def _bytes_of(event: dict[str, Any]) -> tuple[bytes | None, bytes | None]:
    return serdes.string.serialize(event.get("k")), serdes.json.serialize(event.get("v"))


def _headers_of(event: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    return [(name, None if value is None else value.encode()) for name, value in event.get("h", ())]


def differences(
    cases: list[dict[str, Any]], admin: Admin, settings: ClientSettings, name: str, directory: Path, suppression: bool
) -> dict[str, str]:
    def one(numbered: tuple[int, dict[str, Any]]) -> tuple[str, str | None]:
        number, case = numbered
        try:
            return case["id"], DeployedCase(case, admin, settings, f"{name}-{number}-", directory / str(number), suppression).difference()
        except Exception as error:
            return case["id"], f"{type(error).__name__}: {error}"

    with ThreadPoolExecutor(THREADS) as pool:
        return {case_id: difference for case_id, difference in pool.map(one, enumerate(cases)) if difference is not None}


def test_a_sample_of_every_family_deployed_equals_the_jvm(admin: Admin, settings: ClientSettings, name: str, tmp_path: Path) -> None:
    sample = [max(cases, key=lambda case: (len(case["ops"]), case["id"])) for cases in CASES.values() if cases]
    wrong = differences(sample, admin, settings, name, tmp_path, suppression=True)
    assert not wrong, "\n".join(f"{case}\n{difference}" for case, difference in wrong.items())
    assert len(sample) >= 21


@pytest.mark.slow
@pytest.mark.parametrize("family", [family for family, cases in CASES.items() if cases])
def test_all_cases_of_a_family_deployed_equal_the_jvm(
    admin: Admin, settings: ClientSettings, name: str, tmp_path: Path, family: str
) -> None:
    for suppression in (True, False):
        wrong = differences(CASES[family], admin, settings, f"{name}{suppression}", tmp_path / str(suppression), suppression)
        assert not wrong, "\n".join(f"{case}\n{difference}" for case, difference in wrong.items())
