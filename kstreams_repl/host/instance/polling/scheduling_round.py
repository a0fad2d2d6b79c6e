"""The order of tasks with inline processing and a configured scheduler: `host.instance.polling.scheduler` without threads.

A round has as many turns as there are tasks. The scheduler chooses each turn's task among those that have records and have not
had to wait for another partition in this round. As with processing threads, one task may get several turns and another none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kstreams_repl.host.instance.polling.scheduler import Candidate, Scheduler
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.system.types import TaskId


class SchedulingRounds:
    """Gives turns to tasks in the order that a scheduler chooses.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, scheduler: Scheduler, clock: Callable[[], float] = time.monotonic) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._began = clock()
        self._had: dict[TaskId, float] = {}
        """Time of each task's last turn."""

    def run(self, tasks: Sequence[ActiveTask], limit: int) -> int:
        """Run one round, with at most `limit` records per turn; return how many records were processed."""
        waiting = {task.id: task for task in tasks}
        done = 0
        for _ in tasks:
            now = self._clock()
            listed = [
                Candidate(name, buffered, now - self._had.get(name, self._began))
                for name, task in waiting.items()
                if (buffered := task.task.buffered + task.calls_waiting)
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
