"""Inline, the order in which tasks have their turns where the application chose a scheduler: `instance.scheduler` without threads.

A round has as many turns as there are tasks. Each goes to the task that the scheduler chooses of those that have records and were not
found waiting in this round, so one task may have several and another none, as with processing threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kstreams_repl.instance.active_task import ActiveTask
from kstreams_repl.instance.scheduler import Candidate, Scheduler
from kstreams_repl.types import TaskId


class Turns:
    """Asks a scheduler whose turn it is.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, scheduler: Scheduler, clock: Callable[[], float] = time.monotonic) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._began = clock()
        self._had: dict[TaskId, float] = {}
        """When each task last had a turn."""

    def round(self, tasks: Sequence[ActiveTask], limit: int) -> int:
        """Let tasks process, at most `limit` records in a turn; how many records were taken."""
        waiting = {task.id: task for task in tasks}
        done = 0
        for _ in tasks:
            now = self._clock()
            listed = [
                Candidate(name, buffered, now - self._had.get(name, self._began))
                for name, task in waiting.items()
                if (buffered := task.task.buffered)
            ]
            if not listed:
                break
            chosen = self._scheduler(listed).id
            taken = waiting[chosen].process(limit)
            self._had[chosen] = self._clock()
            if not taken:  # it waits for records of another partition
                del waiting[chosen]
            done += taken
        return done
