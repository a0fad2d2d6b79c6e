"""`DetachedDeployment`: what an `Application` holds instead of a `Deployment` when another process drives it.

Start, numbered: 1. the journal is told which version of the session file is next, with its hash · 2. the driver process is started and
told addresses, settings and directories through its standard input · 3. it is waited for until the application runs, or has failed. A
client that is killed before 2 is done leaves nothing that runs; one that is killed later leaves what was asked for.

An edit is at most one at a time, over all kernels: it holds the clients' lock from before its version goes into the session file until
the driver process has answered, and is refused if another version runs than the one that it comes from.
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

from kstreams_repl.config import SNAPSHOT_DIR, StreamsConfig
from kstreams_repl.errors import ConfigError, DetachedApplicationError, KStreamsError
from kstreams_repl.instance.control import LeaseWriter
from kstreams_repl.instance.state_directory import control_directory, state_root
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.kafka.journal_records import source_hash
from kstreams_repl.kafka.secret import Secret
from kstreams_repl.metrics.snapshot import Metric, Snapshot, merged
from kstreams_repl.processes import let_go, open_log, start_apart
from kstreams_repl.session.detached.mailbox import FAILED, STARTING, STOPPED, DriverRecord, Mailbox
from kstreams_repl.session.logs import last_lines
from kstreams_repl.spark.deployment import Deployment
from kstreams_repl.spark.failures import error_from
from kstreams_repl.spark.generations import VersionText, announce
from kstreams_repl.spark.migrating import Migration
from kstreams_repl.spark.progress import ApplicationReport, read_reports
from kstreams_repl.topology.topology import Topology

DRIVER = "kstreams_repl.session.detached.driver"
_LOOK_SECONDS = 0.02
_END_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Plan:
    generation: int


class DetachedDeployment:
    """The calls of a `Deployment`, answered by the application's driver process, which is started by `start` and ended by `stop`.

    Args:
        session: the directory whose session file the process runs from.
        master: of the process's own Spark; None: local.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, settings: ClientSettings, session: Path, master: str | None) -> None:
        self.config = config
        self.topology = topology
        self.application_id = str(config["application.id"])
        self.settings = settings
        self.version: VersionText | None = None
        """What the journal is told before the next start."""
        self.mailbox = Mailbox(state_root(config), self.application_id)
        self._session = session
        self._master = master
        self._lease = LeaseWriter(control_directory(state_root(config), self.application_id))

    def __repr__(self) -> str:
        driver = self.mailbox.driven
        return f"DetachedDeployment({self.application_id!r}, {self.status}, {'no process' if driver is None else driver.pid})"

    # ---- looks

    @property
    def status(self) -> str:
        """created, starting, running, paused, stopped or failed. One whose process has ended by itself has failed."""
        record = self.mailbox.record
        if record is None:
            return "created"
        return record.state if record.state == STOPPED or record.is_alive else FAILED

    @property
    def error(self) -> KStreamsError | None:
        """Why it failed; None unless it did."""
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
        """Which generation runs, or ran last."""
        record = self.mailbox.record
        return None if record is None or not record.generation else _Plan(record.generation)

    @property
    def reports(self) -> ApplicationReport:
        """What the instances told last."""
        plan = self.plan
        return read_reports(self._lease, 0 if plan is None else plan.generation)

    @property
    def metrics(self) -> list[Metric]:
        """What the instances measured last; the client's own are the driver process's."""
        plan = self.plan
        told = self._lease.metrics(0 if plan is None else plan.generation)
        return merged([Snapshot.read(told[slot]) for slot in sorted(told)])

    def is_at(self, version: int) -> bool:
        """Whether this version is the one in force, as far as a living process can tell."""
        driver = self.mailbox.driven
        return driver is None or driver.version in (0, version)

    # ---- life

    def start(self) -> DetachedDeployment:
        """Start the process, or resume in the one there is; returns when the application runs.

        Raises:
            DetachedApplicationError: the process did not come to life; its log is named.
            KStreamsError: what the deployment itself raised there.
        """
        driver = self.mailbox.driven
        if driver is not None and driver.state == STOPPED:  # on its way out
            driver.process.wait(_END_SECONDS)
            driver = self.mailbox.driven
        if driver is None:
            with self.mailbox.alone():
                driver = self.mailbox.driven
                if driver is None:
                    self._launch()
                    return self
        if driver.state != "running":
            self._ask(self._ready(driver), "resume")
        return self

    def resume(self) -> DetachedDeployment:
        return self.start()

    def pause(self) -> DetachedDeployment:
        """Stop at a commit; the process stays. Nothing to do where none runs."""
        driver = self.mailbox.driven
        if driver is not None and driver.state != STOPPED:
            self._ask(self._ready(driver), "pause")
        return self

    def stop(self) -> DetachedDeployment:
        """Stop at a commit and end the process; returns when it has ended."""
        driver = self.mailbox.driven
        if driver is not None:
            if driver.state != STOPPED:
                self._ask(self._ready(driver), "stop")
            if not driver.process.wait(_END_SECONDS):
                raise DetachedApplicationError(
                    f"{self.application_id} is stopped, but its process {driver.pid} has not ended within {_END_SECONDS:.0f} s",
                    hint=f"its output is in {self.mailbox.log}; kill -9 {driver.pid} ends it, nothing is lost",
                    pid=driver.pid,
                    path=str(self.mailbox.log),
                )
        record = self.mailbox.record
        if record is not None and (record.state != STOPPED or record.failure):  # what died or failed is put aside
            self.mailbox.write(replace(record, state=STOPPED, failure={}))
        return self

    def abandon(self) -> DetachedDeployment:
        """The process is not this session's to end."""
        return self

    def replace(
        self,
        topology: Topology,
        *,
        version: VersionText | None = None,
        emptied: Collection[str] = (),
        migrations: Collection[Migration] = (),
    ) -> DetachedDeployment:
        """Run another version of the session file, at a commit boundary; inside `editing`.

        Where no process runs the journal is told, and the next start runs it.

        Raises:
            DetachedApplicationError: rows are to be converted while the process runs: the function is here, and not there.
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
            self._ask(self._ready(driver), "edit", version=version.number, hash=hashed, emptied=list(emptied))
        self.topology, self.version = topology, None
        return self

    @contextmanager
    def editing(self, version: int) -> Iterator[None]:
        """Be the only one who edits, from this version on.

        Raises:
            DetachedApplicationError: another one runs by now.
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

    def _ask(self, driver: DriverRecord, verb: str, **more: Any) -> None:
        answer = self.mailbox.ask(driver, verb, **more)
        if answer.get("error"):
            raise error_from(answer["error"])

    def _ready(self, driver: DriverRecord) -> DriverRecord:
        """The process, when it has begun."""
        while driver.state == STARTING and driver.is_alive:
            time.sleep(_LOOK_SECONDS)
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
            process = start_apart(DRIVER, [], log, told=request)
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
                    record.process.wait(_END_SECONDS)  # it takes its Spark down: what cannot start leaves nothing that runs
                    raise error_from(record.failure)
                if record.state != STARTING:
                    return
            if ended:
                told = " / ".join(last_lines(self.mailbox.log, 3))
                raise DetachedApplicationError(
                    f"the process that was to drive {self.application_id} ended with status {process.returncode}: {told}",
                    hint=f"its output is in {self.mailbox.log}",
                    path=str(self.mailbox.log),
                    pid=process.pid,
                )
            time.sleep(_LOOK_SECONDS)

    def _request(self) -> dict[str, Any]:
        """What the process is told. Texts and numbers only; the topology is not in it.

        Raises:
            ConfigError: a setting that is an object.
        """
        plain = {name: _revealed(value) for name, value in self.config.client.items()}
        plain |= {name: self.config[name] for name in (SNAPSHOT_DIR,) if self.config.has_password(name)}
        request: dict[str, Any] = {
            "application": self.application_id,
            "root": str(state_root(self.config)),
            "session": str(self._session),
            "bootstrap_servers": self.settings.bootstrap_servers,
            "client_settings": {name: _revealed(value) for name, value in self.settings.properties.items()},
            "config": {**plain, "state.dir": str(state_root(self.config))},
            "master": self._master,
            "path": [place for place in sys.path if place],
        }
        for kind in ("client_settings", "config"):
            for name, value in request[kind].items():
                if not isinstance(value, str | int | float | bool | None):
                    raise ConfigError(
                        f"{name} is a {type(value).__name__}, which cannot be sent to another process",
                        hint="a detached application takes settings that are texts and numbers",
                        key=name,
                    )
        return request


def _revealed(value: Any) -> Any:
    return value.reveal() if isinstance(value, Secret) else value
