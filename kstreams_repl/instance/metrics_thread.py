"""The metrics thread: writes down, once an interval, what each instance of this process measures.

It only takes snapshots; counters are read by the instances' own threads. So figures also come from an instance whose user code blocks: its
totals stand still and its rates fall. One thread for all instances of a process; it ends when there is none left.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kstreams_repl.instance.meter import InstanceMeter

_LOG = logging.getLogger("kstreams_repl.instance")

Publish = Callable[[Mapping[str, Any]], None]


class MetricsThread:
    """All instances that are being measured in this process."""

    def __init__(self) -> None:
        self._watched: dict[InstanceMeter, tuple[float, Publish]] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    def watch(self, meter: InstanceMeter, seconds: float, publish: Publish) -> None:
        """Publish the meter's snapshot every so many seconds, until `forget`."""
        with self._lock:
            self._watched[meter] = (seconds, publish)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
                self._thread.start()

    def forget(self, meter: InstanceMeter) -> None:
        """Publish nothing more of it; what is being written is written when this returns."""
        with self._lock:
            self._watched.pop(meter, None)
            self._changed.notify_all()

    def _run(self) -> None:
        due: dict[InstanceMeter, float] = {}
        while True:
            with self._lock:
                if not self._watched:
                    self._thread = None
                    return
                now = time.monotonic()
                due = {meter: due.get(meter, now + seconds) for meter, (seconds, _) in self._watched.items()}
                for meter, (seconds, publish) in self._watched.items():
                    if due[meter] <= now:
                        due[meter] = now + seconds
                        _write(meter, publish)
                self._changed.wait(max(0.0, min(due.values()) - time.monotonic()))


def _write(meter: InstanceMeter, publish: Publish) -> None:
    try:
        publish(meter.snapshot().plain())
    except Exception as error:  # figures are never worth an application
        _LOG.warning("metrics were not written: %s", error)


METRICS_THREAD = MetricsThread()
