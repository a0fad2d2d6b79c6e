"""`./kstreams demo --keep` and `--stop`: a demo that continues after the command has returned.

Actors: the *command*, the *driver* (`background_driver.py`, a process in its own session that owns broker, Spark and application)
and ``background.json`` in the demo's directory, which only the driver writes. Invariants: the driver and its child processes write to
``background.log`` and never to the command's output, so a pipe after the command ends with it; if the command dies before the demo is
ready, the driver ends too; ``background.json`` identifies a process by id *and* start time, so a reused id is never taken for the
driver.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kstreams_repl.host.instance.control.control_files import read_whole
from kstreams_repl.system.errors import IllegalStateError, KStreamsError, as_installed
from kstreams_repl.system.files import write_atomically
from kstreams_repl.system.processes import ProcessRecord, open_log, start_apart
from kstreams_repl.system.types import JsonMapping

RECORD = "background.json"
LOG = "background.log"
STARTING, READY, ENDED = "starting", "ready", "ended"
_POLL_SECONDS = 0.05
_STOP_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class BackgroundDemo(ProcessRecord):
    """The content of ``background.json``.

    Attributes:
        pid, born: the driver's process (`ProcessMark`).
        state: ``starting``, ``ready``, or ``ended`` before it was ready.
        verdict: the result of the demo's own check, as ``--json`` prints it.
        failure: if it ended with an error: message, hint, worker's traceback.
    """

    pid: int
    born: str
    directory: str
    state: str = STARTING
    bootstrap_servers: str = ""
    application: str = ""
    instructions: str = ""
    verdict: JsonMapping = field(default_factory=dict)
    failure: JsonMapping = field(default_factory=dict)

    def write(self) -> None:
        """Replace ``background.json`` atomically; only its user can read it."""
        write_atomically(Path(self.directory) / RECORD, json.dumps(asdict(self)))


def read_background_demo(directory: Path) -> BackgroundDemo | None:
    """Return the background demo of a directory, alive or not; None if there is none or the file is damaged."""
    found = read_whole(directory / RECORD)
    try:
        return None if found is None else BackgroundDemo(**found)
    except TypeError:
        return None


def refuse_background_demo(directory: Path) -> None:
    """Raise if a background demo runs in the directory: no other one may be started there.

    Raises:
        IllegalStateError: a background demo runs there.
    """
    demo = read_background_demo(directory)
    if demo is None or not demo.is_alive:
        return
    if demo.state == READY:
        what = f"a background demo runs there: process {demo.pid}, broker {demo.bootstrap_servers}, application {demo.application}"
    else:
        what = f"a background demo starts there: process {demo.pid}"
    raise IllegalStateError(
        f"{directory}: {what}", hint=f"connect to it, or stop it: {stop_command(directory)}", path=str(directory), pid=demo.pid
    )


def stop_command(directory: Path) -> str:
    """Return the command that ends the background demo of a directory."""
    usual = directory == Path(".kstreams/demo").absolute()
    return as_installed("./kstreams demo --stop" if usual else f"./kstreams demo --stop --directory {directory}")


def start(directory: Path, request: JsonMapping, *, relay: Callable[[bytes], None]) -> BackgroundDemo:
    """Start a background demo and wait until it is ready, or has ended.

    Args:
        request: what the driver runs, as plain values.
        relay: called with new output in the driver's log.

    Raises:
        KStreamsError: a demo already runs in the background there, or the new one failed.
    """
    refuse_background_demo(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        (directory / RECORD).unlink(missing_ok=True)
        log = open_log(directory / LOG)
    except OSError as error:
        raise KStreamsError(
            f"the demo's directory {directory} cannot be used: {error.strerror or error}",
            hint="choose a writable directory: --directory PATH",
            path=str(directory),
        ) from error
    try:
        driver = start_apart("kstreams_repl.demo.background_driver", [json.dumps(dict(request))], log)
        try:
            return _follow(driver, directory, log, relay)
        except BaseException:
            if driver.poll() is None:
                driver.terminate()
                driver.wait()
            raise
    finally:
        os.close(log)


def _follow(driver: subprocess.Popen[bytes], directory: Path, log: int, relay: Callable[[bytes], None]) -> BackgroundDemo:
    at = 0

    def copy() -> None:
        nonlocal at
        while part := os.pread(log, 1 << 16, at):
            at += len(part)
            relay(part)

    while True:
        ended = driver.poll() is not None
        demo = read_background_demo(directory)
        copy()
        if demo is not None and demo.pid == driver.pid and demo.state == READY and not ended:
            driver.returncode = 0  # it outlives this process, so Popen must not wait for it
            return demo
        if ended:
            break
        time.sleep(_POLL_SECONDS)
    (directory / RECORD).unlink(missing_ok=True)
    if demo is not None and demo.pid == driver.pid and demo.state == ENDED:
        (directory / LOG).unlink(missing_ok=True)
        if demo.failure:
            from kstreams_repl.host.spark.failures.failure_translation import error_from

            raise error_from(demo.failure)
        return demo
    raise KStreamsError(
        f"the background demo ended with status {driver.returncode} before it was ready",
        hint=f"its output is in {directory / LOG}",
        path=str(directory / LOG),
    )


def stop(directory: Path) -> tuple[BackgroundDemo | None, bool]:
    """End a directory's background demo at a commit; returns it, and whether it was alive. Does nothing if it has ended already.

    Raises:
        KStreamsError: it did not end in time.
    """
    demo = read_background_demo(directory)
    if demo is None or not demo.is_alive:
        with suppress(FileNotFoundError):
            (directory / RECORD).unlink()
        return demo, False
    demo.process.ask_to_end()
    if not demo.process.wait(_STOP_SECONDS):
        raise KStreamsError(
            f"the background demo (process {demo.pid}) has not stopped within {_STOP_SECONDS:.0f} s",
            hint=f"its output is in {directory / LOG}; kill -9 {demo.pid} ends it; committed results stay",
            pid=demo.pid,
            path=str(directory / LOG),
        )
    ended = read_background_demo(directory)
    if ended is not None and ended.failure:
        from kstreams_repl.host.spark.failures.failure_translation import error_from

        raise error_from(ended.failure)
    for name in (RECORD, LOG):
        (directory / name).unlink(missing_ok=True)
    with suppress(OSError):  # it does not exist any more, or contains other files
        directory.rmdir()
    return demo, True
