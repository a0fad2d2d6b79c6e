"""`EmbeddedBroker`: a single-node KRaft broker as a child process that does not outlive its owner unless it is detached.

Actors: the *owner* (the process that holds this object), the *supervisor* (`supervisor.py`, a script that waits for the owner's end)
and the *JVM*. Invariants: the JVM holds the directory's lock exactly as long as it lives; all listeners are on 127.0.0.1; the directory
is readable by its user only; data survive a kill -9 of any of the three processes, and the broker can be started again.

The numbered steps of a start (each step is undone when a later one fails):
1. find the class path (fetched on first use, verified) and a Java; 2. create and lock the directory; 3. choose free ports; 4. write the
configuration, format on first use; 5. start supervisor and JVM; 6. wait until the broker lists itself in a metadata response.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from kstreams_repl.host.kafka.embedded import supervisor
from kstreams_repl.host.kafka.embedded.jars import LockedJar, Progress, ensure_jars
from kstreams_repl.host.kafka.embedded.layout import MINIMUM_FREE_BYTES, BrokerDirectory, BrokerRecord
from kstreams_repl.system.class_archives import archive_path, making_archives, sharing_flags
from kstreams_repl.system.disk_errors import free_bytes, is_full, room
from kstreams_repl.system.errors import EmbeddedBrokerError
from kstreams_repl.system.forks import forked_error, when_forked
from kstreams_repl.system.java import JavaRuntime, find_java
from kstreams_repl.system.types import JsonObject

START_SECONDS = 60.0
STOP_SECONDS = supervisor.GRACE_SECONDS + 5
ARCHIVE_SECONDS = 120.0
"""Time limit in seconds for the exit of a JVM that writes its class archive."""
PORT_TRIES = 3
_PORTS = range(20_000, 32_768)  # Linux chooses from 32768 on, macOS and Windows from 49152 on
_FULL_BYTES = 1 << 20
"""With less free disk space than this, a full disk is reported as the reason even if the log, on the same disk, does not show it."""

# Measured on two cores with ten million records: with the C1 compiler only, the broker uses half the CPU time (3.6 s instead of 6.9 s)
# and starts 0.3 s faster, because C2 compilation costs more than it saves; SerialGC is as fast as G1 at 512 MB and smaller.
JVM_FLAGS = (
    "-Xms128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
)


class EmbeddedBroker:
    """A real Kafka broker (4.3, if `jars` are not another version's) on loopback that starts in two to three seconds.

    Without ``directory`` the data are in a temporary directory, which is removed when the broker is stopped or its owner dies. With
    ``directory`` they are kept, and the next start (on the same port if that is free) finds them, also after a kill -9. The broker ends
    with the process that started it, however that ends; a *detached* one (``start(detach=True)``, needs a directory) runs until it is
    stopped.

    Args:
        directory: where to keep the data; None for a temporary directory.
        port: the client port; None takes the directory's previous port if it is free, otherwise any free one.
        heap: the JVM's maximum heap in the format of ``-Xmx``. 512 MB are enough for a million records per second.
        properties: broker properties that override the defaults. ``listeners`` and ``advertised.listeners`` are added to the broker's own
            on loopback, for example one with SASL; directories cannot be changed.
        mirror: the Maven repository from which to fetch the broker's jars.
        jars: the class path of another Kafka version, fetched and verified as the broker's own.
        progress: called while jars are fetched; by default a progress bar in the terminal.

    Example:
        >>> with EmbeddedBroker() as broker:                        # doctest: +SKIP
        ...     print(broker.bootstrap_servers)
        127.0.0.1:40217
    """

    def __init__(
        self,
        directory: Path | str | None = None,
        *,
        port: int | None = None,
        heap: str = "512m",
        properties: Mapping[str, str] | None = None,
        mirror: str | None = None,
        jars: Iterable[LockedJar] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._wanted_directory = Path(directory) if directory is not None else None
        self._wanted_port = port
        self._heap = heap
        self._properties = dict(properties or {})
        self._mirror = mirror
        self._jars = None if jars is None else tuple(jars)
        self._progress = progress
        self._directory: BrokerDirectory | None = None
        self._record: BrokerRecord | None = None
        self._supervisor: SupervisedJvm | None = None
        self._log_start = 0
        self._inherited = False
        when_forked(self, EmbeddedBroker._leave)

    def _leave(self) -> None:
        self._inherited = True

    @classmethod
    def attach(cls, directory: Path | str) -> EmbeddedBroker:
        """Return the running broker of a directory, started by another process or detached; `stop` and `kill` act on it.

        Raises:
            EmbeddedBrokerError: no broker is running there.
        """
        broker = cls(directory)
        where = BrokerDirectory(Path(directory))
        record = where.read_record()
        if record is None or not where.is_locked():
            raise EmbeddedBrokerError(
                f"no broker is running in {where.path}",
                hint="start one with EmbeddedBroker(directory).start(detach=True) or ./kstreams broker start",
                path=str(where.path),
            )
        broker._directory, broker._record = where, record
        return broker

    def __repr__(self) -> str:
        if self._record is None:
            return "EmbeddedBroker(not started)"
        state = "running" if self.is_alive else "stopped"
        return f"EmbeddedBroker({self.bootstrap_servers}, {state}, {str(self.directory)!r})"

    @property
    def directory(self) -> Path:
        """The broker's directory; a temporary one is removed by `stop`."""
        return self._located().path

    @property
    def log_path(self) -> Path:
        """The broker's own log."""
        return self._located().log_path

    @property
    def bootstrap_servers(self) -> str:
        """``127.0.0.1:<port>``, for a client's ``bootstrap.servers``; unchanged after `kill` and `start`."""
        return f"127.0.0.1:{self._started().port}"

    @property
    def port(self) -> int:
        return self._started().port

    @property
    def pid(self) -> int:
        """The process id of the broker's JVM."""
        return self._started().jvm_pid

    @property
    def is_alive(self) -> bool:
        """Whether the broker's process is alive, according to the directory's lock; also correct for an attached broker."""
        return self._directory is not None and self._record is not None and self._directory.is_locked()

    def start(self, *, detach: bool = False) -> EmbeddedBroker:
        """Start the broker and return when it serves requests. Do nothing if it is running.

        Raises:
            JavaNotFoundError: there is no Java 17 or newer.
            EmbeddedBrokerError: the directory is in use, full or not writable; the port is busy; a jar is missing and cannot be
                fetched; or the broker failed to start (the message contains the last error of its log).
        """
        if self.is_alive:
            return self
        if self._inherited:
            raise forked_error("this broker", self._started().owner_pid if self._record else os.getppid())
        if detach and self._wanted_directory is None:
            raise EmbeddedBrokerError("a detached broker needs a directory", hint="EmbeddedBroker(directory).start(detach=True)")
        # 1. Java and class path.
        java = find_java()
        class_path = ensure_jars(jars=self._jars, mirror=self._mirror, progress=self._progress)
        # 2. Directory.
        directory = self._prepare_directory()
        try:
            for attempt in range(PORT_TRIES):
                # 3. Ports. Another process may take one before the JVM binds it, so automatically chosen ports are retried.
                record = self._choose_ports(directory, fresh=attempt > 0)
                if self._try_start(directory, record, java, class_path, detach=detach, last=attempt == PORT_TRIES - 1):
                    return self
        except BaseException:
            if self._wanted_directory is None and self._record is None:
                shutil.rmtree(directory.path, ignore_errors=True)
                self._directory = None
            raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def stop(self) -> None:
        """Stop the broker (SIGTERM, after ten seconds SIGKILL) and remove a temporary directory.

        Do nothing if it is stopped, or in a process that was forked from the one that started it.
        """
        if self._inherited:
            return
        if self._supervisor is not None:
            self._supervisor.finish()
            self._supervisor = None
        # Of another owner, or its supervisor was killed where the kernel does not end the JVM then.
        if self.is_alive and self._located().read_record() == self._record:
            self._signal_attached()
        if self._wanted_directory is None and self._directory is not None:
            self._directory = self._record = None

    def kill(self) -> None:
        """End the broker with ``kill -9`` and keep its directory: `start` restarts it on the same port. For fault tests."""
        if self._inherited or not self.is_alive:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._await_unlocked(STOP_SECONDS)

    def why_ended(self) -> EmbeddedBrokerError:
        """Return the error for a broker that ran and has ended: a full disk if that is the reason, otherwise the log's last error."""
        directory = self._located()
        reason = directory.last_error(since=self._log_start)
        if _disk_is_full(directory, reason):
            full = "was full" if free_bytes(directory.path) >= MINIMUM_FREE_BYTES else "is full"
            return EmbeddedBrokerError(
                f"the embedded broker ended because the disk of {directory.path} {full}: {room(directory.path, MINIMUM_FREE_BYTES)}",
                hint="free some disk space and start it again; committed data are kept",
                path=str(directory.path),
                free_bytes=free_bytes(directory.path),
                needed_bytes=MINIMUM_FREE_BYTES,
            )
        return EmbeddedBrokerError(
            f"the embedded broker ended: {reason or 'no error in its log'} (log: {directory.log_path})",
            hint="start it again; committed data are kept",
            path=str(directory.log_path),
        )

    def __enter__(self) -> EmbeddedBroker:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # -- start, step by step

    def _prepare_directory(self) -> BrokerDirectory:
        if self._directory is None:
            path = self._wanted_directory or Path(tempfile.mkdtemp(prefix="kstreams-broker-"))
            self._directory = BrokerDirectory(path)
        self._directory.create()
        if self._supervisor is not None:  # of a broker that was killed; its directory is used again
            self._supervisor.finish(keep=True)
            self._supervisor = None
        return self._directory

    def _choose_ports(self, directory: BrokerDirectory, *, fresh: bool) -> BrokerRecord:
        last = None if fresh else directory.read_record()
        if self._wanted_port is not None:
            if not is_free_port(self._wanted_port):
                raise _busy_port(self._wanted_port, directory)
            port = self._wanted_port
        elif last is not None and is_free_port(last.port):
            port = last.port
        else:
            port = free_port()
        controller = last.controller_port if last is not None and is_free_port(last.controller_port) else free_port(port)
        return BrokerRecord(port, controller, owner_pid=os.getpid())

    def _try_start(
        self, directory: BrokerDirectory, record: BrokerRecord, java: JavaRuntime, class_path: tuple[Path, ...], *, detach: bool, last: bool
    ) -> bool:
        """Run steps 2b to 6. Return False if another process took a port meanwhile and other ports should be tried."""
        lock = directory.acquire()
        try:
            # 4. Data directory and configuration.
            directory.write_configuration(record.port, record.controller_port, self._properties)
            directory.format(None if self._jars is None else java.executable, class_path)
            log_start = self._log_start = directory.log_size()
            # 5. Supervisor and JVM; they hold the lock from now on.
            command = [
                str(java.executable), f"-Xmx{self._heap}", *JVM_FLAGS, *sharing_flags(archive_path("kafka", java, class_path)),
                f"-Dkstreams.broker.log={directory.log_path}", f"-Dlog4j2.configurationFile={directory.logging_path}",
                "-cp", os.pathsep.join(map(str, class_path)), "kafka.Kafka", str(directory.properties_path),
            ]  # fmt: skip
            remove = self._wanted_directory is None
            guard = SupervisedJvm(directory, replace(record, detached=detach), command, lock, remove=remove, detach=detach)
        except OSError as error:
            raise directory.unusable(error, f"the broker could not be prepared in {directory.path}") from error
        finally:
            os.close(lock)
        try:
            started = directory.read_record()
            # 6. Wait until it serves requests.
            _await_ready(directory, started.port if started else record.port)
        except _NotReady as failure:
            guard.finish(keep=True)
            reason = directory.last_error(since=log_start)
            if reason is not None and "Address already in use" in reason:
                if self._wanted_port is None and not last:
                    return False
                raise _busy_port(record.port, directory) from None
            raise _broken_start(directory, failure, reason) from None
        except BaseException:
            guard.finish(keep=True)
            raise
        self._record = directory.read_record()
        self._supervisor = None if detach else guard
        return True

    # -- the rest

    def _signal_attached(self) -> None:
        """Stop a broker of another owner. Its recorded pid is valid as long as the lock is held."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        if not self._await_unlocked(supervisor.GRACE_SECONDS):
            self.kill()

    def _await_unlocked(self, seconds: float) -> bool:
        directory, deadline = self._located(), time.monotonic() + seconds
        while directory.is_locked():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _located(self) -> BrokerDirectory:
        if self._directory is None:
            raise EmbeddedBrokerError("the broker has not been started", hint="call start() first")
        return self._directory

    def _started(self) -> BrokerRecord:
        if self._record is None:
            raise EmbeddedBrokerError("the broker has not been started", hint="call start() first")
        return self._record


class _NotReady(Exception):
    """The broker ended, or did not answer in time."""


class SupervisedJvm:
    """The owner's side of `supervisor.py`: the process, and the pipe whose end-of-file stops its JVM (the broker, the registry)."""

    def __init__(
        self, directory: BrokerDirectory, record: BrokerRecord, command: list[str], lock: int, *, remove: bool, detach: bool
    ) -> None:
        pipe_read, pipe_write = os.pipe()
        ready_read, ready_write = os.pipe()
        plan: JsonObject = {
            "command": command,
            "directory": str(directory.path),
            "output": str(directory.jvm_output_path),
            "record_path": str(directory.record_path),
            "record": {name: getattr(record, name) for name in BrokerRecord.__slots__},
            "remove": remove,
            "lock": lock,
            "owner_pipe": None if detach else pipe_read,
            "ready": ready_write,
            "grace": ARCHIVE_SECONDS if making_archives() else supervisor.GRACE_SECONDS,
        }
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, json.dumps(plan)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[lock, ready_write] if detach else [lock, ready_write, pipe_read],
                start_new_session=True,
            )
        except BaseException:
            os.close(pipe_write)
            os.close(ready_read)
            raise
        finally:
            os.close(pipe_read)
            os.close(ready_write)
        self._directory, self._pipe_write, self._inherited = directory, pipe_write, False
        # Runs when the interpreter exits at the latest; without it the pipe's end-of-file stops the broker.
        self._finalizer = weakref.finalize(self, _finish, self.process, pipe_write)
        when_forked(self, SupervisedJvm._leave)
        if detach:
            self._finalizer.detach()
            os.close(pipe_write)
            self.process.wait()  # it exits after forking the process that stays
        os.read(ready_read, 1)  # end-of-file: the record is written, or the supervisor has ended
        os.close(ready_read)

    @classmethod
    def start(cls, directory: BrokerDirectory, command: list[str], *, port: int = 0, remove: bool) -> SupervisedJvm:
        """Start another server than the broker, in a directory that it locks.

        Args:
            remove: remove the directory when the server has ended.
        """
        lock = directory.acquire()
        try:
            return cls(directory, BrokerRecord(port, 0, owner_pid=os.getpid()), command, lock, remove=remove, detach=False)
        finally:
            os.close(lock)

    def _leave(self) -> None:
        """Close the pipe's copy in a forked child, which must neither stop the JVM nor keep it running when the owner has ended."""
        if self._finalizer.detach() is not None:
            os.close(self._pipe_write)
        self._inherited = True

    def finish(self, *, keep: bool = False) -> None:
        """End the JVM and the supervisor, remove the temporary directory unless ``keep``, and return when all have ended."""
        if self._finalizer.alive:
            if keep:
                with contextlib.suppress(BrokenPipeError):
                    os.write(self._pipe_write, b"k")
            self._finalizer()
        elif not self._inherited and self._directory.is_locked():  # detached, but not ready in time
            record = self._directory.read_record()
            if record is not None and record.jvm_pid:
                os.kill(record.jvm_pid, signal.SIGKILL)


