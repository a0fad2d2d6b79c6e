"""Start a query server as a process of its own, and find the one that runs.

The process gets what it needs through its standard input, as a Spark worker gets its plan: the pickled plan, written by the parent of
this process or by this package's driver, never read from a topic. A record in the application's directory says where it listens.
Numbered: 1. under a lock, look whether one runs for this version · 2. end one of another version · 3. start · 4. wait until it listens.
"""

from __future__ import annotations

import logging
import os
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kstreams_repl.host.instance.control.control_files import read_whole, write_whole
from kstreams_repl.host.instance.metadata import HostInfo
from kstreams_repl.host.instance.state.state_directory import application_directory
from kstreams_repl.host.spark.planning.plan_serialization import Shipment
from kstreams_repl.system.errors import QueryServerError
from kstreams_repl.system.files import locked
from kstreams_repl.system.processes import ProcessMark, ProcessRecord, let_go, open_log, start_apart

PROCESS = "kstreams_repl.repl.session.query_server"
_START_SECONDS = 30.0
_END_SECONDS = 5.0
_CHECK_SECONDS, _LONGEST_CHECK_SECONDS = 0.5, 30.0
"""How often a kept server is checked; after a failed start more seldom."""
_LOG = logging.getLogger("kstreams_repl.serving")


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """What a server process needs.

    Attributes:
        shipment: the pickled `ApplicationPlan`, with its topology and tokens.
        place: the executor directory whose stores it serves; ``driver``: the driver's own.
        state_directory: where it is.
        bind: where to listen; port 0: any free one.
        owner: the process with which it ends; None: it does not.
        with_application: end when the application is stopped.
        version: of the application, to notice that another one runs.
        certfile, keyfile: PEM files for TLS; None: no TLS.
        insecure: whether an address that others can reach may be without TLS.
    """

    shipment: Shipment
    application_id: str
    place: str
    state_directory: str
    bind: HostInfo
    owner: ProcessMark | None = None
    with_application: bool = False
    version: str = ""
    certfile: str | None = None
    keyfile: str | None = None
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class ServerRecord(ProcessRecord):
    """A server process, as it has written it down."""

    pid: int
    born: str
    host: str
    port: int
    tls: bool
    version: str

    @property
    def address(self) -> HostInfo:
        return HostInfo(self.host, self.port, self.tls)


def servers_directory(root: Path, application_id: str) -> Path:
    """Return the directory of records and logs of an application's servers on this host."""
    return application_directory(root, application_id) / "servers"


def record_path(request: ServeRequest) -> Path:
    """Return the record of the server of a place."""
    return servers_directory(Path(request.state_directory), request.application_id) / f"{request.place}.json"


def read_record(path: Path) -> ServerRecord | None:
    """Return the record of a server that runs; None if there is none."""
    content = read_whole(path)
    try:
        record = None if content is None else ServerRecord(**content)
    except TypeError:
        return None
    return record if record is not None and record.is_alive else None


def write_record(request: ServeRequest, address: HostInfo) -> None:
    """Write where this process listens."""
    own = ProcessMark.own()
    write_whole(record_path(request), asdict(ServerRecord(own.pid, own.born, address.host, address.port, address.tls, request.version)))


def start_server(request: ServeRequest) -> ServerRecord:
    """Return the running server of this version; start it if there is none.

    Raises:
        QueryServerError: it ended before it listened; the message has its last line.
    """
    path = record_path(request)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # 1. Look.
    with locked(path.with_suffix(".lock"), seconds=_START_SECONDS):
        running = read_record(path)
        if running is not None and running.version == request.version:
            return running
        # 2. End the other.
        if running is not None:
            end_server(running)
            request = replace(request, bind=replace(request.bind, port=request.bind.port or running.port))
        # 3. Start.
        log_path = path.with_suffix(".log")
        with suppress(FileNotFoundError):
            path.unlink()
        log = open_log(log_path)
        try:
            process = start_apart(PROCESS, [], log, stdin=pickle.dumps(request))
        finally:
            os.close(log)
        let_go(process)
        # 4. Wait.
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            found = read_record(path)
            if found is not None and found.pid == process.pid:
                return found
            if process.poll() is not None:
                break
            time.sleep(0.02)
        else:
            process.terminate()
        lines = log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise QueryServerError(
            f"the query server did not start: {lines[-1] if lines else f'exit status {process.poll()}'}",
            hint=f"its output is in {log_path}",
            path=str(log_path),
            host=request.bind.host,
            port=request.bind.port,
        )


def end_server(record: ServerRecord) -> None:
    """End a server: it answers what it is answering, then closes."""
    record.process.ask_to_end()
    if not record.process.wait(_END_SECONDS) and record.is_alive:
        with suppress(ProcessLookupError):
            os.kill(record.pid, 9)


@contextmanager
def server_kept(request: ServeRequest) -> Iterator[None]:
    """Keep the server of a place running during this block: a thread starts it, and again when it ends. The block does not wait for it."""
    over = threading.Event()

    def keep() -> None:
        pause = _CHECK_SECONDS
        while True:
            try:
                start_server(request)
                pause = _CHECK_SECONDS
            except Exception as error:  # the application runs without its server
                _LOG.warning("no query server: %s", error, extra={"application": request.application_id})
                pause = min(2 * pause, _LONGEST_CHECK_SECONDS)
            if over.wait(pause):
                return

    threading.Thread(target=keep, name="query-server-keeper", daemon=True).start()
    try:
        yield
    finally:
        over.set()
