"""The HTTP half of `./kstreams bench queries`: a deployed count of many keys, its query server, and loads from another process.

Per core: answers per second of processor time that the server used. The load's own use stands in each line (`load cores`).
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot
from kstreams_repl.host.instance.state.state_directory import application_directory, state_root
from kstreams_repl.host.kafka.clients import make_producer
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.repl.session.application.serve import QueryServer
from kstreams_repl.serving.remote.client import connect
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.peers.kafka_streams_queries import QueriesPeer
from workshop.bench.rig import workloads
from workshop.bench.rig.deployed import Settings, committed_of
from workshop.bench.rig.http_load import Load, Loaded, result_of, start_load
from workshop.bench.rig.json_output import quantiles
from workshop.bench.rig.testbed import Testbed, give_up, produce
from workshop.bench.rig.workloads import Topics

AT_ONCE = 1_000
CONNECTIONS = 8
MANY_CONNECTIONS = 4
STORE = "counts"
_APPLICATION = "bench-queries"
_DIFFERENT = 20_000
_PACE = 200
_QUERIES = 1_000.0
_SETTINGS = Settings(commit_ms=100)
Emit = Callable[..., Any]


def key_of(number: int) -> str:
    """Return a key of the store."""
    return f"key-{number:09d}"


def topics_of(testbed: Testbed, keys: int) -> Topics:
    """Return the topics: one record of each key."""
    topics = Topics(f"bench-queries-{keys}", "", "bench-queries-output")
    now = int(time.time() * 1000)
    testbed.fresh_topic(topics.output)
    testbed.fill(topics.input, keys, ((key_of(number).encode(), b"x", now) for number in range(keys)))
    return topics


@contextmanager
def served(testbed: Testbed, topics: Topics, keys: int) -> Iterator[tuple[Application, QueryServer]]:
    """Yield the application, which has counted every key, and its server."""
    app = testbed.session.deploy(workloads.topology("count", topics), _APPLICATION, config=_SETTINGS.config())
    try:
        _await_committed(app, topics.input, keys)
        yield app, app.serve()
    finally:
        app.stop()
        testbed.session.cleanup(_APPLICATION)


def _await_committed(app: Application, topic: str, records: int) -> list[tuple[float, int]]:
    """Wait until so many records are committed; return samples of (time, committed)."""
    samples = [(time.perf_counter(), committed_of(app.reports, topic))]
    while samples[-1][1] < records:
        if app.status == "failed":
            raise app.error or KStreamsError(f"{app.name} failed")
        if time.perf_counter() - samples[0][0] > _SETTINGS.max_seconds:
            raise give_up(f"the commit of {records:,} records", _SETTINGS.max_seconds)
        time.sleep(0.02)
        samples.append((time.perf_counter(), committed_of(app.reports, topic)))
    return samples


# ---- gets and multi-gets


def requests_of(port: int, token: str, keys: int) -> tuple[list[str], list[str]]:
    """Return single gets and multi-gets of random keys, as HTTP requests."""
    chosen = random.Random(1)
    head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n"
    gets = [f"GET /state/stores/{STORE}/{key_of(chosen.randrange(keys))} HTTP/1.1\r\n{head}\r\n" for _ in range(_DIFFERENT)]
    bodies = [json.dumps({"keys": [key_of(chosen.randrange(keys)) for _ in range(AT_ONCE)]}) for _ in range(_DIFFERENT // 100)]
    many = [
        f"POST /state/stores/{STORE} HTTP/1.1\r\n{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        for body in bodies
    ]
    return gets, many


def emit_loads(emit: Emit, port: int, pid: int, gets: Sequence[str], many: Sequence[str], seconds: float, suffix: str = "") -> None:
    """Print the lines of one server: gets, and multi-gets."""
    for case, requests, connections, rows in (("get", gets, CONNECTIONS, 1), (f"multi-get of {AT_ONCE}", many, MANY_CONNECTIONS, AT_ONCE)):
        load = Load("127.0.0.1", port, requests, connections, seconds)
        result_of(start_load(Load("127.0.0.1", port, requests, connections, min(3.0, seconds))))  # warms up, the JVM most of all
        before = cpu_of(pid)
        found: Loaded = result_of(start_load(load))
        used = cpu_of(pid) - before
        unit = "gets/s" if rows == 1 else "keys/s"
        fields = {"p50_ms": found.p50, "p99_ms": found.p99, "server_cores": round(used / found.seconds, 2), "load_cores": found.load_cores}
        emit(f"HTTP {case}{suffix}", round(found.rate * rows), unit, per_core=round(found.answers * rows / used), **fields)


def cpu_of(pid: int) -> float:
    """Return the processor seconds of a process."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


# ---- a subscription