def _finish(process: subprocess.Popen[bytes], pipe_write: int) -> None:
    os.close(pipe_write)
    try:
        process.wait(ARCHIVE_SECONDS if making_archives() else STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _await_ready(directory: BrokerDirectory, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _answers(port):
        if not directory.is_locked():
            raise _NotReady("ended during its start")
        if time.monotonic() > deadline:
            raise _NotReady(f"did not answer within {START_SECONDS:.0f} seconds")
        time.sleep(0.02)


def _answers(port: int) -> bool:
    """Return whether the broker is registered and serves: the answer to a Metadata request (version 1, no topics) names a broker."""
    request = b"\x00\x03\x00\x01\x00\x00\x00\x07\xff\xff\x00\x00\x00\x00"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.settimeout(5.0)
            connection.sendall(len(request).to_bytes(4, "big") + request)
            answer = b""
            while len(answer) < 12:
                part = connection.recv(4096)
                if not part:
                    return False
                answer += part
            return int.from_bytes(answer[8:12], "big") > 0
    except OSError:
        return False


def is_free_port(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
        return True


def free_port(*taken: int) -> int:
    """Return a free port, other than ``taken``, below the ranges from which systems choose ports for outgoing connections and for port 0.

    A port of those ranges can be another process's when a server binds it, or when it restarts at the address that its clients have.
    """
    for port in random.SystemRandom().sample(_PORTS, k=200):  # not seeded by a test or notebook: two processes would choose the same
        if port not in taken and is_free_port(port):
            return port
    raise EmbeddedBrokerError(
        f"no free port on 127.0.0.1 in {_PORTS.start} to {_PORTS.stop - 1}", hint="allow this process to listen on the loopback interface"
    )


def _busy_port(port: int, directory: BrokerDirectory) -> EmbeddedBrokerError:
    return EmbeddedBrokerError(
        f"port {port} on 127.0.0.1 is in use by another process",
        hint="omit port= to use a free one, or pass another port",
        port=port,
        path=str(directory.log_path),
    )


def _broken_start(directory: BrokerDirectory, failure: _NotReady, reason: str | None) -> EmbeddedBrokerError:
    if _disk_is_full(directory, reason):
        return directory.no_room()
    detail = reason or "no error in its log"
    return EmbeddedBrokerError(
        f"the embedded broker {failure}: {detail} (log: {directory.log_path})",
        hint=f"read {directory.log_path} and {directory.jvm_output_path}",
        path=str(directory.log_path),
    )


def _disk_is_full(directory: BrokerDirectory, reason: str | None) -> bool:
    """Return whether the log reports a full disk, or there is no space left to write a log."""
    return is_full(reason) or free_bytes(directory.path) < _FULL_BYTES
