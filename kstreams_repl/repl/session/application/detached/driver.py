"""The process that drives one detached application, with its own Spark and deployment. It follows the desired state in
the mailbox.

Start, numbered: 1. read what to run (names, addresses, settings; never code) from standard input, completely or not at all ·
2. take the lock of the application's only driver process · 3. build the topology from the session file, executed only if the
journal confirms its hash (`attach`) · 4. start. The process ends, at a commit, when it is to stop, at SIGTERM, when its record is
gone or another process's (the application was cleaned up), and when another session has taken the application over. When the
application fails, the process stays: resume and edit continue from there.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from kstreams_repl.host.instance.failures.failure_report import failure_of
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.spark.fencing.generation_fencing import VersionText
from kstreams_repl.host.spark.planning.plan_serialization import UserModules
from kstreams_repl.repl.session.application.detached.mailbox import FAILED, STOPPED, DesiredChange, DriverRecord, Mailbox
from kstreams_repl.repl.session.application.edits.versions import make_topology
from kstreams_repl.repl.session.application.life.registry import ApplicationRegistry
from kstreams_repl.repl.session.application.starting.attach import find_application
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.repl.session.shutdown import end_all
from kstreams_repl.repl.session.source.error_source import with_source
from kstreams_repl.repl.session.spark_host import SparkHost
from kstreams_repl.system.errors import DeployError, DetachedApplicationError, KStreamsError, SessionFileError, TaskMigratedError
from kstreams_repl.system.processes import ProcessMark
from kstreams_repl.system.secrets import from_plain
from kstreams_repl.system.types import JsonMapping, JsonObject

_POLL_SECONDS = 0.02
_OTHERS = 3
"""Exit status when another process already drives the application."""


class DetachedDriver:
    """One application and its deployment, from the request that started this process to its end."""

    def __init__(self, request: JsonObject, mailbox: Mailbox) -> None:
        own = ProcessMark.own()
        self._own = own
        self._mailbox = mailbox
        self._end_requested = threading.Event()
        self._record = DriverRecord(
            mailbox.application, own.pid, own.born, session=request["session"], bootstrap_servers=request["bootstrap_servers"]
        )
        mailbox.write(self._record)
        self._client = ClusterClient(
            ClientSettings(request["bootstrap_servers"], _settings(request["client_settings"])),
            spark=SparkHost(None, request["master"]),
            config=_settings(request["config"]),
            directory=SessionDirectory(request["session"]),
            report=lambda line: print(line, flush=True),
        )
        self._modules = UserModules()
        self._failed: BaseException | None = None
        self._failure: JsonMapping = {}
        self._reported_error: BaseException | None = None

    def run(self) -> int:
        """Drive the application until it ends; return the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            # 3. The topology that the journal confirms.
            with self._modules.up_to_date():
                found = find_application(self._client, self._mailbox.application, {})
            registry = ApplicationRegistry(self._client)
            self._config = found.config
            self._version = found.history.versions[-1].number
            self._deployment = registry.create_deployment(self._mailbox.application, found.topology, found.config, detached=False)
            # 4. Start.
            self._deployment.start()
        except BaseException as error:
            self._write_record(state=FAILED, failure=_failure_of(error))
            self._close()
            raise
        self._loop()
        with suppress(DeployError):  # an instance that did not answer is fenced
            self._deployment.stop()
        state = FAILED if self._failed is not None else STOPPED
        self._close()
        self._report(state)
        return 0 if self._failed is None else 1

    def _loop(self) -> None:
        while not self._end_requested.is_set():
            self._report()
            wanted = self._mailbox.desired(self._record)
            if wanted is not None:
                refused: JsonMapping = {}
                try:
                    self._follow(wanted)
                except Exception as error:  # the client raises it
                    refused = _failure_of(error)
                self._report(observed=wanted.id, refused=refused)
            record = self._mailbox.record
            if record is None or record.process != self._own:
                return
            if isinstance(self._deployment.error, TaskMigratedError):
                self._failed = self._deployment.error
                return
            self._end_requested.wait(_POLL_SECONDS)

    def _follow(self, wanted: DesiredChange) -> None:
        """Carry out a change of the desired state."""
        print(f"to be {wanted.state}" if wanted.state else f"to run version {wanted.version}", flush=True)
        if wanted.version:
            self._edit(wanted)
        match wanted.state:
            case "paused":
                self._deployment.pause()
            case "running":
                self._deployment.resume()
            case "stopped":
                try:
                    self._deployment.stop()
                finally:  # an instance that did not answer is fenced; the application is stopped in any case
                    self._end_requested.set()
            case state if state:
                raise DetachedApplicationError(f"expected a desired state that a driver process can reach, got {state[:40]!r}")

    def _edit(self, wanted: DesiredChange) -> None:
        """Replace the topology by another version, given by number and hash; its text is in the session file."""
        name, files = self._mailbox.application, self._client.files
        saved = files.read(name).version(wanted.version)
        if saved is None or saved.program.hash != wanted.hash:
            raise SessionFileError(
                f"the session file {files.path(name)} has no version {wanted.version} with the hash that was asked for",
                hint="nothing was changed; edit again",
                path=str(files.path(name)),
                application=name,
            )
        with self._modules.up_to_date():  # a helper module next to the notebook may have changed
            topology = make_topology(files, saved, name, self._config)
        text = VersionText(saved.number, saved.text, saved.description)
        self._deployment.replace(topology, version=text, emptied=tuple(wanted.emptied))
        self._version = saved.number

    def _report(self, state: str | None = None, **more: object) -> None:
        """Write the present state to the record, if it has changed."""
        plan, error = self._deployment.plan, self._failed or self._deployment.error
        self._write_record(
            state=str(self._deployment.status) if state is None else state,
            generation=0 if plan is None else plan.generation,
            version=self._version,
            failure=self._failure if error is self._reported_error else _failure_of(error),
            restarts=list(self._deployment.restarts.history),
            **more,
        )
        self._failure, self._reported_error = self._record.failure, error

    def _write_record(self, **changes: Any) -> None:
        changed = replace(self._record, **changes)
        if changed != self._record:
            self._record = changed
            if self._mailbox.folder.exists():
                self._mailbox.write(changed)

    def _close(self) -> None:
        end_all([*self._client.spark.closing_steps(), self._client.close])

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._end_requested.set()


def _settings(plain: Mapping[str, object]) -> dict[str, Any]:
    return {name: from_plain(value) for name, value in plain.items()}


def _failure_of(error: BaseException | None) -> JsonMapping:
    """Return an error as stored in a file, with the user's source line and the worker's trace if there is one."""
    if error is None:
        return {}
    failure = failure_of(with_source(error) if isinstance(error, KStreamsError) else error)
    fields = failure["fields"]
    return {**failure, "trace": fields.get("worker_trace") or failure["trace"]}


def main() -> int:
    # 1. What to run.
    try:
        request = json.loads(sys.stdin.buffer.read())
    except ValueError:
        print("the parent process exited before it sent the job", flush=True)
        return 2
    sys.path += [place for place in request["path"] if place not in sys.path]
    # 2. The only one.
    mailbox = Mailbox(Path(request["root"]), request["application"]).make()
    lock = mailbox.take()
    if lock is None:
        print(f"{request['application']} is driven by another process", flush=True)
        return _OTHERS
    return DetachedDriver(request, mailbox).run()


if __name__ == "__main__":
    sys.exit(main())
