"""Records sent at an even pace while an application runs."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

from kstreams_repl.host.kafka.clients import make_producer
from workshop.bench.rig.testbed import COMPRESSION, LINGER_MS, Testbed
from workshop.bench.rig.workloads import Row

_TICK_SECONDS = 0.02
_NOW = 0
"""A timestamp that the producer replaces by the time of the call."""


def uniform_rows(keys: int) -> Iterator[Row]:
    """Yield records of uniform keys without end."""
    pick = random.Random(1).randrange
    while True:
        yield b"user-%d" % pick(keys), b"1", _NOW


class Pace:
    """Sends rows at an even pace on a thread, while its `with` block runs. The pace does not adapt: a slower application falls
    behind.

    Args:
        rows: without end.
        rate: records per second.
    """

    def __init__(self, testbed: Testbed, topic: str, rows: Iterator[Row], rate: float) -> None:
        self._topic, self._rows, self._rate = topic, rows, rate
        self._producer = make_producer(testbed.settings, linger_ms=LINGER_MS, compression_type=COMPRESSION)
        self._end = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="bench-pace", daemon=True)
        self.sent = 0

    def __enter__(self) -> Pace:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()
        self._producer.close()

    def check(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        began, produce, rows = time.monotonic(), self._producer.produce, self._rows
        try:
            while not self._end.wait(_TICK_SECONDS):
                for _ in range(int((time.monotonic() - began) * self._rate) - self.sent):
                    key, value, at_ms = next(rows)
                    while not self._end.is_set():
                        try:
                            produce(self._topic, value, key, -1, None, None, at_ms)
                            break
                        except BufferError:  # the broker is slower than the pace
                            self._producer.poll(_TICK_SECONDS)
                    self.sent += 1
                self._producer.poll(0)
        except Exception as error:  # raised by `check`
            self._error = error