def emit_subscription(emit: Emit, testbed: Testbed, app: Application, server: QueryServer, topic: str, seconds: float) -> None:
    """Print how long after the commit of its task a change reaches a subscriber, and how long after it was sent."""
    with CommitTimes(app) as commits, connect(server.url, token=Path(server.token_path)) as state:
        events: list[tuple[float, dict[str, Any]]] = []
        sent: dict[str, float] = {}
        producer = make_producer(testbed.settings, linger_ms=0)
        count = int(seconds * _PACE)
        listening = threading.Event()

        def send(key: str) -> None:
            producer.produce(topic, b"x", key.encode())
            producer.poll(0)

        def listen() -> None:
            for event in state.subscribe(STORE, snapshot=False):
                if event["event"] == "change":
                    events.append((time.time() * 1000, event))
                    listening.set()
                    if len(events) >= count:
                        return

        thread = threading.Thread(target=listen, name="bench-subscriber", daemon=True)
        thread.start()
        while not listening.wait(0.2):  # until the first change arrives, so that none is missed below
            send("first")
        begun = time.perf_counter()
        for number in range(count):
            time.sleep(max(0.0, begun + number / _PACE - time.perf_counter()))
            key = f"sent-{number}"
            sent[key] = time.time() * 1000
            send(key)
        thread.join(30)
        producer.flush(10)
        producer.close()
    late = [at - committed for at, event in events if (committed := commits.of(event["partition"], event["offset"])) is not None]
    whole = [at - sent[event["key"]] for at, event in events if event["key"] in sent]
    if not late or not whole:
        raise KStreamsError(f"the subscription delivered {len(events)} of {count} changes")
    emit("subscription, commit to change", quantiles(late)["p99"], "ms", **quantiles(late), changes=len(late))
    emit("subscription, record to change", quantiles(whole)["p99"], "ms", **quantiles(whole), commit_interval_ms=_SETTINGS.commit_ms)


class CommitTimes:
    """Notes when each commit of the application's stores was made, by the clock of this machine; a context manager.

    The commit of a store follows the broker's by milliseconds, so a change may arrive before it: then its delay is negative.
    """

    def __init__(self, app: Application) -> None:
        root = application_directory(state_root(app.config), app.name)
        self._snapshots = {int(path.parent.name.partition("_")[2]): LmdbSnapshot(path.parent) for path in root.glob("tasks/*/data.mdb")}
        self._topic = f"{app.name}-{STORE}-changelog"
        self._commits: dict[int, list[tuple[int, int]]] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="bench-commits", daemon=True)

    def __enter__(self) -> CommitTimes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(0.3)
        self._end.set()
        self._thread.join()
        for snapshot in self._snapshots.values():
            snapshot.close()

    def of(self, partition: int, offset: int) -> int | None:
        """Return the time of the first commit after an offset of the changelog; None if it was before the first that was seen."""
        commits = self._commits.get(partition, [])
        if not commits or offset < commits[0][0]:
            return None
        return next((at for position, at in commits if position > offset), None)

    def _follow(self) -> None:
        while not self._end.wait(0.005):
            for partition, snapshot in self._snapshots.items():
                snapshot.meta()
                with snapshot.transaction() as view:
                    position, at = view.positions.get(f"{self._topic}-{partition}", -1), view.commit_time_ms
                known = self._commits.setdefault(partition, [])
                if at is not None and (not known or known[-1][0] < position):
                    known.append((position, at))


# ---- processing meanwhile


