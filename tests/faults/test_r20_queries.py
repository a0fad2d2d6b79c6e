"""R20: queries over HTTP while instances, query servers and the driver are killed. Each answer is what the input says for the position
that the answer names, which is not before the asked one; or it is an error that says that asking again helps.

The application counts by key, so the value of a key at an offset is the number of its records up to there.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

import kstreams_repl as ks
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.host.instance.control.file_channel import read_lease, reports_in
from kstreams_repl.host.instance.state.state_directory import control_directory
from kstreams_repl.host.kafka.embedded.broker import free_port
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.query_tokens import FILE, tokens_in
from kstreams_repl.host.spark.query_server_process import read_record, servers_directory
from tests.faults.counts import full
from tests.faults.reliability import note
from tests.spark.hosting import Host, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 4
KEYS = 40
THREADS = 4
KINDS = ("instance", "server", "instance", "driver", "instance", "server", "instance")


@dataclass(frozen=True, slots=True)
class Given:
    """One answer: the value of a key, the offset that it names, and the one that was asked for; -1: none."""

    key: str
    value: int
    offset: int
    bound: int
    stale: bool


class Deployed:
    """An application in a driver process of its own, with a query server at a fixed port."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.source, self.sink = host.topic("in", PARTITIONS), host.topic("out")
        self.name, self.state = f"{host.name}-app", host.directory / "state"
        self.control = control_directory(self.state, self.name)
        self.port = free_port()  # a server that is killed starts again at it
        self.driver: subprocess.Popen[str] | None = None
        self.family: list[psutil.Process] = []

    def start(self) -> None:
        more = {"application.server": f"127.0.0.1:{self.port}", "commit.interval.ms": 50, "transaction.timeout.ms": 3_000}
        command = [sys.executable, "-m", "tests.faults.driver_process", self.host.bootstrap, self.source, self.sink, str(self.state)]
        self.driver = subprocess.Popen(
            [*command, self.name, json.dumps(more)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.driver.stdout is not None
        assert self.driver.stdout.readline().startswith("running")
        self.family = psutil.Process(self.driver.pid).children(recursive=True)

    def kill(self, what: str, dice: random.Random) -> None:
        if what == "driver":
            self.end()
            self.start()
        elif what == "server":
            record = read_record(servers_directory(self.state, self.name) / "driver.json")
            if record is not None:
                os.kill(record.pid, signal.SIGKILL)
        else:
            lease = read_lease(self.control)
            assert lease is not None
            reports = reports_in(self.control, lease.generation)
            with suppress(ProcessLookupError):
                os.kill(dice.choice([report["pid"] for report in reports.values()]), signal.SIGKILL)

    def end(self) -> None:
        assert self.driver is not None and self.driver.stdout is not None
        self.driver.kill()
        self.driver.wait()
        self.driver.stdout.close()
        gone = lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in self.family)  # noqa: E731
        settle(gone, "the driver's processes to go", 30)


class Asking(threading.Thread):
    """Asks until it is told to stop."""

    def __init__(self, deployed: Deployed, seed: int) -> None:
        super().__init__(name=f"asking-{seed}")
        self.deployed = deployed
        self.dice = random.Random(seed)
        self.given: list[Given] = []
        self.errors: Counter[str] = Counter()
        self.final: list[str] = []
        """Errors of which the answer says that asking again does not help: there must be none."""
        self.over = threading.Event()
        self._known: dict[int, int] = {}

    @property
    def count(self) -> int:
        return len(self.given) + self.errors.total()

    def run(self) -> None:
        token = self.deployed.control / FILE
        state: ks.queries.QueryClient | None = None
        while not self.over.is_set():
            try:
                if state is None:
                    state = ks.queries.connect(f"http://127.0.0.1:{self.deployed.port}", token=token, timeout=0.2)
                self._ask(state)
            except ks.KStreamsError as error:
                self.errors[type(error).__name__] += 1
                if not getattr(error, "retriable", False) and not isinstance(error, ks.errors.QueryServerError):
                    self.final.append(f"{type(error).__name__}: {error.message}")
                time.sleep(0.005)
        if state is not None:
            state.close()

    def _ask(self, state: ks.queries.QueryClient) -> None:
        key = f"k{self.dice.randrange(KEYS)}"
        partition = partition_for_key(key.encode(), PARTITIONS)
        bound = self._known.get(partition, -1) + (self.dice.random() < 0.05) if self.dice.random() < 0.4 else -1
        options: dict[str, Any] = {"stale": True} if self.dice.random() < 0.3 else {}
        if bound >= 0:
            options |= {"position": ks.queries.Position({self.deployed.source: {partition: bound}}), "wait": 0.1}
        answer = state.query("get", "counts", key, has_key=True, **options)
        offset = answer.position.partition_positions(self.deployed.source).get(partition, -1)
        value = 0 if answer.value is None else answer.value.value
        self.given.append(Given(key, value, offset, bound, answer.stale))
        self._known[partition] = max(offset, self._known.get(partition, -1))


@pytest.fixture
def deployed(broker: Any, tmp_path: Path) -> Iterator[Deployed]:
    made = Deployed(Host(broker, None, tmp_path))
    tokens_in(made.control)
    made.start()
    yield made
    made.end()


def errors_of(asking: list[Asking]) -> dict[str, int]:
    """How many errors of which class there were."""
    return dict(sum((one.errors for one in asking), Counter()))


def history(host: Host, topic: str) -> dict[str, list[int]]:
    """The offsets of each key's records."""
    found: dict[str, list[int]] = {}
    for _, batch in read_ranges(host.settings, ranges_of(host.admin, topic)):
        for key, offset in zip(batch.keys, batch.offsets, strict=True):
            found.setdefault((key or b"").decode(), []).append(offset)
    return {key: sorted(offsets) for key, offsets in found.items()}


def committed(host: Host, topic: str) -> dict[str, set[int]]:
    """The committed values of each key, from the store's changelog."""
    found: dict[str, set[int]] = {}
    for key, value in host.read(topic):
        found.setdefault((key or b"").decode(), {0}).add(int.from_bytes(value or b"", "big"))
    return found


def violations(given: list[Given], records: dict[str, list[int]], states: dict[str, set[int]]) -> list[str]:
    """Answers that are not the state at the position that they name, or that are before the asked one."""
    wrong = []
    for one in given:
        if one.offset < one.bound:
            wrong.append(f"{one}: before the bound")
        elif one.offset >= 0 and one.value != bisect_right(records.get(one.key, []), one.offset):
            wrong.append(f"{one}: not the state at its position")
        elif one.offset < 0 and one.value not in states.get(one.key, {0}):
            wrong.append(f"{one}: no committed state")
    return wrong


@pytest.mark.timeout(1800)
def test_answers_are_committed_states_under_kills(deployed: Deployed) -> None:
    host, queries, kills = deployed.host, full(100_000), full(20)
    dice = random.Random(20)
    asking = [Asking(deployed, seed) for seed in range(THREADS)]
    outages: dict[str, list[float]] = {}
    written = 0

    def write() -> None:
        nonlocal written
        host.produce(deployed.source, [(b"k%d" % dice.randrange(KEYS), b"v") for _ in range(50)])
        written += 50

    def answered() -> int:
        return sum(len(one.given) for one in asking)

    for one in asking:
        one.start()
    began = time.monotonic()
    settle(lambda: answered() > 0, "the first answer", 120, story=lambda: errors_of(asking))
    print(f"\n{time.monotonic() - began:.0f} s: the first answer", flush=True)
    try:
        for number in range(kills + 1):
            while sum(one.count for one in asking) < queries * (number + 1) // (kills + 1):
                write()
                time.sleep(0.3)
            if number == kills:
                break
            what = KINDS[number % len(KINDS)]
            deployed.kill(what, dice)
            print(f"{time.monotonic() - began:.0f} s: killed the {what}; {answered():,} answers, {errors_of(asking)}", flush=True)
            killed, before = time.monotonic(), answered()
            last, longest = killed, 0.0
            while time.monotonic() - killed < 3 or answered() == before:  # the longest time without any answer
                if answered() > before:
                    before, last = answered(), time.monotonic()
                longest = max(longest, time.monotonic() - last)
                assert time.monotonic() - killed < 120, (what, [dict(one.errors) for one in asking])
                if not number % 3:
                    write()
                time.sleep(0.02)
            outages.setdefault(what, []).append(longest)
    finally:
        for one in asking:
            one.over.set()
        for one in asking:
            one.join(60)
    given = [each for one in asking for each in one.given]
    errors = Counter(errors_of(asking))
    final = [text for one in asking for text in one.final]
    wrong = violations(given, history(host, deployed.source), committed(host, f"{deployed.name}-counts-changelog"))
    kinds = Counter(("stale" if one.stale else "bound" if one.bound >= 0 else "plain", one.offset >= 0) for one in given)
    longest_of = {what: f"{max(seconds):.1f}" for what, seconds in outages.items()}
    print(f"\n{len(given):,} answers, {errors.total():,} errors in {time.monotonic() - began:.0f} s, {written:,} records: {dict(errors)}")
    print(f"{dict(kinds)}; seconds without an answer, at most: {longest_of}; {len(wrong)} wrong")
    note("R20", f"{queries:,} queries under kills of instances, servers and the driver", kills, len(wrong) + len(final),
         answers=len(given), typed_errors=errors.total())  # fmt: skip
    assert not wrong, wrong[:5]
    assert not final, Counter(final).most_common(3)
    assert len({one.value for one in given}) > 10 and any(one.bound >= 0 for one in given)
