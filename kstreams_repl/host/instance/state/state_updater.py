"""The state updater: restores the stores of some tasks up to their changelogs' ends while the instance's other tasks are
processed.

Actors: the *restore thread*, with a consumer of its own (`changelog_reader.ChangelogReader`), and the *loop's thread*. Each task belongs
to exactly one of them. The restore thread's tasks are in `restoring`; a task moves by `complete`, a queue that only the restore
thread fills and only the loop's thread empties, and is still RESTORING then: the take-over's last step makes it RUNNING
(`task_activation.activate_restored`), at a commit boundary, when the transaction is empty. Invariants:

1. The restore's targets were fixed before the first task of the instance ran, after every older holder was fenced. No task of the
   instance writes to the changelog of another one, so the targets do not move.
2. Once a task is in `complete`, the restore thread touches neither its stores nor its changelogs.
3. An error of the restore thread ends the thread; the loop's thread raises it (`check`).
4. Only RUNNING tasks take part in a commit: the offsets, commit id and changelogs of a restoring task stay as its last owner left
   them, also after a crash.

Source: step 1 of the threading refactor, Kafka Streams' DefaultStateUpdater.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.host.instance.epochs.lifecycle import TaskLifecycle, TaskState
from kstreams_repl.host.instance.state.changelog_reader import ChangelogReader, RestoreProgress
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.log_context import carried
from kstreams_repl.system.types import TopicPartition


@dataclass(slots=True, eq=False)
class RestoringTask:
    """A task that is taken over except for its stores.

    Attributes:
        starts: where each input begins, and the metadata committed with that offset.
        offsets: the start offset of each input.
        token: the owner token of its environment.
    """

    spec: TaskSpec
    environment: Environment
    starts: Mapping[TopicPartition, Any]
    offsets: Mapping[TopicPartition, int]
    changelogs: frozenset[TopicPartition]
    token: str
    life: TaskLifecycle


class StateUpdater:
    """The restoring tasks of one instance. Call all methods from the loop's thread."""

    def __init__(self, name: str, reader: ChangelogReader, tasks: Iterable[RestoringTask]) -> None:
        self.restoring = {str(task.spec.task_id): task for task in tasks}
        """By name; a task stays here until it is activated."""
        self.reported: dict[str, int] = {}
        """How many records of each task have been reported."""
        self._reader = reader
        self._name = name
        self._complete: deque[str] = deque()
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        for task in self.restoring.values():
            task.life.enter(TaskState.RESTORING, f"{len(task.changelogs)} changelogs")

    def start(self) -> StateUpdater:
        """Start the thread, or continue after `rest`."""
        if self._thread is None:
            self._over.clear()
            self._thread = threading.Thread(target=carried(self._run), name=f"restore-{self._name}", daemon=True)
            self._thread.start()
        return self

    @property
    def progress(self) -> RestoreProgress:
        """The progress as of the last 0.2 seconds; another object when it has changed."""
        return self._reader.progress

    @property
    def due(self) -> bool:
        """Whether the loop should commit, to activate tasks or to raise an error."""
        return bool(self._complete) or self._error is not None

    def check(self) -> None:
        """Raise the error that ended the restore thread, if any."""
        if self._error is not None:
            raise self._error

    def next_complete(self) -> RestoringTask | None:
        """Return a task whose stores are complete; until `activated`, `close` still closes its environment."""
        self.check()
        return self.restoring[self._complete[0]] if self._complete else None

    def activated(self) -> None:
        """Transfer the task of the last `next_complete` to the loop."""
        del self.restoring[self._complete.popleft()]

    def rest(self) -> None:
        """Stop at the end of a batch; `start` continues from there. Used between epochs, while the instance is idle."""
        self._over.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def release(self) -> list[Environment]:
        """Stop, and return the environments of the tasks that were not activated, open."""
        self.rest()
        with suppress(Exception):  # an error of the consumer; the stores are still needed
            self._reader.close()
        tasks, self.restoring = self.restoring, {}
        self._complete.clear()
        for task in tasks.values():
            task.life.enter(TaskState.CLOSED, "closed before its stores were restored")
        return [task.environment for task in tasks.values()]

    def close(self) -> None:
        """Stop and close all environments that were not activated. Restored rows stay on disk, with their position."""
        for environment in self.release():
            with suppress(KStreamsError):
                environment.close()

    # ---- the restore thread

    def _run(self) -> None:
        try:
            while self._reader.missing and not self._over.is_set():
                self._complete.extend(sorted(self._reader.step()))
        except BaseException as error:  # the loop's thread raises it
            self._error = error
