"""Bounded runs of one application on a real broker, driven by `batch_driver` processes that tests kill; and the checker of where
they stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from kstreams_repl.host.batch.stop_offsets import by_partition
from kstreams_repl.host.instance.control.file_channel import FileChannel
from kstreams_repl.host.instance.state.state_directory import control_directory
from kstreams_repl.host.journal.journal import JournalReader
from kstreams_repl.host.journal.journal_records import StopOffsets
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.system.types import TopicPartition

ROOT = Path(__file__).parents[2]
RETENTION = {"retention.ms": "-1"}
START_MS = 1_700_000_000_000


class BoundedRuns:
    """Args:
    partitions: of the input and of the output.
    """

    def __init__(self, bootstrap: str, directory: Path, topology: str, *, partitions: int = 3, instances: int = 2, **config: Any) -> None:
        self.name = f"b{uuid.uuid4().hex[:6]}"
        self.application_id = f"{self.name}-app"
        self.bootstrap, self.directory, self.topology = bootstrap, directory, topology
        self.settings = ClientSettings(bootstrap)
        self.admin = Admin(self.settings)
        self.partitions = partitions
        for topic in ("in", "side"):
            self.admin.create_topic(f"{self.name}-{topic}", partitions, configs=RETENTION)
        self.admin.create_topic(f"{self.name}-out", 2, configs=RETENTION)
        self.config = {
            "processing.guarantee": "exactly_once_v2",
            "state.dir": str(directory),
            "commit.interval.ms": 50,
            "transaction.timeout.ms": 3_000,
            "num.stream.threads": instances,
            "statestore.cache.max.bytes": 0,
            "autostop.at": "eol",
        } | config
        self.written = 0
        self.deaths = 0
        """Of instances, in the last run."""
        self._lock = threading.Lock()
        self._undelivered: list[str] = []
        self._producer = self._new_producer()
        self.driver: subprocess.Popen[str] | None = None

    # ---- input

    def write(self, count: int, topic: str = "in") -> None:
        """Records ``k<n>`` -> their number, a millisecond apart."""
        with self._lock:
            for _ in range(count):
                number, self.written = self.written, self.written + 1
                key, value, _ = input_record(number)
                self.send(topic, key, value, number)
            assert self._producer.flush(30) == 0 and not self._undelivered, self._undelivered

    def _new_producer(self) -> Any:
        return make_producer(
            self.settings,
            on_delivery_error=lambda error, message: self._undelivered.append(f"{message.topic()}-{message.partition()}: {error}"),
        )

    def send(self, topic: str, key: bytes, value: bytes | None, number: int, partition: int = -1) -> None:
        self._producer.produce(f"{self.name}-{topic}", value, key, partition, None, None, START_MS + number)
        self._producer.poll(0)

    def grow(self, partitions: int) -> None:
        """Add partitions to the input."""
        self.admin.add_partitions(f"{self.name}-in", partitions)
        self.partitions = partitions
        self._producer.close()
        self._producer = self._new_producer()
        while len(self._producer.list_topics(f"{self.name}-in", 30).topics[f"{self.name}-in"].partitions) < partitions:
            time.sleep(0.05)  # a producer that has seen fewer refuses records for the others

    # ---- runs

    def start(self, *, driver: str = "", instances: dict[int, str] | None = None) -> subprocess.Popen[str]:
        """Start a run, or go on with the open one.

        Args:
            driver, instances: failpoints of the driver, and of the first process of each slot.
        """
        given = {
            "bootstrap": self.bootstrap,
            "directory": str(self.directory),
            "name": self.name,
            "topology": self.topology,
            "config": self.config,
            "failpoints": instances or {},
        }
        self.driver = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.batch_driver", json.dumps(given)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "KSTREAMS_FAILPOINTS": driver},
            stdout=subprocess.PIPE,
            text=True,
        )
        return self.driver

    def wait(self, seconds: float = 90) -> int:
        """Return the exit status of the driver."""
        assert self.driver is not None
        try:
            out, _ = self.driver.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(self.story() + "\n" + self.inside(late.output or b"")) from late
        starts: Counter[int] = Counter()
        for line in out.splitlines():
            told = json.loads(line)
            assert "failed" not in told, told
            starts[told["slot"]] += 1
        self.deaths = sum(starts.values()) - len(starts)
        return self.driver.returncode

    def story(self) -> str:
        """Where the run stands."""
        record = self.record()
        topics = [name for name in self.admin.topics() if name.startswith(self.name) and name.endswith(("-repartition", "-topic", "-in"))]
        partitions = [TopicPartition(topic, number) for topic in topics for number in range(self.admin.partitions(topic))]
        committed = self.admin.committed_offsets(self.application_id, partitions, stable=False)
        ends, stable = (self.admin.end_offsets(partitions, isolation=level) for level in ("read_uncommitted", "read_committed"))
        stops = {} if record is None else by_partition(record.offsets)
        lines = [f"{at}: committed {committed.get(at)}, stop {stops.get(at)}, stable {stable[at]}, end {ends[at]}" for at in partitions]
        lease = FileChannel(control_directory(self.directory, self.application_id))
        return "\n".join([str(record), *lines, *(f"{slot}: {told}" for slot, told in lease.reports(lease.generation()).items())])

    def inside(self, out: bytes) -> str:
        """What the driver and its instances hold.

        Args:
            out: what the driver has printed.
        """
        assert self.driver is not None
        pids = {told["slot"]: told["pid"] for told in map(json.loads, out.decode().splitlines()) if "pid" in told}
        for pid in (self.driver.pid, *pids.values()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        time.sleep(3)
        return "\n".join(f"{path.name}\n{path.read_text()}" for path in sorted(self.directory.glob("*.story")))

    def kill_all_when_stopped(self) -> None:
        """kill -9 of the driver and its instances, once a failpoint has stopped all of them."""
        assert self.driver is not None
        lease = FileChannel(control_directory(self.directory, self.application_id))
        deadline = time.monotonic() + 60
        while True:
            pids = [report["pid"] for report in lease.reports(lease.generation()).values()]
            if len(pids) == self.config["num.stream.threads"] and all(map(_is_stopped, pids)):
                break
            assert time.monotonic() < deadline and self.driver.poll() is None, self.story()
            time.sleep(0.05)
        for pid in (self.driver.pid, *pids):
            os.kill(pid, signal.SIGKILL)
        assert self.wait() == -9

    def run(self) -> StopOffsets:
        """A whole run; return its record."""
        self.start()
        assert self.wait() == 0
        return self.check_end()

    def until_finished(self, attempts: int = 20) -> int:
        """Start again until the open run is finished; return how often that was necessary."""
        for attempt in range(attempts):
            self.start()
            if self.wait() == 0:
                return attempt + 1
        raise AssertionError(f"not finished after {attempts} attempts")

    # ---- the checker

    def record(self) -> StopOffsets | None:
        """What the journal has on the last run."""
        if f"{self.application_id}-journal" not in self.admin.topics():
            return None
        reader = JournalReader(self.settings, self.application_id)
        try:
            return reader.catch_up(self.admin).stop_offsets
        finally:
            reader.close()

    def check_end(self) -> StopOffsets:
        """The last run is finished, and its input is committed at the stop offsets exactly."""
        record = self.record()
        assert record is not None and record.state == "finished", record
        stops = by_partition(record.offsets)
        committed = self.admin.committed_offsets(self.application_id, list(stops), stable=False)
        assert {at: committed[at].offset for at in stops} == stops
        return record

    def ends(self, topic: str = "in") -> dict[TopicPartition, int]:
        return self.admin.end_offsets([TopicPartition(f"{self.name}-{topic}", number) for number in range(self.partitions)])

    def values(self) -> dict[bytes, list[bytes | None]]:
        """The values of the output, by key."""
        return {key: [value for value, _ in rows] for key, rows in self.rows().items()}

    def rows(self) -> dict[bytes, list[tuple[bytes | None, int]]]:
        """The values of the output and their timestamps, by key."""
        rows: dict[bytes, list[tuple[bytes | None, int]]] = {}
        for _, batch in read_ranges(self.settings, ranges_of(self.admin, f"{self.name}-out", settled=True)):
            for key, value, at in zip(batch.keys, batch.values, batch.timestamps, strict=True):
                rows.setdefault(key or b"", []).append((value, at))
        return rows

    def input_up_to(self, record: StopOffsets) -> list[tuple[bytes, bytes | None]]:
        """The records that runs so far have read."""
        stops = by_partition(record.offsets)
        rows: list[tuple[bytes, bytes | None]] = []
        for at, batch in read_ranges(self.settings, ranges_of(self.admin, f"{self.name}-in", settled=True)):
            found = zip(batch.offsets, batch.keys, batch.values, strict=True)
            rows += [(key or b"", value) for offset, key, value in found if offset < stops[at]]
        return rows

    def close(self) -> None:
        if self.driver is not None and self.driver.poll() is None:
            self.driver.kill()
            self.driver.wait(30)
        if self.driver is not None and self.driver.stdout is not None:
            self.driver.stdout.close()
        self._producer.close()


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")


def input_record(number: int) -> tuple[bytes, bytes, int]:
    """Key, value and timestamp of one input record."""
    return b"k%d" % (number * 7 % 13), b"%d" % number, START_MS + number


def counted(keys: list[bytes]) -> dict[bytes, list[bytes]]:
    """What a count without a cache writes for each key: 1, 2, 3, …"""
    return {key: [number.to_bytes(8, "big") for number in range(1, count + 1)] for key, count in Counter(keys).items()}


def wanted_of(topology: str, rows: list[tuple[bytes, bytes | None]]) -> dict[bytes, list[bytes]]:
    """What `batch_topologies` write for this input, by key; calculated without them."""
    if topology in ("one", "calls"):
        return counted([key for key, _ in rows])
    groups = Counter(b"g%d" % (int(value or 0) % 7) for _, value in rows)
    if topology == "two":
        return counted([b"c%d" % (number % 3) for count in groups.values() for number in range(1, count + 1)])
    parities = Counter(b"p%d" % (int(value or 0) % 2) for _, value in rows)
    assert topology == "diamond"
    return counted([b"c%d" % (number % 3) for part in (groups, parities) for count in part.values() for number in range(1, count + 1)])
