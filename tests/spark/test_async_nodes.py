"""Asynchronous nodes and several threads on one task, on Spark and a real broker: a connection pool is opened once and closed on every way
out, calls in flight survive a pause and an edit, and nothing is left after many of them.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from kstreams_repl import StreamsBuilder, serdes
from tests.spark.hosting import Host, decoded, expected_counts, numbered, processed, running, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


def pooled(source: str, sink: str, address: tuple[str, int], log: str, version: int = 1, seconds: float = 0.0) -> Any:
    """A topology whose processor holds connections to a server, and notes when they are opened and closed."""

    class Pool:
        def init(self) -> None:
            self.connections = [socket.create_connection(address) for _ in range(4)]
            self.free = threading.Semaphore(4)
            self.note("open")

        def process(self, record: Any, context: Any) -> None:
            with self.free:
                time.sleep(seconds)
            context.forward(record.with_value(f"{record.value}/{version}"))

        def close(self) -> None:
            for connection in self.connections:
                connection.close()
            self.note("close")

        def note(self, what: str) -> None:
            with Path(log).open("a") as file:
                file.write(f"{what} {os.getpid()}\n")

    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde=serdes.string, value_serde=serdes.string)
    called = stream.process_async(Pool, name="call", in_flight=4, key_serde="string", value_serde="string")
    called.to(sink, key_serde=serdes.string, value_serde=serdes.string)
    return builder.build()


class Server:
    """Accepts connections and counts those that are open."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = self._listener.getsockname()
        self.open = 0
        self.accepted = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.open, self.accepted = self.open + 1, self.accepted + 1
            threading.Thread(target=self._follow, args=(connection,), daemon=True).start()

    def _follow(self, connection: socket.socket) -> None:
        with connection:
            while connection.recv(64):
                pass
        with self._lock:
            self.open -= 1

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread that accepts
        self._listener.close()


def events(log: Path) -> list[str]:
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def test_a_pool_of_connections_is_opened_once_per_instance_and_closed_on_every_way_out(host: Host, tmp_path: Path) -> None:
    source, sink, log, server = host.topic("in", 2), host.topic("out", 1), tmp_path / "log", Server()
    try:
        first = pooled(source, sink, server.address, str(log), seconds=0.01)
        app = host.deploy(first, num_stream_threads=1)
        host.produce(source, [(b"k%d" % number, b"%d" % number) for number in range(200)])
        processed(app, 100)
        app.pause()  # with calls in flight
        app.replace(pooled(source, sink, server.address, str(log), version=2))
        app.resume()
        host.produce(source, [(b"k%d" % number, b"%d" % number) for number in range(200, 300)])
        settle(lambda: len(host.read(sink)) >= 300, "300 results")
        app.stop()
        settle(lambda: server.open == 0, "the connections to close")
        assert sorted(events(log)) == ["close", "close", "open", "open"]
        assert server.accepted == 8
        found = [(value or b"").split(b"/") for _, value in host.read(sink)]
        assert sorted(int(value) for value, _ in found) == list(range(300))
        assert {version for _, version in found} == {b"1", b"2"}
    finally:
        server.close()


@pytest.mark.parametrize("per_task", [2, 3])
def test_threads_of_one_task_change_no_count(host: Host, per_task: int) -> None:
    """KIP-311: five threads in all are two instances with two each, and the remainder; or one with five."""
    source, sink = host.topic("in", 2), host.topic("out")
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde=serdes.string, value_serde=serdes.string)

    def slowly(value: str) -> str:
        time.sleep(0.001)
        return value

    counts = stream.map_values(slowly).filter(lambda key, value: True).group_by_key().count(store="counts")
    counts.to_stream().to(sink, key_serde=serdes.string, value_serde=serdes.long)
    app = host.deploy(builder.build(), num_stream_threads=5, num_threads_per_task=per_task)
    running(app)
    assert len(app.reports.instances) == 5 // per_task
    for start in (0, 600):
        host.produce(source, numbered(600, start=start))
        processed(app, start + 600)
        app.pause()
        app.resume()
    app.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(1_200))


@pytest.mark.timeout(3_000)
def test_nothing_is_left_over_many_pauses_and_edits(host: Host, tmp_path: Path) -> None:
    """KSTREAMS_PAUSES: how many; every fifth is an edit."""
    source, sink, log, server = host.topic("in", 2), host.topic("out", 1), tmp_path / "log", Server()
    rounds = int(os.environ.get("KSTREAMS_PAUSES", "100"))
    try:
        app = host.deploy(pooled(source, sink, server.address, str(log)), num_stream_threads=1)
        made = 0
        seen: dict[int, tuple[int, int, int, int]] = {}
        for number in range(1, rounds + 1):
            host.produce(source, [(b"k%d" % at, b"%d" % at) for at in range(made, made + 5)])
            made += 5
            processed(app, made)
            app.pause()
            if number % 5 == 0:
                app.replace(pooled(source, sink, server.address, str(log), version=number))
            app.resume()
            running(app)
            if number in (rounds // 5, rounds):
                worker = psutil.Process(app.reports.instances[0].pid)
                found = (worker.num_threads(), worker.num_fds(), len(worker.net_connections()), server.open)
                seen[number] = found
                print(f"after {number}: threads, descriptors, sockets, open connections: {found}")
        app.stop()
        settle(lambda: server.open == 0, "the connections to close")
        assert events(log).count("open") == events(log).count("close")
        early, late = seen.values()
        assert all(after <= before + 8 for before, after in zip(early, late, strict=True)), (early, late)
        assert sorted(int((value or b"").split(b"/")[0]) for _, value in host.read(sink)) == list(range(made))
    finally:
        server.close()
