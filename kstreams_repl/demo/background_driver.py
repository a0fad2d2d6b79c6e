"""The process behind ``./kstreams demo --keep``: runs the demo and, if its numbers are right, continues until SIGTERM.

Started by `background.start` with its output in ``background.log``. SIGTERM (``--stop``) ends it at a commit: application, Spark,
broker, and the demo's directory. Before the demo is ready, the end of the starting command ends it too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from kstreams_repl.demo.background import ENDED, READY, BackgroundDemo
from kstreams_repl.host.instance.failures.failure_report import failure_of
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.processes import ProcessMark
from kstreams_repl.system.types import JsonObject

if TYPE_CHECKING:
    from kstreams_repl import Application

INTERRUPTED = 130
_PARENT_SECONDS = 0.2


class BackgroundDriver:
    """One background demo. The demo calls `hold` with everything running; `hold` returns when the demo is to end."""

    def __init__(self, directory: Path) -> None:
        own = ProcessMark.own()
        self.record = BackgroundDemo(own.pid, own.born, str(directory))
        self._stop_requested = threading.Event()
        self._ready = False
        self._parent = os.getppid()

    def begin(self) -> None:
        """Record that a demo is being started here, and watch for the end of the parent process."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        threading.Thread(target=self._watch_parent, name="watch-command", daemon=True).start()
        self.record.write()

    def hold(self, app: Application, verdict: JsonObject, instructions: str) -> None:
        """Report to the command that the demo is ready (it runs and its numbers are right), and wait for SIGTERM."""
        self._ready = True
        self.record = replace(
            self.record,
            state=READY,
            bootstrap_servers=app.bootstrap_servers,
            application=app.name,
            instructions=instructions,
            verdict=verdict,
        )
        self.record.write()
        error_reported = False
        while not self._stop_requested.wait(0.5):
            if app.status == "failed" and not error_reported:
                error_reported = True
                print(f"{app.name} failed: {app.error}\nThe broker keeps running.", flush=True)
        print("stopping ...", flush=True)

    def end(self, *, verdict: JsonObject | None = None, error: BaseException | None = None) -> None:
        """Record for the command why the demo ended before it was ready."""
        replace(
            self.record, state=ENDED, verdict=verdict or {}, failure={} if error is None else failure_of(error)
        ).write()

    @property
    def was_ready(self) -> bool:
        return self._ready

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        again = self._stop_requested.is_set()
        self._stop_requested.set()
        if not self._ready and not again:  # a second signal must not disturb the shutdown that the first has started
            raise KeyboardInterrupt

    def _watch_parent(self) -> None:
        while not self._ready:
            if os.getppid() != self._parent:
                os.kill(os.getpid(), signal.SIGTERM)
                return
            time.sleep(_PARENT_SECONDS)


def main(request: JsonObject) -> int:
    """Run one request of `demo.main` and return the exit status."""
    from kstreams_repl.demo.main import run_request

    driver = BackgroundDriver(Path(request["directory"]))
    try:
        driver.begin()
        verdict = run_request(request, hold=driver.hold)
    except KeyboardInterrupt:
        return INTERRUPTED
    except KStreamsError as error:
        driver.end(error=error)  # the command reports it
        return 1
    if not driver.was_ready:
        driver.end(verdict=verdict)
    return 0 if verdict["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
