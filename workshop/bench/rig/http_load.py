"""The load of the queries benchmark: HTTP requests over a few connections, from a process of its own.

Each connection has one request open at a time. Without a rate the next is sent when the answer is there (closed loop); with one, requests
are due at even times and a late answer counts from the time at which its request was due, so a stall is not hidden (open loop).
Parser and event loop are the server's, in C; the processor time that this process used says whether it was the bottleneck.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count, cycle
from typing import Any

import httptools
import uvloop

from kstreams_repl.system.errors import KStreamsError
from workshop.bench.rig.json_output import quantiles


@dataclass(frozen=True, slots=True)
class Load:
    """What to ask of one server.

    Attributes:
        requests: whole HTTP/1.1 requests as text, sent in turn and over again.
        rate: requests per second; None: as fast as the server answers.
    """

    host: str
    port: int
    requests: Sequence[str]
    connections: int = 8
    seconds: float = 5.0
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of it; times in milliseconds.

    Attributes:
        load_cores: processors that the load itself used; near 1 it was the bottleneck.
    """

    answers: int
    refused: int
    seconds: float
    p50: float
    p95: float
    p99: float
    max: float
    load_cores: float

    @property
    def rate(self) -> float:
        """Answers per second."""
        return self.answers / self.seconds


def start_load(load: Load) -> subprocess.Popen[str]:
    """Start a load in a process of its own; `result_of` waits for it. SIGTERM ends it early, with its result."""
    process = subprocess.Popen([sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps(asdict(load)))
    process.stdin.close()
    process.stdin = None
    return process


def result_of(process: subprocess.Popen[str], *, may_refuse: bool = False) -> Loaded:
    """Wait for a load.

    Args:
        may_refuse: count refused requests in place of an error.

    Raises:
        KStreamsError: the server refused requests, or closed connections.
    """
    output, _ = process.communicate()
    if process.returncode:
        raise KStreamsError("the load failed", hint="its error is above")
    loaded = Loaded(**json.loads(output))
    if loaded.refused and not may_refuse:
        raise KStreamsError(f"{loaded.refused} of {loaded.answers} answers had another status than 200")
    return loaded


@dataclass(slots=True)
class _Run:
    """What the connections of a load share.

    Attributes:
        due: when the next request is due; None: at once.
        times: seconds of each answer.
    """

    requests: Iterator[bytes]
    due: Iterator[float] | None
    until: float
    times: list[float]
    refused: int = 0

    def end(self) -> None:
        self.until = 0.0


class _Connection(asyncio.Protocol):
    """One connection: sends the next request, notes when its answer is whole."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent = 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._parser = httptools.HttpResponseParser(self)
        self._next()

    def _next(self) -> None:
        now = time.perf_counter()
        if now >= self._run.until:
            self._finish()
            return
        at = now if self._run.due is None else next(self._run.due)
        if at <= now:
            self._send(at)
        elif at < self._run.until:
            asyncio.get_running_loop().call_later(at - now, self._send, at)
        else:
            self._finish()

    def _send(self, at: float) -> None:
        self._sent = at
        self._transport.write(next(self._run.requests))

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._run.refused += self._parser.get_status_code() != 200
        self._run.times.append(time.perf_counter() - self._sent)
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server closed a connection"))


async def run(load: Load) -> Loaded:
    """Put the load on the server."""
    loop = asyncio.get_running_loop()
    requests = cycle([text.encode() for text in load.requests])
    begun, cpu = time.perf_counter(), time.process_time()
    due = None if load.rate is None else (begun + number / load.rate for number in count())
    state = _Run(requests, due, begun + load.seconds, [])
    loop.add_signal_handler(signal.SIGTERM, state.end)
    made = [(await loop.create_connection(lambda: _Connection(state), load.host, load.port))[1] for _ in range(load.connections)]
    await asyncio.gather(*(connection.done for connection in made))
    seconds = time.perf_counter() - begun
    cores = (time.process_time() - cpu) / seconds
    found = quantiles([1000 * each for each in state.times], digits=3)
    return Loaded(len(state.times), state.refused, round(seconds, 3), **found, load_cores=round(cores, 2))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(asdict(runner.run(run(Load(**json.loads(sys.stdin.read())))))))