def emit_slowdown(
    emit: Emit, testbed: Testbed, app: Application, server: QueryServer, topic: str, records: int, gets: Sequence[str], runs: int
) -> None:
    """Print records per second of the application without and with queries, in turn, so that both meet the same machine.

    Once with all processes on all processors; once with one half of them for the application and the broker, and the other half for the
    server and the load, which shows what queries cost beyond processor time.
    """
    cores = sorted(psutil.Process().cpu_affinity())
    halves = [("shared processors", cores, cores)]
    if len(cores) > 1:
        halves.append(("queries on processors of their own", cores[: len(cores) // 2], cores[len(cores) // 2 :]))
    for case, for_work, for_queries in halves:
        runs_of: dict[bool, list[_Processed]] = {False: [], True: []}
        everything = [*testbed.own_processes(), *testbed.broker_processes()]
        with pinned(everything, for_work), pinned([psutil.Process(server._record.pid)], for_queries):
            for turn in range(2 * runs):
                found = _processed(testbed, app, server, topic, records, gets if turn % 2 else (), for_queries)
                runs_of[bool(turn % 2)].append(found)
        asked = [each.loaded for each in runs_of[True] if each.loaded is not None]
        with_, without = (max(runs_of[queried], key=lambda each: each.rate) for queried in (True, False))
        spared = with_.rate * len(cores) / (len(cores) - with_.cores["load"])
        emit(
            f"processing under {_QUERIES:,.0f} queries/s, {case}", round(100 * (1 - with_.rate / without.rate), 1), "% slower",
            without_load=round(100 * (1 - spared / without.rate), 1), without=round(without.rate), with_queries=round(with_.rate),
            server_cores=with_.cores["server"], load_cores=with_.cores["load"],
            application_cores=[without.cores["application"], with_.cores["application"]],
            broker_cores=[without.cores["broker"], with_.cores["broker"]], us_per_record=[without.us_per_record, with_.us_per_record],
            queries_per_s=round(sum(one.rate for one in asked) / len(asked)),
            p99_ms=max(one.p99 for one in asked), refused=sum(one.refused for one in asked), runs=runs,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Processed:
    """One run of processing.

    Attributes:
        rate: records per second over the middle four fifths.
        cores: processors used by part, from the resume to the last commit.
        us_per_record: processor time of application and broker.
    """

    rate: float
    cores: dict[str, float]
    us_per_record: float
    loaded: Loaded | None


def _processed(
    testbed: Testbed, app: Application, server: QueryServer, topic: str, records: int, gets: Sequence[str], cores: list[int]
) -> _Processed:
    """Process so many records that wait, and tell what the load did meanwhile."""
    app.pause()
    now = int(time.time() * 1000)
    produce(testbed.settings, topic, ((key_of(number % 1_000_000).encode(), b"x", now) for number in range(records)))
    before = committed_of(app.reports, topic)
    load = None
    if gets:
        load = start_load(Load("127.0.0.1", server.host_info.port, gets, 4, 600.0, _QUERIES))
        psutil.Process(load.pid).cpu_affinity(cores)
        time.sleep(0.5)
    own = {"server": server._record.pid} | ({} if load is None else {"load": load.pid})
    used, began = _used(testbed, own), time.perf_counter()
    try:
        app.resume()
        samples = _await_committed(app, topic, before + records)
        lasted, used_then = time.perf_counter() - began, _used(testbed, own)
    finally:
        if load is not None:
            load.terminate()
    seconds = {part: sum(now - used[part].get(pid, 0.0) for pid, now in then.items()) for part, then in used_then.items()}
    loaded = None if load is None else result_of(load, may_refuse=True)  # at the resume, while the tasks are taken over
    first, last = before + records // 10, before + records * 9 // 10
    begun, ended = (next(at for at, done in samples if done >= wanted) for wanted in (first, last))
    done = [next(done for at, done in samples if at == moment) for moment in (begun, ended)]
    if ended == begun:
        raise KStreamsError(f"{records:,} records were committed within one sample: no rate", hint="more --records")
    return _Processed(
        (done[1] - done[0]) / (ended - begun),
        {"load": 0.0} | {part: round(taken / lasted, 2) for part, taken in seconds.items()},
        round(1e6 * (seconds["application"] + seconds["broker"]) / records, 2),
        loaded,
    )


def _used(testbed: Testbed, own: Mapping[str, int]) -> dict[str, dict[int, float]]:
    """Return the processor seconds of each process by part; `own` are parts of one process."""
    broker = {process.pid for process in testbed.broker_processes()}
    this, known = os.getpid(), {*broker, *own.values()}
    application = {process.pid for process in testbed.own_processes()} - known - {this}
    found: dict[str, dict[int, float]] = {}
    for part, pids in {"application": application, "broker": broker, **{name: {pid} for name, pid in own.items()}}.items():
        found[part] = {}
        for pid in pids:
            with suppress(psutil.Error):
                found[part][pid] = cpu_of(pid)
    return found


@contextmanager
def pinned(processes: Sequence[psutil.Process], cores: list[int]) -> Iterator[None]:
    """Keep processes, with all their threads, on some processors."""
    was = {}
    for process in processes:
        for thread in _threads_of(process):
            with suppress(psutil.Error, OSError):
                was[thread] = psutil.Process(thread).cpu_affinity()
                psutil.Process(thread).cpu_affinity(cores)
    try:
        yield
    finally:
        for thread, before in was.items():
            with suppress(psutil.Error, OSError):
                psutil.Process(thread).cpu_affinity(before)


def _threads_of(process: psutil.Process) -> list[int]:
    with suppress(psutil.Error):
        return [process.pid, *(thread.id for thread in process.threads())]
    return []


# ---- the peer


def emit_peer(emit: Emit, testbed: Testbed, peer: QueriesPeer, topics: Topics, keys: int, seconds: float) -> None:
    """Print the lines of Kafka Streams' own store behind the JDK's HTTP server."""
    with peer.serving(testbed, topics.input, keys, _SETTINGS, f"{_APPLICATION}-peer") as (port, pid):
        emit_loads(emit, port, pid, *requests_of(port, "none", keys), seconds, " kafka-streams")


