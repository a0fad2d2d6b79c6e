"""When a commit of an instance is due; the same for inline processing and for processing threads.

A commit is due after ``commit.interval.ms``, when a processor requests it, and, while no records wait, `repl.commit.eager.ms` after
the last one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.polling.committer import Committer
from kstreams_repl.host.instance.tasks.active_task import ActiveTask


class CommitTiming:
    """The times at which one instance commits. All times are monotonic seconds.

    Args:
        tasks: the instance's own list, which changes as tasks are activated.
    """

    def __init__(self, committer: Committer, tasks: Sequence[ActiveTask], config: StreamsConfig) -> None:
        self._committer = committer
        self._tasks = tasks
        self.interval: float = config["commit.interval.ms"] / 1000
        eager: int = config["repl.commit.eager.ms"]
        self._eager: float = math.inf if eager < 0 else eager / 1000

    def is_due(self, now: float) -> bool:
        """Return whether to commit although more records may wait."""
        if now >= self._committer.refresh_at:
            self._committer.refresh(now)
        return now - self._committer.last_commit >= self.interval or any(task.task.commit_requested for task in self._tasks)

    def is_due_at_rest(self, now: float) -> bool:
        """Return whether to commit while no records wait."""
        return now - self._committer.last_commit >= self._eager

    def seconds_left(self, now: float) -> float:
        """Return for how long an instance at rest may wait before it commits; without anything to commit, for ever."""
        if not self._committer.touched:
            return math.inf
        return self._committer.last_commit + min(self.interval, self._eager) - now
