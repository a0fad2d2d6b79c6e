"""`DetachedDeployment`: the `Deployment` of an `Application` that another process drives.

Start, numbered: 1. write to the journal which version of the session file is next, with its hash · 2. start the driver process
and pass it addresses, settings and directories through its standard input · 3. wait until the application runs, or has failed. If
a client is killed before the end of 2, nothing runs; if it is killed later, the application runs as requested.

At most one edit runs at a time, over all kernels: it holds the clients' lock from before its version goes into the session file
until the driver process has carried it out, and is rejected if another version runs than the one that it was based on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kstreams_repl.engine.config import SNAPSHOT_DIR, StreamsConfig
from kstreams_repl.engine.metrics.metrics_snapshot import Metric, Snapshot, merged
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.control.channel import ControlChannel
from kstreams_repl.host.instance.control.file_channel import FileChannel, read_lease
from kstreams_repl.host.instance.control.open_channel import open_channel
from kstreams_repl.host.instance.failures.failure_report import failure_of
from kstreams_repl.host.instance.state.state_directory import control_directory, state_root
from kstreams_repl.host.journal.journal_records import source_hash
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.spark.deployment import Deployment
from kstreams_repl.host.spark.failures.failure_translation import error_from
from kstreams_repl.host.spark.fencing.generation_fencing import VersionText, announce
from kstreams_repl.host.spark.fencing.state_migration import Migration
from kstreams_repl.host.spark.instance_reports import ApplicationReport, read_reports
from kstreams_repl.repl.session.application.detached.mailbox import FAILED, STARTING, STOPPED, DriverRecord, Mailbox
from kstreams_repl.system.errors import ConfigError, DetachedApplicationError, KStreamsError
from kstreams_repl.system.processes import last_lines, let_go, open_log, start_apart
from kstreams_repl.system.secrets import to_plain
from kstreams_repl.system.types import JsonObject, SparkMaster

DRIVER = "kstreams_repl.repl.session.application.detached.driver"
_POLL_SECONDS = 0.02
_END_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Plan:
    generation: int


class DetachedDeployment:
    """The calls of a `Deployment`: each writes the desired state, which the application's driver process follows. `start` starts that
    process, `stop` ends it.

    Args:
        session: the directory whose session file the process runs from.
        master: of the process's own Spark; None: local.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, settings: ClientSettings, session: Path, master: SparkMaster) -> None:
        self.config = config
        self.topology = topology
        self.application_id = str(config["application.id"])
        self.settings = settings
        self.version: VersionText | None = None
        """The version to announce in the journal before the next start."""
        self.mailbox = Mailbox(state_root(config), self.application_id)
        self._session = session
        self._master = master
        self._lease: ControlChannel = FileChannel(control_directory(state_root(config), self.application_id))

    def __repr__(self) -> str:
        driver = self.mailbox.driven
        return f"DetachedDeployment({self.application_id!r}, {self.status}, {'no process' if driver is None else driver.pid})"

    # ---- looks

    @property
    def status(self) -> str:
        """created, starting, running, paused, stopped or failed. An application whose process ended unexpectedly has failed."""
        record = self.mailbox.record
        if record is None:
            return "created"
        return record.state if record.state == STOPPED or record.is_alive else FAILED

    @property
    def error(self) -> KStreamsError | None:
        """The error with which it failed; None: it has not failed."""
        record = self.mailbox.record
        if record is None:
            return None
        if record.failure:
            return error_from(record.failure)
        if record.state == STOPPED or record.is_alive:
            return None
        return DetachedApplicationError(
            f"the process {record.pid} that drove {self.application_id} has ended by itself (it was {record.state})",
            hint=f"resume() goes on from what was committed; its output is in {self.mailbox.log}",
            pid=record.pid,
            path=str(self.mailbox.log),
        )

    @property
    def plan(self) -> _Plan | None:
        """The generation that runs, or ran last."""
        record = self.mailbox.record
        return None if record is None or not record.generation else _Plan(record.generation)

    @property
    def reports(self) -> ApplicationReport:
        """The last reports of the instances."""
        plan = self.plan
        return read_reports(self._channel, 0 if plan is None else plan.generation)

    @property
    def metrics(self) -> list[Metric]:
        """The last metrics of the instances; the client's own metrics are those of the driver process."""
        plan = self.plan
        snapshots = self._channel.metrics(0 if plan is None else plan.generation)
        return merged([Snapshot.read(snapshots[slot]) for slot in sorted(snapshots)])

    @property
    def _channel(self) -> ControlChannel:
        """What instances report to: on a cluster the journal, which is followed from then on."""
        lease = read_lease(self._lease.directory)
        if lease is not None and lease.remote and not self._lease.remote:
            self._lease = open_channel(self._lease.directory, self.settings, self.application_id, remote=True)
            self._lease.attach(lambda: 0, lambda *_: None)
        return self._lease

    @property
    def restarts(self) -> list[str]:
        """One line for each time that its process restarted it because worker processes were ended from outside."""
        record = self.mailbox.record
        return [] if record is None else list(record.restarts)

    def is_at(self, version: int) -> bool:
        """Return whether this version is in force, as far as the live process reports it."""
        driver = self.mailbox.driven
        return driver is None or driver.version in (0, version)

    # ---- life

    def start(self) -> DetachedDeployment:
        """Start the process, or resume in the running one. Returns when the application runs.

        Raises:
            DetachedApplicationError: the process failed to start; the error names its log.
            KStreamsError: the error that the deployment raised in that process.
        """
        driver = self.mailbox.driven
        if driver is not None and driver.state == STOPPED:  # it is shutting down
            driver.process.wait(_END_SECONDS)
            driver = self.mailbox.driven
        if driver is None:
            with self.mailbox.alone():
                driver = self.mailbox.driven
                if driver is None:
                    self._launch()
                    return self
        if driver.state != "running":
            self._change(self._ready(driver), "running")
        return self

    def resume(self) -> DetachedDeployment:
        return self.start()

    def pause(self) -> DetachedDeployment:
        """Pause at a commit; the process stays. Does nothing when no process runs."""
        driver = self.mailbox.driven
        if driver is not None and driver.state != STOPPED:
            self._change(self._ready(driver), "paused")
        return self

    def stop(self) -> DetachedDeployment:
        """Stop at a commit and end the process. Returns when it has ended."""
        driver = self.mailbox.driven
        if driver is not None:
            if driver.state != STOPPED:
                self._change(self._ready(driver), "stopped")
            if not driver.process.wait(_END_SECONDS):
                raise DetachedApplicationError(
                    f"{self.application_id} is stopped, but its process {driver.pid} has not ended within {_END_SECONDS:.0f} s",
                    hint=f"its output is in {self.mailbox.log}; kill -9 {driver.pid} ends it, nothing is lost",
                    pid=driver.pid,
                    path=str(self.mailbox.log),
                )
        record = self.mailbox.record
        if record is not None and record.state != STOPPED:  # its process died: keep the failure until the next start
            error = self.error
            self.mailbox.write(replace(record, state=STOPPED, failure={} if error is None else failure_of(error)))
        return self

    def close(self) -> None:
        """Stop following the journal."""
        self._lease.close()

    def abandon(self) -> DetachedDeployment:
        """Do nothing: this session does not own the process."""
        return self

    def is_taken_over(self) -> bool:
        """Return False: the process finds out by itself, and fails."""
        return False

    def replace(
        self,
        topology: Topology,
        *,
        version: VersionText | None = None,
        emptied: Collection[str] = (),
        migrations: Collection[Migration] = (),
    ) -> DetachedDeployment:
        """Run another version of the session file, at a commit boundary. Call it inside `editing`.

        When no process runs, only the journal is written, and the next start runs the version.

        Raises:
            DetachedApplicationError: rows are to be converted while the process runs: the function exists only in this process.
        """
        driver = self.mailbox.driven
        if driver is None:
            here = Deployment(self.topology, self.config, settings=self.settings)
            here.version = self.version
            here.replace(topology, version=version, emptied=emptied, migrations=migrations)
        elif migrations:
            raise DetachedApplicationError(
                f"the rows of {self.application_id} cannot be converted while another process drives it",
                hint="app.stop(), edit with migrate=, and app.resume()",
                pid=driver.pid,
            )
        else:
            assert version is not None
            hashed = source_hash(version.source)
            self._change(self._ready(driver), version=version.number, hash=hashed, emptied=list(emptied))
        self.topology, self.version = topology, None
        return self

    @contextmanager
    def editing(self, version: int) -> Iterator[None]:
        """Hold the lock for editing, based on this version.

        Raises:
            DetachedApplicationError: another version runs by now.
        """
        with self.mailbox.alone():
            if not self.is_at(version):
                driver = self.mailbox.driven
                raise DetachedApplicationError(
                    f"{self.application_id} is at version {0 if driver is None else driver.version} by now: "
                    f"another kernel has edited it since version {version}",
                    hint=f"session.attach({self.application_id!r}) shows it; then edit again",
                    application=self.application_id,
                )
            yield

    # ---- inside

    def _change(self, driver: DriverRecord, state: str = "", **version: Any) -> None:
        refused = self.mailbox.change(driver, state, **version)
        if refused:
            raise error_from(refused)

    def _ready(self, driver: DriverRecord) -> DriverRecord:
        """Wait until the process has started and return its record."""
        while driver.state == STARTING and driver.is_alive:
            time.sleep(_POLL_SECONDS)
            driver = self.mailbox.record or driver
        return driver

    def _launch(self) -> None:
        request = json.dumps(self._request()).encode()
        # 1. The journal.
        if self.version is not None:
            announce(self.version, self.settings, Admin(self.settings), self.application_id, self._lease)
        # 2. The process.
        self.mailbox.make()
        log = open_log(self.mailbox.log)
        try:
            process = start_apart(DRIVER, [], log, stdin=request)
        except OSError as error:
            raise DetachedApplicationError(
                f"no process could be started for {self.application_id}: {error.strerror or error}", path=str(self.mailbox.log)
            ) from error
        finally:
            os.close(log)
        let_go(process)
        # 3. Until it runs.
        self._await(process)
        self.version = None

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        while True:
            ended = process.poll() is not None
            record = self.mailbox.record
            if record is not None and record.pid == process.pid:
                if record.failure:
                    record.process.wait(_END_SECONDS)  # it stops its Spark: a failed start leaves no process
                    raise error_from(record.failure)
                if record.state != STARTING:
                    return
            if ended:
                output = " / ".join(last_lines(self.mailbox.log, 3))
                raise DetachedApplicationError(
                    f"the driver process of {self.application_id} ended with status {process.returncode}: {output}",
                    hint=f"its output is in {self.mailbox.log}",
                    path=str(self.mailbox.log),
                    pid=process.pid,
                )
            time.sleep(_POLL_SECONDS)

    def _request(self) -> JsonObject:
        """Return the request to the process: strings and numbers only, without the topology.

        Raises:
            ConfigError: a setting is an object.
        """
        plain = {name: to_plain(value) for name, value in self.config.client.items()}
        plain |= {name: self.config[name] for name in (SNAPSHOT_DIR,) if self.config.has_password(name)}
        request: JsonObject = {
            "application": self.application_id,
            "root": str(state_root(self.config)),
            "session": str(self._session),
            "bootstrap_servers": self.settings.bootstrap_servers,
            "client_settings": {name: to_plain(value) for name, value in self.settings.properties.items()},
            "config": {**plain, "state.dir": str(state_root(self.config))},
            "master": self._master,
            "path": [place for place in sys.path if place],
        }
        for kind in ("client_settings", "config"):
            for name, value in request[kind].items():
                if not isinstance(value, str | int | float | bool | dict | None):
                    raise ConfigError(
                        f"{name} is a {type(value).__name__}, which cannot be sent to another process",
                        hint="a detached application takes settings that are texts and numbers",
                        key=name,
                    )
        return request
