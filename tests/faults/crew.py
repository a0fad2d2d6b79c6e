"""One application on a real broker, run by plain processes that tests kill, stop and start again; and the checker of its results.

The processes run the project's `run_instance`; what Spark and its driver do (raise the generation, fence, start, start again) is done
here. The application counts by key, counts in windows, joins with a table, and writes each record to two partitions of one topic.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from kstreams_repl import StreamsBuilder, TimeWindows, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel
from kstreams_repl.host.instance.initialization.task_initialization import fence_instances
from kstreams_repl.host.instance.state.state_directory import control_directory, task_directory
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from kstreams_repl.system.types import TopicPartition

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
KEYS = 40
WINDOW_MS = 250
RETENTION_MS = 86_400_000
"""What is done again after a crash finds its windows. By default they are kept for size and grace: at least once, records that come
again to a window that is hidden by then count from zero, in Kafka Streams too."""
SECONDS = 60.0
BOTH = {"key_serde": serdes.bytes, "value_serde": serdes.bytes}


def _two(value: bytes) -> list[bytes]:
    return [b"0" + value, b"1" + value]


def _place(topic: str, key: bytes, value: bytes, count: int) -> int:
    return value[0] - ord("0")


def _named(windowed: Any, count: int) -> tuple[bytes, int]:
    return b"%s@%d" % (windowed.key, windowed.start), count


def _joined(value: bytes, row: bytes) -> bytes:
    return value + b"|" + row


def topology(name: str, user: Callable[[bytes], bytes] | None = None, calls: Mapping[str, Any] | None = None) -> Any:
    """count + window + join, and the detector of torn commits; before all of it a user's function, in the node ``user``.

    Args:
        calls: the options of an asynchronous node that calls the function; None: an ordinary one does.
    """
    builder = StreamsBuilder()
    stream = builder.stream(f"{name}-in", **BOTH)
    if user is not None:
        stream = stream.map_values(user, name="user") if calls is None else _called(stream, user, calls)
    table = builder.table(f"{name}-side", store="side", **BOTH)
    grouped = stream.group_by_key(**BOTH)
    grouped.count(store="counts").to_stream().to(f"{name}-counts", key_serde=serdes.bytes, value_serde=serdes.long)
    windows = grouped.windowed_by(TimeWindows.of_size(WINDOW_MS)).count(store="windows", retention=RETENTION_MS)
    windows.to_stream().map(_named).to(f"{name}-windows", key_serde=serdes.bytes, value_serde=serdes.long)
    stream.join(table, _joined).to(f"{name}-joined", **BOTH)
    stream.flat_map_values(_two).to(f"{name}-torn", partitioner=_place, **BOTH)
    return builder.build()


def _called(stream: Any, user: Callable[[bytes], bytes], calls: Mapping[str, Any]) -> Any:
    return stream.map_values_async(user, name="user", result_serde=serdes.bytes, **calls)


class Crew:
    """Args:
    bootstrap: what the test itself uses.
    through: what the instances use, another address for a proxy.
    user: a function of values in front of everything.
    calls: the options of an asynchronous node that calls it; None: an ordinary one does.
    keys: how many.
    """

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        *,
        guarantee: str = "exactly_once_v2",
        through: str | None = None,
        user: Callable[[bytes], bytes] | None = None,
        calls: Mapping[str, Any] | None = None,
        keys: int = KEYS,
        name: str | None = None,
        **config: Any,
    ) -> None:
        self.name = name or f"c{uuid.uuid4().hex[:6]}"
        self.application_id = f"{self.name}-app"
        self.settings = ClientSettings(bootstrap)
        self.admin = Admin(self.settings)
        self.directory = directory
        self.exactly = guarantee == "exactly_once_v2"
        for topic, count in (
            ("in", PARTITIONS),
            ("side", PARTITIONS),
            ("counts", 2),
            ("windows", 2),
            ("joined", PARTITIONS),
            ("torn", 2),
        ):
            self.admin.create_topic(f"{self.name}-{topic}", count, configs={"retention.ms": "-1"})
        self.config = StreamsConfig(
            {
                "application.id": self.application_id,
                "bootstrap.servers": through or bootstrap,
                "processing.guarantee": guarantee,
                "state.dir": str(directory / "state"),
                "commit.interval.ms": 50,
                "transaction.timeout.ms": 3_000,
            }
            | {key.replace("_", "."): value for key, value in config.items()}
        )
        self.user, self.calls = user, calls
        self.lease = FileChannel(control_directory(directory / "state", self.application_id))
        self.plan: ApplicationPlan | None = None
        self.generation = 0
        self.slots_ever = 0
        self.pids: dict[int, int] = {}
        self.everybody: list[int] = []
        self.sent: list[tuple[bytes, int]] = []
        self.keys = keys
        self.kills: list[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]] = []
        self._sequence: Counter[bytes] = Counter()
        self._base = int(time.time()) // 60 * 60_000  # all in one segment of the window store: none expires
        self._daemon = self._driver()
        self._producer = make_producer(self.settings)
        for key in range(keys):
            self._send("side", b"k%d" % key, b"row%d" % key, self._base - 1)
        assert self._producer.flush(30) == 0

    def _driver(self) -> subprocess.Popen[str]:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.instance_daemon"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert driver.stdout is not None and driver.stdout.readline() == "ready\n"
        return driver

    def kill_driver(self) -> None:
        """End the parent of the instances with kill -9; they see that, and another parent takes over."""
        running = {slot: pid for slot, pid in self.pids.items() if self.state_of(pid)}
        former = self._daemon
        former.kill()
        former.wait(30)
        for stream in (former.stdin, former.stdout):
            assert stream is not None
            stream.close()
        for pid in running.values():
            self.settle(lambda pid=pid: not Path(f"/proc/{pid}").exists(), f"process {pid} to see the death of its parent")
        self._daemon = self._driver()

    def topology(self) -> Any:
        return topology(self.name, self.user, self.calls)

    # ---- input

    def write(self, count: int) -> None:
        """Records ``k<n>`` -> ``<number>:<sequence of the key>``."""
        for _ in range(count):
            number = len(self.sent)
            key = b"k%d" % (number * 7 % self.keys)
            self._sequence[key] += 1
            value = b"%d:%d" % (number, self._sequence[key])
            self._send("in", key, value, self._base + number // 4)
            self.sent.append((key, number))
        assert self._producer.flush(30) == 0

    def _send(self, topic: str, key: bytes, value: bytes, at_ms: int) -> None:
        while True:
            try:
                self._producer.produce(f"{self.name}-{topic}", value, key, -1, None, None, at_ms)
                return
            except BufferError:
                self._producer.poll(0.1)

    # ---- processes

    def deploy(self, instances: int = 2, *, failpoints: str = "", inside: int = 0) -> None:
        """Raise the generation, fence every earlier id, start the instances."""
        self.generation += 1
        config = self.config.with_(num_stream_threads=instances)
        settings = ClientSettings(config["bootstrap.servers"])
        self.plan = make_plan(
            self.topology(),
            config,
            settings,
            admin=self.admin,
            generation=self.generation,
            state_root=self.directory / "state",
        )
        (self.directory / "plan").write_bytes(cloudpickle.dumps(self.plan))
        self.lease.clear()  # as the driver does; old reports of every generation would stay for ever
        self.lease.signal(self.generation, Signal.RUN)
        fence_instances(self.settings, self.application_id, range(self.slots_ever), timeout_ms=config["transaction.timeout.ms"])
        self.slots_ever = max(self.slots_ever, self.plan.instances)
        self.pids = {}
        for slot in range(self.plan.instances):
            self.start(slot, failpoints=failpoints, inside=inside)

    def start(self, slot: int, *, failpoints: str = "", inside: int = 0) -> int:
        order = {"plan": str(self.directory / "plan"), "slot": slot, "failpoints": failpoints, "inside": inside}
        assert self._daemon.stdin is not None and self._daemon.stdout is not None
        self._daemon.stdin.write(json.dumps(order) + "\n")
        self._daemon.stdin.flush()
        pid = self.pids[slot] = int(self._daemon.stdout.readline())
        self.everybody.append(pid)
        return pid

    def state_of(self, pid: int) -> str:
        """R, S, T (stopped) … as the system says; "" when it is gone. Numbers come round: a child of somebody else is not meant."""
        try:
            state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[:2]
        except OSError:
            return ""
        return state if int(parent) == self._daemon.pid else ""

    def died(self, slot: int) -> None:
        """Wait until the process of a slot is gone, and remember what it had committed."""
        pid = self.pids[slot]
        self.settle(lambda: not self.state_of(pid), f"the process of slot {slot} to die")
        self.remember()

    def remember(self) -> None:
        at = [TopicPartition(f"{self.name}-in", number) for number in range(PARTITIONS)]
        committed = self.admin.committed_offsets(self.application_id, at, stable=False)
        known = {place: found.offset for place, found in committed.items()}
        self.kills.append(({place: known.get(place, 0) for place in at}, self.admin.end_offsets(at)))

    def wipe(self, slot: int) -> None:
        """Take the stores of a slot away, as when it moves to another machine."""
        assert self.plan is not None
        for spec in self.plan.assignment[slot]:
            shutil.rmtree(task_directory(self.directory / "state", self.application_id, spec.task_id), ignore_errors=True)

    def settle(self, condition: Any, what: str, seconds: float = SECONDS, progress: Any = lambda: None) -> None:
        """Wait until the condition holds, so long as `progress` changes within the time given."""
        deadline, before = time.monotonic() + seconds, progress()
        while not condition():
            self.raise_failures()
            if (now := progress()) != before:
                deadline, before = time.monotonic() + seconds, now
            assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}: {self.lease.reports(self.generation)}"
            time.sleep(0.02)

    def raise_failures(self) -> None:
        for report in self.lease.reports(self.generation).values():
            if report.get("state") == "failed":
                raise AssertionError(report["failure"])

    def processed(self, seconds: float = SECONDS) -> None:
        """Wait until all that was written is committed."""
        at = [TopicPartition(f"{self.name}-in", number) for number in range(PARTITIONS)]
        ends = self.admin.end_offsets(at)

        def reached() -> bool:
            committed = self.admin.committed_offsets(self.application_id, at, stable=False)
            return all(place in committed and committed[place].offset >= end for place, end in ends.items() if end)

        self.settle(reached, "all records", seconds)

    def stop(self) -> None:
        """An orderly stop."""
        self.lease.signal(self.generation, Signal.STOP)
        for slot, pid in self.pids.items():
            self.settle(lambda pid=pid: not self.state_of(pid), f"slot {slot} to stop")

    def close(self) -> None:
        for pid in self.everybody:
            if self.state_of(pid):
                with suppress(ProcessLookupError):  # it may end in between
                    os.kill(pid, signal.SIGKILL)
        assert self._daemon.stdin is not None and self._daemon.stdout is not None
        self._daemon.stdin.close()
        self._daemon.wait(30)
        self._daemon.stdout.close()
        self._producer.close()

    # ---- the checker

    def read(self, topic: str) -> dict[int, list[tuple[bytes, bytes | None]]]:
        rows: dict[int, list[tuple[bytes, bytes | None]]] = {}
        ranges = ranges_of(self.admin, topic, settled=True)
        for at, batch in read_ranges(self.settings, ranges):
            rows.setdefault(at.partition, []).extend(zip(batch.keys, batch.values, strict=True))  # type: ignore[arg-type]
        return rows

    def reports(self) -> list[dict[str, Any]]:
        """The last report of each process that runs now."""
        found = self.lease.reports(self.generation)
        return [found[slot] for slot, pid in self.pids.items() if found.get(slot, {}).get("pid") == pid]

    def violations_after_stop(self) -> list[str]:
        """Stop in order, look, and go on if there is nothing wrong."""
        self.stop()
        found = self.violations()
        if not found:
            self.deploy(2)
        return found

    def violations(self) -> list[str]:
        """What is wrong, in words: lost, repeated, torn, out of order, wrong counts, stores that differ from their changelogs."""
        found: list[str] = []
        wanted = Counter(number for _, number in self.sent)
        seen: Counter[int] = Counter()
        for rows in self.read(f"{self.name}-joined").values():
            by_key: dict[bytes, list[int]] = {}
            for key, value in rows:
                number, _, sequence = (value or b"").partition(b"|")[0].partition(b":")
                seen[int(number)] += 1
                by_key.setdefault(key, []).append(int(sequence))
            if self.exactly:
                found += [f"{key!r} came as {got[:20]}…" for key, got in by_key.items() if got != list(range(1, len(got) + 1))]
        if lost := sorted((wanted - seen).elements()):
            found.append(f"{len(lost)} lost: {lost[:10]}")
        twice = seen - wanted
        if self.exactly and twice:
            found.append(f"{twice.total()} repeated: {sorted(twice)[:10]}")
        if not self.exactly:
            found += self._beyond_open_commits(twice)
        torn = self.read(f"{self.name}-torn")
        sides = [Counter((value or b"")[1:] for _, value in torn.get(number, [])) for number in (0, 1)]
        if self.exactly and sides[0] != sides[1]:
            found.append(f"torn: {sorted((sides[0] - sides[1]) + (sides[1] - sides[0]))[:6]}")
        found += self._counts() + self._stores()
        return found

    def _counts(self) -> list[str]:
        counts = Counter(key for key, _ in self.sent)
        windows = Counter(b"%s@%d" % (key, (self._base + number // 4) // WINDOW_MS * WINDOW_MS) for key, number in self.sent)
        found = []
        for topic, wanted in ((f"{self.name}-counts", counts), (f"{self.name}-windows", windows)):
            table = {key: int.from_bytes(value or b"", "big") for rows in self.read(topic).values() for key, value in rows}
            wrong = {key: table.get(key) for key, count in wanted.items() if not self._right(table.get(key, 0), count)}
            if wrong or set(table) - set(wanted):
                found.append(f"{topic}: {len(wrong)} wrong, such as {dict(list(wrong.items())[:4])}")
        return found

    def _right(self, have: int, count: int) -> bool:
        return have == count if self.exactly else have >= count

    def _beyond_open_commits(self, twice: Counter[int]) -> list[str]:
        """At least once: what came n times more was in the open commit of n deaths at least."""
        offsets: dict[int, tuple[TopicPartition, int]] = {}
        for at, batch in read_ranges(self.settings, ranges_of(self.admin, f"{self.name}-in", settled=True)):
            for offset, value in zip(batch.offsets, batch.values, strict=True):
                offsets[int((value or b"").partition(b":")[0])] = (at, offset)
        found = []
        for number, times in twice.items():
            place, offset = offsets[number]
            deaths = sum(committed[place] <= offset < ends[place] for committed, ends in self.kills)
            if times > deaths:
                found.append(f"{number} came {times} times more, and was open at {deaths} deaths")
        return found

    def _stores(self) -> list[str]:
        """Each store against the replay of its changelog."""
        assert self.plan is not None
        found = []
        for spec in {spec.task_id: spec for tasks in self.plan.assignment for spec in tasks}.values():
            with LmdbSnapshot(task_directory(self.directory / "state", self.application_id, spec.task_id)) as snapshot:
                for store, skip in (("counts", 0), ("windows", 8)):
                    rows, _ = snapshot.read(store)
                    log = dict(self.read(f"{self.application_id}-{store}-changelog").get(spec.task_id.partition, []))
                    have = {key[skip:]: value[8:] for key, value in rows}
                    if have != {key: value for key, value in log.items() if value is not None}:
                        found.append(
                            f"store {store} of {spec.task_id} differs from its changelog: {len(have)} rows, {len(log)} logged"
                        )
        return found
