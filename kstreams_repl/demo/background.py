"""`./kstreams demo --keep` and `--stop`: a demo that continues after the command has returned.

Actors: the *command*, the *keeper* (`background_driver.py`, a process in its own session that owns broker, Spark and application)
and ``kept.json`` in the demo's directory, which only the keeper writes. Invariants: the keeper and its child processes write to
``kept.log`` and never to the command's output, so a pipe after the command ends with it; if the command dies before the demo is
ready, the keeper ends too; ``kept.json`` identifies a process by id *and* start time, so a reused id is never taken for the
keeper.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kstreams_repl.errors import KStreamsError
from kstreams_repl.instance.control.file_control import read_whole
from kstreams_repl.kafka.embedded.layout import write_atomically
from kstreams_repl.processes import ProcessMark, open_log, start_apart

RECORD = "kept.json"
LOG = "kept.log"
STARTING, READY, ENDED = "starting", "ready", "ended"
_LOOK_SECONDS = 0.05
_STOP_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Kept:
    """The content of ``kept.json``.

    Attributes:
        pid, born: the keeper's process id and start time (seconds since 1970).
        state: ``starting``, ``ready``, or ``ended`` before it was ready.
        verdict: the result of the demo's own check, as ``--json`` prints it.
        failure: if it ended with an error: message, hint, worker's traceback.
    """

    pid: int
    born: float
    directory: str
    state: str = STARTING
    bootstrap_servers: str = ""
    application: str = ""
    look: str = ""
    verdict: Mapping[str, Any] = field(default_factory=dict)
    failure: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_alive(self) -> bool:
        """Return whether the keeper is alive."""
        return self.process.is_alive

    @property
    def process(self) -> ProcessMark:
        return ProcessMark(self.pid, self.born)

    def write(self) -> None:
        """Replace ``kept.json`` atomically; only its user can read it."""
        write_atomically(Path(self.directory) / RECORD, json.dumps(asdict(self)))


def read_kept(directory: Path) -> Kept | None:
    """Return the kept demo of a directory, alive or not; None if there is none or the file is damaged."""
    found = read_whole(directory / RECORD)
    try:
        return None if found is None else Kept(**found)
    except TypeError:
        return None


def refuse_kept(directory: Path) -> None:
    """Raise if a kept demo runs in the directory: no other one may be started there.

    Raises:
        KStreamsError: a kept demo runs there.
    """
    kept = read_kept(directory)
    if kept is None or not kept.is_alive:
        return
    if kept.state == READY:
        what = f"a demo is kept there already: process {kept.pid}, broker {kept.bootstrap_servers}, application {kept.application}"
    else:
        what = f"a demo to be kept is being started there: process {kept.pid}"
    raise KStreamsError(
        f"{directory}: {what}", hint=f"look at it, or end it: {stop_command(directory)}", path=str(directory), pid=kept.pid
    )


def stop_command(directory: Path) -> str:
    """Return the command that ends the kept demo of a directory."""
    usual = directory == Path(".kstreams/demo").absolute()
    return "./kstreams demo --stop" if usual else f"./kstreams demo --stop --directory {directory}"


def keep(directory: Path, request: Mapping[str, Any], *, relay: Callable[[bytes], None]) -> Kept:
    """Start a keeper and wait until its demo is ready, or has ended.

    Args:
        request: what the keeper runs, as plain values.
        relay: called with new output in the keeper's log.

    Raises:
        KStreamsError: a demo is kept there already, or the new one failed.
    """
    refuse_kept(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        (directory / RECORD).unlink(missing_ok=True)
        log = open_log(directory / LOG)
    except OSError as error:
        raise KStreamsError(
            f"the demo's directory {directory} cannot be used: {error.strerror or error}",
            hint="give one that you may write to: --directory",
            path=str(directory),
        ) from error
    try:
        keeper = start_apart("kstreams_repl.demo.background_driver", [json.dumps(dict(request))], log)
        try:
            return _follow(keeper, directory, log, relay)
        except BaseException:
            if keeper.poll() is None:
                keeper.terminate()
                keeper.wait()
            raise
    finally:
        os.close(log)


def _follow(keeper: subprocess.Popen[bytes], directory: Path, log: int, relay: Callable[[bytes], None]) -> Kept:
    at = 0

    def copy() -> None:
        nonlocal at
        while part := os.pread(log, 1 << 16, at):
            at += len(part)
            relay(part)

    while True:
        ended = keeper.poll() is not None
        kept = read_kept(directory)
        copy()
        if kept is not None and kept.pid == keeper.pid and kept.state == READY and not ended:
            keeper.returncode = 0  # it outlives this process, so Popen must not wait for it
            return kept
        if ended:
            break
        time.sleep(_LOOK_SECONDS)
    (directory / RECORD).unlink(missing_ok=True)
    if kept is not None and kept.pid == keeper.pid and kept.state == ENDED:
        (directory / LOG).unlink(missing_ok=True)
        if kept.failure:
            from kstreams_repl.spark.failure_translation import error_from

            raise error_from(kept.failure)
        return kept
    raise KStreamsError(
        f"the process that was to keep the demo ended with status {keeper.returncode} before the demo was ready",
        hint=f"its output is in {directory / LOG}",
        path=str(directory / LOG),
    )


def stop(directory: Path) -> tuple[Kept | None, bool]:
    """End a directory's kept demo at a commit; returns it, and whether it was alive. Does nothing if it has ended already.

    Raises:
        KStreamsError: it did not end in time.
    """
    kept = read_kept(directory)
    if kept is None or not kept.is_alive:
        with suppress(FileNotFoundError):
            (directory / RECORD).unlink()
        return kept, False
    kept.process.ask_to_end()
    if not kept.process.wait(_STOP_SECONDS):
        raise KStreamsError(
            f"the kept demo (process {kept.pid}) has not ended within {_STOP_SECONDS:.0f} s",
            hint=f"its output is in {directory / LOG}; kill -9 {kept.pid} ends it, and what it has committed stays",
            pid=kept.pid,
            path=str(directory / LOG),
        )
    ended = read_kept(directory)
    if ended is not None and ended.failure:
        from kstreams_repl.spark.failure_translation import error_from

        raise error_from(ended.failure)
    for name in (RECORD, LOG):
        (directory / name).unlink(missing_ok=True)
    with suppress(OSError):  # it does not exist any more, or contains other files
        directory.rmdir()
    return kept, True
