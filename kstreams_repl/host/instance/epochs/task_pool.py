"""The threads of an instance on which functions of its tasks run when `num.threads.per.task` > 1. They never keep a process alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from kstreams_repl.system.log_context import carried


class TaskPool:
    """Threads, started with the first function."""

    def __init__(self, name: str, threads: int) -> None:
        self.name, self.threads = name, threads
        self._work: SimpleQueue[tuple[Future[object], Callable[[], object]] | None] = SimpleQueue()
        self._started: list[threading.Thread] = []

    def submit(self, work: Callable[[], object]) -> Future[object]:
        """Run a function on one of the threads."""
        if len(self._started) < self.threads:
            thread = threading.Thread(target=carried(self._run), name=f"{self.name}-{len(self._started)}", daemon=True)
            self._started.append(thread)
            thread.start()
        future: Future[object] = Future()
        self._work.put((future, work))
        return future

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            future, work = item
            try:
                future.set_result(work())
            except BaseException as error:  # the task raises it
                future.set_exception(error)
            del future, work, item

    def close(self) -> None:
        """End the threads; one that is inside a function ends after it."""
        for _ in self._started:
            self._work.put(None)
        self._started.clear()
