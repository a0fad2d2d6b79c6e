"""`Work`: a control call of an application in progress."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from kstreams_repl.system.forks import forked_error
from kstreams_repl.system.interrupts import wait_interruptibly


class Work:
    """A control call that runs on a thread of its own."""

    def __init__(
        self,
        control: threading.Lock,
        call: Callable[[], object],
        *,
        name: str,
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.error: BaseException | None = None
        self._on_error, self._pid = on_error, os.getpid()
        self._done = threading.Event()  # an interrupted `join` marks a running thread as ended (CPython 3.11)
        threading.Thread(target=self._work, args=(control, call), name=name, daemon=True).start()

    def _work(self, control: threading.Lock, call: Callable[[], object]) -> None:
        try:
            with control:
                call()
        except BaseException as error:  # passed to the waiting thread
            self.error = error
            if self._on_error is not None:
                self._on_error(error)
        finally:
            self._done.set()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def wait(self) -> None:
        if os.getpid() != self._pid:  # the thread is not in a forked child
            raise forked_error("this application", self._pid)
        wait_interruptibly(self._done)
