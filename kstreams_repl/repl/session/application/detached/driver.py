"""The process that drives one application, with its own Spark and deployment. It follows the desired state in the mailbox.

``./kstreams run`` is such a process, started by a user or a supervisor; a session that deploys with ``detached=True`` starts one.

Its start, numbered: 1. read what to run (names, addresses, settings; never code) from standard input, completely or not at all ·
2. take the lock of the application's only driver process · 3. build the topology from the session file, executed only if the
journal confirms its hash (`attach`) · 4. start. The process ends, at a commit, when it is to stop, at SIGTERM, when its record is
gone or another process's (the application was cleaned up), and when another session has taken the application over. When the
application fails, the process stays: resume and edit continue from there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.config import StreamsConfig
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
from kstreams_repl.system.types import JsonMapping

if TYPE_CHECKING:
    from kstreams_repl.host.spark.deployment import Deployment

_POLL_SECONDS = 0.02
TAKEN_OVER = 3
"""Exit status when another process drives the application, or has taken it over."""
NOT_DRAINED = 4
"""Exit status when the last commit took longer than its deadline."""


@dataclass(frozen=True, slots=True)
class Driven:
    """What a driver process drives: the deployment of one version of an application, not started yet."""

    deployment: Deployment
    config: StreamsConfig
    version: int


class Driver:
    """The one process that drives an application: starts it, carries out what clients ask for in its mailbox, ends it at a commit.

    Args:
        mailbox: whose lock this process holds.
        close: ends Spark and all that the client has opened.
        stays: a failed application stays with this process, for an edit and a resume; else the process ends, for its supervisor to start
            another one.
        drain_seconds: time for the last commit after a signal; the process ends then without it, as by ``kill -9``.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        client: ClusterClient,
        close: Callable[[], object],
        *,
        stays: bool = True,
        drain_seconds: float | None = None,
    ) -> None:
        own = ProcessMark.own()
        self._own = own
        self._mailbox = mailbox
        self._client = client
        self._close = close
        self._stays = stays
        self._drain_seconds = drain_seconds
        self._end_requested = threading.Event()
        self._record = DriverRecord(
            mailbox.application, own.pid, own.born, session=str(client.directory.path),
            bootstrap_servers=client.settings.bootstrap_servers,
        )  # fmt: skip
        mailbox.write(self._record)
        self._modules = UserModules()
        self.failed: KStreamsError | None = None
        """Why it ended, if not because it was asked to."""
        self._failure: JsonMapping = {}
        self._reported_error: BaseException | None = None

    def run(self, prepare: Callable[[], Driven], started: Callable[[], object] = lambda: None) -> int:
        """Drive the application until it ends; return the exit status.

        Args:
            prepare: makes what is driven.
            started: called when the application runs.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            # 3. The topology.
            with self._modules.up_to_date():
                driven = prepare()
            self._config, self._version, self._deployment = driven.config, driven.version, driven.deployment
            # 4. Start.
            self._deployment.start()
            try:
                started()
            except BaseException:
                with suppress(DeployError):
                    self._deployment.stop()
                raise
        except BaseException as error:
            self._write_record(state=FAILED, failure=_failure_of(error))
            self._close()
            raise
        self._loop()
        with suppress(DeployError):  # an instance that did not answer is fenced
            self._deployment.stop()
        self._report(FAILED if self.failed is not None else STOPPED)
        self._mailbox.release()
        self._close()
        return 0 if self.failed is None else TAKEN_OVER if isinstance(self.failed, TaskMigratedError) else 1

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
            failure = self._deployment.error
            if isinstance(failure, TaskMigratedError) or (failure is not None and not self._stays):
                self.failed = failure
                return
            self._end_requested.wait(_POLL_SECONDS)

    def _follow(self, wanted: DesiredChange) -> None:
        """Carry out a change of the desired state."""
        self._client.report(f"to be {wanted.state}" if wanted.state else f"to run version {wanted.version}")
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
        plan, error = self._deployment.plan, self.failed or self._deployment.error
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

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._drain_seconds is not None:
            if self._end_requested.is_set():
                os._exit(128 + number)  # at once; what was not committed is done again by the next run
            deadline = threading.Timer(self._drain_seconds, os._exit, (NOT_DRAINED,))
            deadline.daemon = True
            deadline.start()
        self._end_requested.set()


def _settings(plain: Mapping[str, object]) -> dict[str, object]:
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
    if not mailbox.take():
        print(f"{request['application']} is driven by another process", flush=True)
        return TAKEN_OVER
    client = ClusterClient(
        ClientSettings(request["bootstrap_servers"], _settings(request["client_settings"])),
        spark=SparkHost(None, request["master"]),
        config=_settings(request["config"]),
        directory=SessionDirectory(request["session"]),
        report=lambda line: print(line, flush=True),
    )

    def confirmed() -> Driven:
        found = find_application(client, mailbox.application, {})
        deployment = ApplicationRegistry(client).create_deployment(mailbox.application, found.topology, found.config, detached=False)
        return Driven(deployment, found.config, found.history.versions[-1].number)

    return Driver(mailbox, client, lambda: end_all([*client.spark.closing_steps(), client.close])).run(confirmed)


if __name__ == "__main__":
    sys.exit(main())
