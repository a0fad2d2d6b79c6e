"""Tasks whose synchronous functions wait: a record takes longer than 100 ms on average, and every other task of the instance waits with it.

Measured on the slices that the counters have anyway. The log says so once per task; reports carry the figure for the picture.
"""

from __future__ import annotations

import logging

from kstreams_repl.engine.metrics.counters import Counter

_LOG = logging.getLogger("kstreams_repl.host.instance")
SLOW_MS = 100.0
_LEAST_RECORDS = 5
"""Records of one measurement: fewer may be a single slow one."""


class SlowTasks:
    """The mean time of a record, by task, over the last records."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}
        self._means: dict[str, float] = {}
        self._reported: set[str] = set()

    def of(self, task: str, process: Counter) -> float | None:
        """Return the mean (ms) of a task's last records if it is above the bound, else None."""
        count, total = process.count, process.total
        before, spent = self._seen.get(task, (0, 0.0))
        if count < before:  # the task was initialised again
            before, spent = 0, 0.0
        if count - before >= _LEAST_RECORDS:
            self._means[task] = (total - spent) / (count - before) * 1000
            self._seen[task] = (count, total)
        mean = self._means.get(task, 0.0)
        if mean <= SLOW_MS:
            return None
        if task not in self._reported:
            self._reported.add(task)
            _LOG.warning(
                "a record of task %s takes %.0f ms on average, and the instance processes nothing else meanwhile. "
                "Hint: if its functions wait for something, use map_values_async, filter_async, flat_map_values_async or process_async",
                task,
                mean,
            )
        return round(mean, 1)
