"""The state updater: brings the stores of some tasks up to their changelogs' ends while the instance's other tasks are processed.

Actors: the *restore thread*, with a consumer of its own (`restore.Restore`), and the *loop's thread*. A task is at one of them, never at
both. What the restore thread has is in `restoring`; a task goes over by `complete`, a queue that only the restore thread fills and only the
loop's thread empties, and comes from it RESTORING still: the take-over's last step makes it RUNNING (`admission.admit`), at a commit
boundary, when no transaction holds anything. Invariants:

1. The restore's targets were fixed before the first task of the instance ran, after every older holder was fenced. No task of the instance
   writes to the changelog of another one, so nothing moves them.
2. After `complete` has a task the restore thread touches neither its stores nor its changelogs.
3. What the restore thread meets ends the thread; the loop's thread raises it (`check`).
4. Nothing that is not RUNNING takes part in a commit: the offsets, commit id and changelogs of a restoring task are as its last owner left
   them, and a crash finds them so.

Source: step 1 of the threading refactor, Kafka Streams' DefaultStateUpdater.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kstreams_repl.errors import KStreamsError
from kstreams_repl.instance.restore import Restore, RestoreProgress
from kstreams_repl.instance.task_state import TaskLife, TaskState
from kstreams_repl.runtime.task import TaskSpec
from kstreams_repl.stores.engine.base import Environment
from kstreams_repl.types import TopicPartition


@dataclass(slots=True, eq=False)
class RestoringTask:
    """A task that is taken over but for its stores.

    Attributes:
        starts: of each input, where it begins and what was committed beside that offset.
        offsets: where each input begins.
        token: the owner's, of its environment.
    """

    spec: TaskSpec
    environment: Environment
    starts: Mapping[TopicPartition, Any]
    offsets: Mapping[TopicPartition, int]
    changelogs: frozenset[TopicPartition]
    token: str
    life: TaskLife


class StateUpdater:
    """The restoring tasks of one instance. All methods are for the loop's thread."""

    def __init__(self, name: str, restore: Restore, tasks: Iterable[RestoringTask]) -> None:
        self.restoring = {str(task.spec.task_id): task for task in tasks}
        """By name; a task stays here until it is admitted."""
        self.told: dict[str, int] = {}
        """How many records of each task have been reported."""
        self._restore = restore
        self._name = name
        self._complete: deque[str] = deque()
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        for task in self.restoring.values():
            task.life.enter(TaskState.RESTORING, f"{len(task.changelogs)} changelogs")

    def start(self) -> StateUpdater:
        """Begin, or go on after `rest`."""
        if self._thread is None:
            self._over.clear()
            self._thread = threading.Thread(target=self._run, name=f"restore-{self._name}", daemon=True)
            self._thread.start()
        return self

    @property
    def progress(self) -> RestoreProgress:
        """As of the last 0.2 seconds; another object when it has changed."""
        return self._restore.progress

    @property
    def due(self) -> bool:
        """Whether the loop should come to a commit, to admit tasks or to raise an error."""
        return bool(self._complete) or self._error is not None

    def check(self) -> None:
        """Raise what the restore thread met."""
        if self._error is not None:
            raise self._error

    def next_complete(self) -> RestoringTask | None:
        """A task whose stores are complete. It stays with the updater, whose end closes its environment, until `admitted`."""
        self.check()
        return self.restoring[self._complete[0]] if self._complete else None

    def admitted(self) -> None:
        """The task that `next_complete` gave belongs to the loop now."""
        del self.restoring[self._complete.popleft()]

    def rest(self) -> None:
        """Stop at a batch; `start` goes on from there. Between epochs, for an instance that rests."""
        self._over.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def release(self) -> list[Environment]:
        """End, and hand over the environments of the tasks that were not admitted, open."""
        self.rest()
        with suppress(Exception):  # its client; the stores are what matters
            self._restore.close()
        tasks, self.restoring = self.restoring, {}
        self._complete.clear()
        for task in tasks.values():
            task.life.enter(TaskState.CLOSED, "let go")
        return [task.environment for task in tasks.values()]

    def close(self) -> None:
        """End and close what was not admitted. What is restored stays on the disk, with its position."""
        for environment in self.release():
            with suppress(KStreamsError):
                environment.close()

    # ---- the restore thread

    def _run(self) -> None:
        try:
            while self._restore.missing and not self._over.is_set():
                self._complete.extend(sorted(self._restore.step()))
        except BaseException as error:  # the loop's thread raises it
            self._error = error
